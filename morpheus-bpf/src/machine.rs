// SPDX-License-Identifier: GPL-2.0-only
//! The daemon's work for the machine, once in a second: it reads the scheduler's counts, lets the adaptive loop decide, sets
//! the knobs, and keeps the process database.
//!
//! On the daemon's one thread, between two packets: nothing here waits. The scheduler goes on with the knobs that it has
//! when the daemon is late, or not there.

use std::fs;
use std::mem::size_of;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use libbpf_rs::{MapCore, MapFlags};
use serde_json::{Value, json};

use crate::adapt::knobs::Knobs;
use crate::adapt::sleep::{SLEEP_BUCKETS, Sleeps};
use crate::adapt::{Adaptation, Reading, Switches};
use crate::kernel::Counters;
use crate::procdb::file::load_or_set_aside;
use crate::procdb::saver::Saver;
use crate::procdb::{COMM_BYTES, ProcDb};
use crate::scaling::Scaled;
use crate::skeleton::scheduler::{SchedulerSkel, types};
use morpheus_tools::histogram::{BUCKETS, Histogram};
use morpheus_tools::tier::{TIERS, Tier};

/// How often it looks.
pub const EVERY: Duration = Duration::from_secs(1);
/// How often the process database is written while the daemon runs.
const SAVE_EVERY: Duration = Duration::from_secs(300);
/// From these counters comes how often a CPU was given a task.
const DISPATCHES: [&str; 9] = [
    "to_idle_cpu",
    "to_next",
    "from_front",
    "from_main",
    "from_deficit",
    "from_starvation_rescue",
    "from_sojourn_rescue",
    "from_pinned",
    "from_other_domains",
];

/// The counts of all CPUs together since the scheduler was loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Counted {
    wakes: [Histogram; TIERS],
    sleeps: Sleeps,
    dispatches: u64,
    stat: Stat,
}

/// The CPUs that are online, as /proc/stat has them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Stat {
    /// Of all of them, in ticks: idle, and altogether.
    idle: u64,
    all: u64,
    /// How many there are.
    cpus: u32,
}

/// The process database and its file.
#[derive(Debug)]
struct Profiles {
    database: ProcDb,
    saver: Saver,
    saved: Instant,
}

/// How the machine is looked after.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The parameters that depend on the number of CPUs.
    pub scaled: Scaled,
    /// The number of CPUs is what it is said to be, however many are online.
    pub fixed: bool,
    /// The stages of the adaptive loop that are on.
    pub switches: Switches,
    /// The process database's file; none keeps none.
    pub procdb: Option<PathBuf>,
}

/// Looks after the machine.
#[derive(Debug)]
pub(crate) struct Machine {
    adaptation: Adaptation,
    cpus: u32,
    fixed: bool,
    before: Counted,
    since: Instant,
    idle_share: f64,
    batch_waits_ns: u64,
    profiles: Option<Profiles>,
}

impl Machine {
    /// Reads the process database. A file that is none is set aside, and standard error says so.
    pub(crate) fn new(plan: &Plan) -> Machine {
        let now = Instant::now();
        let profiles = plan.procdb.as_ref().map(|path| {
            let (database, said) = load_or_set_aside(path);
            if let Some(said) = said {
                crate::say!("scx_morpheus: {said}");
            }
            Profiles {
                database,
                saver: Saver::new(path.clone()),
                saved: now,
            }
        });
        Machine {
            adaptation: Adaptation::new(plan.scaled, plan.switches),
            cpus: plan.scaled.cpus,
            fixed: plan.fixed,
            before: Counted::default(),
            since: now,
            idle_share: f64::NAN,
            batch_waits_ns: 0,
            profiles,
        }
    }

    /// Before the scheduler is attached: the first knobs, and what tasks are to begin as.
    pub(crate) fn begin(&mut self, skeleton: &mut SchedulerSkel<'_>) -> libbpf_rs::Result<()> {
        set(skeleton, self.adaptation.knobs());
        for profile in self
            .profiles
            .iter()
            .flat_map(|own| own.database.predictions())
        {
            predict(skeleton, profile.comm, profile.tier, profile.avg_runtime_ns)?;
        }
        self.before = count(skeleton, &Counters::new());
        Ok(())
    }

