#!/bin/busybox sh
# The first process of the guest: prepares the system, runs /command, says how it ended, and switches the machine off.
# `/settings` (written by xtask) has `mark`, which begins every line that is meant for xtask, `preemption`, the mode that
# was asked for, `cpufreq`, whether the CPUs must have frequencies, and `line`, the serial line for the command.
. /settings
export HOME=/root TERM=dumb PATH=/add:/usr/local/bin:/bin
/bin/busybox --install -s /bin 2>/dev/null

mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /tmp
mount -t bpf bpf /sys/fs/bpf
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t debugfs debugfs /sys/kernel/debug
mount -t tracefs tracefs /sys/kernel/tracing
ifconfig lo up

# The second serial line takes the command's output as it is; the first one is the kernel's. It stays open to the end, so
# that its settings hold.
exec 3>"$line"
stty -F "$line" raw -echo 115200

tell() {
    printf '\n%s %s %s\n' "$mark" "$1" "$2" >&3
}

off() {
    # Changing a setting waits until all has been sent.
    stty -F "$line" raw
    poweroff -f
}

# From here on the kernel also prints what is no warning: that a scheduler was enabled or disabled, for example.
echo 7 >/proc/sys/kernel/printk

active=$(cat /sys/kernel/debug/sched/preempt 2>/dev/null)
case "$active" in
*"(${preemption:-})"*) ;;
*)
    if [ -n "$preemption" ]; then
        tell refused "preemption mode $preemption: the kernel has ${active:-no choice}"
        off
    fi
    ;;
esac

if [ -n "$cpufreq" ]; then
    # A module, or built in.
    [ -f /modules/acpi-cpufreq.ko.xz ] && unxz /modules/acpi-cpufreq.ko.xz
    [ -f /modules/acpi-cpufreq.ko ] && insmod /modules/acpi-cpufreq.ko
    if ! [ -d /sys/devices/system/cpu/cpu0/cpufreq ]; then
        tell refused "no frequencies: the kernel needs acpi-cpufreq built in, or as acpi-cpufreq.ko beside its image"
        off
    fi
fi

tell ready "$active"
cd /add
export LD_LIBRARY_PATH="$libraries"
sh /command </dev/null >&3 2>&1 3>&-
tell exit $?
off
