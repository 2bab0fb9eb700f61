// SPDX-License-Identifier: GPL-2.0-only
//! What the scheduler costs those who have nothing to do with it, beside the kernel's own. For guests, as `scheduler.rs` is.
//!
//! Rounds take turns, and the fastest of each kind are compared: what else the host does only adds. Times in an emulator
//! mean something beside each other, and nothing alone. `MORPHEUS_COST_BESIDE=COMMAND` has another scheduler take turns with
//! them, whose times are shown.

mod common;

use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Instant;

use common::daemon::Daemon;
use common::guest::{can_run, cpus, state, wait_until};
use common::load::pin;
use common::{say, turn};
use rustix::process::{Pid, Signal, kill_process};

const ROUNDS: usize = 7;

/// Two threads pass a byte to and fro.
fn ping_pong(first: usize, second: usize) {
    const TURNS: usize = 5000;
    let (mut ping, mut to_ping) = pipe().unwrap();
    let (mut pong, mut to_pong) = pipe().unwrap();
    let pass = |from: &mut PipeReader, to: &mut PipeWriter| {
        let mut byte = [0];
        from.read_exact(&mut byte).unwrap();
        to.write_all(&byte).unwrap();
    };
    thread::scope(|scope| {
        scope.spawn(move || {
            pin(second);
            (0..TURNS).for_each(|_| pass(&mut ping, &mut to_pong));
        });
        scope.spawn(move || {
            pin(first);
            to_ping.write_all(&[0]).unwrap();
            (1..TURNS).for_each(|_| pass(&mut pong, &mut to_ping));
            pong.read_exact(&mut [0]).unwrap();
        });
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

/// Another scheduler, for as long as this lives.
struct Other(Child);

impl Other {
    fn start(command: &str) -> Other {
        let child = Command::new(command)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("{command}: {error}"));
        wait_until("another scheduler is in force", || state() == "enabled");
        Other(child)
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let pid = Pid::from_child(&self.0);
        kill_process(pid, Signal::INT).unwrap();
        self.0.wait().unwrap();
        wait_until("it is gone", || state() == "disabled");
    }
}

/// What the rounds under one scheduler took.
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

/// The shortest times of the kernel's scheduler and of ours, in turns.
fn compare(what: &str, most: f64, work: impl Fn()) {
    let beside = std::env::var("MORPHEUS_COST_BESIDE").ok();
    let (mut kernels, mut ours, mut others) =
        (Times::default(), Times::default(), Times::default());
    for _ in 0..ROUNDS {
        kernels.add(&work);
        let daemon = Daemon::schedule(&[]);
        ours.add(&work);
        drop(daemon);
        if let Some(command) = &beside {
            let _other = Other::start(command);
            others.add(&work);
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
    if !can_run() {
        return;
    }
    let _turn = turn();
    compare("messaging", 1.25, messaging);
}

#[test]
fn a_pipe_between_two_cpus_costs_no_more() {
    if !can_run() || cpus() < 2 {
        return;
    }
    let _turn = turn();
    compare("pipe between two CPUs", 1.25, || ping_pong(0, 1));
}

#[test]
fn a_pipe_on_one_cpu_costs_little_more() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    compare("pipe on one CPU", 1.4, || ping_pong(0, 0));
}
