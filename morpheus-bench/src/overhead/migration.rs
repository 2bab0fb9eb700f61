//! The cost of moving a thread from one CPU to another, apart from its caches.
//!
//! A thread asks to run on another CPU (`sched_setaffinity`) and reads the clock before the call and after it, which is the
//! first instruction on the other CPU. From that goes the same call for the CPU on which the thread already is. It is
//! measured twice: to a CPU that is idle, which the kernel (and on a virtual machine the hypervisor) must wake, and to one
//! that is awake.
//!
//! A CPU is kept awake by a *witness*, a thread of the lowest real-time priority (SCHED_IDLE where the thread that migrates
//! has no real-time priority) that does nothing but read the clock. Witnesses on
//! both CPUs also tell where the time goes: that of the destination stops when the interrupt comes, that of the source
//! goes on when the kernel's thread that moves others (`migration/N`) is done. How much more the clock on the wall went on
//! than the CPU clock of the thread is for how long it was on no CPU at all.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, Thread};
use std::time::Duration;

use crossbeam_utils::CachePadded;
use morpheus_harness::clock;
use morpheus_harness::histogram::median;

use super::conditions::{FIFO, Found, lock_memory};
use super::costs;
use super::experiment::{self, Readings, Steps, Turn};
use crate::cpus::{self, Cpus};
use crate::policy;

const IDLE: usize = 0;
const AWAKE: usize = 1;
const NULL: usize = 2;

/// How long the thread sleeps before each call: the destination goes idle, or its witness gets going.
const SETTLE: Duration = Duration::from_micros(300);
/// A witness whose clock jumps this far was not running.
const GAP_NS: u64 = 500;
/// How long to wait until the witness of the source goes on.
const PATIENCE_NS: u64 = 2_000_000;

const CASE: &str = "a migration";
const PARTS: &str = "where the time goes";

/// Measures between the two CPUs of `found`, in the calling thread and two witnesses; adds the rows.
///
/// # Errors
/// When the thread does not get to the other CPU.
pub fn measure(found: &mut Found, steps: &mut Steps) -> Result<(), String> {
    let &[from, to] = found.config.options.cpus.as_slice() else {
        return Err("a migration needs two CPUs".into());
    };
    // Each on cache lines of its own.
    let watches = [CachePadded::<Watch>::default(), CachePadded::default()];
    thread::scope(|scope| {
        let mut threads = Vec::new();
        let (policy, priority) = match found.config.policy {
            FIFO => (libc::SCHED_FIFO, 1),
            _ => (libc::SCHED_IDLE, 0),
        };
        for (watch, cpu) in watches.iter().zip([from, to]) {
            let witness = thread::Builder::new()
                .spawn_scoped(scope, move || watch.witness(cpu, policy, priority))
                .map_err(|error| format!("no witness: {error}"));
            // When the second cannot be started, the first still ends.
            threads.push(End(watch, witness?.thread().clone()));
        }
        lock_memory(found);
        let mut mover = Mover {
            from,
            targets: [to, to, from],
            witnesses: &threads,
            parts: Default::default(),
        };
        steps
            .progress
            .say(format!("a thread goes from CPU {from} to CPU {to}"));
        let names = ["to-idle", "to-awake", "call"].map(str::to_owned);
        let experiments = found.config.options.experiments;
        let readings: Readings<3> =
            experiment::run(experiments, steps, names, |turn| mover.measure(turn))?;
        let time = |name: &str, ns| costs::time(CASE, name, ns);
        let net = |name, kind| {
            let cost = time(name, readings.difference(kind, NULL));
            costs::beside(cost, &readings.same(kind))
        };
        let rows = [
            time("to an idle CPU, with the call", readings.of(IDLE)),
            time("to a CPU awake, with the call", readings.of(AWAKE)),
            time("the call that changes nothing", readings.of(NULL)),
            net("to an idle CPU, without it", IDLE),
            net("to a CPU awake, without it", AWAKE),
            time("A/A: two to an idle CPU", readings.same(IDLE)),
            time("A/A: two to a CPU awake", readings.same(AWAKE)),
        ];
        costs::put(found, CASE, "a thread asks to run on another CPU", rows);
        // The difference of the clocks in the call that changes nothing.
        let floor_ns = median(mover.parts[OFF_CPU + NULL].clone()).unwrap_or_default();
        for part in &mut mover.parts[OFF_CPU..] {
            part.iter_mut().for_each(|ns| *ns -= floor_ns);
        }
        let [interrupt, instruction, free, off_idle, off_awake, _] = mover.parts;
        let time = |name: &str, ns| costs::time(PARTS, name, ns);
        let rows = [
            time("awake: call → interrupt there", interrupt),
            time("awake: → first instruction", instruction),
            time("awake: call → source is free", free),
            time("awake: on no CPU", off_awake),
            time("idle: on no CPU", off_idle),
        ];
        costs::put(found, PARTS, "as far as clocks on both CPUs tell", rows);
        costs::warmed_up(found, CASE, readings.warmup);
        found.notes.push(EXPLAINED.into());
        Ok(())
    })
}

