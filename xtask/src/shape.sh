# Whether the scheduler takes over a machine of this shape, serves an application on it, and gives it back.
state() {
    for attempt in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        now=$(cat /sys/kernel/sched_ext/state)
        [ "$now" = "$1" ] && return 0
        sleep 0.5
    done
    echo "the scheduler is $now, and should be $1"
    return 1
}
scx_morpheus check || exit 1
scx_morpheus &
daemon=$!
state enabled || exit 1
starvation --runtime morpheus --link scheduler --hogs 4 --hog-via spawn --duration 1 || exit 1
state enabled || exit 1
kill -INT $daemon
wait $daemon || exit 1
state disabled
