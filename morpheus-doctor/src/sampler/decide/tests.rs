//! Made-up looks.

use super::*;

const THRESHOLD_NS: u64 = 1_000_000;
const PERIOD_NS: u64 = 500_000;
const PARK: State = State::Rests(Sleep::Park);

/// A worker, and the time of the next look.
struct Played {
    worker: Worker,
    now_ns: u64,
    runs: u64,
    sleeps: Option<u64>,
}

impl Played {
    fn new() -> Played {
        Played {
            worker: Worker::new(7, THRESHOLD_NS, PERIOD_NS),
            now_ns: 1_000_000_000,
            runs: 1,
            sleeps: None,
        }
    }

    /// A look a period after the last.
    fn look(&mut self, state: State, tick: Tick) -> Verdict {
        self.now_ns += PERIOD_NS;
        self.worker.look(Look {
            now_ns: self.now_ns,
            state,
            tick,
            runs: Some(self.runs),
            sleeps: self.sleeps,
            delay_ns: 0,
            unserved_ns: 0,
        })
    }

    /// It was given a CPU since the last look.
    fn ran(&mut self) -> &mut Played {
        self.runs += 1;
        self
    }
}

#[test]
fn a_sleep_in_a_poll_is_copied_once_and_told_when_it_ends() {
    let mut played = Played::new();
    played.look(PARK, Tick::Is(4));
    played.ran();
    let mut copies = 0;
    for _ in 0..20 {
        let verdict = played.look(State::Sleeps, Tick::Is(5));
        assert_eq!(verdict.ended, None);
        if verdict.copy_sleeper {
            assert!(played.worker.slept_ns() >= THRESHOLD_NS);
            copies += 1;
            played.worker.was_copied(played.now_ns);
        }
    }
    assert_eq!(copies, 1);
    assert_eq!(played.worker.role, Role::Stalled);
    let ended = played.ran().look(PARK, Tick::Is(6)).ended.unwrap();
    assert!(ended.has_stack);
    let progress = ended.progress;
    // Half a period at each end.
    assert_eq!(progress.now_ns - progress.began_ns, 20 * PERIOD_NS);
    assert_eq!(progress.blocked_ns, 20 * PERIOD_NS);
    assert_eq!(
        ended.slept,
        Some((ended.first_ns, played.now_ns - PERIOD_NS))
    );
    assert_eq!(progress.cpu_ns, 0);
    assert!(progress.is_exact);
    assert_eq!(played.worker.role, Role::None);
}

#[test]
fn a_second_long_sleep_of_a_poll_is_copied_too() {
    let mut played = Played::new();
    let mut copies = Vec::new();
    for look in 0..12 {
        // Two sleeps of six looks each.
        if look == 6 {
            played.ran();
        }
        if played.look(State::Sleeps, Tick::Is(5)).copy_sleeper {
            copies.push(look);
            played.worker.was_copied(played.now_ns);
        }
    }
    assert_eq!(copies, [2, 8]);
}

#[test]
fn a_park_is_no_poll_however_long_it_is() {
    for sleep in [Sleep::Park, Sleep::Driver, Sleep::Held] {
        let mut played = Played::new();
        for _ in 0..100 {
            let verdict = played.look(State::Rests(sleep), Tick::Is(4));
            assert_eq!(verdict, Verdict::default());
        }
        assert!(played.worker.progress().is_none());
        assert_eq!(played.worker.role == Role::Drives, sleep == Sleep::Driver);
    }
}

#[test]
fn a_poll_whose_worker_was_handed_over_is_long_and_holds_up_none() {
    let mut played = Played::new();
    played.look(PARK, Tick::Is(4));
    played.ran();
    for _ in 0..20 {
        // The core's number goes on with another thread; a core that is away without a poll of Morpheus is no poll.
        let verdict = played.look(State::Runs, Tick::HandedOver(31));
        assert_eq!(verdict.ended, None);
        assert_eq!(played.worker.role, Role::None);
        if verdict.take_sample {
            played.worker.was_copied(played.now_ns);
        }
    }
    let ended = played
        .look(State::Runs, Tick::HandedOver(33))
        .ended
        .unwrap();
    assert!(ended.has_stack && ended.progress.is_exact);
    assert_eq!(
        ended.progress.now_ns - ended.progress.began_ns,
        20 * PERIOD_NS
    );
    assert!(played.look(State::Runs, Tick::NoCore).ended.is_some());
    assert!(played.worker.progress().is_none());
}

#[test]
fn a_stack_is_asked_for_at_once_where_looks_are_far_apart() {
    for (apart_ns, wanted) in [(PERIOD_NS, false), (THRESHOLD_NS, true)] {
        let mut played = Played::new();
        played.look(PARK, Tick::Is(4));
        played.ran().now_ns += apart_ns - PERIOD_NS;
        let verdict = played.look(State::Runs, Tick::Is(5));
        assert_eq!(verdict.want_sample, wanted, "{apart_ns} ns");
        assert!(!verdict.take_sample, "none was taken");
    }
}

#[test]
fn rest_is_counted_from_the_last_run() {
    let mut played = Played::new();
    for look in 0..10 {
        played.look(State::Rests(Sleep::Held), Tick::NoCore);
        assert_eq!(played.worker.rested_ns(), look * PERIOD_NS);
    }
    played.ran().look(PARK, Tick::Is(4));
    assert_eq!(played.worker.rested_ns(), 0);
    played.ran().look(State::Sleeps, Tick::Is(5));
    played.look(State::Sleeps, Tick::Is(5));
    assert_eq!(played.worker.rested_ns(), 0, "a poll that sleeps");
}

