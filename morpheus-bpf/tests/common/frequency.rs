// SPDX-License-Identifier: GPL-2.0-only
//! Which frequencies a governor asks for, and when a thread gets a CPU: from the kernel's own tracing.

use std::fs;
use std::path::{Path, PathBuf};

use super::tracing::{self, Line};

const CPUS: &str = "/sys/devices/system/cpu";

/// The path of a file of cpufreq for a CPU.
fn of_cpu(cpu: usize, file: &str) -> PathBuf {
    Path::new(CPUS).join(format!("cpu{cpu}/cpufreq/{file}"))
}

fn read(path: &Path) -> String {
    fs::read_to_string(path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
        .trim()
        .to_owned()
}

fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap_or_else(|error| panic!("{text} to {}: {error}", path.display()));
}

/// The highest frequency of a CPU, in kHz.
pub fn highest_khz(cpu: usize) -> u64 {
    read(&of_cpu(cpu, "cpuinfo_max_freq")).parse().unwrap()
}

/// The lowest.
pub fn lowest_khz(cpu: usize) -> u64 {
    read(&of_cpu(cpu, "cpuinfo_min_freq")).parse().unwrap()
}

/// The frequency that was last asked for. The guest's CPUs do not measure their real one.
pub fn present_khz(cpu: usize) -> u64 {
    read(&of_cpu(cpu, "scaling_cur_freq")).parse().unwrap()
}

/// A tick of the kernel's scheduler, in ns.
pub fn tick_ns() -> u64 {
    let release = read(Path::new("/proc/sys/kernel/osrelease"));
    let config = read(Path::new(&format!("/boot/config-{release}")));
    let hz: u64 = config
        .lines()
        .find_map(|line| line.strip_prefix("CONFIG_HZ="))
        .expect("the configuration names HZ")
        .parse()
        .unwrap();
    1_000_000_000 / hz
}

/// A governor for the first CPUs of the machine, until it is dropped.
pub struct Governor(Vec<(PathBuf, String)>);

impl Governor {
    pub fn set(name: &str, cpus: usize) -> Governor {
        let files = (0..cpus).map(|cpu| of_cpu(cpu, "scaling_governor"));
        let before = files
            .map(|file| {
                let before = read(&file);
                write(&file, name);
                (file, before)
            })
            .collect();
        Governor(before)
    }
}

impl Drop for Governor {
    fn drop(&mut self) {
        for (file, before) in &self.0 {
            let _ = fs::write(file, before);
        }
    }
}

/// Something that happened, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A thread got the CPU, or gave it away.
    In,
    Out,
    /// This frequency was asked for, in kHz.
    Asked(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    pub at_ns: u64,
    pub cpu: usize,
    pub what: What,
}

/// Traces until it is read.
pub struct Trace {
    tid: u32,
}

impl Trace {
    /// Of all frequencies, and of this thread.
    pub fn start(tid: u32) -> Trace {
        tracing::prepare(4096);
        tracing::write(
            "events/sched/sched_switch/filter",
            &format!("next_pid == {tid} || prev_pid == {tid}"),
        );
        tracing::write("events/sched/sched_switch/enable", "1");
        tracing::write("events/power/cpu_frequency/enable", "1");
        tracing::write("tracing_on", "1");
        Trace { tid }
    }

    /// The traced events, by time.
    pub fn events(self) -> Vec<Event> {
        let mut events: Vec<Event> = tracing::end()
            .lines()
            .filter_map(|line| parse(line, self.tid))
            .collect();
        events.sort_by_key(|event| event.at_ns);
        events
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        for file in [
            "events/sched/sched_switch/enable",
            "events/power/cpu_frequency/enable",
        ] {
            let _ = fs::write(tracing::file(file), "0");
        }
    }
}

/// `name-12 [001] d..2. 12.345678: cpu_frequency: state=3000000 cpu_id=1`
fn parse(line: &str, tid: u32) -> Option<Event> {
    if let Some(asked) = Line::read(line, "cpu_frequency") {
        return Some(Event {
            at_ns: asked.at_ns,
            cpu: asked.number("cpu_id")?,
            what: What::Asked(asked.number("state")?),
        });
    }
    let switch = Line::read(line, "sched_switch")?;
    let is = |field| switch.number(field) == Some(tid);
    let what = match (is("prev_pid"), is("next_pid")) {
        (false, true) => What::In,
        (true, false) => What::Out,
        _ => return None,
    };
    Some(Event {
        at_ns: switch.at_ns,
        cpu: switch.cpu,
        what,
    })
}

