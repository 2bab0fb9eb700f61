# The benchmark `governor` with and without the scheduler: whether it starts and stops it, whether the kernels end at the
# highest frequency with it and not without, and whether all is put back.
governor=/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor
before=$(cat $governor)
governor run --governors schedutil,schedutil+morpheus --policy other --cpu 0 --load 0 --kernels notch_iir --duration 4 \
    --warmup 1 --repeats 1 --output /tmp/study --json >/tmp/study.json || exit 1
grep -o '"contender":"[^"]*","figure":"[a-z ]*at highest","unit":"share","n":1,"median":[0-9.]*' /tmp/study.json
set -- $(grep -o '"done at highest","unit":"share","n":1,"median":[0-9.]*' /tmp/study.json | cut -d: -f4)
# Of eight windows, one may be spoilt by the emulator.
case "$1" in 0.0* | 0.1*) ;; *) exit 1 ;; esac
case "$2" in 1.0 | 0.875) ;; *) exit 1 ;; esac
[ "$(cat $governor)" = "$before" ] || exit 1
[ "$(cat /sys/kernel/sched_ext/state)" = disabled ]
