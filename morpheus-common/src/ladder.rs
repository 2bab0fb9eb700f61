//! The escalation ladder: decides what is done, and when, about a poll that does not end.
//!
//! ```text
//!           stalled            still stalled             a hog poll          too many of them
//! Watching ─request─► Requested ─takeover─► TakenOver ─demote─► Demoted ─throttle─► Throttled
//!     └───────────── stalled asleep ──────────────▲
//! ```
//!
//! The functions keep no state and read no clock. The observer of a poll (the controller or the kernel side)
//! keeps the poll's [`Step`], passes its observations, and carries out the returned [`Action`]. It drops the
//! step when the poll ends. These invariants hold for all observations, and the tests check them:
//!
//! - Within a poll no step is taken back. No step is skipped, except for the request to a thread that sleeps.
//! - One call takes at most one step, and returns an action exactly when it takes a step. So each step is
//!   counted once.
//! - No step exceeds the policy.
//! - A poll that is not stalled gets no action.
//! - No action slows down a thread in a critical section or a thread that is not demotable. Request and
//!   takeover do not slow it down, and are taken.

/// The last step that the ladder may take. Each policy allows the steps of those before it.
///
/// A policy has the number of its last [`Step`]. Both numbers are those of `morpheus_abi.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum Policy {
    /// No action is taken. Stalled polls are only reported, with the action that would be taken.
    Observe = 0,
    /// A stalled poll is asked to yield.
    Request = 1,
    /// Another worker takes over from a stalled one.
    Takeover = 2,
    /// A hog poll counts as demoted. Its thread gets less CPU time until the poll ends, where the runtime lowers threads (`nice_hogs`) or
    /// the kernel side's scheduler does (handed-off polls).
    Demote = 3,
    /// The bandwidth of a task whose label has many hog polls is capped.
    Throttle = 4,
}

/// The last step that the ladder took with one poll.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum Step {
    /// No step was taken.
    #[default]
    Watching = 0,
    /// The poll was asked to yield.
    Requested = 1,
    /// Another worker has taken over: a spare was called for, or the poll had been handed off.
    TakenOver = 2,
    /// The thread has a fraction of its weight.
    Demoted = 3,
    /// The thread's bandwidth is capped. The last step.
    Throttled = 4,
}

/// The limits of the ladder, the same for every poll of a runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Time after which a poll is stalled, in nanoseconds.
    pub budget_ns: u64,
    /// Further CPU time that a poll has to answer a request, in nanoseconds.
    pub grace_ns: u64,
    /// CPU time in one poll that makes it a hog poll, in nanoseconds. The usual value is 5 ms: several times
    /// the budget, so that a poll slightly over the budget does not count against its label.
    pub hog_ns: u64,
    /// Number of a label's hog polls from which its polls are throttled.
    pub repeat_hogs: u32,
    /// The last step that the ladder may take.
    pub policy: Policy,
}

/// The observation of one poll at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observation {
    /// Wall time since the poll began, or was first seen if its beginning is not known, in nanoseconds.
    pub stalled_ns: u64,
    /// CPU time of the poll's thread since then, in nanoseconds.
    pub cpu_ns: u64,
    /// Whether the thread sleeps in the kernel. The kernel's state of the thread decides, not its CPU time,
    /// which is small for a preempted thread too.
    pub asleep: bool,
    /// Whether the thread is in a critical section, and its claim to that still counts.
    pub critical: bool,
    /// Whether the thread may be demoted and throttled.
    pub demotable: bool,
    /// Number of earlier hog polls of this poll's label.
    pub hog_polls: u32,
}

/// The action to take now.
#[must_use = "the ladder only decides: the caller carries the action out"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// No action.
    None,
    /// Write the poll's `poll_seq` to `request_seq`.
    Request,
    /// Release a spare.
    TakeOver,
    /// Give the thread a fraction of its weight until the poll ends.
    Demote,
    /// Cap the bandwidth. The kernel side caps that of the thread until the poll ends; a runtime alone delays the next
    /// poll of the task.
    Throttle,
}

/// The decision of [`advance`].
#[must_use = "the ladder keeps no state: keep the step, and carry the action out"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
    /// The step to pass to the next [`advance`] about the same poll.
    pub step: Step,
    /// The action to take now. [`Action::None`] exactly when the step has not changed.
    pub action: Action,
}

/// Returns the CPU time from which a poll is stalled: four fifths of the budget, in nanoseconds.
///
/// It is less than the budget, because a poll that had the CPU all the time shows a little less: interrupts,
/// other threads, and the time between the readings of two clocks cost some. With the whole budget, such a
/// poll would be found stalled a sample later, at twice the budget.
#[must_use]
pub const fn stalled_cpu_ns(limits: &Limits) -> u64 {
    limits.budget_ns - limits.budget_ns / 5
}

