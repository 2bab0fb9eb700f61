//! The case of one stalled watched poll: which step the ladder takes, what the poll's verdict says, and what is reported.

use morpheus_common::ladder::{self, Action, Limits, Observation, Policy, Step};
use morpheus_common::slot::VerdictFlags;

use crate::decide::rating::{self, Rating};
use crate::report::event::Taken;
use crate::settings::Settings;

/// The rules of one runtime, for all its cases.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) limits: Limits,
    /// The limits for the ladder. In a dry run their policy is the default one, so that a case learns what it would do.
    ladder: Limits,
    /// Whether a demotion lowers the niceness of the thread.
    pub(crate) can_nice: bool,
    /// Whether the runtime has workers of its own, from which spares can take over.
    has_workers: bool,
}

impl Rules {
    pub(crate) fn new(settings: &Settings, can_nice: bool, has_workers: bool) -> Rules {
        let limits = rating::limits(settings);
        let mut ladder = limits;
        if limits.policy == Policy::Observe {
            ladder.policy = Policy::Demote;
        }
        Rules {
            limits,
            ladder,
            can_nice,
            has_workers,
        }
    }

    /// Whether this is a dry run.
    pub(crate) fn only_observe(&self) -> bool {
        self.limits.policy == Policy::Observe
    }
}

/// The state of one watched poll from sample to sample: its step, and the findings about it.
#[derive(Debug, Default)]
pub(crate) struct Case {
    pub(crate) step: Step,
    /// It was asked to yield.
    pub(crate) is_asked: bool,
    pub(crate) is_stalled: bool,
    /// Its stack was asked for, so it is not asked for again.
    pub(crate) is_stack_asked: bool,
    is_hog: bool,
    /// Its label was slow before this poll.
    was_slow: bool,
}

/// The judgement on a stalled poll at a sample, with the action due.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Judgement {
    /// It is stalled since this sample.
    pub(crate) begins_stall: bool,
    /// It is a hog poll since this sample.
    pub(crate) becomes_hog: bool,
    pub(crate) action: Action,
    pub(crate) verdict: VerdictFlags,
    /// The action of a stall event, if there is one.
    pub(crate) taken: Option<Taken>,
}

impl Case {
    /// Judges one observation; `None` for a poll that is not stalled. `label` is the rating of its label, `in_handoff`
    /// whether its worker has handed off its core.
    pub(crate) fn judge(
        &mut self,
        seen: &Observation,
        in_handoff: bool,
        label: Rating,
        rules: &Rules,
    ) -> Option<Judgement> {
        if !ladder::is_stalled(seen, &rules.limits) {
            return None;
        }
        let begins_stall = !self.is_stalled;
        if begins_stall {
            self.is_stalled = true;
            self.was_slow = label >= Rating::Slow;
        }
        let becomes_hog = !self.is_hog && ladder::is_hog(seen, &rules.limits);
        self.is_hog |= becomes_hog;
        let transition = ladder::advance(self.step, seen, &rules.ladder);
        self.step = transition.step;
        let taken = self.taken(transition.action, in_handoff, rules);
        let action = match transition.action {
            _ if rules.only_observe() => Action::None,
            Action::Request if self.is_asked => Action::None,
            // No spare is needed: the runtime has no workers, or the poll's worker has handed off its core.
            Action::TakeOver if taken != Some(Taken::SpareReleased) => Action::None,
            action => action,
        };
        let mut verdict = VerdictFlags::STALLED;
        let mut set = |is_set: bool, flag| {
            if is_set {
                verdict = verdict | flag;
            }
        };
        set(seen.asleep, VerdictFlags::BLOCKED);
        set(self.is_hog, VerdictFlags::HOG);
        let lowers = action == Action::Demote && rules.can_nice;
        set(lowers, VerdictFlags::DEMOTED);
        set(action == Action::Throttle, VerdictFlags::THROTTLED);
        Some(Judgement {
            begins_stall,
            becomes_hog,
            action,
            verdict,
            taken,
        })
    }

