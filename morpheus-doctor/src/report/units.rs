//! Durations and counts, as people read them.

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;
const MIN: u64 = 60 * S;

/// A duration with its unit: `870 ns`, `1.24 ms`, `48.2 ms`, `3.4 s`, `2 min 5 s`, `3 h 12 min`.
#[must_use]
pub fn duration(ns: u64) -> String {
    // Each bound is where rounding would say 1000 of a unit, or 60.
    match ns {
        0..US => format!("{ns} ns"),
        US..999_500 => three_digits(ns, US, "µs"),
        999_500..999_500_000 => three_digits(ns, MS, "ms"),
        999_500_000..59_950_000_000 => format!("{:.1} s", ns as f64 / S as f64),
        59_950_000_000..3_599_500_000_000 => {
            let seconds = rounded(ns, S);
            format!("{} min {} s", seconds / 60, seconds % 60)
        }
        _ => {
            let minutes = rounded(ns, MIN);
            format!("{} h {} min", minutes / 60, minutes % 60)
        }
    }
}

fn three_digits(ns: u64, unit_ns: u64, unit: &str) -> String {
    let value = ns as f64 / unit_ns as f64;
    match value {
        v if v < 9.995 => format!("{v:.2} {unit}"),
        v if v < 99.95 => format!("{v:.1} {unit}"),
        v => format!("{v:.0} {unit}"),
    }
}

fn rounded(ns: u64, unit_ns: u64) -> u64 {
    ns / unit_ns + u64::from(ns % unit_ns >= unit_ns / 2)
}

/// The threshold of long polls, without needless digits: `1 ms`, `2.5 ms`.
#[must_use]
pub fn threshold(ns: u64) -> String {
    let (unit_ns, unit) = match ns {
        0..US => (1, "ns"),
        US..MS => (US, "µs"),
        MS..S => (MS, "ms"),
        _ => (S, "s"),
    };
    match ns.is_multiple_of(unit_ns) {
        true => format!("{} {unit}", ns / unit_ns),
        false => duration(ns),
    }
}

/// A share in percent: `11 %`, `0.4 %`, `< 0.1 %`. Shares above all are all.
#[must_use]
pub fn percent(part: u64, all: u64) -> String {
    if part == 0 || all == 0 {
        return "0 %".to_owned();
    }
    match (part as f64 / all as f64 * 100.0).min(100.0) {
        share if share < 0.1 => "< 0.1 %".to_owned(),
        share if share < 9.95 => format!("{share:.1} %"),
        share => format!("{share:.0} %"),
    }
}

/// A count with its noun: `1 worker`, `12 workers`, `1,234 polls`.
#[must_use]
pub fn count(number: u64, one: &str, many: &str) -> String {
    format!(
        "{} {}",
        grouped(number),
        if number == 1 { one } else { many }
    )
}

/// A number with a comma between each three digits.
#[must_use]
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_unit_and_few_digits() {
        for (ns, text) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (1_000, "1.00 µs"),
            (12_345, "12.3 µs"),
            (999_499, "999 µs"),
            (999_500, "1.00 ms"),
            (1_240_000, "1.24 ms"),
            (9_999_999, "10.0 ms"),
            (48_200_000, "48.2 ms"),
            (124_000_000, "124 ms"),
            (999_600_000, "1.0 s"),
            (3_400_000_000, "3.4 s"),
            (59_940_000_000, "59.9 s"),
            (59_960_000_000, "1 min 0 s"),
            (125_000_000_000, "2 min 5 s"),
            (3_599_600_000_000, "1 h 0 min"),
            (11_520_000_000_000, "3 h 12 min"),
        ] {
            assert_eq!(duration(ns), text, "{ns} ns");
        }
        assert_eq!(duration(u64::MAX), "5124095 h 35 min");
    }

    #[test]
    fn thresholds_are_short() {
        assert_eq!(threshold(1_000_000), "1 ms");
        assert_eq!(threshold(500_000), "500 µs");
        assert_eq!(threshold(2_500_000), "2.50 ms");
        assert_eq!(threshold(0), "0 ns");
        assert_eq!(threshold(2_000_000_000), "2 s");
    }

    #[test]
    fn shares() {
        assert_eq!(percent(0, 0), "0 %");
        assert_eq!(percent(1, 10_000_000), "< 0.1 %");
        assert_eq!(percent(4, 1_000), "0.4 %");
        assert_eq!(percent(113, 1_000), "11 %");
        assert_eq!(percent(u64::MAX, 1), "100 %");
    }

    #[test]
    fn counts() {
        assert_eq!(count(1, "poll", "polls"), "1 poll");
        assert_eq!(count(0, "poll", "polls"), "0 polls");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_234), "1,234");
        assert_eq!(grouped(u64::MAX), "18,446,744,073,709,551,615");
    }
}
