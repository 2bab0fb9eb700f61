//! How many spares should be in play: the controller's arithmetic, without threads or clocks.
//!
//! - At least `stalled + reserve`: every stalled worker is replaced, and the reserve takes over with no delay.
//!   Stalled are watched polls that were taken over, and workers that sleep in polls that are not watched.
//!   It is none on a good day, when nothing was stalled for ten seconds, because for tokio it is one worker more to wake.
//!   It grows by one with each sign of pressure, and shrinks a second after the last.
//! - More while the canary is late: nobody knows who is stalled, but work waits.
//! - Fewer, lazily: one spare a step once nothing was needed for [`Staffing::patience_ns`], which doubles
//!   when holding one turned out to be wrong.
//! - Releases that did not help are undone: where the canary stays late although more spares are active
//!   than cores stand still, the machine is simply full, and more threads only take it from others. The
//!   next try then waits, twice as long each time.

use crate::settings::Settings;

/// With nothing stalled for so long, it is a good day: no reserve, and fewer looks.
const HEALTHY_AFTER_NS: u64 = 10_000_000_000;
/// So many signs of pressure, or late canaries in a row, end it: one may be the machine's.
const ALARMING: usize = 2;
/// The larger reserve lasts for so long after the last sign of pressure.
const PRESSURE_LASTS_NS: u64 = 1_000_000_000;
const PATIENCE_NS: u64 = 100_000_000;
const LONGEST_PATIENCE_NS: u64 = 10_000_000_000;
/// A canary that is late so soon after a hold says that the hold was wrong.
const HOLD_WAS_WRONG_NS: u64 = 20_000_000;
/// So many punctual canaries in a row end a spell of lateness.
const PUNCTUAL_AGAIN: u32 = 10;
const SHORTEST_WINDOW_NS: u64 = 100_000_000;
const LONGEST_WINDOW_NS: u64 = 2_000_000_000;

#[derive(Debug)]
pub(crate) struct Staffing {
    reserve: usize,
    reserve_when_calm: usize,
    reserve_in_trouble: usize,
    signs_within_ns: u64,
    workers: usize,
    cpus: usize,
    /// When something was last stalled.
    alarm_ns: Option<u64>,
    pressure_ns: Option<u64>,
    /// Signs of pressure since the last second without: one alone may be the machine's, and spares that nobody needs
    /// cost a busy runtime a third of its work.
    signs: usize,
    /// Workers that were last seen asleep in polls that are not watched, and when.
    blocked: usize,
    blocked_ns: u64,
    /// Watched polls that were stalled when spares were last released.
    stalled: usize,
    /// When a spare was last needed.
    needed_ns: u64,
    patience_ns: u64,
    held_ns: Option<u64>,
    late_in_a_row: u32,
    punctual_in_a_row: u32,
    /// Since when the canary has been late again and again; looked at once a window.
    late_since_ns: Option<u64>,
    /// After an overload: no release for a canary before this.
    backing_off_until_ns: u64,
    backoff_ns: u64,
}

impl Staffing {
    pub(crate) fn new(settings: &Settings, cpus: usize, now_ns: u64) -> Staffing {
        Staffing {
            reserve: settings.reserve.min(settings.spares),
            reserve_when_calm: settings.reserve_when_calm.min(settings.spares),
            reserve_in_trouble: settings.reserve_in_trouble.min(settings.spares),
            signs_within_ns: settings.signs_within_ns(),
            workers: settings.workers,
            cpus: cpus.max(1),
            alarm_ns: None,
            pressure_ns: None,
            signs: 0,
            blocked: 0,
            blocked_ns: now_ns,
            stalled: 0,
            needed_ns: now_ns,
            patience_ns: PATIENCE_NS,
            held_ns: None,
            late_in_a_row: 0,
            punctual_in_a_row: 0,
            late_since_ns: None,
            backing_off_until_ns: 0,
            backoff_ns: PATIENCE_NS,
        }
    }

    /// A core stands, and so many in play are parked: where there is one for each CPU, more would only spread the
    /// work over more threads, each with caches and memory of its own to warm.
    pub(crate) fn saw_pressure(&mut self, now_ns: u64, parked: usize) {
        if !self.is_under_pressure(now_ns) {
            self.signs = 0;
        }
        if parked < self.cpus || self.signs < ALARMING {
            self.signs = self.signs.saturating_add(1);
        }
        self.pressure_ns = Some(now_ns);
        if self.signs >= ALARMING {
            self.alarm_ns = Some(now_ns);
        }
    }

    /// Nothing has been stalled for long.
    pub(crate) fn is_healthy(&self, now_ns: u64) -> bool {
        self.alarm_ns
            .is_none_or(|at_ns| now_ns.saturating_sub(at_ns) >= HEALTHY_AFTER_NS)
    }

