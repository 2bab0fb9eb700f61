//! The unit of a number, and how a number is written.

use serde::{Deserialize, Serialize};

/// The unit of a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// Time in nanoseconds.
    Time,
    /// A ratio: how many times something else.
    Factor,
    /// A share, shown in percent.
    Share,
    /// A frequency in kilohertz, as cpufreq has it.
    Frequency,
    /// A size in bytes.
    Bytes,
    /// Bytes that pass, in powers of ten, as rates are given.
    BytesPassed,
    /// Whatever is counted.
    #[default]
    Count,
}

impl Unit {
    /// Units from the smallest, with what they are in the unit of the number.
    fn ladder(self) -> &'static [(f64, &'static str)] {
        match self {
            Self::Time => &[(1.0, " ns"), (1e3, " µs"), (1e6, " ms"), (1e9, " s")],
            Self::Factor => &[(1.0, "×")],
            Self::Share => &[(0.01, " %")],
            Self::Frequency => &[(1.0, " kHz"), (1e3, " MHz"), (1e6, " GHz")],
            Self::Bytes => &[
                (1.0, " B"),
                (1024.0, " KiB"),
                (1048576.0, " MiB"),
                (1073741824.0, " GiB"),
            ],
            Self::BytesPassed => &[(1.0, " B"), (1e3, " kB"), (1e6, " MB"), (1e9, " GB")],
            Self::Count => &[(1.0, ""), (1e3, "k"), (1e6, "M"), (1e9, "G")],
        }
    }

    /// The greatest unit that `value` has one of.
    fn step(self, value: f64) -> (f64, &'static str) {
        let ladder = self.ladder();
        let fitting = ladder.iter().rev().find(|(one, _)| value.abs() >= *one);
        *fitting.unwrap_or(&ladder[0])
    }

    /// A measured number to three digits: `15.9 ns`, `2.70 s`, `1.03×`.
    pub fn show(self, value: f64) -> String {
        let is_whole = value == value.round() || value.abs() >= 1e3;
        if self == Self::Count && value.abs() < 1e6 && is_whole {
            return sign(value).to_owned() + &crate::report::count(value.abs().round() as u64);
        }
        // Near 1 what matters is the difference to it.
        if self == Self::Factor && (value - 1.0).abs() < 0.1 {
            return format!("{value:.4}×");
        }
        // A value that rounds up to the next unit is shown in it.
        let (one, name) = self.step(value * 1.000_5);
        format!("{}{name}", digits(value / one, 3))
    }

    /// Both ends of an interval.
    pub fn range(self, (low, high): (f64, f64)) -> String {
        format!("{} to {}", self.show(low), self.show(high))
    }

    /// Round numbers on an axis that goes up to `most`, all in one unit: `0`, `50 µs`, `100 µs`.
    pub fn tick(self, value: f64, most: f64) -> String {
        if value == 0.0 {
            return "0".into();
        }
        let (one, name) = self.step(most);
        format!("{}{name}", plain(value / one))
    }
}

fn sign(value: f64) -> &'static str {
    if value < 0.0 { "−" } else { "" }
}

/// Formats with this many significant digits, without an exponent.
fn digits(value: f64, significant: i32) -> String {
    if value == 0.0 {
        return "0".into();
    }
    if !value.is_finite() {
        return "–".into();
    }
    let magnitude = value.abs().log10().floor() as i32;
    let scale = 10_f64.powi(significant - 1 - magnitude);
    let rounded = (value.abs() * scale).round() / scale;
    // Rounding may have brought one digit more: 9.999 to 10.0.
    let magnitude = rounded.log10().floor() as i32;
    let decimals = (significant - 1 - magnitude).clamp(0, 9) as usize;
    format!("{}{rounded:.decimals$}", sign(value))
}

/// Without zeros at the end.
fn plain(value: f64) -> String {
    let text = digits(value, 7);
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measured_numbers_have_three_digits_and_a_fitting_unit() {
        let time = |ns| Unit::Time.show(ns);
        for (ns, expected) in [
            (0.0, "0 ns"),
            (15.94, "15.9 ns"),
            (999.7, "1.00 µs"),
            (142_000.0, "142 µs"),
            (2.7e9, "2.70 s"),
            (-300.0, "−300 ns"),
            (0.043, "0.0430 ns"),
        ] {
            assert_eq!(time(ns), expected);
        }
        assert_eq!(Unit::Factor.show(1.0004), "1.0004×");
        assert_eq!(Unit::Factor.show(1.34), "1.34×");
        assert_eq!(Unit::Share.show(0.471), "47.1 %");
        assert_eq!(Unit::Share.show(0.0005), "0.0500 %");
        assert_eq!(Unit::Frequency.show(3_000_000.0), "3.00 GHz");
        assert_eq!(Unit::Bytes.show(98_304.0), "96.0 KiB");
        assert_eq!(Unit::BytesPassed.show(10_300_000.0), "10.3 MB");
        let counts = [40_000.0, 19_999.7, 0.166, 2.5e6].map(|n| Unit::Count.show(n));
        assert_eq!(counts, ["40,000", "20,000", "0.166", "2.50M"]);
        assert_eq!(Unit::Time.show(f64::NAN), "– ns");
    }

    #[test]
    fn ticks_are_short_and_in_one_unit() {
        let ticks = |unit: Unit, values: [f64; 3]| values.map(|value| unit.tick(value, values[2]));
        assert_eq!(
            ticks(Unit::Time, [0.0, 500_000.0, 1e6]),
            ["0", "0.5 ms", "1 ms"]
        );
        assert_eq!(
            ticks(Unit::Factor, [0.95, 1.0, 1.05]),
            ["0.95×", "1×", "1.05×"]
        );
        assert_eq!(
            ticks(Unit::Share, [0.1, 0.5, 1.0]),
            ["10 %", "50 %", "100 %"]
        );
        assert_eq!(
            ticks(Unit::Frequency, [1e6, 2e6, 3e6]),
            ["1 GHz", "2 GHz", "3 GHz"]
        );
        assert_eq!(
            ticks(Unit::Factor, [0.1 + 0.2, 1.0005, 1.001]),
            ["0.3×", "1.0005×", "1.001×"]
        );
        assert_eq!(
            ticks(Unit::BytesPassed, [2e6, 4e6, 12e6]),
            ["2 MB", "4 MB", "12 MB"]
        );
        assert_eq!(Unit::Count.tick(15_000.0, 20_000.0), "15k");
        assert_eq!(Unit::Time.tick(-50.0, 100.0), "−50 ns");
    }
}