/// How to read the parts.
const EXPLAINED: &str = "The first two parts make up the whole. The source is free when the kernel's thread that moves others is \
     done with it. On no CPU is what the thread's own CPU clock did not count, less what that makes of the call that changes \
     nothing.";

const INTERRUPT: usize = 0;
const FIRST_INSTRUCTION: usize = 1;
const SOURCE_FREE: usize = 2;
/// Followed by one for each kind, of which [`NULL`] is the last, as it is no part of a migration.
const OFF_CPU: usize = 3;

/// The thread that migrates.
struct Mover<'a> {
    from: usize,
    /// Of each kind.
    targets: [usize; 3],
    /// Of the source and of the destination.
    witnesses: &'a [End<'a>],
    /// The readings of each part.
    parts: [Vec<f64>; 6],
}

impl Mover<'_> {
    fn measure(&mut self, turn: Turn) -> Result<f64, String> {
        let target = self.targets[turn.kind];
        let mask = Cpus::of(&[target]);
        self.prepare(turn.kind == AWAKE)?;
        thread::sleep(SETTLE);
        // The time that passed is read around the CPU time: else an interrupt between the two would make the time on no
        // CPU less than nothing.
        let before_ns = clock::monotonic_ns();
        let ran_before = clock::thread_cpu();
        let begun_ns = clock::monotonic_ns();
        let result = mask.take();
        let arrived_ns = clock::monotonic_ns();
        let ran = clock::thread_cpu().saturating_sub(ran_before);
        let after_ns = clock::monotonic_ns();
        let on = cpus::current();
        result.map_err(|error| format!("cannot go to CPU {target}: {error}"))?;
        if let Some(on) = on.filter(|on| *on != target) {
            return Err(format!(
                "a thread that asked for CPU {target} came out on CPU {on}: does something else change its affinity?"
            ));
        }
        let took_ns = (arrived_ns - begun_ns) as f64;
        if turn.counts {
            let passed_ns = (after_ns - before_ns) as f64;
            self.parts[OFF_CPU + turn.kind].push(passed_ns - ran.as_nanos() as f64);
            if turn.kind == AWAKE {
                self.ask_witnesses(begun_ns, arrived_ns);
            }
        }
        self.prepare(false)?;
        Ok(took_ns)
    }

    /// Goes to the source, and has both CPUs kept awake or not.
    fn prepare(&self, awake: bool) -> Result<(), String> {
        cpus::pin(self.from)?;
        for End(watch, thread) in self.witnesses {
            // Release: pairs with the load of `witness`.
            watch.active.store(awake, Ordering::Release);
            if awake {
                thread.unpark();
            }
        }
        Ok(())
    }

    /// Readings that do not fit are left out: the witness did not run, because another thread did.
    fn ask_witnesses(&mut self, begun_ns: u64, arrived_ns: u64) {
        let [End(source, _), End(destination, _)] = self.witnesses else {
            return;
        };
        // This thread is on the CPU of that witness, which therefore stands still.
        let stopped_ns = destination.last_ns.load(Ordering::Acquire);
        if (begun_ns..=arrived_ns).contains(&stopped_ns) {
            self.parts[INTERRUPT].push((stopped_ns - begun_ns) as f64);
            self.parts[FIRST_INSTRUCTION].push((arrived_ns - stopped_ns) as f64);
        }
        while source.last_ns.load(Ordering::Acquire) <= arrived_ns
            && clock::monotonic_ns() < arrived_ns + PATIENCE_NS
        {}
        let resumed_ns = source.resumed_ns.load(Ordering::Acquire);
        if (begun_ns..arrived_ns + PATIENCE_NS).contains(&resumed_ns) {
            self.parts[SOURCE_FREE].push((resumed_ns - begun_ns) as f64);
        }
    }
}

