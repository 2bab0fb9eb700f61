//! Confinement of CPU hogs: decides which of them run on which half of the CPUs.
//!
//! The kernel shares a CPU fairly between threads. Beside twenty hogs a worker has a twenty-first of it, and a worker that needs
//! more waits, however short its slice is. So where at least as many hogs compute as there are CPUs, they are confined: one a CPU
//! to one half of the CPUs, the *wide* part, and the others to the other half, the *narrow* part. On the wide part workers
//! then compete with one hog a CPU, and these use what the workers leave of it.
//!
//! A hog keeps its part for its poll, and a new one comes to the part where it runs, if there is room. With the oldest on the wide part, each hog that ended made
//! two move, and in up to a millisecond before the second did, a CPU was idle: 2.4 % of the time beside 40 clients that compute for 25 ms with the flag, and 0.8 %
//! now.
//!
//! Workers that need more than a fair share beside one hog are *pressed*: they are ready to run and have no CPU. The run delay of their threads
//! shows that. Each window in which they are pressed allows one hog fewer on the wide part. Hogs that are as many as CPUs keep one each.
//! A window in which workers are not pressed allows one more, after a pause that doubles where they are pressed again
//! soon.

use std::collections::HashMap;

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
    /// Those of the hogs, while they are confined.
    parts: HashMap<u32, Part>,
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
            parts: HashMap::new(),
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
    pub(crate) fn parts(
        &mut self,
        now_ns: u64,
        hogs: &[Hog],
        is_on: impl Fn(u32) -> Option<Part>,
    ) -> Vec<(u32, Part)> {
        if self.cpus >= 2 && hogs.len() >= self.cpus {
            self.many_ns = Some(now_ns);
        }
        let stays = |many_ns: &u64| now_ns.saturating_sub(*many_ns) < STAYS_NS;
        self.many_ns = self.many_ns.filter(stays);
        if self.many_ns.is_none() {
            self.parts.clear();
            return Vec::new();
        }
        self.assign(hogs, is_on);
        hogs.iter()
            .map(|hog| (hog.tid, self.parts[&hog.tid]))
            .collect()
    }

    /// Gives each hog a part. It keeps the one that it has, unless there are too many: a hog that moves leaves its CPU idle until another
    /// comes there, and the one whose CPU it gets has to move as well.
    fn assign(&mut self, hogs: &[Hog], is_on: impl Fn(u32) -> Option<Part>) {
        let before = std::mem::take(&mut self.parts);
        // The hogs with the least rank come to the wide part first.
        let rank = |hog: &Hog| match before.get(&hog.tid) {
            Some(Part::Wide) => 0,
            Some(Part::Narrow) => 4,
            None => match is_on(hog.tid) {
                Some(Part::Wide) => 1,
                None => 2,
                Some(Part::Narrow) => 3,
            },
        };
        let mut order: Vec<(u32, &Hog)> = hogs.iter().map(|hog| (rank(hog), hog)).collect();
        // It is stable: the oldest before others.
        order.sort_by_key(|(rank, _)| *rank);
        let on_wide = self.on_wide_of(hogs.len());
        let others = order.iter().filter(|(rank, _)| *rank < 3).count();
        let stay = on_wide.min(others);
        let too_many = (order.len() - stay).saturating_sub(narrow(self.cpus));
        let wide = stay + too_many.min(on_wide - stay);
        let part = |(number, (_, hog)): (usize, (u32, &Hog))| match number < wide {
            true => (hog.tid, Part::Wide),
            false => (hog.tid, Part::Narrow),
        };
        self.parts = order.into_iter().enumerate().map(part).collect();
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
            let parts = Confinement::new(cpus).parts(0, hogs, |_| None);
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
            [4, 3].map(|count| confinement.parts(ms * MS, &hogs[..count], |_| None).len())
        };
        assert_eq!(confinement.parts(0, &hogs[..3], |_| None), []);
        assert_eq!(at(1, &mut confinement), [4, 3]);
        assert_eq!(at(100, &mut confinement), [4, 3]);
        assert_eq!(confinement.parts(149 * MS, &hogs[..3], |_| None).len(), 3);
        assert_eq!(confinement.parts(150 * MS, &hogs[..3], |_| None), []);
        assert_eq!(confinement.parts(151 * MS, &hogs[..3], |_| None), []);
        let mut pressed = Confinement::new(2);
        pressed.saw_delay(0, WINDOW_NS, WINDOW_NS);
        let on_wide = [2, 3].map(|count| pressed.on_wide_of(count));
        assert_eq!(on_wide, [1, 0], "with as many as CPUs each has one");
    }

    /// The parts of these hogs, the oldest first, where those that have none are on such a one.
    fn parts(confinement: &mut Confinement, hogs: &[(u32, Option<Part>)]) -> Vec<Part> {
        let all: Vec<Hog> = hogs
            .iter()
            .enumerate()
            .map(|(number, &(tid, _))| Hog {
                since_ns: number as u64,
                tid,
            })
            .collect();
        let is_on = |tid| hogs.iter().find(|(of, _)| *of == tid).unwrap().1;
        let parts = confinement.parts(0, &all, is_on);
        parts.into_iter().map(|(_, part)| part).collect()
    }

    #[test]
    fn a_hog_stays_where_it_is_unless_there_are_too_many() {
        use Part::{Narrow, Wide};
        let mut two = Confinement::new(2);
        let (on_narrow, on_wide) = (Some(Narrow), Some(Wide));
        // The older one is not moved to the wide part, which would move both.
        let mut both = |hogs: &[(u32, Option<Part>)]| parts(&mut two, hogs);
        assert_eq!(both(&[(1, on_narrow), (2, on_wide)]), [Narrow, Wide]);
        // The one on the wide part has ended, and the next is not known yet.
        assert_eq!(both(&[(1, on_narrow)]), [Narrow]);
        assert_eq!(both(&[(1, on_narrow), (3, on_narrow)]), [Narrow, Wide]);
        // Where both are on one part, one has to move.
        assert_eq!(both(&[(4, on_wide), (5, on_wide)]), [Wide, Narrow]);
        assert_eq!(both(&[(6, on_narrow), (7, on_narrow)]), [Wide, Narrow]);
        // Beside more hogs than CPUs the wide part is not left empty.
        assert_eq!(
            both(&[(7, None), (8, on_narrow), (9, on_narrow)]),
            [Narrow, Wide, Narrow]
        );
        assert_eq!(
            both(&[(7, None), (9, None), (10, on_narrow)]),
            [Narrow, Narrow, Wide]
        );
        assert_eq!(both(&[(7, None), (9, None)]), [Wide, Narrow]);
        // Pressed workers have it for themselves.
        assert_eq!(
            both(&[(7, None), (9, None), (8, on_wide)]),
            [Wide, Narrow, Narrow]
        );
        two.saw_delay(0, WINDOW_NS, WINDOW_NS);
        let pressed = parts(&mut two, &[(7, None), (9, None), (8, None)]);
        assert_eq!(pressed, [Narrow; 3]);
        // On more CPUs, those that are too many for the narrow part alone move.
        let hogs = [1, 2, 3, 4].map(|tid| (tid, on_narrow));
        assert_eq!(
            parts(&mut Confinement::new(4), &hogs),
            [Wide, Wide, Narrow, Narrow]
        );
        let mut four = Confinement::new(4);
        let hogs = [(1, on_narrow), (2, on_wide), (3, on_narrow), (4, on_wide)];
        assert_eq!(parts(&mut four, &hogs), [Narrow, Wide, Narrow, Wide]);
        assert_eq!(parts(&mut four, &hogs[..3]), [Narrow, Wide, Narrow]);
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
