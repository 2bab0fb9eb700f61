// SPDX-License-Identifier: GPL-2.0-only
//! What the scheduler costs those who have nothing to do with it, beside the kernel's own. For guests, as `scheduler.rs` is.
//!
//! Rounds take turns, and the fastest of each kind are compared: what else the host does only adds. Times in an emulator
//! mean something beside each other, and nothing alone.

mod common;

use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Instant;

use common::daemon::Daemon;
use common::guest::{can_run, cpus};
use common::load::pin;
use common::{say, turn};

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

/// The shortest times of the kernel's scheduler and of ours, in turns.
fn compare(what: &str, most: f64, work: impl Fn()) {
    let time = || {
        let start = Instant::now();
        work();
        start.elapsed().as_nanos() as u64
    };
    let (mut kernels, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        kernels.push(time());
        let daemon = Daemon::schedule(&[]);
        ours.push(time());
        drop(daemon);
    }
    let (kernels, ours) = (
        kernels.into_iter().min().unwrap(),
        ours.into_iter().min().unwrap(),
    );
    let ratio = ours as f64 / kernels as f64;
    say(&format!(
        "{what}: {:.1} ms, the kernel's own {:.1} ms: {ratio:.2} × (at most {most})",
        ours as f64 / 1e6,
        kernels as f64 / 1e6
    ));
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
