# Whether the kernel's governor "schedutil" moves a CPU's frequency: low while idle, high under load, low again.
cd /sys/devices/system/cpu/cpu0/cpufreq || exit 1
echo schedutil >scaling_governor || exit 1
frequency() {
    # The governor needs a moment, and an emulated machine some more.
    for attempt in 1 2 3 4 5 6 7 8 9 10; do
        sleep 0.5
        now=$(cat scaling_cur_freq)
        [ "$now" = "$1" ] && break
    done
    echo "schedutil $2: $((now / 1000)) MHz"
    [ "$now" = "$1" ]
}
lowest=$(cat cpuinfo_min_freq)
highest=$(cat cpuinfo_max_freq)
[ "$lowest" -lt "$highest" ] || exit 1
frequency "$lowest" idle || exit 1
taskset 1 sh -c 'while :; do :; done' &
frequency "$highest" busy
busy=$?
kill $!
[ $busy = 0 ] && frequency "$lowest" "idle again"
