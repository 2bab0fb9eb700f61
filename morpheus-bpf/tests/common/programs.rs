// SPDX-License-Identifier: GPL-2.0-only
//! The run time of BPF programs, by the kernel's own count.
//!
//! In virtual time a nanosecond is a number of instructions, so that these are counts of instructions, of all CPUs that run meanwhile:
//! a CPU that waits for a lock lets the others go on, and with many busy CPUs (from eight on, by what callbacks without locks
//! take) the emulator's turns also end within programs. The time of the counting itself is in each call, too.

use std::collections::BTreeMap;
use std::fs;

use libbpf_rs::query::ProgInfoIter;

const STATISTICS: &str = "/proc/sys/kernel/bpf_stats_enabled";

/// How often a program ran, and how long that took in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Runs {
    pub count: u64,
    pub ns: u64,
}

/// The programs that are loaded, by the names that the kernel keeps of them: the first 15 characters.
#[derive(Clone, Debug, Default)]
pub struct Programs(BTreeMap<String, Runs>);

/// Has the kernel count, until this is dropped.
pub struct Counting(());

impl Counting {
    pub fn start() -> Counting {
        fs::write(STATISTICS, "1").unwrap();
        Counting(())
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        let _ = fs::write(STATISTICS, "0");
    }
}

impl Programs {
    /// The counts so far.
    pub fn now() -> Programs {
        let mut programs = Programs::default();
        for program in ProgInfoIter::default() {
            let name = program.name.to_string_lossy().into_owned();
            let runs = programs.0.entry(name).or_default();
            runs.count += program.run_cnt;
            runs.ns += program.run_time_ns;
        }
        programs
    }

    /// The counts since then, of programs that ran.
    pub fn since(&self, before: &Programs) -> Programs {
        let earlier = |name| before.0.get(name).copied().unwrap_or_default();
        let more = self.0.iter().map(|(name, runs)| {
            let earlier = earlier(name);
            let runs = Runs {
                count: runs.count - earlier.count,
                ns: runs.ns - earlier.ns,
            };
            (name.clone(), runs)
        });
        Programs(more.filter(|(_, runs)| runs.count > 0).collect())
    }

    /// The instructions of all of them together.
    pub fn instructions(&self) -> f64 {
        let ns: u64 = self.0.values().map(|runs| runs.ns).sum();
        ns as f64 / ns_of_instruction()
    }

    /// A line for each, the dearest first: calls, instructions of each call, and instructions for each of `switches`.
    pub fn said(&self, switches: u64) -> String {
        let ns_of_instruction = ns_of_instruction();
        let mut all: Vec<_> = self.0.iter().collect();
        all.sort_by_key(|(_, runs)| std::cmp::Reverse(runs.ns));
        let line = |(name, runs): &(&String, &Runs)| {
            let instructions = runs.ns as f64 / ns_of_instruction;
            format!(
                "  {name:16} {:8} calls, {:6.0} instructions each, {:7.1} for each switch",
                runs.count,
                instructions / runs.count as f64,
                instructions / switches.max(1) as f64,
            )
        };
        let lines: Vec<String> = all.iter().map(line).collect();
        lines.join("\n")
    }
}

/// How long an instruction takes in virtual time, as the name of the CPU says; `None` in any other time.
fn named_ns() -> Option<f64> {
    let cpus = fs::read_to_string("/proc/cpuinfo").ok()?;
    let (before, _) = cpus.split_once(" ns an instruction)")?;
    before.rsplit_once('(')?.1.parse().ok()
}

/// Whether time follows the instructions here, so that they can be counted.
pub fn is_virtual_time() -> bool {
    named_ns().is_some()
}

fn ns_of_instruction() -> f64 {
    named_ns().expect("instructions are counted in virtual time alone (cargo xtask vm --icount)")
}

/// How often CPUs have gone from one thread to another, or to none, since the start.
pub fn switches() -> u64 {
    let text = fs::read_to_string("/proc/stat").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("ctxt "));
    line.unwrap().trim().parse().unwrap()
}
