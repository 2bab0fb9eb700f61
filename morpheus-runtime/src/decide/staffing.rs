//! Staffing: computes how many spares should be active, without threads or clocks.
//!
//! - At least `stalled + reserve` spares are active. A spare replaces every stalled worker, and the reserve takes
//!   over without delay. Stalled are watched polls that were taken over, and workers that sleep in unwatched polls.
//! - A healthy runtime (nothing was stalled for 10 s) has a smaller reserve, by default none, because tokio has one
//!   more worker to wake for each active spare. The reserve grows by one with each sign of pressure, and shrinks 1 s
//!   after the last.
//! - More spares are released while the canary is late: work waits, even if the stalled worker is unknown.
//! - One spare at a time is held again, after there was one too many for [`Staffing::patience_ns`]. That time doubles if
//!   a hold turned out to be wrong.
//! - Releases that did not help are undone. If the canary stays late although more spares are active than cores are
//!   stalled, the machine is full, and more threads only take CPU time from others. The next attempt waits, twice as
//!   long each time.

use crate::settings::Settings;

/// Time without a stall after which a runtime is healthy, in nanoseconds: it needs a smaller reserve and fewer
/// samples.
const HEALTHY_AFTER_NS: u64 = 10_000_000_000;
/// Signs of pressure, or late canaries in a row, after which the runtime is not healthy. The machine may cause a
/// single one.
const ALARMING: usize = 2;
/// Time after the last sign of pressure for which the larger reserve stays, in nanoseconds.
const PRESSURE_LASTS_NS: u64 = 1_000_000_000;
const PATIENCE_NS: u64 = 100_000_000;
const LONGEST_PATIENCE_NS: u64 = 10_000_000_000;
/// If a canary is late within this time after a hold, the hold was wrong, in nanoseconds.
const HOLD_WAS_WRONG_NS: u64 = 20_000_000;
/// Punctual canaries in a row that end a period of lateness.
const PUNCTUAL_AGAIN: u32 = 10;
const SHORTEST_WINDOW_NS: u64 = 100_000_000;
const LONGEST_WINDOW_NS: u64 = 2_000_000_000;

#[derive(Debug)]
pub(crate) struct Staffing {
    reserve: usize,
    reserve_when_healthy: usize,
    reserve_under_pressure: usize,
    signs_within_ns: u64,
    workers: usize,
    cpus: usize,
    /// Time of the last stall.
    alarm_ns: Option<u64>,
    pressure_ns: Option<u64>,
    /// Signs of pressure since the last second without one. The machine may cause a single one, and spares that are
    /// not needed cost a busy runtime a third of its throughput.
    signs: usize,
    /// Workers that were last seen asleep in unwatched polls; `blocked_ns` is when.
    blocked: usize,
    blocked_ns: u64,
    /// Stalled watched polls at the last release of spares.
    stalled: usize,
    /// Time at which the last of the active spares was needed.
    needed_ns: u64,
    patience_ns: u64,
    held_ns: Option<u64>,
    late_in_a_row: u32,
    punctual_in_a_row: u32,
    /// Time since which the canary has been late again and again; checked once a window.
    late_since_ns: Option<u64>,
    /// After an overload: no release for a late canary before this time.
    backing_off_until_ns: u64,
    backoff_ns: u64,
}