    /// Takes a look. Called once in [`EVERY`].
    pub(crate) fn tend(&mut self, skeleton: &mut SchedulerSkel<'_>, counters: &Counters) {
        let now = Instant::now();
        let elapsed = now.duration_since(self.since);
        self.since = now;
        let counted = count(skeleton, counters);
        let (burst, longrun) = detected(skeleton);
        self.batch_waits_ns = longest_wait(skeleton);
        self.idle_share = counted.stat.idle_since(&self.before.stat);
        self.rescale(counted.stat.cpus);
        let mut wakes = counted.wakes;
        for (wakes, before) in wakes.iter_mut().zip(&self.before.wakes) {
            *wakes = wakes.since(before);
        }
        let decision = self.adaptation.look(&Reading {
            elapsed_ns: u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX),
            idle_share: self.idle_share,
            dispatches: counted.dispatches.saturating_sub(self.before.dispatches),
            wakes,
            sleeps: counted.sleeps.since(&self.before.sleeps),
            longrun,
            burst,
        });
        if decision.changed {
            set(skeleton, &decision.knobs);
        }
        self.before = counted;
        self.learn(skeleton, now);
    }

    /// CPUs come and go. The knobs follow; what the programs were loaded with stays as it is.
    fn rescale(&mut self, cpus: u32) {
        // None are seen where /proc/stat cannot be read.
        if !self.fixed && cpus > 0 && cpus != self.cpus {
            self.cpus = cpus;
            self.adaptation.rescale(Scaled::for_cpus(cpus));
        }
    }

    /// Takes what was observed of late into the process database, and back what it is sure of by now.
    fn learn(&mut self, skeleton: &SchedulerSkel<'_>, now: Instant) {
        let Some(own) = &mut self.profiles else {
            return;
        };
        own.database.advance();
        let names: Vec<Vec<u8>> = skeleton.maps.observed.keys().collect();
        for name in names {
            let observed = skeleton.maps.observed.lookup_and_delete(&name);
            let (Ok(Some(value)), Ok(comm)) = (observed, <[u8; COMM_BYTES]>::try_from(name)) else {
                continue;
            };
            let Some(profile) = read::<types::profile>(&value) else {
                continue;
            };
            let Some(tier) = Tier::from_number(profile.tier) else {
                continue;
            };
            own.database.observe(comm, tier, profile.runtime_ns);
            let known = own.database.profile(comm);
            // A name that is not in there begins as any other does, and so does one that could not be put in or taken out.
            let _ = match known.filter(|known| known.is_confident()) {
                Some(known) => predict(skeleton, comm, known.tier, known.avg_runtime_ns),
                None => skeleton.maps.profiles.delete(&comm),
            };
        }
        if now.duration_since(own.saved) >= SAVE_EVERY {
            own.saved = now;
            own.saver.begin(&own.database);
        }
    }

    /// How often the adaptive loop has changed something, by name.
    pub(crate) fn changes(&self) -> [(&'static str, u64); 5] {
        self.adaptation.changes().named()
    }

    /// The numbers beside the counters, for clients.
    pub(crate) fn describe(&self, skeleton: &SchedulerSkel<'_>) -> Value {
        let (wakes, sleeps) = waits(skeleton);
        let (burst, longrun) = detected(skeleton);
        let knobs = self.adaptation.knobs();
        let tiers: serde_json::Map<String, Value> = Tier::ALL
            .into_iter()
            .map(|tier| {
                let wakes = wakes[tier.index()].counts;
                (tier.name().to_owned(), json!({ "wake_latency": wakes }))
            })
            .collect();
        let mut numbers = json!({
            "cpus": self.cpus,
            "tiers": tiers,
            "sleeps": sleeps.counts,
            "regime": self.adaptation.regime().name(),
            "burst": burst,
            "longrun": longrun,
            "batch_waits_ns": self.batch_waits_ns,
            "knobs": {
                "slice_ns": knobs.slice_ns,
                "batch_slice_ns": knobs.batch_slice_ns,
                "burst_slice_ns": knobs.burst_slice_ns,
                "preempt_thresh_ns": knobs.preempt_thresh_ns,
                "cpu_bound_thresh_ns": knobs.cpu_bound_thresh_ns,
                "sojourn_thresh_ns": knobs.sojourn_thresh_ns,
                "affinity_mode": knobs.affinity_mode.name(),
            },
        });
        if self.idle_share.is_finite() {
            numbers["idle_share"] = json!(self.idle_share);
        }
        if let Some(own) = &self.profiles {
            numbers["procdb"] = json!({
                "profiles": own.database.len(),
                "confident": own.database.confident(),
            });
        }
        numbers
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if let Some(own) = &mut self.profiles {
            own.saver.finish(&own.database);
        }
    }
}