    fn is_under_pressure(&self, now_ns: u64) -> bool {
        self.pressure_ns
            .is_some_and(|at_ns| now_ns.saturating_sub(at_ns) < PRESSURE_LASTS_NS)
    }

    /// So many workers sleep in polls that are not watched. Those that were seen are counted for as long as
    /// other pressure: they do it again, and the canary tells of it only once work has waited.
    pub(crate) fn saw_blocked(&mut self, now_ns: u64, workers: usize) {
        if workers >= self.blocked(now_ns) {
            (self.blocked, self.blocked_ns) = (workers, now_ns);
        }
    }

    fn blocked(&self, now_ns: u64) -> usize {
        if now_ns.saturating_sub(self.blocked_ns) < PRESSURE_LASTS_NS {
            self.blocked
        } else {
            0
        }
    }

    pub(crate) fn reserve(&self, now_ns: u64) -> usize {
        let reserve = if self.is_healthy(now_ns) {
            self.reserve_when_calm
        } else {
            self.reserve
        };
        if self.is_under_pressure(now_ns) && self.signs >= ALARMING {
            let grown = reserve.saturating_add(self.signs);
            grown.min(self.reserve_in_trouble.max(reserve))
        } else {
            reserve
        }
    }

    /// Spares to release now, for `stalled` workers and the reserve.
    pub(crate) fn missing(&mut self, now_ns: u64, active: usize, stalled: usize) -> usize {
        let stalled = stalled + self.blocked(now_ns);
        if stalled > 0 {
            self.alarm_ns = Some(now_ns);
        }
        let missing = (stalled + self.reserve(now_ns)).saturating_sub(active);
        if stalled > 0 || missing > 0 {
            self.needed_ns = now_ns;
        }
        missing
    }

    /// Of the spares just released with `stalled` watched polls stalled, those that make or enlarge the reserve: all but one
    /// for each poll that has become stalled since the last time, which counts as a takeover.
    pub(crate) fn for_reserve(&mut self, released: usize, stalled: usize) -> usize {
        let before = std::mem::replace(&mut self.stalled, stalled);
        released.saturating_sub(stalled.saturating_sub(before))
    }

    /// Spares to release because the canary is late, on top of [`missing`](Self::missing).
    pub(crate) fn late(&mut self, now_ns: u64, queued: usize) -> usize {
        self.needed_ns = now_ns;
        self.punctual_in_a_row = 0;
        self.late_since_ns.get_or_insert(now_ns);
        if now_ns < self.backing_off_until_ns {
            return 0;
        }
        if self
            .held_ns
            .is_some_and(|at_ns| now_ns.saturating_sub(at_ns) < HOLD_WAS_WRONG_NS)
        {
            self.patience_ns = (self.patience_ns * 2).min(LONGEST_PATIENCE_NS);
        }
        self.late_in_a_row = self.late_in_a_row.saturating_add(1);
        if self.late_in_a_row as usize >= ALARMING {
            self.alarm_ns = Some(now_ns);
        }
        // One, one, two, two, four …: but no more than there is work.
        (1 << (self.late_in_a_row / 2).min(2)).min(queued.max(1))
    }

    /// A canary came back in time. It takes several in a row to say that the pressure is over: on a full
    /// machine some are lucky.
    pub(crate) fn punctual(&mut self) {
        self.late_in_a_row = 0;
        self.punctual_in_a_row = self.punctual_in_a_row.saturating_add(1);
        if self.punctual_in_a_row >= PUNCTUAL_AGAIN {
            self.late_since_ns = None;
        }
    }

    /// While the canary is late: how long a core must stand to count as stalled, once a window is over.
    pub(crate) fn window_over(&self, now_ns: u64, active: usize) -> Option<u64> {
        let threads = (self.workers + active).div_ceil(self.cpus) as u64;
        let window_ns = self
            .signs_within_ns
            .saturating_mul(threads)
            .clamp(SHORTEST_WINDOW_NS, LONGEST_WINDOW_NS);
        let since_ns = self.late_since_ns?;
        (now_ns.saturating_sub(since_ns) >= window_ns).then_some(window_ns)
    }

    /// The window is over and `standing` cores stand still: how many spares did not help.
    pub(crate) fn did_not_help(&mut self, now_ns: u64, active: usize, standing: usize) -> usize {
        self.late_since_ns = Some(now_ns);
        let explained = standing + self.reserve(now_ns);
        let excess = active.saturating_sub(explained);
        if excess > 0 {
            self.backing_off_until_ns = now_ns + self.backoff_ns;
            self.backoff_ns = (self.backoff_ns * 2).min(LONGEST_PATIENCE_NS);
            self.late_in_a_row = 0;
        }
        excess
    }

