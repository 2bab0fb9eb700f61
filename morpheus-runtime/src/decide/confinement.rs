//! Confinement of CPU hogs: decides which of them run on which half of the CPUs.
//!
//! The kernel shares a CPU fairly between threads. Beside twenty hogs a worker has a twenty-first of it, and a worker that needs
//! more waits, however short its slice is. So where at least as many hogs compute as there are CPUs, they are confined: the oldest
//! ones to one half of the CPUs, the *wide* part, and the others to the other half, the *narrow* part. On the wide part workers
//! then compete with one hog a CPU, and these use what the workers leave of it.
//!
//! Workers that need more than a fair share beside one hog are *pressed*: they are ready to run and have no CPU. The run delay of their threads
//! shows that. Each window in which they are pressed allows one hog fewer on the wide part. Hogs that are as many as CPUs keep one each.
//! A window in which workers are not pressed allows one more, after a pause that doubles where they are pressed again
//! soon.

/// The length of a window: some slices of the kernel's, of up to 3 ms.
const WINDOW_NS: u64 = 5_000_000;
/// A window that ended this much too late says nothing.
const MOST_WINDOW_NS: u64 = 4 * WINDOW_NS;
/// Workers are pressed if one of them waits for a CPU during a window divided by this. One that needs no more than half of the CPU that it
/// shares with a hog waits for less than that. Beside one hog a worker of 32 tasks that sleep for 1 ms waits for 2 % of the time at p90
/// and 7 to 18 % at p99, and one of an echo server that needs a CPU of its own for 74 % at p50 (two CPUs, `starvation --hogs 20`, without
/// and with `--load 16`). With a quarter in place of a half, a service that takes a connection for each request had 47 answers a second
/// of four clients of 25 ms, and 64 with a half (tuned tokio 67), at the same p99 (`service --connections new --only morpheus`).
const PRESSED_SHARE: u64 = 2;
/// Workers that wait for more than a window divided by this would be pressed by one more hog.
const RELAXED_SHARE: u64 = 10;
/// The pause before one more hog comes to the wide part, at first and at most. A trial that fails costs a window, and p99 counts those of
/// more than one in a hundred.
const PAUSE_NS: u64 = 20_000_000;
const MOST_PAUSE_NS: u64 = 1_000_000_000;
/// Hogs stay confined until they were fewer than CPUs for this time. Hogs that have permits are as many as CPUs, and one fewer each time
/// that one of them ends its poll: each of these would else release all of them, and confine them anew.
const STAYS_NS: u64 = 50_000_000;

/// The number of CPUs in the narrow part of `cpus`; 0 where there is no such part.
pub(crate) fn narrow(cpus: usize) -> usize {
    if cpus < 2 { 0 } else { cpus.div_ceil(2) }
}

/// A thread that computes in a long poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Hog {
    /// When its poll began, or its core last gave a sign of life.
    pub(crate) since_ns: u64,
    pub(crate) tid: u32,
}

/// A half of the CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The half that is for workers, with one hog a CPU at most.
    Wide,
    /// The half that the other hogs share.
    Narrow,
}

/// The decision, from window to window.
#[derive(Debug)]
pub(crate) struct Confinement {
    cpus: usize,
    /// Hogs on the wide part where there are more hogs than CPUs.
    on_wide: usize,
    /// When hogs were last as many as CPUs; `None` while they are not confined.
    many_ns: Option<u64>,
    window_began_ns: u64,
    /// Before this time no more hogs come to the wide part.
    pause_ends_ns: u64,
    pause_ns: u64,
    /// The time at which one more last came to it.
    raised_ns: u64,
}

impl Confinement {
    pub(crate) fn new(cpus: usize) -> Confinement {
        Confinement {
            cpus,
            on_wide: wide(cpus),
            many_ns: None,
            window_began_ns: 0,
            pause_ends_ns: 0,
            pause_ns: PAUSE_NS,
            raised_ns: 0,
        }
    }

    /// The CPUs that it decides about.
    pub(crate) fn cpus(&self) -> usize {
        self.cpus
    }

