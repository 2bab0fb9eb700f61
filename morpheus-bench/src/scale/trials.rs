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

/// A feature, the machine that it is tried on, and the loads that it was made for.
pub type Trial = (&'static str, Machine, &'static [Case]);

/// All of them.
#[rustfmt::skip]
pub const TRIALS: &[Trial] = &[
    ("tiers", SMALL, &[Case::Sleepers, Case::SleepersWorking]),
    ("tier-slices", SMALL, &[Case::ThroughputCrowd]),
    ("cpu-bound", SMALL, &[Case::SleepersTurncoats]),
    ("immature-gate", SMALL, &[Case::SleepersJobs]),
    ("wakeup-preemption", SMALL, &[Case::Sleepers, Case::SleepersWorking]),
    ("tick-preemption", SMALL, &[Case::SleepersInteractive]),
    ("requeue-preemption", SMALL, &[Case::Compositor]),
    ("min-run", SMALL, &[Case::Pipe]),
    ("make-up", SMALL, &[Case::SleepersInteractive]),
    ("sync-pause", SMALL, &[Case::Messaging]),
    ("sync-crowd", SMALL, &[Case::Messaging]),
    ("sync-ahead", SMALL, &[Case::Ipc]),
    ("previous", SMALL, &[Case::SleepersInteractive]),
    ("boost", SMALL, &[Case::Compositor]),
    ("kick-idle", SMALL, &[Case::Displaced]),
    ("reenqueue", SMALL, &[Case::Displaced]),
    ("pinned-clock", SMALL, &[Case::SleepersPinned]),
    ("rescue", SMALL, &[Case::Light]),
    ("starvation-rescue", SMALL, &[Case::BehindFront]),
    ("cgroup-weight", SMALL, &[Case::GroupWeight]),
    ("cgroup-max", SMALL, &[Case::GroupLimit]),
    ("cusum", SMALL, &[Case::LaunchStorm]),
    ("wakeup-burst", SMALL, &[Case::LaunchStorm]),
    ("longrun", SMALL, &[Case::LaunchLongrun]),
    ("deficit", SMALL, &[Case::BehindFront, Case::BehindPinned]),
    ("sojourn-rescue", SMALL, &[Case::BehindFront]),
    ("overflow-rescue", SMALL, &[Case::BehindPinned]),
    ("idle-depth", SMALL, &[Case::WakeBurst]),
    ("adapt", SMALL, &[Case::ThroughputCrowd, Case::LaunchLongrun]),
    ("steal", TWO_CACHES, &[Case::Halves]),
    ("domain-clock", TWO_CACHES, &[Case::Newcomer]),
    ("vtime-ceiling", EIGHT, &[Case::LightSleeper]),
];

/// The cases for which a feature was made; none of one that is in no trial.
pub fn made_for(feature: &str) -> &'static [Case] {
    let trial = TRIALS.iter().find(|(own, ..)| *own == feature);
    trial.map_or(&[], |(.., made_for)| made_for)
}

/// The features that there are loads for.
pub fn features() -> impl Iterator<Item = &'static str> {
    TRIALS.iter().map(|(feature, ..)| *feature)
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
        let found = TRIALS.iter().find(|(feature, ..)| feature == name);
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
        let &(feature, machine, _) = trial?;
        let name = feature.to_owned();
        match guests.iter_mut().find(|guest| guest.machine == machine) {
            Some(guest) => guest.features.push(name),
            None => guests.push(Guest {
                machine,
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
    let is_tried = |(feature, ..): &&Trial| match &own {
        Some(own) => own.name == *feature,
        None => features.contains(feature),
    };
    let mut cases = Vec::new();
    for (.., made_for) in TRIALS.iter().filter(is_tried) {
        cases.extend_from_slice(made_for);
        cases.extend(ELSEWHERE.iter().filter(|_| elsewhere));
    }
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
