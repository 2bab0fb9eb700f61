//! Whether a governor that follows the load was a trap: a light periodic load never raises the frequency, so that
//! every window is worked on slowly, on a machine that is all but idle.

use serde::Serialize;

use super::analyse::Figures;
use super::daemon;
use super::record::Study;
use crate::policy::Policy;
use crate::report;

/// Governors that choose a frequency by what the CPU does.
const FOLLOW_THE_LOAD: [&str; 3] = ["schedutil", "ondemand", "conservative"];

/// From so many times the time under `performance` on it is called a trap.
const TRAP: f64 = 1.1;

/// schedutil forgets: what a thread did counts half after so long (PELT).
const HALF_LIFE_MS: f64 = 32.0;

/// schedutil leaves so much room above the utilisation that it sees.
const HEADROOM: f64 = 1.25;

/// What the data says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Slower than under `performance`, by more than the repeats differ.
    Visible,
    /// Not so.
    NotVisible,
    /// There is not enough data.
    CannotTell,
}

/// The answer, with its reasons.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Trap {
    /// In a word.
    pub verdict: Verdict,
    /// In sentences.
    pub text: Vec<String>,
}

/// Judges every governor of a study that follows the load.
pub fn judge(study: &Study, conditions: &[Figures]) -> Trap {
    let find = |governor: &str| {
        let mut found = conditions
            .iter()
            .filter(|figures| figures.condition.is(governor));
        found.find(|figures| figures.latency_ns.is_some())
    };
    let cannot = |why: &str| Trap {
        verdict: Verdict::CannotTell,
        text: vec![why.into()],
    };
    let Some(performance) = find("performance") else {
        return cannot(
            "Whether a governor is a trap cannot be told: `performance` without load was not measured.",
        );
    };
    let followers: Vec<&Figures> = FOLLOW_THE_LOAD
        .iter()
        .filter_map(|name| find(name))
        .collect();
    if followers.is_empty() {
        return cannot(
            "Whether a governor is a trap cannot be told: none that follows the load (schedutil, ondemand, \
             conservative) was measured without load.",
        );
    }
    let mut trap = Trap {
        verdict: Verdict::CannotTell,
        text: Vec::new(),
    };
    for follower in followers {
        let verdict = compare(performance, follower);
        let name = &follower.name;
        let factor = ratio(follower, performance);
        let times = report::times(factor, 1.0);
        trap.text.push(match verdict {
            Verdict::Visible => format!(
                "The trap of {name} is visible: kernels take {times} times as long as under performance, and no \
                 repeat of the one overlaps with one of the other."
            ),
            Verdict::NotVisible => format!(
                "No trap of {name} is visible: kernels take {times} times as long as under performance{}.",
                if factor < TRAP { "" } else { ", which is within what repeats differ by" }
            ),
            Verdict::CannotTell => format!(
                "Kernels take {times} times as long under {name} as under performance; whether that is more than \
                 noise takes --repeats 2 at least."
            ),
        });
        let powersave = find("powersave").filter(|slow| overlap(slow, follower) == Some(false));
        if let Some(powersave) = powersave.filter(|slow| ratio(follower, slow) > 1.0) {
            let times = report::times(ratio(follower, powersave), 1.0);
            trap.text.push(format!(
                "That is {times} times as long as at the lowest frequency all the time (powersave)."
            ));
        }
        trap.text.extend(frequencies(study, performance, follower));
        if follower.condition.governor.as_deref() == Some("schedutil") {
            trap.text.push(explain(study, follower));
        }
        if follower.condition.governor.as_deref() == Some(daemon::GOVERNOR) {
            let mut found = conditions.iter();
            let beside = found.find(|f| f.condition.is_morpheus() && f.condition.load == 0);
            trap.text
                .extend(beside.and_then(|beside| with_morpheus(follower, beside)));
        }
        // A trap of one governor is one, whatever the others do.
        if verdict == Verdict::Visible || trap.verdict == Verdict::CannotTell {
            trap.verdict = verdict;
        }
    }
    trap
}

fn ratio(a: &Figures, b: &Figures) -> f64 {
    a.latency_ns.unwrap_or(f64::NAN) / b.latency_ns.unwrap_or(f64::NAN)
}

