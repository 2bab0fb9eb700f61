// SPDX-License-Identifier: GPL-2.0-only
//! CPUs that idle while a task waits which may run there: from the kernel's own tracing.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::tracing::{self, Line};

const EVENTS: [&str; 3] = ["sched_switch", "sched_wakeup", "sched_wakeup_new"];

fn switch_events(on: &str) {
    for event in EVENTS {
        tracing::write(&format!("events/sched/{event}/enable"), on);
    }
}

/// Traces all switches and wakes until it is read.
pub struct Trace(());

impl Trace {
    pub fn start() -> Trace {
        // A line of the trace takes about 80 bytes there.
        tracing::prepare(8192);
        tracing::write("events/sched/sched_switch/filter", "0");
        switch_events("1");
        tracing::write("tracing_on", "1");
        Trace(())
    }

    /// The waits of these threads, each of which may run on every CPU.
    pub fn end(self, cpus: usize, threads: &HashSet<u32>) -> Waiting {
        let trace = tracing::end();
        switch_events("0");
        assert!(
            !trace.contains("LOST"),
            "the trace has lost events: its buffers are too small"
        );
        let waiting = Waiting::of(&trace, cpus, threads);
        tracing::write("trace", "");
        waiting
    }
}

/// As long as an emulated CPU may take to wake up: until it has its turn among the others.
const WAKES_UP_WITHIN_NS: u64 = 200_000;

/// CPU time in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// How long CPUs idled while as many of the threads waited.
    pub idle_while_waiting_ns: u64,
    /// How long threads waited beside an idle CPU, each time without the first [`WAKES_UP_WITHIN_NS`]: a CPU that is told of a
    /// thread needs some time to wake up.
    pub beside_idle_ns: u64,
    /// The longest of these times.
    pub longest_beside_idle_ns: u64,
    /// How long CPUs idled.
    pub idle_ns: u64,
    /// How long threads waited.
    pub waiting_ns: u64,
    /// Of all CPUs.
    pub all_ns: u64,
}

impl Waiting {
    /// Reads the text of a trace. A CPU that was given a thread does not idle, though it sleeps still. Until a CPU is first seen to switch it counts as busy.
    pub fn of(trace: &str, cpus: usize, threads: &HashSet<u32>) -> Waiting {
        let mut sum = Waiting::default();
        let mut idle = vec![false; cpus];
        let mut running = BTreeSet::new();
        // Those that wait, and how long each has waited beside an idle CPU.
        let mut waiting: BTreeMap<u32, u64> = BTreeMap::new();
        let mut last_ns = None;
        for line in trace.lines() {
            let Some(event) = Event::read(line) else {
                continue;
            };
            let passed_ns = event.at_ns - last_ns.replace(event.at_ns).unwrap_or(event.at_ns);
            let idling = idle.iter().filter(|idle| **idle).count() as u64;
            let wanting = waiting.len() as u64;
            sum.idle_while_waiting_ns += passed_ns * idling.min(wanting);
            sum.idle_ns += passed_ns * idling;
            sum.waiting_ns += passed_ns * wanting;
            sum.all_ns += passed_ns * cpus as u64;
            if idling > 0 {
                waiting.values_mut().for_each(|beside| *beside += passed_ns);
            }
            match event.what {
                // That CPU is the thread's: it only has to wake up, which takes an emulated one up to a millisecond.
                What::Woken { cpu, .. } if idle.get(cpu) == Some(&true) => idle[cpu] = false,
                What::Woken { thread, .. } => {
                    if threads.contains(&thread) && !running.contains(&thread) {
                        waiting.entry(thread).or_default();
                    }
                }
                What::Switched { from, wants_on, to } => {
                    running.remove(&from);
                    if wants_on && threads.contains(&from) {
                        waiting.insert(from, 0);
                    }
                    let beside_ns = waiting.remove(&to).unwrap_or_default();
                    let beside_ns = beside_ns.saturating_sub(WAKES_UP_WITHIN_NS);
                    sum.beside_idle_ns += beside_ns;
                    sum.longest_beside_idle_ns = sum.longest_beside_idle_ns.max(beside_ns);
                    running.insert(to);
                    if let Some(idle) = idle.get_mut(event.cpu) {
                        *idle = to == 0;
                    }
                }
            }
        }
        sum
    }

    /// Part of all CPU time that this is.
    pub fn share(&self, ns: u64) -> f64 {
        ns as f64 / self.all_ns.max(1) as f64
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Woken { thread: u32, cpu: usize },
    Switched { from: u32, wants_on: bool, to: u32 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Event {
    at_ns: u64,
    cpu: usize,
    what: What,
}

impl Event {
    fn read(line: &str) -> Option<Event> {
        let line = EVENTS.iter().find_map(|event| Line::read(line, event))?;
        let what = match line.fields.split_once(" ==> ") {
            None => What::Woken {
                thread: line.number(" pid")?,
                cpu: line.number("target_cpu")?,
            },
            Some((from, _)) => What::Switched {
                from: line.number("prev_pid")?,
                wants_on: from.rsplit_once("prev_state=")?.1.starts_with('R'),
                to: line.number("next_pid")?,
            },
        };
        Some(Event {
            at_ns: line.at_ns,
            cpu: line.cpu,
            what,
        })
    }
}

mod tests {
    use super::*;

    #[test]
    fn cpus_that_idle_while_a_thread_waits_are_counted() {
        let trace = "\
# tracer: nop
          <idle>-0       [001] d..2.     1.000000: sched_switch: prev_comm=a [1] x prev_pid=7 prev_prio=120 prev_state=S ==> next_comm=swapper/1 next_pid=0 next_prio=120
            work-5       [000] dN.2.     1.000100: sched_wakeup: comm=a [1] x pid=7 prio=120 target_cpu=000
            work-5       [000] d..2.     1.000400: sched_switch: prev_comm=work prev_pid=5 prev_prio=120 prev_state=R+ ==> next_comm=a [1] x next_pid=7 next_prio=120
          <idle>-0       [001] d..2.     1.000500: sched_switch: prev_comm=swapper/1 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=work next_pid=5 next_prio=120
            work-5       [001] d..2.     1.000600: sched_switch: prev_comm=work prev_pid=5 prev_prio=120 prev_state=S ==> next_comm=swapper/1 next_pid=0 next_prio=120
            work-7       [000] d..2.     1.000700: sched_wakeup: comm=work pid=5 prio=120 target_cpu=001
          <idle>-0       [001] d..2.     1.000900: sched_switch: prev_comm=swapper/1 prev_pid=0 prev_state=R ==> next_comm=work next_pid=5 next_prio=120
";
        let both = Waiting::of(trace, 2, &HashSet::from([5, 7]));
        let expected = Waiting {
            idle_while_waiting_ns: 400_000,
            // The first waited for 300 us, and the other one for 100 us.
            beside_idle_ns: 100_000,
            longest_beside_idle_ns: 100_000,
            idle_ns: 600_000,
            waiting_ns: 400_000,
            all_ns: 1_800_000,
        };
        assert_eq!(both, expected);
        // Of others nothing is known: they may be bound to a CPU.
        let one = Waiting::of(trace, 2, &HashSet::from([7]));
        assert_eq!(one.idle_while_waiting_ns, 300_000);
        assert!((one.share(one.idle_while_waiting_ns) - 1.0 / 6.0).abs() < 1e-9);
    }
}