impl Staffing {
    pub(crate) fn new(settings: &Settings, cpus: usize, now_ns: u64) -> Staffing {
        Staffing {
            reserve: settings.reserve.min(settings.spares),
            reserve_when_healthy: settings.reserve_when_healthy.min(settings.spares),
            reserve_under_pressure: settings.reserve_under_pressure.min(settings.spares),
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

    /// Records a sign of pressure: a core is stalled while `parked` active workers are parked. If there is a parked
    /// worker for each CPU, the reserve does not grow. More spares would only spread the work over more threads, each
    /// with cold caches and memory of its own.
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

    /// Whether nothing was stalled for 10 s.
    pub(crate) fn is_healthy(&self, now_ns: u64) -> bool {
        self.alarm_ns
            .is_none_or(|at_ns| now_ns.saturating_sub(at_ns) >= HEALTHY_AFTER_NS)
    }

    /// Whether a core was stalled in the last second.
    pub(crate) fn is_under_pressure(&self, now_ns: u64) -> bool {
        self.pressure_ns
            .is_some_and(|at_ns| now_ns.saturating_sub(at_ns) < PRESSURE_LASTS_NS)
    }

    /// Records that `workers` sleep in unwatched polls. They count as stalled for as long as other pressure does (1
    /// s), because they probably sleep again, and the canary shows it only after work has waited.
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
            self.reserve_when_healthy
        } else {
            self.reserve
        };
        if self.is_under_pressure(now_ns) && self.signs >= ALARMING {
            let grown = reserve.saturating_add(self.signs);
            grown.min(self.reserve_under_pressure.max(reserve))
        } else {
            reserve
        }
    }

    /// Returns how many spares to release now for `stalled` workers and the reserve.
    pub(crate) fn missing(&mut self, now_ns: u64, active: usize, stalled: usize) -> usize {
        let stalled = stalled + self.blocked(now_ns);
        if stalled > 0 {
            self.alarm_ns = Some(now_ns);
        }
        let enough = stalled + self.reserve(now_ns);
        // A poll that never ends needs its own spare, and not the others that once were released with it.
        if enough > active || (stalled > 0 && enough == active) {
            self.needed_ns = now_ns;
        }
        enough.saturating_sub(active)
    }

    /// Returns how many of the `released` spares make or enlarge the reserve, with `stalled` watched polls stalled
    /// now. The others, one for each poll that became stalled since the last call, count as takeovers.
    pub(crate) fn for_reserve(&mut self, released: usize, stalled: usize) -> usize {
        let before = std::mem::replace(&mut self.stalled, stalled);
        released.saturating_sub(stalled.saturating_sub(before))
    }

