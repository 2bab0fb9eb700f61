//! Run delay: the time that a thread was ready to run, and had no CPU.

use std::fs;

/// The run delay of a thread of this process since it began, in nanoseconds, up to when it last got a CPU. `None` where the thread is gone,
/// `/proc` is not mounted, or the kernel does not count (`CONFIG_SCHED_INFO`).
pub fn of(tid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/self/task/{tid}/schedstat")).ok()?;
    stat.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::affinity::Cpus;
    use crate::clock;
    use crate::threads::own_tid;

    #[test]
    fn threads_that_share_a_cpu_are_delayed() {
        let all = Cpus::of(0).unwrap();
        let one: Cpus = all.numbers().into_iter().take(1).collect();
        let computes = move || {
            assert!(one.apply_to(0));
            while clock::own_cpu_ns() < 100_000_000 {
                std::hint::spin_loop();
            }
            of(own_tid()).unwrap()
        };
        let threads = [(); 2].map(|()| std::thread::spawn(computes));
        let delays = threads.map(|thread| thread.join().unwrap());
        assert!(delays.iter().max() > Some(&20_000_000), "{delays:?}");
        assert_eq!(of(i32::MAX as u32), None);
    }
}
