//! The cost of switching a CPU from one thread to another.
//!
//! Two threads on one CPU yield to each other. The time is divided by the context switches that the kernel counted for both,
//! not by those that the yields ought to have caused: where a yield finds no other thread it does not switch, and where others
//! come between there are more.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Thread};

use morpheus_harness::report;

use super::conditions::{Found, lock_memory};
use super::experiment::{self, Readings, Steps, time_ns};
use super::{costs, cpu};

const CASE: &str = "a preemption";
const ABOUT: &str = "two threads on one CPU yield to each other";
const TOGETHER: usize = 0;
const ALONE: usize = 1;

/// Measures in the calling thread and one other, which inherits where and how this one runs; adds the rows. `yields` are
/// those of one thread in each of the two measurements of an experiment.
///
/// # Errors
/// When the kernel does not count switches, or there were none.
pub fn measure(found: &mut Found, yields: u32, steps: &mut Steps) -> Result<(), String> {
    let state = State::default();
    thread::scope(|scope| {
        let partner = thread::Builder::new()
            .spawn_scoped(scope, || state.partner())
            .map_err(|error| format!("no second thread: {error}"))?;
        let _end = End(&state, partner.thread());
        lock_memory(found);
        let both = [*state.id.wait(), morpheus_harness::thread::id()];
        let switches = || -> Result<u64, String> { both.into_iter().map(cpu::switches).sum() };
        let (mut switched, mut yielded) = (0, 0);
        steps.progress.say("two threads yield to each other".into());
        let names = ["switch", "yield"].map(str::to_owned);
        let experiments = found.config.options.experiments;
        // Each is a call of sched_yield.
        let time_yields = || time_ns(|| (0..yields).for_each(|_| thread::yield_now()));
        let readings: Readings<2> = experiment::run(experiments, steps, names, |turn| {
            if turn.kind == ALONE {
                return Ok(time_yields() / f64::from(yields));
            }
            state.bring_in(partner.thread());
            let before = switches()?;
            let took_ns = time_yields();
            let counted = switches()? - before;
            state.send_away();
            if counted == 0 {
                return Err(format!(
                    "{yields} yields of two threads on one CPU, and no context switch was counted: nothing to divide by"
                ));
            }
            if turn.counts {
                switched += counted;
                yielded += u64::from(yields);
            }
            Ok(took_ns / counted as f64)
        })?;
        let time = |name: &str, ns| costs::time(CASE, name, ns);
        let net = time("the switch alone", readings.difference(TOGETHER, ALONE));
        let same = readings.same(TOGETHER);
        let rows = [
            time("a switch, with the call", readings.of(TOGETHER)),
            time("sched_yield alone", readings.of(ALONE)),
            costs::beside(net, &same),
            time("A/A: two switches", same),
        ];
        costs::put(found, CASE, ABOUT, rows);
        if yielded > 0 {
            let each = switched as f64 / yielded as f64;
            costs::counted(found, CASE, "switches a yield", each);
            found.notes.push(format!(
                "{each:.2} context switches were counted for each of the {} yields of one thread in a measurement: 2 \
                 where every yield of both switched.",
                report::count(yields.into())
            ));
        }
        costs::warmed_up(found, CASE, readings.warmup);
        Ok(())
    })
}

/// The flags by which the two threads take turns. Both are on one CPU, so it is not the caches that pass it on, but the orderings
/// are those of two threads anywhere.
#[derive(Default)]
struct State {
    /// The partner is to yield.
    wanted: AtomicBool,
    /// The partner yields.
    inside: AtomicBool,
    /// The partner is to end.
    ended: AtomicBool,
    /// The kernel's number of the partner, once it has begun.
    id: OnceLock<libc::pid_t>,
}

impl State {
    fn partner(&self) {
        self.id.get_or_init(morpheus_harness::thread::id);
        // Acquire: pairs with the stores of `bring_in`, `send_away` and `End`.
        while !self.ended.load(Ordering::Acquire) {
            if self.wanted.load(Ordering::Acquire) {
                // Release: pairs with the loads of `bring_in` and `send_away`.
                self.inside.store(true, Ordering::Release);
                while self.wanted.load(Ordering::Acquire) {
                    thread::yield_now();
                }
                self.inside.store(false, Ordering::Release);
            } else {
                thread::park();
            }
        }
    }

    fn bring_in(&self, partner: &Thread) {
        // Release: pairs with the loads of `partner`, as do all stores here; the loads with its stores.
        self.wanted.store(true, Ordering::Release);
        partner.unpark();
        while !self.inside.load(Ordering::Acquire) {
            thread::yield_now();
        }
    }

    fn send_away(&self) {
        self.wanted.store(false, Ordering::Release);
        while self.inside.load(Ordering::Acquire) {
            thread::yield_now();
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
    use super::super::conditions::{tests::nothing, under};
    use super::*;
    use crate::cpus;

    #[test]
    fn every_switch_is_counted() {
        let mut found = nothing("preemption --experiments 6", &cpus::allowed()[..1]);
        under(&mut found, |found| {
            measure(found, 50, &mut Steps::new(6, true))
        })
        .unwrap();
        let [switch, call, _, _, counted, _] = &found.rows[..] else {
            panic!("{found:?}");
        };
        assert!(counted.median > Some(0.0), "{found:?}");
        for row in [switch, call] {
            assert!(
                row.n == 6 && row.rounds.iter().all(|ns| *ns > 0.0),
                "{row:?}"
            );
        }
    }
}