/// Times that a witness writes, and its orders.
#[derive(Default)]
struct Watch {
    active: AtomicBool,
    ended: AtomicBool,
    /// The last time at which it ran.
    last_ns: AtomicU64,
    /// When it began to run again, after another thread had its CPU.
    resumed_ns: AtomicU64,
}

impl Watch {
    fn witness(&self, cpu: usize, policy: libc::c_int, priority: libc::c_int) {
        // Without its CPU or its policy it would be in the way of what is measured. Then nothing is witnessed, which the
        // missing readings say.
        let settled = cpus::pin(cpu).is_ok() && policy::set(policy, priority).is_ok();
        // Acquire: pairs with the stores of `prepare` and `End`.
        while !self.ended.load(Ordering::Acquire) {
            if !settled || !self.active.load(Ordering::Acquire) {
                thread::park();
                continue;
            }
            let now_ns = clock::monotonic_ns();
            // Relaxed: only this thread writes it.
            if now_ns - self.last_ns.load(Ordering::Relaxed) > GAP_NS {
                // Release, before `last_ns`: a thread that has seen that (Acquire, `ask_witnesses`) sees this.
                self.resumed_ns.store(now_ns, Ordering::Release);
            }
            self.last_ns.store(now_ns, Ordering::Release);
        }
    }
}

/// Lets a witness end, also after an error.
struct End<'a>(&'a Watch, Thread);

impl Drop for End<'_> {
    fn drop(&mut self) {
        // Release: pairs with the load of `witness`.
        self.0.ended.store(true, Ordering::Release);
        self.1.unpark();
    }
}

#[cfg(test)]
mod tests {
    use super::super::conditions::{tests::nothing, under};
    use super::*;

    #[test]
    fn a_migration_is_more_than_the_call() {
        let cpus = cpus::allowed();
        let [from, to, ..] = cpus[..] else {
            return morpheus_testing::skip("needs two CPUs");
        };
        let mut found = nothing("migration --experiments 10", &[from, to]);
        under(&mut found, |found| {
            measure(found, &mut Steps::new(10, true))
        })
        .unwrap();
        let [idle, _, call, ..] = &found.rows[..] else {
            panic!("{found:?}");
        };
        assert_eq!((call.n, idle.n), (10, 10));
        assert!(idle.median > call.median, "{idle:?} {call:?}");
        let parts = found.rows.iter().filter(|row| row.case == PARTS);
        for part in parts.filter(|row| row.contender.starts_with("awake: call")) {
            assert!(part.rounds.iter().all(|ns| *ns >= 0.0), "{part:?}");
        }
    }

    #[test]
    fn one_cpu_is_refused() {
        let mut found = nothing("migration --experiments 1", &cpus::allowed()[..1]);
        let result = under(&mut found, |found| measure(found, &mut Steps::new(1, true)));
        assert!(result.is_err());
    }
}