#[test]
fn short_polls_are_told_apart_by_their_numbers() {
    let mut played = Played::new();
    for tick in 0..1000 {
        let verdict = played.look(State::Runs, Tick::Is(tick));
        assert!(!verdict.take_sample && !verdict.want_sample);
        assert_eq!(played.worker.role, Role::Serves);
        if let Some(ended) = verdict.ended {
            assert!(!ended.has_stack);
            assert!(ended.progress.now_ns - ended.progress.began_ns <= PERIOD_NS);
        }
    }
}

#[test]
fn a_poll_that_computes_is_sampled_and_then_less_frequently() {
    let mut played = Played::new();
    let mut taken = Vec::new();
    for look in 0..200_u64 {
        let verdict = played.look(State::Runs, Tick::Is(9));
        // Asked for before it is due.
        assert!(!verdict.take_sample || verdict.want_sample);
        if look == 1 {
            assert!(verdict.want_sample && !verdict.take_sample);
        }
        if verdict.take_sample {
            taken.push(look);
            played.worker.was_copied(played.now_ns);
        }
    }
    assert_eq!(taken[0], 2);
    let gaps: Vec<u64> = taken.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(
        gaps[0] >= 20 && gaps.is_sorted() && gaps.len() < 8,
        "{gaps:?}"
    );
    let ended = played.look(State::Runs, Tick::Is(10)).ended.unwrap();
    assert_eq!(ended.progress.cpu_ns, 199 * PERIOD_NS + PERIOD_NS / 2);
}

#[test]
fn what_waits_for_a_cpu_does_not_compute() {
    let mut played = Played::new();
    for look in 0..10 {
        played.now_ns += PERIOD_NS;
        played.worker.look(Look {
            now_ns: played.now_ns,
            state: State::Runs,
            tick: Tick::Is(1),
            runs: Some(1),
            sleeps: None,
            delay_ns: 50 + look * PERIOD_NS / 2,
            unserved_ns: 30 + look,
        });
    }
    let progress = played.worker.progress().unwrap();
    assert_eq!(progress.cpu_ns, 9 * PERIOD_NS / 2);
    assert_eq!(progress.unserved_ns, 9);
}

#[test]
fn without_a_number_a_stretch_ends_where_the_thread_may_have_parked() {
    let mut played = Played::new();
    played.sleeps = Some(10);
    played.look(State::Runs, Tick::Unknown);
    // Preempted, and given the CPU again.
    for _ in 0..5 {
        played.ran();
        assert_eq!(played.look(State::Runs, Tick::Unknown).ended, None);
    }
    // A sleep that is seen is the poll's.
    played.sleeps = Some(11);
    assert_eq!(played.look(State::Sleeps, Tick::Unknown).ended, None);
    played.ran();
    assert_eq!(played.look(State::Runs, Tick::Unknown).ended, None);
    // One that is not seen may have been a park.
    played.ran().sleeps = Some(12);
    let ended = played.look(State::Runs, Tick::Unknown).ended.unwrap();
    assert_eq!(
        ended.progress.now_ns - ended.progress.began_ns,
        7 * PERIOD_NS + PERIOD_NS / 2
    );
    assert!(!ended.progress.is_exact);
    // Neither is it known where the kernel does not say.
    played.ran().sleeps = None;
    assert!(played.look(State::Runs, Tick::Unknown).ended.is_some());
}

#[test]
fn a_number_that_is_found_in_a_poll_does_not_make_it_exact() {
    let mut played = Played::new();
    played.sleeps = Some(10);
    played.look(State::Runs, Tick::Unknown);
    // The first number tells nothing of the polls before it.
    assert!(played.look(State::Runs, Tick::Is(3)).ended.is_some());
    played.look(State::Runs, Tick::Is(3));
    assert!(played.worker.progress().unwrap().is_exact);
}

#[test]
fn a_worker_without_its_core_is_in_no_poll() {
    let mut played = Played::new();
    played.look(State::Runs, Tick::Is(3));
    let verdict = played.look(State::Sleeps, Tick::NoCore);
    assert!(verdict.ended.is_some());
    for _ in 0..10 {
        let verdict = played.look(State::Sleeps, Tick::NoCore);
        assert_eq!(verdict, Verdict::default());
    }
    assert_eq!(played.worker.role, Role::None);
    assert_eq!(played.worker.since_ns(), u64::MAX);
}

#[test]
fn a_thread_that_ends_in_a_poll_ends_the_poll() {
    let mut played = Played::new();
    for _ in 0..4 {
        played.look(State::Sleeps, Tick::Is(3));
    }
    played.worker.was_copied(played.now_ns);
    let ended = played.worker.leaves().unwrap();
    assert!(ended.has_stack);
    assert_eq!(ended.progress.blocked_ns, 3 * PERIOD_NS);
    assert_eq!(played.worker.leaves(), None);
}

#[test]
fn looks_that_were_held_up_make_no_poll_long() {
    let mut played = Played::new();
    played.look(PARK, Tick::Is(4));
    played.ran().now_ns += 1_000_000_000;
    played.look(State::Sleeps, Tick::Is(5));
    played.ran().now_ns += 1_000_000_000;
    let verdict = played.look(PARK, Tick::Is(6));
    let ended = verdict.ended.unwrap();
    assert_eq!(
        ended.progress.now_ns - ended.progress.began_ns,
        2 * MOST_EDGE_NS
    );
    assert!(!ended.has_stack);
}