    /// The parts of the hogs' threads, given the oldest hog first. None where all may run on all CPUs.
    pub(crate) fn parts(&mut self, now_ns: u64, hogs: &[Hog]) -> Vec<(u32, Part)> {
        if self.cpus >= 2 && hogs.len() >= self.cpus {
            self.many_ns = Some(now_ns);
        }
        let stays = |many_ns: &u64| now_ns.saturating_sub(*many_ns) < STAYS_NS;
        self.many_ns = self.many_ns.filter(stays);
        if self.many_ns.is_none() {
            return Vec::new();
        }
        let on_wide = self.on_wide_of(hogs.len());
        let part = |(number, hog): (usize, &Hog)| match number < on_wide {
            true => (hog.tid, Part::Wide),
            false => (hog.tid, Part::Narrow),
        };
        hogs.iter().enumerate().map(part).collect()
    }

    /// The number of hogs on the wide part, given that of all hogs.
    fn on_wide_of(&self, hogs: usize) -> usize {
        if hogs > self.cpus {
            self.on_wide
        } else {
            wide(self.cpus)
        }
    }

    /// Ends the window that is over, given the number of hogs. Returns its length, in nanoseconds, if the workers' run delay is to be measured now:
    /// [`saw_delay`](Self::saw_delay) then wants it. 0 is the length of a window that says nothing.
    pub(crate) fn window_over(&mut self, now_ns: u64, hogs: usize) -> Option<u64> {
        let length_ns = now_ns.saturating_sub(self.window_began_ns);
        if self.cpus < 2 || hogs <= self.cpus || length_ns < WINDOW_NS {
            return None;
        }
        self.window_began_ns = now_ns;
        Some(length_ns)
            .filter(|&ns| ns < MOST_WINDOW_NS)
            .or(Some(0))
    }

    /// Takes the longest run delay of a worker in a window of `window_ns`.
    pub(crate) fn saw_delay(&mut self, now_ns: u64, delay_ns: u64, window_ns: u64) {
        let is_pressed = delay_ns >= window_ns / PRESSED_SHARE;
        let is_relaxed = delay_ns < window_ns / RELAXED_SHARE;
        if is_pressed && self.on_wide > 0 {
            self.on_wide -= 1;
            // A trial failed.
            let was_raised = now_ns.saturating_sub(self.raised_ns) < 2 * self.pause_ns;
            self.pause_ns = match was_raised {
                true => (self.pause_ns * 2).min(MOST_PAUSE_NS),
                false => PAUSE_NS,
            };
            self.pause_ends_ns = now_ns + self.pause_ns;
        } else if !is_relaxed {
            self.pause_ends_ns = self.pause_ends_ns.max(now_ns + PAUSE_NS);
        } else if self.on_wide < wide(self.cpus) && now_ns >= self.pause_ends_ns {
            self.on_wide += 1;
            self.raised_ns = now_ns;
            self.pause_ends_ns = now_ns + PAUSE_NS;
        }
    }
}

