//! The threads of this process, and the processes that they have started.

use std::fs;
use std::str::FromStr;

use crate::threads::own_tid;

/// The threads of this process. `None` where `/proc` is not mounted, or for another PID namespace.
pub fn threads() -> Option<Vec<u32>> {
    threads_of("self").filter(|threads| threads.contains(&own_tid()))
}

/// The threads of a process, by its number or `self`. `None` where it is gone.
fn threads_of(process: &str) -> Option<Vec<u32>> {
    let entries = fs::read_dir(format!("/proc/{process}/task")).ok()?;
    let names = entries.flatten().map(|entry| entry.file_name());
    Some(
        names
            .filter_map(|name| name.to_str()?.parse().ok())
            .collect(),
    )
}

/// Whether the kernel tells of a thread's children (`CONFIG_PROC_CHILDREN`), in `/proc`.
#[must_use]
pub fn has_children() -> bool {
    let tid = own_tid();
    fs::exists(format!("/proc/self/task/{tid}/children")).unwrap_or(false)
}

/// The last thread or process that the system has started, in this PID namespace. `None` where `/proc` does not tell.
#[must_use]
pub fn last_pid() -> Option<u32> {
    let load = fs::read_to_string("/proc/loadavg").ok()?;
    load.split_ascii_whitespace().last()?.parse().ok()
}

/// The processes that a thread of this process has started and that have not been waited for. None on a kernel without
/// `CONFIG_PROC_CHILDREN`.
pub fn children(tid: u32) -> Vec<u32> {
    children_of("self", tid)
}

fn children_of(process: &str, tid: u32) -> Vec<u32> {
    let children = fs::read_to_string(format!("/proc/{process}/task/{tid}/children"));
    let numbers = children.unwrap_or_default();
    let numbers = numbers.split_ascii_whitespace().map(u32::from_str);
    numbers.flatten().collect()
}

/// Visits the threads of a process and of all that it has started, up to `most` of them: a thread before what it has started is looked
/// for.
pub fn descendants(pid: u32, most: usize, mut visit: impl FnMut(u32)) {
    let (mut left, mut processes) = (most, vec![pid]);
    while let Some(pid) = processes.pop() {
        let process = pid.to_string();
        for tid in threads_of(&process).unwrap_or_default() {
            if left == 0 {
                return;
            }
            left -= 1;
            visit(tid);
            processes.extend(children_of(&process, tid));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn threads_and_children_are_found() {
        assert!(threads().unwrap().contains(&own_tid()));
        let mut shell = Command::new("sh")
            .args(["-c", "sleep 60 & echo; wait"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // It has started the other one once it has written.
        let mut line = [0];
        std::io::Read::read_exact(shell.stdout.as_mut().unwrap(), &mut line).unwrap();
        assert_eq!(children(own_tid()), [shell.id()]);
        let of_shell = |most| {
            let mut found = Vec::new();
            descendants(shell.id(), most, |tid| found.push(tid));
            found
        };
        let found = of_shell(8);
        assert_eq!((found.len(), found[0]), (2, shell.id()), "{found:?}");
        assert_eq!(of_shell(1), [shell.id()]);
        // SAFETY: kill touches no memory; the process was started by one that has not been waited for.
        unsafe { libc::kill(found[1] as libc::pid_t, libc::SIGKILL) };
        let pid = shell.id();
        shell.wait().unwrap();
        assert_eq!(children(own_tid()), []);
        descendants(pid, 8, |tid| panic!("{tid} has ended"));
    }

    #[test]
    fn a_new_thread_is_the_last_one() {
        assert!(has_children());
        // Others may start meanwhile.
        let is_last = || {
            let tid = std::thread::spawn(own_tid).join().unwrap();
            last_pid() == Some(tid)
        };
        assert!((0..1_000).any(|_| is_last()));
    }
}
