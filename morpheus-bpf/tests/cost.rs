// SPDX-License-Identifier: GPL-2.0-only
//! The cost of the scheduler for programs that have nothing to do with it, beside the kernel's own. For guests, as
//! `scheduler.rs` is.
//!
//! Rounds take turns, and the fastest of each kind are compared: what else the host does only adds. Times in an emulator
//! mean something beside each other, and nothing alone. In virtual time a ratio is one of instructions, the same in each run but for
//! what is random in the guest, and has a bar of its own. `MORPHEUS_COST_BESIDE=COMMAND` has another scheduler take turns with
//! them, whose times are shown.

mod common;

use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Instant;

use common::daemon::Daemon;
use common::guest::{can_run, cpus};
use common::load::pin;
use common::other::Other;
use common::programs::{Counting, Programs, is_virtual_time, switches};
use common::{say, turn};

/// In virtual time they hardly differ.
fn rounds() -> usize {
    if is_virtual_time() { 3 } else { 7 }
}

/// Two threads pass a byte to and fro, each on a CPU of its own or wherever it may run.
fn ping_pong(cpus: Option<(usize, usize)>, turns: usize) {
    let (mut ping, mut to_ping) = pipe().unwrap();
    let (mut pong, mut to_pong) = pipe().unwrap();
    let pass = |from: &mut PipeReader, to: &mut PipeWriter| {
        let mut byte = [0];
        from.read_exact(&mut byte).unwrap();
        to.write_all(&byte).unwrap();
    };
    thread::scope(|scope| {
        scope.spawn(move || {
            cpus.inspect(|&(_, second)| pin(second));
            (0..turns).for_each(|_| pass(&mut ping, &mut to_pong));
        });
        scope.spawn(move || {
            cpus.inspect(|&(first, _)| pin(first));
            to_ping.write_all(&[0]).unwrap();
            (1..turns).for_each(|_| pass(&mut pong, &mut to_ping));
            pong.read_exact(&mut [0]).unwrap();
        });
    });
}

/// More pairs than CPUs, so that each wake-up finds them busy.
fn many_pairs() {
    const PAIRS: usize = 10;
    thread::scope(|scope| {
        for _ in 0..PAIRS {
            scope.spawn(|| ping_pong(None, 500));
        }
    });
}

/// Groups of threads, in which each sender writes to every receiver.
fn messaging() {
    const GROUPS: usize = 2;
    const SIDE: usize = 5;
    const MESSAGES: usize = 500;
    thread::scope(|scope| {
        for _ in 0..GROUPS {
            let pairs: Vec<_> = (0..SIDE).map(|_| UnixStream::pair().unwrap()).collect();
            let senders: Vec<Vec<UnixStream>> = (0..SIDE)
                .map(|_| {
                    pairs
                        .iter()
                        .map(|(to, _)| to.try_clone().unwrap())
                        .collect()
                })
                .collect();
            for mut own in senders {
                scope.spawn(move || {
                    for _ in 0..MESSAGES {
                        for to in &mut own {
                            to.write_all(&[0; 100]).unwrap();
                        }
                    }
                });
            }
            for (_, mut from) in pairs {
                scope.spawn(move || {
                    for _ in 0..MESSAGES * SIDE {
                        from.read_exact(&mut [0; 100]).unwrap();
                    }
                });
            }
        }
    });
}

/// How many times what the kernel's own scheduler takes: in time, and in virtual time.
#[derive(Clone, Copy, Debug)]
struct Most {
    time: f64,
    instructions: f64,
}

/// The times of the rounds under one scheduler.
#[derive(Default)]
struct Times(Vec<u64>);

impl Times {
    fn add(&mut self, work: &impl Fn()) {
        let start = Instant::now();
        work();
        self.0.push(start.elapsed().as_nanos() as u64);
    }

    fn shortest(&self) -> f64 {
        *self.0.iter().min().unwrap() as f64
    }

    fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        sorted[sorted.len() / 2] as f64
    }

    fn said(&self) -> String {
        format!(
            "{:.1} ms (median {:.1})",
            self.shortest() / 1e6,
            self.median() / 1e6
        )
    }
}

/// The instructions of BPF programs meanwhile, in virtual time: for each of them, and for each switch.
fn programs_take(work: &impl Fn()) -> String {
    let _counting = Counting::start();
    let (programs, before) = (Programs::now(), switches());
    work();
    let (programs, switches) = (Programs::now().since(&programs), switches() - before);
    format!(
        "{:.0} instructions of programs for each of {switches} switches\n{}",
        programs.instructions() / switches as f64,
        programs.said(switches)
    )
}

/// The shortest times of the kernel's scheduler and of ours, in turns.
fn compare(what: &str, most: Most, work: impl Fn()) {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let most = if is_virtual_time() {
        most.instructions
    } else {
        most.time
    };
    let beside = std::env::var("MORPHEUS_COST_BESIDE").ok();
    let (mut kernels, mut ours, mut others) =
        (Times::default(), Times::default(), Times::default());
    for _ in 0..rounds() {
        kernels.add(&work);
        let daemon = Daemon::schedule(&[]);
        ours.add(&work);
        drop(daemon);
        if let Some(command) = &beside {
            let _other = Other::start(command);
            others.add(&work);
        }
    }
    if is_virtual_time() {
        let daemon = Daemon::schedule(&[]);
        say(&format!("{what}: {}", programs_take(&work)));
        drop(daemon);
        if let Some(command) = &beside {
            let _other = Other::start(command);
            say(&format!("{what}, {command}: {}", programs_take(&work)));
        }
    }
    let ratio = ours.shortest() / kernels.shortest();
    say(&format!(
        "{what}: {}, the kernel's own {}: {ratio:.2} × (medians {:.2} ×; at most {most})",
        ours.said(),
        kernels.said(),
        ours.median() / kernels.median(),
    ));
    if let Some(command) = beside {
        say(&format!(
            "{what}: {} under {command}: ours is {:.2} × that (medians {:.2} ×)",
            others.said(),
            ours.shortest() / others.shortest(),
            ours.median() / others.median(),
        ));
    }
    assert!(ratio <= most, "{what}: {ratio}");
}

#[test]
fn messaging_costs_no_more() {
    let most = Most {
        time: 1.25,
        instructions: 1.1,
    };
    compare("messaging", most, messaging);
}

#[test]
fn a_pipe_between_two_cpus_costs_no_more() {
    if !can_run() || cpus() < 2 {
        return;
    }
    let most = Most {
        time: 1.25,
        instructions: 1.2,
    };
    compare("pipe between two CPUs", most, || {
        ping_pong(Some((0, 1)), 5000);
    });
}

#[test]
fn a_pipe_on_one_cpu_costs_little_more() {
    let most = Most {
        time: 1.4,
        instructions: 1.36,
    };
    compare("pipe on one CPU", most, || {
        ping_pong(Some((0, 0)), 5000);
    });
}

#[test]
fn pipes_between_many_threads_cost_little_more() {
    let most = Most {
        time: 1.7,
        instructions: 1.4,
    };
    compare("pipes of ten pairs", most, many_pairs);
}