/// The number of CPUs in the wide part of `cpus`.
fn wide(cpus: usize) -> usize {
    cpus - narrow(cpus).min(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn half_of_the_cpus_are_narrow() {
        let parts = [0, 1, 2, 3, 4, 16].map(|cpus| (narrow(cpus), wide(cpus)));
        assert_eq!(parts, [(0, 0), (0, 1), (1, 1), (2, 1), (2, 2), (8, 8)]);
    }

    #[test]
    fn hogs_are_confined_where_they_are_as_many_as_cpus() {
        let hogs: Vec<Hog> = (0..40)
            .map(|tid| Hog {
                since_ns: 7 * u64::from(tid),
                tid,
            })
            .collect();
        let on_wide = |cpus: usize, hogs: &[Hog]| {
            let parts = Confinement::new(cpus).parts(0, hogs);
            let tids: Vec<u32> = parts.iter().map(|(tid, _)| *tid).collect();
            assert!(tids.is_empty() || tids.iter().copied().eq(0..hogs.len() as u32));
            let is_wide = |(_, part): &&(u32, Part)| *part == Part::Wide;
            let first = parts.iter().take_while(is_wide).count();
            assert_eq!(parts.iter().filter(is_wide).count(), first, "the oldest");
            (!parts.is_empty()).then_some(first)
        };
        let all = |cpus| [0, 1, 2, 3, 4, 5, 40].map(|count| on_wide(cpus, &hogs[..count]));
        assert_eq!(all(1), [None; 7]);
        assert_eq!(all(2)[..3], [None, None, Some(1)]);
        assert_eq!(all(2)[3..], [Some(1); 4]);
        assert_eq!(all(4)[..5], [None, None, None, None, Some(2)]);
        assert_eq!(all(4)[5..], [Some(2); 2]);
        // Fewer ones for a moment.
        let mut confinement = Confinement::new(4);
        let at = |ms: u64, confinement: &mut Confinement| {
            [4, 3].map(|count| confinement.parts(ms * MS, &hogs[..count]).len())
        };
        assert_eq!(confinement.parts(0, &hogs[..3]), []);
        assert_eq!(at(1, &mut confinement), [4, 3]);
        assert_eq!(at(100, &mut confinement), [4, 3]);
        assert_eq!(confinement.parts(149 * MS, &hogs[..3]).len(), 3);
        assert_eq!(confinement.parts(150 * MS, &hogs[..3]), []);
        assert_eq!(confinement.parts(151 * MS, &hogs[..3]), []);
        let mut pressed = Confinement::new(2);
        pressed.saw_delay(0, WINDOW_NS, WINDOW_NS);
        let on_wide = [2, 3].map(|count| pressed.on_wide_of(count));
        assert_eq!(on_wide, [1, 0], "with as many as CPUs each has one");
    }

    /// Windows in which workers wait for so much of the time, by the hogs on their part; returns how many these are after each.
    fn run(cpus: usize, windows: u64, delay: impl Fn(usize) -> f64) -> Vec<usize> {
        let mut confinement = Confinement::new(cpus);
        let mut free = Vec::new();
        for window in 1..=windows {
            let now_ns = (1_000 + 5 * window) * MS;
            let length_ns = confinement.window_over(now_ns, 40).unwrap();
            if length_ns > 0 {
                let share = delay(confinement.on_wide_of(40));
                confinement.saw_delay(now_ns, (share * length_ns as f64) as u64, length_ns);
            }
            free.push(confinement.on_wide_of(40));
        }
        free
    }

    #[test]
    fn workers_that_are_not_pressed_share_their_part() {
        assert_eq!(run(2, 100, |_| 0.07), [1; 100]);
        assert_eq!(run(16, 100, |_| 0.2), [8; 100]);
        assert_eq!(run(2, 100, |_| 0.49), [1; 100], "a fair share is enough");
    }

    #[test]
    fn pressed_workers_have_their_part_for_themselves() {
        assert_eq!(run(2, 4, |_| 0.74), [1, 0, 0, 0]);
        // They wait without hogs as well: none is tried again.
        assert!(run(2, 1_000, |_| 0.5)[1..].iter().all(|&free| free == 0));
        assert!(run(2, 1_000, |_| 0.12)[1..].iter().all(|&free| free == 1));
    }

    #[test]
    fn a_trial_that_fails_comes_less_often() {
        let pressed_by_one = |free| if free > 0 { 0.74 } else { 0.02 };
        let free = run(2, 2_000, pressed_by_one);
        let trials = |windows: &[usize]| windows.iter().filter(|&&free| free > 0).count();
        assert!(
            (3..10).contains(&trials(&free[2..200])),
            "in the first second"
        );
        // One window of 200 in each second.
        assert!(
            (2..5).contains(&trials(&free[1_200..])),
            "{}",
            trials(&free[1_200..])
        );
    }

    #[test]
    fn as_many_share_their_part_as_do_not_press() {
        let free = run(16, 4_000, |free| if free > 3 { 0.6 } else { 0.05 });
        let of = |wanted| free[2_000..].iter().filter(|&&free| free == wanted).count();
        assert!(of(3) > 1_900, "{} of 2,000", of(3));
        // Workers that need less later share it again soon.
        let mut calm = Confinement::new(16);
        calm.on_wide = 0;
        for window in 1..=100 {
            calm.saw_delay(window * WINDOW_NS, 0, WINDOW_NS);
        }
        assert_eq!(calm.on_wide_of(40), 8);
    }

    #[test]
    fn windows_are_measured_beside_more_hogs_than_cpus_alone() {
        let mut confinement = Confinement::new(2);
        assert_eq!(confinement.window_over(1_000 * MS, 2), None);
        assert_eq!(confinement.window_over(1_000 * MS, 3), Some(0), "the first");
        assert_eq!(confinement.window_over(1_004 * MS, 3), None);
        assert_eq!(confinement.window_over(1_006 * MS, 3), Some(6 * MS));
        assert_eq!(Confinement::new(1).window_over(1_000 * MS, 3), None);
    }
}