    /// Whether to hold one spare again.
    pub(crate) fn may_hold(&mut self, now_ns: u64, active: usize, stalled: usize) -> bool {
        let enough = stalled + self.blocked(now_ns) + self.reserve(now_ns);
        // What was released for one sign alone was probably not needed.
        let patience_ns = if self.is_healthy(now_ns) {
            self.patience_ns / 5
        } else {
            self.patience_ns
        };
        if active <= enough || now_ns.saturating_sub(self.needed_ns) < patience_ns {
            return false;
        }
        self.needed_ns = now_ns;
        self.held_ns = Some(now_ns);
        self.patience_ns = (self.patience_ns * 9 / 10).max(PATIENCE_NS);
        self.backoff_ns = (self.backoff_ns * 9 / 10).max(PATIENCE_NS);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::mechanism::Mechanisms;
    use morpheus_common::ladder::Policy;

    const MS: u64 = 1_000_000;

    fn staffing() -> Staffing {
        Staffing::new(&settings(), 2, 0)
    }

    fn alarmed() -> Staffing {
        let mut staffing = staffing();
        staffing.alarm_ns = Some(0);
        staffing
    }

    fn settings() -> Settings {
        Settings {
            workers: 2,
            spares: 32,
            spares_unavailable: 0,
            reserve: 1,
            reserve_when_calm: 1,
            reserve_in_trouble: 8,
            budget_ns: MS,
            grace_ns: MS,
            policy: Policy::Demote,
            demotable: true,
            nice_hogs: false,
            max_handoffs: 8,
            event_interval: 61,
            confine_to_quota: false,
            is_current_thread: false,
            report_after_ns: 10_000_000,
            slots: 64,
            refused: Vec::new(),
            mechanisms: Mechanisms::default(),
        }
    }

    #[test]
    fn a_good_day_has_no_reserve() {
        let settings = Settings {
            reserve_when_calm: 0,
            ..settings()
        };
        let mut staffing = Staffing::new(&settings, 2, 0);
        assert!(staffing.is_healthy(0));
        assert_eq!(staffing.missing(MS, 0, 0), 0);
        assert_eq!(
            staffing.missing(2 * MS, 0, 1),
            2,
            "the stalled one and the reserve"
        );
        assert_eq!(staffing.missing(3 * MS, 0, 0), 1);
        assert!(staffing.is_healthy(2 * MS + HEALTHY_AFTER_NS));
        assert_eq!(staffing.missing(2 * MS + HEALTHY_AFTER_NS, 0, 0), 0);
    }

    #[test]
    fn on_a_good_day_spares_are_held_again_sooner() {
        let mut staffing = staffing();
        let _ = staffing.late(MS, 1);
        assert!(!staffing.may_hold(20 * MS, 2, 0));
        assert!(staffing.may_hold(21 * MS, 2, 0));
    }

    #[test]
    fn with_a_parked_worker_for_each_cpu_the_reserve_does_not_grow() {
        let mut staffing = alarmed();
        for ms in 1..40 {
            staffing.saw_pressure(ms * MS, 2);
        }
        let enough = staffing.reserve(40 * MS);
        assert!(enough <= 1 + ALARMING, "{enough}");
        staffing.saw_pressure(41 * MS, 1);
        assert_eq!(staffing.reserve(42 * MS), enough + 1);
    }

    #[test]
    fn one_sign_is_no_alarm() {
        let mut staffing = staffing();
        staffing.saw_pressure(MS, 0);
        let _ = staffing.late(2 * MS, 1);
        assert!(staffing.is_healthy(3 * MS));
        let _ = staffing.late(4 * MS, 1);
        assert!(!staffing.is_healthy(5 * MS));
        let mut staffing = self::staffing();
        staffing.saw_pressure(MS, 0);
        staffing.saw_pressure(2 * MS, 0);
        assert!(!staffing.is_healthy(3 * MS));
    }

    #[test]
    fn the_reserve_comes_on_top_of_the_stalled() {
        let mut staffing = staffing();
        assert_eq!(staffing.missing(0, 0, 0), 1);
        assert_eq!(staffing.missing(0, 1, 3), 3);
        assert_eq!(staffing.missing(0, 9, 3), 0);
    }

    #[test]
    fn trouble_enlarges_the_reserve_for_a_second_by_as_much_as_it_was_seen() {
        let mut staffing = staffing();
        staffing.saw_pressure(5 * MS, 0);
        assert_eq!(staffing.missing(6 * MS, 1, 0), 0, "one sign is none");
        for ms in 7..40 {
            staffing.saw_pressure(ms * MS, 0);
        }
        assert_eq!(staffing.missing(41 * MS, 1, 0), 7);
        assert_eq!(staffing.reserve(2000 * MS), 1);
        staffing.saw_pressure(2001 * MS, 0);
        staffing.saw_pressure(2002 * MS, 0);
        assert_eq!(staffing.reserve(2003 * MS), 3, "it grows anew");
    }

    #[test]
    fn spares_are_held_again_one_at_a_time_and_lazily() {
        let mut staffing = alarmed();
        assert!(!staffing.may_hold(50 * MS, 9, 0));
        assert!(staffing.may_hold(101 * MS, 9, 0));
        assert!(!staffing.may_hold(102 * MS, 8, 0));
        assert!(staffing.may_hold(202 * MS, 8, 0));
        assert!(!staffing.may_hold(900 * MS, 1, 0), "the reserve stays");
    }

    #[test]
    fn workers_that_sleep_unwatched_count_for_a_second() {
        let mut staffing = staffing();
        staffing.saw_blocked(5 * MS, 20);
        staffing.saw_blocked(50 * MS, 3);
        assert_eq!(staffing.missing(60 * MS, 11, 0), 10);
        assert_eq!(staffing.missing(1006 * MS, 11, 0), 0);
        staffing.saw_blocked(1007 * MS, 3);
        assert_eq!(staffing.missing(1008 * MS, 1, 0), 3);
    }

    #[test]
    fn a_hold_that_was_wrong_doubles_the_patience() {
        let mut staffing = alarmed();
        assert!(staffing.may_hold(101 * MS, 5, 0));
        assert_eq!(staffing.late(110 * MS, 10), 1);
        staffing.punctual();
        assert!(!staffing.may_hold(250 * MS, 5, 0));
        assert!(staffing.may_hold(311 * MS, 5, 0));
    }

    #[test]
    fn what_is_released_beyond_the_newly_stalled_is_for_the_reserve() {
        let mut staffing = alarmed();
        let released = staffing.missing(MS, 0, 0);
        assert_eq!((released, staffing.for_reserve(released, 0)), (1, 1));
        let released = staffing.missing(2 * MS, 1, 3);
        assert_eq!((released, staffing.for_reserve(released, 3)), (3, 0));
        // The same three, and a reserve that grows to three.
        staffing.saw_pressure(3 * MS, 0);
        staffing.saw_pressure(4 * MS, 0);
        let released = staffing.missing(5 * MS, 4, 3);
        assert_eq!((released, staffing.for_reserve(released, 3)), (2, 2));
        // One of them ended, and two others began.
        let released = staffing.missing(6 * MS, 6, 2);
        assert_eq!((released, staffing.for_reserve(released, 2)), (0, 0));
        let released = staffing.missing(7 * MS, 6, 4);
        assert_eq!((released, staffing.for_reserve(released, 4)), (1, 0));
    }

    #[test]
    fn the_window_is_as_long_as_signs_of_life_take() {
        let window_ns = |event_interval| {
            let settings = Settings {
                event_interval,
                ..settings()
            };
            let mut staffing = Staffing::new(&settings, 2, 0);
            let _ = staffing.late(0, 1);
            staffing.window_over(u64::MAX, 0)
        };
        assert_eq!(window_ns(61), Some(SHORTEST_WINDOW_NS));
        assert_eq!(window_ns(500), Some(500 * MS));
        assert_eq!(window_ns(u64::MAX), Some(LONGEST_WINDOW_NS));
    }

    #[test]
    fn more_at_a_time_while_work_piles_up() {
        let mut staffing = staffing();
        let released: Vec<usize> = (0..6).map(|ms| staffing.late(ms * MS, 100)).collect();
        assert_eq!(released, [1, 2, 2, 4, 4, 4]);
        assert_eq!(staffing.late(7 * MS, 2), 2, "no more than there is work");
    }

    #[test]
    fn what_did_not_help_is_taken_back_and_not_tried_again_at_once() {
        let mut staffing = staffing();
        let _ = staffing.late(0, 100);
        let window_ns = staffing.window_over(2000 * MS, 30).unwrap();
        assert!(window_ns >= SHORTEST_WINDOW_NS);
        // Twenty cores stand still: that many spares are explained.
        assert_eq!(staffing.did_not_help(2000 * MS, 21, 20), 0);
        assert_eq!(staffing.did_not_help(2000 * MS, 30, 2), 27);
        assert_eq!(staffing.late(2050 * MS, 100), 0);
        assert_eq!(staffing.late(2101 * MS, 100), 1);
    }
}
