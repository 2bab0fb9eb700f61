//! Which loads each feature of the scheduler is tried under, and on which machine.

use serde::Serialize;

use super::case::Case;
use super::features::Feature;

/// A guest that has what a feature is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Machine {
    /// Its CPUs.
    pub cpus: u16,
    /// Last-level caches, which share them.
    pub caches: u16,
}

const SMALL: Machine = Machine { cpus: 2, caches: 1 };
const TWO_CACHES: Machine = Machine { cpus: 4, caches: 2 };
const EIGHT: Machine = Machine { cpus: 8, caches: 1 };

/// Where features are tried beside the loads that they were made for, to see what they cost.
const ELSEWHERE: [Case; 2] = [Case::SleepersBurst, Case::Messaging];

/// A feature and its loads.
#[derive(Clone, Copy, Debug)]
pub struct Trial {
    feature: &'static str,
    machine: Machine,
    /// The loads that it was made for.
    made_for: &'static [Case],
}

const fn trial(feature: &'static str, machine: Machine, made_for: &'static [Case]) -> Trial {
    Trial {
        feature,
        machine,
        made_for,
    }
}

/// All of them.
#[rustfmt::skip]
pub const TRIALS: &[Trial] = &[
    trial("tiers", SMALL, &[Case::Sleepers, Case::SleepersWorking]),
    trial("tier-slices", SMALL, &[Case::ThroughputCrowd]),
    trial("cpu-bound", SMALL, &[Case::SleepersTurncoats]),
    trial("immature-gate", SMALL, &[Case::SleepersJobs]),
    trial("wakeup-preemption", SMALL, &[Case::Sleepers, Case::SleepersWorking]),
    trial("tick-preemption", SMALL, &[Case::SleepersInteractive]),
    trial("requeue-preemption", SMALL, &[Case::Compositor]),
    trial("min-run", SMALL, &[Case::Pipe]),
    trial("make-up", SMALL, &[Case::SleepersInteractive]),
    trial("sync-pause", SMALL, &[Case::Messaging]),
    trial("sync-crowd", SMALL, &[Case::Messaging]),
    trial("sync-ahead", SMALL, &[Case::Ipc]),
    trial("previous", SMALL, &[Case::SleepersInteractive]),
    trial("boost", SMALL, &[Case::Compositor]),
    trial("kick-idle", SMALL, &[Case::Displaced]),
    trial("reenqueue", SMALL, &[Case::Displaced]),
    trial("pinned-clock", SMALL, &[Case::SleepersPinned]),
    trial("rescue", SMALL, &[Case::Light]),
    trial("starvation-rescue", SMALL, &[Case::BehindFront]),
    trial("cgroup-weight", SMALL, &[Case::GroupWeight]),
    trial("cgroup-max", SMALL, &[Case::GroupLimit]),
    trial("cusum", SMALL, &[Case::LaunchStorm]),
    trial("wakeup-burst", SMALL, &[Case::LaunchStorm]),
    trial("longrun", SMALL, &[Case::LaunchLongrun]),
    trial("deficit", SMALL, &[Case::BehindFront, Case::BehindPinned]),
    trial("sojourn-rescue", SMALL, &[Case::BehindFront]),
    trial("overflow-rescue", SMALL, &[Case::BehindPinned]),
    trial("idle-depth", SMALL, &[Case::WakeBurst]),
    trial("adapt", SMALL, &[Case::ThroughputCrowd, Case::LaunchLongrun]),
    trial("steal", TWO_CACHES, &[Case::Halves]),
    trial("domain-clock", TWO_CACHES, &[Case::Newcomer]),
    trial("vtime-ceiling", EIGHT, &[Case::LightSleeper]),
];

impl Trial {
    /// The cases under which it is tried.
    fn cases(self, elsewhere: bool) -> Vec<Case> {
        let mut cases = self.made_for.to_vec();
        let others = ELSEWHERE.iter().filter(|_| elsewhere);
        cases.extend(others.filter(|case| !self.made_for.contains(case)));
        cases
    }
}

/// The cases for which a feature was made; none of one that is in no trial.
pub fn made_for(feature: &str) -> &'static [Case] {
    let trial = TRIALS.iter().find(|trial| trial.feature == feature);
    trial.map_or(&[], |trial| trial.made_for)
}

/// The features that there are loads for.
pub fn features() -> impl Iterator<Item = &'static str> {
    TRIALS.iter().map(|trial| trial.feature)
}

/// One guest of the trials.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Guest {
    /// The machine.
    pub machine: Machine,
    /// The features that are tried there.
    pub features: Vec<String>,
}

/// The guests in which the features of these names are tried.
///
/// # Errors
/// A name without a trial.
pub fn guests(named: &[&str]) -> Result<Vec<Guest>, String> {
    let find = |name: &&str| {
        let found = TRIALS.iter().find(|trial| trial.feature == *name);
        found.ok_or_else(|| {
            let names: Vec<&str> = features().collect();
            format!(
                "--ablation: there is no load for {name}; there are for {}",
                names.join(", ")
            )
        })
    };
    let mut guests: Vec<Guest> = Vec::new();
    for trial in named.iter().map(find) {
        let trial = trial?;
        let name = trial.feature.to_owned();
        let there = guests
            .iter_mut()
            .find(|guest| guest.machine == trial.machine);
        match there {
            Some(guest) => guest.features.push(name),
            None => guests.push(Guest {
                machine: trial.machine,
                features: vec![name],
            }),
        }
    }
    Ok(guests)
}

/// The cases under which a scheduler of this name is measured, where these features are tried: all of them where it is the
/// scheduler as it is, in their own order.
pub fn cases(scheduler: &str, features: &[&str], elsewhere: bool) -> Vec<Case> {
    let own = Feature::of(scheduler);
    let is_tried = |trial: &&Trial| match &own {
        Some(own) => own.name == trial.feature,
        None => features.contains(&trial.feature),
    };
    let trials = TRIALS.iter().filter(is_tried);
    let mut cases: Vec<Case> = trials.flat_map(|trial| trial.cases(elsewhere)).collect();
    cases.sort_unstable();
    cases.dedup();
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_feature_is_tried_once_and_features_of_a_machine_share_a_guest() {
        let all = guests(&features().collect::<Vec<_>>()).unwrap();
        let count: usize = all.iter().map(|guest| guest.features.len()).sum();
        assert_eq!(count, TRIALS.len());
        let mut names: Vec<&String> = all.iter().flat_map(|guest| &guest.features).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), TRIALS.len(), "one stands twice");
        let two = guests(&["steal", "tiers", "domain-clock"]).unwrap();
        assert_eq!(two.len(), 2);
        assert_eq!(two[0].features, ["steal", "domain-clock"]);
        assert_eq!((two[0].machine, two[1].machine), (TWO_CACHES, SMALL));
        let error = guests(&["speed"]).unwrap_err();
        assert!(
            error.contains("no load for speed; there are for tiers"),
            "{error}"
        );
    }

    #[test]
    fn the_scheduler_as_it_is_meets_every_load_and_one_without_a_feature_its_own() {
        let features = ["cpu-bound", "rescue"];
        let of = |scheduler, elsewhere| cases(scheduler, &features, elsewhere);
        assert_eq!(
            of("morpheus", false),
            [Case::SleepersTurncoats, Case::Light]
        );
        assert_eq!(of("morpheus --without rescue", false), [Case::Light]);
        let with_others = of("morpheus --without rescue", true);
        assert_eq!(
            with_others,
            [Case::Messaging, Case::SleepersBurst, Case::Light]
        );
        assert!(of("morpheus --without speed", true).is_empty());
    }
}