/// A thread that slept for long enough got a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// The frequency that was asked for on that CPU before.
    pub before_khz: u64,
    /// How much later the highest frequency was asked for, in ns; 0 if it was so at that moment. `None` if it was not until
    /// the next start.
    pub until_highest_ns: Option<u64>,
}

/// The starts of the traced thread after a sleep of at least this length. `initial_khz` is what was asked for on each
/// CPU when the trace began.
///
/// A switch is traced some microseconds after the scheduler was told of it, so what was asked for in the last 100 µs
/// before it is taken for an answer to it.
pub fn starts(
    events: &[Event],
    initial_khz: &[u64],
    slept_ns: u64,
    highest_khz: u64,
) -> Vec<Start> {
    const EARLIER_NS: u64 = 100_000;
    let mut asked = initial_khz.to_vec();
    let (mut starts, mut last_out): (Vec<(u64, usize, Start)>, u64) = (Vec::new(), 0);
    // The last value of each CPU, and when it was asked for.
    let mut changes: Vec<(u64, u64)> = asked.iter().map(|khz| (0, *khz)).collect();
    for event in events {
        match event.what {
            What::Asked(khz) => {
                if let Some((at, cpu, start)) = starts.last_mut()
                    && *cpu == event.cpu
                    && khz == highest_khz
                    && start.until_highest_ns.is_none()
                {
                    start.until_highest_ns = Some(event.at_ns.saturating_sub(*at));
                }
                changes[event.cpu] = (event.at_ns, asked[event.cpu]);
                asked[event.cpu] = khz;
            }
            What::Out => last_out = event.at_ns,
            What::In => {
                let slept = event.at_ns - last_out;
                // The first one may have begun before.
                if last_out == 0 || slept < slept_ns {
                    continue;
                }
                let (changed_ns, earlier) = changes[event.cpu];
                let now = asked[event.cpu];
                let answered = event.at_ns - changed_ns < EARLIER_NS;
                let start = Start {
                    before_khz: if answered { earlier } else { now },
                    until_highest_ns: (now == highest_khz).then_some(0),
                };
                starts.push((event.at_ns, event.cpu, start));
            }
        }
    }
    starts.into_iter().map(|(_, _, start)| start).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_trace_are_read() {
        let line = "          <idle>-0       [001] d..2.    12.345678: cpu_frequency: state=3000000 cpu_id=1";
        let asked = Event {
            at_ns: 12_345_678_000,
            cpu: 1,
            what: What::Asked(3_000_000),
        };
        assert_eq!(parse(line, 7), Some(asked));
        let line = "          <idle>-0       [000] d..2.     0.000009: sched_switch: prev_comm=swapper/0 prev_pid=0 \
                    prev_prio=120 prev_state=R ==> next_comm=a: b next_pid=7 next_prio=120";
        let switched = |what| {
            Some(Event {
                at_ns: 9_000,
                cpu: 0,
                what,
            })
        };
        assert_eq!(parse(line, 7), switched(What::In));
        assert_eq!(parse(line, 8), None);
        let line = line
            .replace("prev_pid=0", "prev_pid=8")
            .replace("next_pid=7", "next_pid=0");
        assert_eq!(parse(&line, 8), switched(What::Out));
        assert_eq!(parse("# tracer: nop", 7), None);
    }

    #[test]
    fn a_start_counts_from_the_switch() {
        let event = |at_us: u64, cpu, what| Event {
            at_ns: at_us * 1000,
            cpu,
            what,
        };
        let events = [
            event(5, 0, What::In),
            event(10, 0, What::Out),
            // In steps, the first a moment before the switch.
            event(100_000, 1, What::Asked(20)),
            event(100_010, 1, What::In),
            event(100_300, 0, What::Asked(30)),
            event(100_500, 1, What::Asked(30)),
            event(101_000, 1, What::Out),
            // Too short a sleep.
            event(101_010, 0, What::In),
            event(101_020, 0, What::Out),
            // There already.
            event(200_000, 1, What::In),
            event(200_010, 1, What::Out),
            event(290_000, 1, What::Asked(10)),
            // Never.
            event(300_000, 1, What::In),
        ];
        let start = |before_khz, until_us: Option<u64>| Start {
            before_khz,
            until_highest_ns: until_us.map(|us| us * 1000),
        };
        assert_eq!(
            starts(&events, &[10, 10], 50_000_000, 30),
            [start(10, Some(490)), start(30, Some(0)), start(10, None)]
        );
    }
}
