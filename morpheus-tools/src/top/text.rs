//! Numbers, times and names in the few characters that a terminal has for them.

use super::model::History;
use crate::telemetry::rate_text;

const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The last values as a line of bars, the newest one at the right; the highest of them is a full bar.
pub(super) fn bars_of(history: &History, columns: usize) -> String {
    let skipped = history.len().saturating_sub(columns);
    let values = || history.iter().skip(skipped);
    let highest = values().flatten().copied().fold(0.0, f64::max);
    let mut bars = " ".repeat(columns.saturating_sub(history.len()));
    bars.extend(values().map(|value| match value {
        Some(value) if highest > 0.0 => {
            let last = BARS.len() - 1;
            BARS[((value / highest * last as f64).round() as usize).min(last)]
        }
        Some(_) => BARS[0],
        None => ' ',
    }));
    bars
}

/// A rate in at most five characters.
pub(super) fn short(rate: f64) -> String {
    if rate < 9_999.5 {
        return rate_text(rate);
    }
    let mut value = rate;
    for unit in ["k", "M", "G", "T", "P", "E"] {
        value /= 1e3;
        if value < 99.95 {
            return format!("{value:.1}{unit}");
        }
        if value < 999.5 {
            return format!("{value:.0}{unit}");
        }
    }
    "∞".to_owned()
}

/// A time of a knob.
pub(super) fn time_text(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{} µs", ns / 1_000),
        1_000_000..10_000_000_000 => {
            let ms = ns as f64 / 1e6;
            let digits = usize::from(ms < 10.0 && !ns.is_multiple_of(1_000_000));
            format!("{ms:.digits$} ms")
        }
        _ => format!("{} s", ns / 1_000_000_000),
    }
}

/// A process names itself: what would steer the terminal is not shown.
pub(super) fn printable(text: &str) -> String {
    text.chars()
        .map(|character| {
            if character.is_control() {
                '?'
            } else {
                character
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_relative_and_end_at_the_right() {
        let history = History::from([Some(0.0), None, Some(50.0), Some(100.0)]);
        assert_eq!(bars_of(&history, 6), "  ▁ ▅█");
        assert_eq!(bars_of(&history, 2), "▅█");
        assert_eq!(bars_of(&history, 0), "");
        assert_eq!(bars_of(&History::from([Some(0.0)]), 1), "▁");
        assert_eq!(bars_of(&History::from([None]), 1), " ");
    }

    #[test]
    fn rates_are_short() {
        for (rate, text) in [
            (0.0, "0"),
            (3.0, "3.0"),
            (251.4, "251"),
            (9_999.0, "9999"),
            (12_345.0, "12.3k"),
            (250_000.0, "250k"),
            (999_600.0, "1.0M"),
            (1e19, "10.0E"),
            (f64::MAX, "∞"),
        ] {
            assert_eq!(short(rate), text);
            assert!(text.chars().count() <= 5);
        }
    }

    #[test]
    fn times_of_knobs() {
        assert_eq!(time_text(999), "999 ns");
        assert_eq!(time_text(500_000), "500 µs");
        assert_eq!(time_text(1_000_000), "1 ms");
        assert_eq!(time_text(1_500_000), "1.5 ms");
        assert_eq!(time_text(20_000_000), "20 ms");
        assert_eq!(time_text(u64::MAX), "18446744073 s");
    }

    #[test]
    fn names_do_not_steer_the_terminal() {
        assert_eq!(printable("a\u{1b}[2J\nb\u{9b}é"), "a?[2J?b?é");
    }
}