    fn taken(&self, action: Action, in_handoff: bool, rules: &Rules) -> Option<Taken> {
        let only_observe = rules.only_observe();
        Some(match action {
            Action::TakeOver if !in_handoff && !rules.has_workers => match only_observe {
                true => Taken::Observed,
                false => Taken::Requested,
            },
            Action::TakeOver if only_observe => match self.was_slow {
                true => Taken::WouldHandOff,
                false => Taken::WouldReleaseSpare,
            },
            Action::TakeOver if in_handoff => Taken::AlreadyHandedOff,
            Action::TakeOver => Taken::SpareReleased,
            Action::Request if rules.limits.policy == Policy::Request => Taken::Requested,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn rules(policy: Policy) -> Rules {
        let settings = Settings {
            policy,
            ..Settings::default()
        };
        Rules::new(&settings, true, true)
    }

    /// A poll that has computed for this time.
    fn computing(cpu_ns: u64) -> Observation {
        Observation {
            stalled_ns: cpu_ns,
            cpu_ns,
            asleep: false,
            critical: false,
            demotable: true,
            hog_polls: 0,
        }
    }

    /// The judgements on a poll that computes for 30 ms, a sample a millisecond.
    fn course(rules: &Rules, in_handoff: bool, label: Rating) -> Vec<Judgement> {
        let mut case = Case::default();
        let seen = (0..30).map(|ms| computing(ms * MS));
        seen.filter_map(|seen| case.judge(&seen, in_handoff, label, rules))
            .collect()
    }

    fn actions(course: &[Judgement]) -> Vec<Action> {
        let taken = course.iter().map(|judgement| judgement.action);
        taken.filter(|action| *action != Action::None).collect()
    }

    fn events(course: &[Judgement]) -> Vec<Taken> {
        let taken = course.iter().filter_map(|judgement| judgement.taken);
        taken.collect()
    }

    #[test]
    fn a_poll_that_computes_goes_up_the_ladder() {
        let course = course(&rules(Policy::Demote), false, Rating::Healthy);
        let steps = [Action::Request, Action::TakeOver, Action::Demote];
        assert_eq!(actions(&course), steps);
        assert_eq!(events(&course), [Taken::SpareReleased]);
        let begun = course.iter().filter(|judgement| judgement.begins_stall);
        let hogs = course.iter().filter(|judgement| judgement.becomes_hog);
        assert_eq!((begun.count(), hogs.count()), (1, 1));
        let lowered: Vec<_> = course
            .iter()
            .filter(|judgement| judgement.verdict.contains(VerdictFlags::DEMOTED))
            .map(|judgement| judgement.action)
            .collect();
        assert_eq!(lowered, [Action::Demote]);
        assert!(course[0].verdict.contains(VerdictFlags::STALLED));
        assert!(course.last().unwrap().verdict.contains(VerdictFlags::HOG));
    }

    #[test]
    fn within_its_budget_nothing_is_done() {
        let mut case = Case::default();
        let seen = computing(MS / 2);
        let judgement = case.judge(&seen, false, Rating::Healthy, &rules(Policy::Demote));
        assert_eq!(judgement, None);
        assert!(!case.is_stalled);
    }

    #[test]
    fn a_dry_run_says_what_would_be_done_and_does_nothing() {
        for (label, would) in [
            (Rating::Healthy, Taken::WouldReleaseSpare),
            (Rating::Slow, Taken::WouldHandOff),
        ] {
            let course = course(&rules(Policy::Observe), false, label);
            assert_eq!(actions(&course), []);
            assert_eq!(events(&course), [would]);
            let is_lowered =
                |judgement: &Judgement| judgement.verdict.contains(VerdictFlags::DEMOTED);
            assert!(!course.iter().any(is_lowered));
        }
    }

    #[test]
    fn a_handoff_poll_needs_no_spare() {
        let course = course(&rules(Policy::Demote), true, Rating::Hog);
        assert_eq!(actions(&course), [Action::Request, Action::Demote]);
        assert_eq!(events(&course), [Taken::AlreadyHandedOff]);
    }

    #[test]
    fn without_workers_a_poll_is_only_asked() {
        for (policy, taken) in [
            (Policy::Demote, Taken::Requested),
            (Policy::Observe, Taken::Observed),
        ] {
            let settings = Settings {
                policy,
                ..Settings::default()
            };
            let rules = Rules::new(&settings, false, false);
            let course = course(&rules, false, Rating::Healthy);
            assert_eq!(events(&course), [taken]);
            assert!(!actions(&course).contains(&Action::TakeOver));
        }
    }

    #[test]
    fn a_poll_that_was_asked_is_not_asked_again() {
        let rules = rules(Policy::Request);
        let mut case = Case {
            is_asked: true,
            ..Case::default()
        };
        let judged = case.judge(&computing(MS), false, Rating::Healthy, &rules);
        let judgement = judged.unwrap();
        assert_eq!(judgement.action, Action::None);
        assert_eq!(judgement.taken, Some(Taken::Requested));
    }

    #[test]
    fn without_the_right_to_a_demotion_lowers_no_thread() {
        let rules = Rules::new(&Settings::default(), false, true);
        let course = course(&rules, false, Rating::Healthy);
        assert!(actions(&course).contains(&Action::Demote));
        let is_lowered = |judgement: &Judgement| judgement.verdict.contains(VerdictFlags::DEMOTED);
        assert!(!course.iter().any(is_lowered));
    }
}