/// Sets the tier and the run time with which tasks of a name begin.
fn predict(
    skeleton: &SchedulerSkel<'_>,
    comm: [u8; COMM_BYTES],
    tier: Tier,
    runtime_ns: u64,
) -> libbpf_rs::Result<()> {
    let mut value = Vec::with_capacity(size_of::<types::profile>());
    value.extend_from_slice(&runtime_ns.to_ne_bytes());
    value.extend_from_slice(&(tier as u32).to_ne_bytes());
    value.extend_from_slice(&1u32.to_ne_bytes());
    skeleton.maps.profiles.update(&comm, &value, MapFlags::ANY)
}

fn set(skeleton: &mut SchedulerSkel<'_>, knobs: &Knobs) {
    let Some(data) = skeleton.maps.data_knobs_data.as_deref_mut() else {
        return;
    };
    let own = &mut data.knobs;
    own.slice_ns = knobs.slice_ns;
    own.batch_slice_ns = knobs.batch_slice_ns;
    own.burst_slice_ns = knobs.burst_slice_ns;
    own.preempt_after_ns = knobs.preempt_thresh_ns;
    own.cpu_bound_ns = knobs.cpu_bound_thresh_ns;
    own.sojourn_ns = knobs.sojourn_thresh_ns;
    own.lat_critical_from = knobs.lat_cri_thresh_high;
    own.interactive_from = knobs.lat_cri_thresh_low;
    own.affinity = knobs.affinity_mode as u32;
}

/// Whether there is a burst, and a long run.
fn detected(skeleton: &SchedulerSkel<'_>) -> (bool, bool) {
    skeleton
        .maps
        .bss_data
        .as_deref()
        .map_or((false, false), |shared| {
            (shared.burst_now != 0, shared.longrun_now != 0)
        })
}

/// The longest that those that compute went without service since the last call, in ns.
fn longest_wait(skeleton: &mut SchedulerSkel<'_>) -> u64 {
    skeleton
        .maps
        .bss_data
        .as_deref_mut()
        .map_or(0, |shared| std::mem::take(&mut shared.batch_waits_ns))
}

/// Plain words of the size of a structure of numbers; `None` of any other size.
fn read<T: Copy>(bytes: &[u8]) -> Option<T> {
    (bytes.len() >= size_of::<T>()).then(|| {
        // SAFETY: there are as many bytes, and the generated structures that this is called with are numbers only, for which
        // any bytes will do. They need not be aligned.
        unsafe { bytes.as_ptr().cast::<T>().read_unaligned() }
    })
}

/// The histograms of all CPUs together: waits by tier, and sleeps.
fn waits(skeleton: &SchedulerSkel<'_>) -> ([Histogram; TIERS], Sleeps) {
    let mut by_tier = [Histogram::default(); TIERS];
    let mut sleeps = Sleeps::default();
    let by_cpu = skeleton
        .maps
        .histograms
        .lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY);
    let words = |bytes: &[u8]| -> Vec<u64> {
        bytes
            .chunks_exact(8)
            .map(|word| u64::from_ne_bytes(word.try_into().expect("eight bytes")))
            .collect()
    };
    for cpu in by_cpu.ok().flatten().unwrap_or_default() {
        let words = words(&cpu);
        // In the structure's order: wakes, sleeps.
        let (wakes, rest) = words.split_at((TIERS * BUCKETS).min(words.len()));
        for (histogram, counts) in by_tier.iter_mut().zip(wakes.chunks_exact(BUCKETS)) {
            for (sum, count) in histogram.counts.iter_mut().zip(counts) {
                *sum += count;
            }
        }
        for (sum, count) in sleeps.counts.iter_mut().zip(rest) {
            *sum += count;
        }
    }
    const _: () = assert!(
        size_of::<types::histograms>() == 8 * (TIERS * BUCKETS + SLEEP_BUCKETS),
        "as histograms in options/latency.bpf.c"
    );
    (by_tier, sleeps)
}

