//! What it costs that a CPU goes from one thread to another.
//!
//! Two threads on one CPU yield to each other. The time is divided by the context switches that the kernel counted for both,
//! not by those that the yields ought to have caused: where a yield finds nobody it switches to nobody, and where others
//! come between there are more.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{self, Thread};

use serde::Serialize;

use super::conditions::Conditions;
use super::cpu;
use super::experiment::{self, Readings, Steps, Warmup};
use super::statistics::Figure;
use crate::clock;

const TOGETHER: usize = 0;
const ALONE: usize = 1;

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Preemption {
    /// Yields of one thread in each of the two measurements of an experiment.
    pub yields: u32,
    /// Experiments before.
    pub warmup: Warmup,
    /// Switches that were counted for each yield of one of the two threads: 2 when every yield of both switched.
    pub switches_per_yield: f64,
    /// One switch, the call that causes it included.
    pub switch: Option<Figure>,
    /// `sched_yield` when nobody else wants the CPU.
    pub call: Option<Figure>,
    /// The switch alone: the difference.
    pub net: Option<Figure>,
    /// A/A: two measurements of the switch.
    pub same: Option<Figure>,
}

/// Measures in the calling thread and one other, which inherits where and how this one runs.
///
/// # Errors
/// When the kernel does not count switches, or there were none.
pub fn measure(
    conditions: &mut Conditions,
    experiments: usize,
    yields: u32,
    steps: &mut Steps,
) -> Result<Preemption, String> {
    let state = State::default();
    thread::scope(|scope| {
        let partner = thread::Builder::new()
            .spawn_scoped(scope, || state.partner())
            .map_err(|error| format!("no second thread: {error}"))?;
        let _end = End(&state, partner.thread());
        conditions.lock_memory();
        let thread = state.wait_for_id();
        let (mut switched, mut yielded) = (0, 0);
        steps.say("two threads yield to each other".into());
        let names = ["switch", "yield"].map(str::to_owned);
        let readings: Readings<2> = experiment::run(experiments, steps, names, |turn| {
            if turn.kind == ALONE {
                return Ok(time_yields(yields) / f64::from(yields));
            }
            state.bring_in(partner.thread());
            let before = cpu::switches(thread)? + cpu::switches(cpu::thread_id())?;
            let time_ns = time_yields(yields);
            let after = cpu::switches(cpu::thread_id())? + cpu::switches(thread)?;
            state.send_away();
            let switches = after - before;
            if switches == 0 {
                return Err(format!(
                    "{yields} yields of two threads on one CPU, and no context switch was counted: nothing to divide by"
                ));
            }
            if turn.counts {
                switched += switches;
                yielded += u64::from(yields);
            }
            Ok(time_ns / switches as f64)
        })?;
        Ok(Preemption {
            yields,
            warmup: readings.warmup,
            switches_per_yield: switched as f64 / yielded.max(1) as f64,
            switch: readings.of(TOGETHER),
            call: readings.of(ALONE),
            net: readings.difference(TOGETHER, ALONE),
            same: readings.same(TOGETHER),
        })
    })
}

fn yield_now() {
    // SAFETY: sched_yield takes nothing.
    unsafe { libc::sched_yield() };
}

fn time_yields(yields: u32) -> f64 {
    let begun_ns = clock::monotonic_ns();
    (0..yields).for_each(|_| yield_now());
    (clock::monotonic_ns() - begun_ns) as f64
}

/// What the two threads tell each other. Both are on one CPU, so it is not the caches that pass it on, but the orderings
/// are those of two threads anywhere.
#[derive(Default)]
struct State {
    /// The partner is to yield.
    wanted: AtomicBool,
    /// The partner yields.
    inside: AtomicBool,
    /// The partner is to end.
    ended: AtomicBool,
    /// The kernel's number of the partner, or 0 before it has begun.
    id: AtomicU32,
}

impl State {
    fn partner(&self) {
        // Release, read by `wait_for_id`: nothing else goes with it.
        self.id.store(cpu::thread_id() as u32, Ordering::Release);
        // Acquire: pairs with the stores of `bring_in`, `send_away` and `End`.
        while !self.ended.load(Ordering::Acquire) {
            if self.wanted.load(Ordering::Acquire) {
                // Release: pairs with the loads of `bring_in` and `send_away`.
                self.inside.store(true, Ordering::Release);
                while self.wanted.load(Ordering::Acquire) {
                    yield_now();
                }
                self.inside.store(false, Ordering::Release);
            } else {
                thread::park();
            }
        }
    }

    fn wait_for_id(&self) -> libc::pid_t {
        loop {
            // Acquire: pairs with the store of `partner`.
            let id = self.id.load(Ordering::Acquire);
            if id != 0 {
                return id as libc::pid_t;
            }
            yield_now();
        }
    }

    fn bring_in(&self, partner: &Thread) {
        // Release: pairs with the loads of `partner`, as do all stores here; the loads with its stores.
        self.wanted.store(true, Ordering::Release);
        partner.unpark();
        while !self.inside.load(Ordering::Acquire) {
            yield_now();
        }
    }

    fn send_away(&self) {
        self.wanted.store(false, Ordering::Release);
        while self.inside.load(Ordering::Acquire) {
            yield_now();
        }
    }
}

/// Lets the partner end, also after an error.
struct End<'a>(&'a State, &'a Thread);

impl Drop for End<'_> {
    fn drop(&mut self) {
        // Release: pairs with the loads of `partner`; the end first, or it could begin to wait again.
        self.0.ended.store(true, Ordering::Release);
        self.0.wanted.store(false, Ordering::Release);
        self.1.unpark();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpus;

    #[test]
    fn every_switch_is_counted() {
        let cpus = cpus::allowed();
        let (_, measured) = Conditions::measure(&cpus[..1], |conditions| {
            measure(conditions, 6, 50, &mut Steps::new(6, true))
        })
        .unwrap();
        assert!(measured.switches_per_yield > 0.0, "{measured:?}");
        let (switch, call) = (measured.switch.unwrap(), measured.call.unwrap());
        assert_eq!((switch.n, call.n), (6, 6));
        assert!(switch.min_ns > 0.0 && call.min_ns > 0.0);
    }
}