/// Whether the repeats of two conditions overlap; `None` with one repeat, which says nothing of noise.
fn overlap(a: &Figures, b: &Figures) -> Option<bool> {
    let (first, second) = (a.range_ns?, b.range_ns?);
    (a.repeats >= 2 && b.repeats >= 2).then_some(first.0 <= second.1 && second.0 <= first.1)
}

fn compare(performance: &Figures, follower: &Figures) -> Verdict {
    match overlap(performance, follower) {
        _ if ratio(follower, performance) < TRAP => Verdict::NotVisible,
        None => Verdict::CannotTell,
        Some(false) => Verdict::Visible,
        Some(true) => Verdict::NotVisible,
    }
}

/// What the frequencies were.
fn frequencies(study: &Study, performance: &Figures, follower: &Figures) -> Vec<String> {
    let mut text = Vec::new();
    let busy = report_percent(follower.busy_share);
    let mhz = |khz: f64| format!("{:.0} MHz", khz / 1e3);
    match (follower.mean_khz, performance.mean_khz) {
        (Some(own), Some(fast)) => {
            let highest = study.policy_of_cpu().and_then(|policy| policy.hardware_khz.1);
            let highest = highest.map_or_else(String::new, |khz| format!(" of {}", mhz(khz as f64)));
            text.push(format!(
                "The kernels keep the CPU busy for {busy} of the time; its frequency was {} on average{highest}, \
                 under performance {}.",
                mhz(own),
                mhz(fast)
            ));
            if own >= 0.95 * fast {
                text.push("So the frequency is not what makes a difference here.".into());
            }
        }
        _ => text.push(format!(
            "The kernels keep the CPU busy for {busy} of the time; its driver does not tell its frequency."
        )),
    }
    if let Some(share) = follower.share_of_lowest {
        let share = report_percent(share);
        text.push(format!(
            "By time_in_state it was at the lowest one for {share} of the time."
        ));
    }
    text
}

/// What the scheduler changes: it asks for full speed as soon as its worker runs.
fn with_morpheus(alone: &Figures, beside: &Figures) -> Option<String> {
    let mut text = format!(
        "Beside Morpheus's scheduler, {} of the windows ended at the highest frequency (without it {})",
        report_percent(beside.done_at_highest?),
        report_percent(alone.done_at_highest?)
    );
    if let (Some(own), Some(other)) = (beside.share_of_highest, alone.share_of_highest) {
        text += &format!(
            ", where the CPU was for {} of all the time ({})",
            report_percent(own),
            report_percent(other)
        );
    }
    Some(text + ".")
}

/// Why schedutil does so: what it computes for a load of this shape.
fn explain(study: &Study, follower: &Figures) -> String {
    if follower.policy != Policy::Other {
        return "For a real-time thread schedutil asks for the highest frequency when the thread begins to run (unless \
                utilisation clamps say otherwise) and forgets it when the thread sleeps: a window that is done before \
                the change has taken effect is worked on at the old frequency."
            .into();
    }
    let longest = follower
        .kernels
        .iter()
        .filter_map(|kernel| Some((kernel.kernel, kernel.service_ns.p50?)))
        .max_by_key(|(_, ns)| *ns);
    let Some((kernel, ns)) = longest else {
        return String::new();
    };
    let utilisation = utilisation(
        ns as f64 / 1e6,
        study.config.size.period().as_secs_f64() * 1e3,
    );
    format!(
        "As schedutil computes it, the utilisation at the end of a window of {} ({}) is at most {} (what was counts half \
         after 32 ms), for which it asks for {} of the highest frequency.",
        kernel.text(),
        report::time(ns),
        report_percent(utilisation),
        report_percent((HEADROOM * utilisation).min(1.0))
    )
}

/// The most that the utilisation of a CPU gets to which computes for `busy_ms` of every `period_ms`: a geometric
/// series of what is left of each burst, at the end of the last one.
fn utilisation(busy_ms: f64, period_ms: f64) -> f64 {
    let left_after = |ms: f64| (-ms / HALF_LIFE_MS).exp2();
    if busy_ms >= period_ms {
        return 1.0;
    }
    (1.0 - left_after(busy_ms)) / (1.0 - left_after(period_ms))
}