/// Whether the poll has used up its budget: four fifths of it on the CPU, or all of it if the thread sleeps
/// now.
///
/// A thread that waits for a CPU is not stalled. Its poll would have ended if it had had one, and more
/// threads do not help if CPU time is short.
///
/// ```
/// use morpheus_common::ladder::{Limits, Observation, Policy, is_stalled};
///
/// let limits = Limits {
///     budget_ns: 1_000_000,
///     grace_ns: 1_000_000,
///     hog_ns: 5_000_000,
///     repeat_hogs: 8,
///     policy: Policy::Takeover,
/// };
/// let preempted = Observation {
///     stalled_ns: 30_000_000,
///     cpu_ns: 200_000,
///     asleep: false,
///     critical: false,
///     demotable: true,
///     hog_polls: 0,
/// };
/// assert!(!is_stalled(&preempted, &limits));
/// assert!(is_stalled(&Observation { cpu_ns: 800_000, ..preempted }, &limits));
/// assert!(is_stalled(&Observation { asleep: true, ..preempted }, &limits));
/// ```
#[must_use]
pub const fn is_stalled(seen: &Observation, limits: &Limits) -> bool {
    seen.cpu_ns >= stalled_cpu_ns(limits) || (seen.asleep && seen.stalled_ns >= limits.budget_ns)
}

/// Whether the poll is a hog poll, which counts against its label. Only CPU time makes one: wall time would
/// blame tasks that a hog preempted.
#[must_use]
pub const fn is_hog(seen: &Observation, limits: &Limits) -> bool {
    seen.cpu_ns >= limits.hog_ns
}

/// Takes the next step with a poll whose last step was `step`, or none.
///
/// | from | to | when | policy at least |
/// |---|---|---|---|
/// | `Watching` | `Requested` | stalled | `Request` |
/// | `Watching` | `TakenOver` | stalled and asleep: it cannot answer a request | `Takeover` |
/// | `Requested` | `TakenOver` | stalled, and asleep or on the CPU for ⅘ budget + grace | `Takeover` |
/// | `TakenOver` | `Demoted` | a hog poll, demotable, not critical | `Demote` |
/// | `Demoted` | `Throttled` | repeat hog polls, demotable, not critical | `Throttle` |
///
/// The grace is measured in the poll's own CPU time, like the budget: a thread that was preempted right after
/// the request could not answer it. With [`Policy::Request`] a sleeping poll is asked too, because it may
/// check when it wakes.
///
/// ```
/// use morpheus_common::ladder::{Action, Limits, Observation, Policy, Step, Transition, advance};
///
/// let limits = Limits {
///     budget_ns: 1_000_000,
///     grace_ns: 1_000_000,
///     hog_ns: 5_000_000,
///     repeat_hogs: 8,
///     policy: Policy::Demote,
/// };
/// // A poll that computes, seen every millisecond.
/// let after_ms = |ms: u64| Observation {
///     stalled_ns: ms * 1_000_000,
///     cpu_ns: ms * 990_000,
///     asleep: false,
///     critical: false,
///     demotable: true,
///     hog_polls: 20,
/// };
/// let mut step = Step::Watching;
/// let mut actions = Vec::new();
/// for ms in 0..=10 {
///     let next = advance(step, &after_ms(ms), &limits);
///     if next.action != Action::None {
///         actions.push((ms, next.action));
///     }
///     step = next.step;
/// }
/// assert_eq!(actions, [(1, Action::Request), (2, Action::TakeOver), (6, Action::Demote)]);
/// assert_eq!(step, Step::Demoted, "the policy goes no further");
///
/// // A poll that sleeps in a system call is taken over at once.
/// let asleep = Observation { cpu_ns: 10_000, asleep: true, ..after_ms(1) };
/// assert_eq!(
///     advance(Step::Watching, &asleep, &limits),
///     Transition { step: Step::TakenOver, action: Action::TakeOver },
/// );
/// ```
pub const fn advance(step: Step, seen: &Observation, limits: &Limits) -> Transition {
    let stalled = is_stalled(seen, limits);
    let may_slow_down = seen.demotable && !seen.critical;
    let grace_over = seen.cpu_ns >= stalled_cpu_ns(limits).saturating_add(limits.grace_ns);

    let next = match step {
        Step::Watching if stalled && seen.asleep && allows(limits, Policy::Takeover) => {
            Step::TakenOver
        }
        Step::Watching if stalled => Step::Requested,
        Step::Requested if stalled && (seen.asleep || grace_over) => Step::TakenOver,
        Step::TakenOver if stalled && is_hog(seen, limits) && may_slow_down => Step::Demoted,
        Step::Demoted if stalled && seen.hog_polls >= limits.repeat_hogs && may_slow_down => {
            Step::Throttled
        }
        _ => step,
    };
    // Policies and steps share their numbers, so one comparison caps all steps.
    if next as u32 == step as u32 || next as u32 > limits.policy as u32 {
        return Transition {
            step,
            action: Action::None,
        };
    }
    let action = match next {
        Step::Watching => Action::None,
        Step::Requested => Action::Request,
        Step::TakenOver => Action::TakeOver,
        Step::Demoted => Action::Demote,
        Step::Throttled => Action::Throttle,
    };
    Transition { step: next, action }
}