fn count(skeleton: &SchedulerSkel<'_>, counters: &Counters) -> Counted {
    let (wakes, sleeps) = waits(skeleton);
    let dispatches = DISPATCHES.iter().filter_map(|name| counters.get(name));
    let stat = fs::read_to_string("/proc/stat");
    Counted {
        wakes,
        sleeps,
        dispatches: dispatches.sum(),
        stat: stat.map(|text| Stat::parse(&text)).unwrap_or_default(),
    }
}

impl Stat {
    /// Ticks from the first line of /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal. CPUs have the next
    /// ones.
    fn parse(text: &str) -> Stat {
        let fields: Vec<u64> = text
            .lines()
            .find_map(|line| line.strip_prefix("cpu "))
            .into_iter()
            .flat_map(str::split_whitespace)
            .take(8)
            .map_while(|word| word.parse().ok())
            .collect();
        let is_cpu = |line: &&str| {
            line.strip_prefix("cpu")
                .is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
        };
        Stat {
            idle: fields.iter().skip(3).take(2).sum(),
            all: fields.iter().sum(),
            cpus: text.lines().filter(is_cpu).count() as u32,
        }
    }

    /// Which part of the CPUs' time was idle since then, from 0 to 1; not a number where no tick has passed.
    fn idle_since(&self, before: &Stat) -> f64 {
        let ticks = self.all.saturating_sub(before.all);
        self.idle.saturating_sub(before.idle) as f64 / ticks as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_and_cpus() {
        let text =
            "cpu  10 20 30 400 40 5 6 7 8 9\ncpu0 1 2 3 4 5 6 7 8 9 10\ncpu3 1 2 3 4\nintr 4\n";
        let stat = |idle, all, cpus| Stat { idle, all, cpus };
        assert_eq!(Stat::parse(text), stat(440, 518, 2));
        assert_eq!(Stat::parse(""), Stat::default());
        assert_eq!(Stat::parse("cpu  x"), Stat::default());
        let read = Stat::parse(&fs::read_to_string("/proc/stat").unwrap());
        assert!(read.all > 0 && read.idle <= read.all && read.cpus > 0);
        let later = stat(480, 618, 2);
        assert!((later.idle_since(&stat(440, 518, 2)) - 0.4).abs() < 1e-9);
        assert!(later.idle_since(&later).is_nan());
    }

    #[test]
    fn knobs_follow_the_cpus() {
        let machine = |fixed| {
            Machine::new(&Plan {
                scaled: Scaled::for_cpus(2),
                fixed,
                switches: Switches::default(),
                procdb: None,
            })
        };
        let (mut online, mut fixed) = (machine(false), machine(true));
        let slice_ns = |machine: &mut Machine| {
            machine.rescale(1);
            let decision = machine.adaptation.look(&Reading {
                idle_share: f64::NAN,
                ..Reading::default()
            });
            decision.knobs.slice_ns
        };
        assert_eq!((slice_ns(&mut online), online.cpus), (500_000, 1));
        assert_eq!((slice_ns(&mut fixed), fixed.cpus), (1_000_000, 2));
        // Not read.
        online.rescale(0);
        assert_eq!(online.cpus, 1);
    }

    #[test]
    fn structures_are_read_from_any_place() {
        let bytes = [0u8, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0];
        let profile: types::profile = read(&bytes[1..]).unwrap();
        assert_eq!((profile.runtime_ns, profile.tier, profile.seen), (1, 2, 3));
        assert!(read::<types::profile>(&bytes[2..]).is_none());
    }
}