/// `0.06 %`, `7.3 %`, `100 %`.
pub fn report_percent(share: f64) -> String {
    let percent = 100.0 * share;
    match percent {
        p if p < 0.995 => format!("{p:.2} %"),
        p if p < 9.95 => format!("{p:.1} %"),
        p => format!("{p:.0} %"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::config::tests::config;
    use super::super::placement::KERNELS_OWN;
    use super::super::record::Condition;
    use super::*;
    use crate::host::Host;

    fn figures(governor: &str, latency: f64, noise: f64, repeats: usize) -> Figures {
        let condition = Condition {
            scheduler: KERNELS_OWN.into(),
            governor: Some(governor.into()),
            load: 0,
        };
        Figures {
            name: condition.name(),
            condition,
            policy: Policy::Other,
            latency_ns: Some(latency),
            range_ns: Some((latency - noise, latency + noise)),
            repeats,
            versus_performance: None,
            mean_khz: Some(1_300_000.0),
            share_of_lowest: Some(0.9),
            share_of_highest: Some(0.05),
            done_at_highest: Some(0.25),
            busy_share: 0.003,
            due: 1,
            missed: 0,
            kernels: Vec::new(),
        }
    }

    fn verdict(conditions: &[Figures]) -> Trap {
        let study = Study {
            bench: "governor".into(),
            host: Host::read(),
            config: config(""),
            policies: Vec::new(),
            missing: Vec::new(),
        };
        judge(&study, conditions)
    }

    #[test]
    fn the_studys_trap_is_seen() {
        let trap = verdict(&[
            figures("performance", 167.6, 5.0, 5),
            figures("powersave", 537.7, 5.0, 5),
            figures("schedutil", 762.8, 5.0, 5),
        ]);
        assert_eq!(trap.verdict, Verdict::Visible);
        let text = trap.text.join(" ");
        for part in [
            "4.6 times as long as under performance",
            "1.4 times as long as at the lowest",
            "0.30 %",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn the_scheduler_stands_beside_the_governor_alone() {
        let performance = figures("performance", 100.0, 1.0, 2);
        let alone = figures("schedutil", 200.0, 1.0, 2);
        let mut beside = figures("schedutil", 110.0, 1.0, 2);
        beside.condition.scheduler = daemon::NAME.into();
        beside.done_at_highest = Some(1.0);
        let text = |all: &[Figures]| verdict(all).text.join(" ");
        let said = "100 % of the windows ended at the highest frequency (without it 25 %)";
        let both = text(&[performance.clone(), beside.clone(), alone.clone()]);
        assert!(both.contains(said), "{both}");
        // The other one is the follower that is judged.
        assert!(
            both.contains("2.0 times as long as under performance"),
            "{both}"
        );
        assert!(!text(&[performance, alone]).contains("Morpheus"));
    }

    #[test]
    fn noise_is_no_trap_and_one_repeat_no_noise() {
        let performance = figures("performance", 100.0, 30.0, 5);
        let of = |other| verdict(&[performance.clone(), other]).verdict;
        assert_eq!(
            of(figures("schedutil", 130.0, 30.0, 5)),
            Verdict::NotVisible
        );
        assert_eq!(of(figures("schedutil", 105.0, 1.0, 5)), Verdict::NotVisible);
        assert_eq!(of(figures("schedutil", 300.0, 0.0, 1)), Verdict::CannotTell);
        assert_eq!(of(figures("ondemand", 300.0, 9.0, 2)), Verdict::Visible);
        assert_eq!(of(figures("powersave", 300.0, 9.0, 2)), Verdict::CannotTell);
        assert_eq!(
            verdict(&[figures("schedutil", 1.0, 0.0, 5)]).verdict,
            Verdict::CannotTell
        );
    }

    #[test]
    fn a_light_load_is_hardly_seen_and_a_full_one_is() {
        // 32 ms of a period that is as good as endless is the half.
        assert!((utilisation(32.0, 100_000.0) - 0.5).abs() < 1e-9);
        assert!((utilisation(3.0, 500.0) - 0.063).abs() < 0.001);
        assert_eq!(utilisation(500.0, 500.0), 1.0);
        assert_eq!(
            ["0.30 %", "3.0 %", "30 %", "100 %"],
            [0.003, 0.03, 0.3, 1.0].map(report_percent)
        );
    }
}