const fn allows(limits: &Limits, policy: Policy) -> bool {
    limits.policy as u32 >= policy as u32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Policy::{Demote, Observe, Request, Takeover, Throttle};
    use super::Step::{Demoted, Requested, TakenOver, Throttled, Watching};
    use super::*;
    use crate::abi;

    const POLICIES: [Policy; 5] = [Observe, Request, Takeover, Demote, Throttle];
    const STEPS: [Step; 5] = [Watching, Requested, TakenOver, Demoted, Throttled];

    const LIMITS: Limits = Limits {
        budget_ns: 1000,
        grace_ns: 500,
        hog_ns: 5000,
        repeat_hogs: 3,
        policy: Throttle,
    };
    /// A new poll on the CPU, of a label with many hog polls.
    const NEW: Observation = Observation {
        stalled_ns: 0,
        cpu_ns: 0,
        asleep: false,
        critical: false,
        demotable: true,
        hog_polls: 100,
    };

    fn on_cpu(cpu_ns: u64) -> Observation {
        Observation {
            stalled_ns: cpu_ns,
            cpu_ns,
            ..NEW
        }
    }

    fn asleep(stalled_ns: u64) -> Observation {
        Observation {
            stalled_ns,
            asleep: true,
            ..NEW
        }
    }

    #[test]
    fn numbers_are_those_of_the_header() {
        let policies = [
            abi::MORPHEUS_POLICY_OBSERVE,
            abi::MORPHEUS_POLICY_REQUEST,
            abi::MORPHEUS_POLICY_TAKEOVER,
            abi::MORPHEUS_POLICY_DEMOTE,
            abi::MORPHEUS_POLICY_THROTTLE,
        ];
        let steps = [
            abi::MORPHEUS_STEP_WATCHING,
            abi::MORPHEUS_STEP_REQUESTED,
            abi::MORPHEUS_STEP_TAKEN_OVER,
            abi::MORPHEUS_STEP_DEMOTED,
            abi::MORPHEUS_STEP_THROTTLED,
        ];
        assert_eq!(POLICIES.map(|policy| policy as u32), policies);
        assert_eq!(STEPS.map(|step| step as u32), steps);
        assert_eq!(policies, steps, "`advance` compares one with the other");
    }

    #[test]
    fn each_step_at_its_limit() {
        let critical = |seen: Observation| Observation {
            critical: true,
            ..seen
        };
        let indemotable = |seen: Observation| Observation {
            demotable: false,
            ..seen
        };
        let hog_polls = |hog_polls, seen: Observation| Observation { hog_polls, ..seen };
        let table = [
            // One below each limit, and at it.
            (Throttle, Watching, on_cpu(799), Watching),
            (Throttle, Watching, on_cpu(800), Requested),
            (Throttle, Watching, asleep(999), Watching),
            (Throttle, Watching, asleep(1000), TakenOver),
            (Throttle, Requested, on_cpu(1299), Requested),
            (Throttle, Requested, on_cpu(1300), TakenOver),
            (Throttle, Requested, asleep(1000), TakenOver),
            (Throttle, TakenOver, on_cpu(4999), TakenOver),
            (Throttle, TakenOver, on_cpu(5000), Demoted),
            (Throttle, Demoted, hog_polls(2, on_cpu(5000)), Demoted),
            (Throttle, Demoted, hog_polls(3, on_cpu(5000)), Throttled),
            // One step in each call, however late it comes.
            (Throttle, Watching, on_cpu(u64::MAX), Requested),
            (Throttle, Throttled, on_cpu(u64::MAX), Throttled),
            // A thread that waits for a CPU is not stalled.
            (
                Throttle,
                Watching,
                Observation {
                    stalled_ns: u64::MAX,
                    ..NEW
                },
                Watching,
            ),
            (
                Throttle,
                Requested,
                Observation {
                    stalled_ns: u64::MAX,
                    ..on_cpu(900)
                },
                Requested,
            ),
            // A long sleep makes no hog poll.
            (Throttle, TakenOver, asleep(u64::MAX), TakenOver),
            // In a critical section, steps that do not slow the thread down are taken, and the others are
            // not.
            (Throttle, Watching, critical(on_cpu(800)), Requested),
            (Throttle, Requested, critical(on_cpu(1300)), TakenOver),
            (Throttle, TakenOver, critical(on_cpu(5000)), TakenOver),
            (Throttle, Demoted, critical(on_cpu(9000)), Demoted),
            (Throttle, Requested, indemotable(on_cpu(1300)), TakenOver),
            (Throttle, TakenOver, indemotable(on_cpu(5000)), TakenOver),
            (Throttle, Demoted, indemotable(on_cpu(9000)), Demoted),
            // Policies.
            (Observe, Watching, on_cpu(u64::MAX), Watching),
            (Observe, Watching, asleep(u64::MAX), Watching),
            (Request, Watching, asleep(1000), Requested),
            (Request, Requested, on_cpu(u64::MAX), Requested),
            (Takeover, TakenOver, on_cpu(u64::MAX), TakenOver),
            (Demote, TakenOver, on_cpu(5000), Demoted),
            (Demote, Demoted, on_cpu(u64::MAX), Demoted),
        ];
        for (policy, from, seen, to) in table {
            let next = advance(from, &seen, &Limits { policy, ..LIMITS });
            assert_eq!(next.step, to, "{policy:?}, {from:?}, {seen:?}");
            let action = match to {
                _ if from == to => Action::None,
                Watching => Action::None,
                Requested => Action::Request,
                TakenOver => Action::TakeOver,
                Demoted => Action::Demote,
                Throttled => Action::Throttle,
            };
            assert_eq!(next.action, action, "{policy:?}, {from:?}, {seen:?}");
        }
    }

    /// Small numbers, which are below and above the limits; and rarely the largest, for overflow.
    fn ns() -> impl Strategy<Value = u64> {
        prop_oneof![9 => 0..20u64, 1 => Just(u64::MAX)]
    }

    prop_compose! {
        fn any_limits()(
            budget_ns in ns(), grace_ns in ns(), hog_ns in ns(),
            repeat_hogs in 0..4u32, policy in 0..5usize,
        ) -> Limits {
            Limits { budget_ns, grace_ns, hog_ns, repeat_hogs, policy: POLICIES[policy] }
        }
    }

    prop_compose! {
        fn any_observation()(
            stalled_ns in ns(), cpu_ns in ns(), asleep: bool, critical: bool, demotable: bool,
            hog_polls in 0..6u32,
        ) -> Observation {
            Observation { stalled_ns, cpu_ns, asleep, critical, demotable, hog_polls }
        }
    }

    proptest! {
        // Miri needs a minute for what takes a millisecond elsewhere.
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]

        #[test]
        fn one_step_at_a_time_and_none_back(
            from in 0..5usize, seen in any_observation(), limits in any_limits(),
        ) {
            let from = STEPS[from];
            let Transition { step, action } = advance(from, &seen, &limits);
            prop_assert!(step >= from);
            let past_request = (from, step) == (Watching, TakenOver);
            prop_assert!(step as u32 <= from as u32 + 1 || past_request && seen.asleep);
            prop_assert_eq!(step == from, action == Action::None);
            if step != from {
                prop_assert!(step as u32 <= limits.policy as u32);
                prop_assert!(is_stalled(&seen, &limits));
            }
        }

        #[test]
        fn critical_and_indemotable_threads_are_not_slowed_down(
            from in 0..5usize, seen in any_observation(), limits in any_limits(),
        ) {
            let action = advance(STEPS[from], &seen, &limits).action;
            if seen.critical || !seen.demotable {
                prop_assert!(!matches!(action, Action::Demote | Action::Throttle));
            }
        }

        #[test]
        fn critical_sections_delay_no_request_and_no_takeover(
            from in 0..2usize, seen in any_observation(), limits in any_limits(),
        ) {
            let critical = Observation { critical: true, demotable: false, ..seen };
            let from = STEPS[from];
            prop_assert_eq!(advance(from, &seen, &limits), advance(from, &critical, &limits));
        }

        #[test]
        fn every_step_is_taken_at_most_once(
            seen in prop::collection::vec(any_observation(), 0..40),
            last in any_observation(), limits in any_limits(),
        ) {
            let mut step = Watching;
            let mut taken = [0; 5];
            // The last observation repeats: after five calls no step is left to take.
            for seen in seen.iter().chain([&last; 5]) {
                let next = advance(step, seen, &limits);
                taken[next.step as usize] += u32::from(next.action != Action::None);
                step = next.step;
            }
            prop_assert!(taken.iter().all(|&times| times <= 1));
            let rest = Transition { step, action: Action::None };
            prop_assert_eq!(advance(step, &last, &limits), rest);
        }
    }
}
