//! Everything at once for long: storms of processes, hogs (also niced ones), pipes, timers, sleepers, messages, and CPUs that go and come.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{ChildStdin, ChildStdout};
use std::time::{Duration, Instant};

use morpheus_harness::thread;

use super::super::child::{Answer, Job};
use super::super::crowd::{Crowd, Member};
use super::super::online::{self, Offline};
use super::super::probes::Probe;
use super::contention::longest_wait;
use super::messaging;
use super::wake::probe;
use crate::neighbours::Neighbours;

/// Hogs of these priorities, one each, beside one of the usual for each CPU.
const NICE: [libc::c_int; 3] = [-5, 10, 19];
/// Between two bytes of a pair, so that a pair is no hog.
const PIPE_PAUSE: Duration = Duration::from_micros(500);
/// How long a CPU stays offline. Threads that may run on it alone, those of the kernel, wait as long under any scheduler.
const OFFLINE: Duration = Duration::from_millis(400);
/// And then online, before it is the next one's turn.
const ONLINE: Duration = Duration::from_secs(3);

/// Until the time is over. It counts how often a CPU went and came; who waited is seen from outside.
pub fn measure(job: &Job) -> Answer {
    let _hogs = Probe::Hog.start(job.cpus)?;
    let niced: Result<Vec<Neighbours>, String> = NICE.into_iter().map(hog).collect();
    let _niced = niced?;
    let _editors = Probe::Editor.start(job.cpus)?;
    let _storm = Probe::Storm.start(1)?;
    let sleepers = Crowd::start(vec![Member::IO; job.cpus])?;
    let (_echoes, mut pairs) = Probe::Echo.start_piped(job.cpus)?;
    let until = Instant::now() + job.duration();
    let mut hotplugs = 0;
    let mut measured = longest_wait(job, &sleepers, |duration_ns| {
        std::thread::scope(|scope| {
            let messages = scope.spawn(|| messaging::measure(job));
            let timers: Vec<_> = (0..job.cpus)
                .map(|_| scope.spawn(|| probe(duration_ns, Duration::ZERO)))
                .collect();
            let pairs: Vec<_> = pairs
                .iter_mut()
                .map(|pair| scope.spawn(move || to_and_fro(pair, until)))
                .collect();
            hotplugs = hotplug(until)?;
            if thread::joined(messages)??.count == 0 {
                return Err("not one message arrived".to_owned());
            }
            for pair in pairs {
                thread::joined(pair)??;
            }
            for timer in timers {
                if thread::joined(timer)?.is_empty() {
                    return Err("a timer never fired".into());
                }
            }
            Ok(())
        })
    })?;
    measured.count = hotplugs;
    Ok(measured)
}

/// A hog of this priority.
fn hog(nice: libc::c_int) -> Result<Neighbours, String> {
    let hog = Probe::Hog.start(1)?;
    for pid in hog.pids() {
        // Without root nothing below 0 is allowed: then it is one more of the usual. The process has not been waited
        // for, so the number is its own.
        if !thread::set_nice(pid, nice) && nice > 0 {
            return Err(format!("a process cannot be given nice {nice}"));
        }
    }
    Ok(hog)
}

/// Takes one CPU after the other offline for a moment, but never the first; says how often.
fn hotplug(until: Instant) -> Result<u64, String> {
    let directory = Path::new(online::DIRECTORY);
    let all = online::online(directory)?;
    let others = all.get(1..).unwrap_or_default();
    let mut times = 0;
    for cpu in others.iter().cycle() {
        if Instant::now() + ONLINE + OFFLINE > until {
            break;
        }
        std::thread::sleep(ONLINE);
        let offline = Offline::these(vec![*cpu], directory)?;
        std::thread::sleep(OFFLINE);
        drop(offline);
        times += 1;
    }
    std::thread::sleep(until.saturating_duration_since(Instant::now()));
    Ok(times)
}

/// A byte through the one pipe and back through the other, again and again.
fn to_and_fro((to, from): &mut (ChildStdin, ChildStdout), until: Instant) -> Result<(), String> {
    let mut byte = [7];
    while Instant::now() < until {
        to.write_all(&byte)
            .and_then(|()| from.read_exact(&mut byte))
            .map_err(|error| format!("nobody at the other end of a pipe: {error}"))?;
        std::thread::sleep(PIPE_PAUSE);
    }
    Ok(())
}