    /// Returns how many spares to release because the canary is late, in addition to [`missing`](Self::missing).
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
        // 1, 1, 2, 2, 4, …, but not more than the queued tasks.
        (1 << (self.late_in_a_row / 2).min(2)).min(queued.max(1))
    }

    /// Records that a canary was punctual. Only several in a row end the pressure, because some are punctual on a
    /// full machine too.
    pub(crate) fn punctual(&mut self) {
        self.late_in_a_row = 0;
        self.punctual_in_a_row = self.punctual_in_a_row.saturating_add(1);
        if self.punctual_in_a_row >= PUNCTUAL_AGAIN {
            self.late_since_ns = None;
        }
    }

    /// Returns how long a core must give no sign of life to count as stalled, once the window of a late canary is
    /// over.
    pub(crate) fn window_over(&self, now_ns: u64, active: usize) -> Option<u64> {
        let threads = (self.workers + active).div_ceil(self.cpus) as u64;
        let window_ns = self
            .signs_within_ns
            .saturating_mul(threads)
            .clamp(SHORTEST_WINDOW_NS, LONGEST_WINDOW_NS);
        let since_ns = self.late_since_ns?;
        (now_ns.saturating_sub(since_ns) >= window_ns).then_some(window_ns)
    }

    /// Returns how many active spares did not help. Called when the window is over and `stalled_cores` cores are
    /// stalled.
    pub(crate) fn did_not_help(
        &mut self,
        now_ns: u64,
        active: usize,
        stalled_cores: usize,
    ) -> usize {
        self.late_since_ns = Some(now_ns);
        let explained = stalled_cores + self.reserve(now_ns);
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
        // Spares that were released for a single sign were probably not needed.
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
            reserve: 1,
            reserve_when_healthy: 1,
            reserve_under_pressure: 8,
            ..Settings::default()
        }
    }

    #[test]
    fn a_healthy_runtime_has_no_reserve() {
        let settings = Settings {
            reserve_when_healthy: 0,
            ..settings()
        };
        let mut staffing = Staffing::new(&settings, 2, 0);
        assert!(staffing.is_healthy(0));
        assert_eq!(staffing.missing(MS, 0, 0), 0);
        assert_eq!(
            staffing.missing(2 * MS, 0, 1),
            2,
            "for the stalled worker and the reserve"
        );
        assert_eq!(staffing.missing(3 * MS, 0, 0), 1);
        assert!(staffing.is_healthy(2 * MS + HEALTHY_AFTER_NS));
        assert_eq!(staffing.missing(2 * MS + HEALTHY_AFTER_NS, 0, 0), 0);
    }

    #[test]
    fn a_healthy_runtime_holds_spares_again_sooner() {
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
    fn one_sign_of_pressure_is_no_alarm() {
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
    fn the_reserve_comes_on_top_of_the_stalled_workers() {
        let mut staffing = staffing();
        assert_eq!(staffing.missing(0, 0, 0), 1);
        assert_eq!(staffing.missing(0, 1, 3), 3);
        assert_eq!(staffing.missing(0, 9, 3), 0);
    }

    #[test]
    fn each_sign_of_pressure_enlarges_the_reserve_for_a_second() {
        let mut staffing = staffing();
        staffing.saw_pressure(5 * MS, 0);
        assert_eq!(staffing.missing(6 * MS, 1, 0), 0, "one sign is not enough");
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
    fn a_poll_that_never_ends_keeps_one_spare_and_not_all_of_them() {
        let mut staffing = alarmed();
        let mut active = 30;
        for ms in 1..4_000 {
            assert_eq!(staffing.missing(ms * MS, active, 1), 0);
            active -= usize::from(staffing.may_hold(ms * MS, active, 1));
        }
        assert_eq!(active, 2, "one for the poll, and the reserve");
        // While as many are needed as are active, now and then, they stay.
        let mut active = 10;
        for ms in 4_000..6_000 {
            let stalled = if ms % 50 == 0 { 9 } else { 3 };
            assert_eq!(staffing.missing(ms * MS, active, stalled), 0);
            active -= usize::from(staffing.may_hold(ms * MS, active, stalled));
        }
        assert_eq!(active, 10);
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
    fn releases_beyond_the_newly_stalled_polls_are_for_the_reserve() {
        let mut staffing = alarmed();
        let released = staffing.missing(MS, 0, 0);
        assert_eq!((released, staffing.for_reserve(released, 0)), (1, 1));
        let released = staffing.missing(2 * MS, 1, 3);
        assert_eq!((released, staffing.for_reserve(released, 3)), (3, 0));
        // The same three polls, and a reserve that grows to three.
        staffing.saw_pressure(3 * MS, 0);
        staffing.saw_pressure(4 * MS, 0);
        let released = staffing.missing(5 * MS, 4, 3);
        assert_eq!((released, staffing.for_reserve(released, 3)), (2, 2));
        // One of the polls ended, and two others began.
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
    fn more_spares_are_released_at_once_while_work_piles_up() {
        let mut staffing = staffing();
        let released: Vec<usize> = (0..6).map(|ms| staffing.late(ms * MS, 100)).collect();
        assert_eq!(released, [1, 2, 2, 4, 4, 4]);
        assert_eq!(
            staffing.late(7 * MS, 2),
            2,
            "not more than the queued tasks"
        );
    }

    #[test]
    fn releases_that_did_not_help_are_undone_and_not_repeated_at_once() {
        let mut staffing = staffing();
        let _ = staffing.late(0, 100);
        let window_ns = staffing.window_over(2000 * MS, 30).unwrap();
        assert!(window_ns >= SHORTEST_WINDOW_NS);
        // Twenty cores are stalled, which explains that many spares.
        assert_eq!(staffing.did_not_help(2000 * MS, 21, 20), 0);
        assert_eq!(staffing.did_not_help(2000 * MS, 30, 2), 27);
        assert_eq!(staffing.late(2050 * MS, 100), 0);
        assert_eq!(staffing.late(2101 * MS, 100), 1);
    }
}
