//! From numbers to places on an axis, and the round numbers that are written there.

use crate::unit::Unit;

/// The steps of round numbers within a factor of ten.
const STEPS: [f64; 3] = [1.0, 2.0, 5.0];
/// From this ratio on a logarithmic axis shows more than a linear one.
const DECADES: f64 = 30.0;

/// How places go with numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Equal differences are equally far apart.
    Linear,
    /// Equal ratios are.
    Log,
}

/// An axis: round numbers at both ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// How places go with numbers.
    pub kind: Kind,
    /// The number at 0.
    pub low: f64,
    /// The number at 1.
    pub high: f64,
}

/// The least and the greatest of the finite numbers.
pub fn extremes(values: &[f64]) -> Option<(f64, f64)> {
    let finite = || values.iter().copied().filter(|x| x.is_finite());
    let low = finite().fold(f64::INFINITY, f64::min);
    let high = finite().fold(f64::NEG_INFINITY, f64::max);
    (low <= high).then_some((low, high))
}

impl Scale {
    /// Logarithmic where all numbers are positive and the greatest is many times the least, else linear from 0.
    pub fn of(values: &[f64]) -> Self {
        match extremes(values) {
            Some((low, high)) if low > 0.0 && high / low >= DECADES => Self::log(values),
            _ => Self::linear(&[values, &[0.0]].concat()),
        }
    }

    /// Logarithmic, over at least a factor of ten. Numbers that are not positive have no place on it.
    pub fn log(values: &[f64]) -> Self {
        let positive: Vec<f64> = values.iter().copied().filter(|x| *x > 0.0).collect();
        let (low, high) = extremes(&positive).unwrap_or((1.0, 10.0));
        let low = step_down(low);
        let high = step_up(high).max(step_up(low * 9.0));
        Self {
            kind: Kind::Log,
            low,
            high,
        }
    }

    /// Linear, between round numbers.
    pub fn linear(values: &[f64]) -> Self {
        let (mut low, mut high) = extremes(values).unwrap_or((0.0, 1.0));
        if high - low <= 1e-12 * high.abs().max(low.abs()) {
            let around = (high.abs() * 0.01).max(1e-9);
            (low, high) = (low - around, high + around);
        }
        let step = linear_step(high - low, 5);
        Self {
            kind: Kind::Linear,
            low: (low / step + 1e-9).floor() * step,
            high: (high / step - 1e-9).ceil() * step,
        }
    }

    /// Where a number is: 0 at the low end, 1 at the high end, and never beyond.
    pub fn at(&self, value: f64) -> f64 {
        let share = match self.kind {
            Kind::Linear => (value - self.low) / (self.high - self.low),
            Kind::Log if value <= 0.0 => 0.0,
            Kind::Log => (value / self.low).ln() / (self.high / self.low).ln(),
        };
        if share.is_nan() {
            0.0
        } else {
            share.clamp(0.0, 1.0)
        }
    }

    /// A number on the axis with its unit: on a linear axis all have the same one.
    pub fn name(&self, unit: Unit, value: f64) -> String {
        let most = match self.kind {
            Kind::Linear => self.high.abs().max(self.low.abs()),
            Kind::Log => value,
        };
        unit.tick(value, most)
    }

    /// Round numbers on the axis, about `wanted` of them.
    pub fn ticks(&self, wanted: usize) -> Vec<f64> {
        match self.kind {
            Kind::Linear => self.linear_ticks(wanted),
            Kind::Log => self.log_ticks(wanted),
        }
    }

    fn linear_ticks(&self, wanted: usize) -> Vec<f64> {
        let step = linear_step(self.high - self.low, wanted);
        let first = (self.low / step - 1e-9).ceil();
        let last = (self.high / step + 1e-9).floor();
        let count = (last - first).clamp(0.0, 100.0) as usize;
        (0..=count)
            .map(|i| (first + i as f64) * step)
            // −0 is written like another number.
            .map(|tick| if tick.abs() < step * 1e-6 { 0.0 } else { tick })
            .collect()
    }

    fn log_ticks(&self, wanted: usize) -> Vec<f64> {
        let first = self.low.log10().floor() as i32;
        let last = self.high.log10().ceil() as i32;
        let within = |tick: &f64| *tick >= self.low * 0.999 && *tick <= self.high * 1.001;
        let of = |steps: &'static [f64], every: usize| -> Vec<f64> {
            let decades = (first..=last).step_by(every);
            decades
                .flat_map(|decade| steps.iter().map(move |step| step * 10_f64.powi(decade)))
                .filter(within)
                .collect()
        };
        let dense = [of(&STEPS, 1), of(&[1.0, 3.0], 1)];
        let sparse = (1..20).map(|every| of(&[1.0], every));
        let mut all = dense.into_iter().chain(sparse);
        let fitting = all.find(|ticks| ticks.len() <= wanted + 1);
        fitting.unwrap_or_else(|| of(&[1.0], 20))
    }
}

/// A round number that fits at most `wanted` times, or a little more.
fn linear_step(span: f64, wanted: usize) -> f64 {
    let rough = span / wanted.max(1) as f64;
    if !(rough.is_normal() && rough > 0.0) {
        return 1.0;
    }
    step_up(rough * 0.8)
}

fn power_below(value: f64) -> f64 {
    10_f64.powf(value.log10().floor())
}

/// The round number at or below.
fn step_down(value: f64) -> f64 {
    let power = power_below(value);
    let found = STEPS
        .iter()
        .rev()
        .find(|step| *step * power <= value * 1.000_001);
    found.map_or(power, |step| step * power)
}

/// The round number at or above.
fn step_up(value: f64) -> f64 {
    let power = power_below(value);
    let found = STEPS.iter().find(|step| *step * power >= value * 0.999_999);
    found.map_or(10.0 * power, |step| step * power)
}

/// Where a share of the samples is on the axis of a percentile curve: each factor of ten by which fewer are above takes as
/// much room.
pub fn percentile_place(share: f64) -> f64 {
    -(1.0 - share.clamp(0.0, 0.999_999_999)).log10()
}

/// The shares that an axis up to `place` names.
pub fn percentile_ticks(place: f64) -> Vec<(f64, String)> {
    let mut ticks = vec![(0.0, "least".to_owned()), (0.5, "50".to_owned())];
    for nines in 1..=8 {
        let share = 1.0 - 10_f64.powi(-nines);
        let decimals = (nines - 2).max(0) as usize;
        ticks.push((share, format!("{:.decimals$}", 100.0 * share)));
    }
    ticks.retain(|(share, _)| percentile_place(*share) <= place + 1e-6);
    ticks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decades_are_logarithmic_and_the_rest_is_not() {
        assert_eq!(Scale::of(&[140.0, 990_000.0]).kind, Kind::Log);
        assert_eq!(Scale::of(&[140.0, 150.0]).kind, Kind::Linear);
        assert_eq!(Scale::of(&[0.0, 1e9]).kind, Kind::Linear);
        assert_eq!(Scale::of(&[-5.0, 1e9]).kind, Kind::Linear);
    }

    #[test]
    fn ends_are_round_and_hold_everything() {
        let log = Scale::log(&[140.0, 990_000.0]);
        assert_eq!((log.low, log.high), (100.0, 1_000_000.0));
        let linear = Scale::linear(&[0.97, 1.08]);
        assert!((linear.low - 0.96).abs() < 1e-9, "{linear:?}");
        assert!((linear.high - 1.08).abs() < 1e-9, "{linear:?}");
        assert_eq!(Scale::of(&[7.0, 42.0]).low, 0.0);
        for scale in [log, linear, Scale::log(&[5.0]), Scale::linear(&[5.0])] {
            assert!(scale.low < scale.high);
            assert_eq!((scale.at(scale.low), scale.at(scale.high)), (0.0, 1.0));
        }
    }

    #[test]
    fn places_go_with_the_numbers() {
        let log = Scale::log(&[1.0, 100.0]);
        assert!((log.at(10.0) - 0.5).abs() < 1e-12);
        let linear = Scale::linear(&[0.0, 100.0]);
        assert!((linear.at(25.0) - 0.25).abs() < 1e-12);
        assert_eq!([log.at(0.0), log.at(-3.0), log.at(1e9)], [0.0, 0.0, 1.0]);
    }

    #[test]
    fn ticks_are_round_few_and_on_the_axis() {
        assert_eq!(
            Scale::linear(&[0.0, 100.0]).ticks(5),
            [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]
        );
        assert_eq!(
            Scale::log(&[10.0, 100.0]).ticks(5),
            [10.0, 20.0, 50.0, 100.0]
        );
        assert_eq!(
            Scale::log(&[1e3, 1e9]).ticks(7),
            [1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9]
        );
        for values in [[1.0, 1e18], [0.001, 0.002], [-7.0, 13.0], [1e-9, 1.0]] {
            for wanted in 2..8 {
                for scale in [
                    Scale::of(&values),
                    Scale::log(&values),
                    Scale::linear(&values),
                ] {
                    let ticks = scale.ticks(wanted);
                    assert!(
                        (1..=2 * wanted + 3).contains(&ticks.len()),
                        "{scale:?} {ticks:?}"
                    );
                    let on = |tick: &f64| (-1e-9..=1.0 + 1e-9).contains(&scale.at(*tick));
                    assert!(ticks.iter().all(on));
                    assert!(ticks.windows(2).all(|pair| pair[0] < pair[1]));
                }
            }
        }
    }

    #[test]
    fn nonsense_gives_an_axis_all_the_same() {
        for values in [
            vec![],
            vec![f64::NAN],
            vec![f64::INFINITY],
            vec![0.0],
            vec![1e18],
        ] {
            for scale in [
                Scale::of(&values),
                Scale::log(&values),
                Scale::linear(&values),
            ] {
                assert!(scale.low < scale.high, "{values:?} {scale:?}");
                assert!(scale.ticks(5).len() < 30);
                assert!((0.0..=1.0).contains(&scale.at(f64::NAN)));
            }
        }
    }

    #[test]
    fn percentiles_take_as_much_room_for_each_nine() {
        let places = [0.0, 0.9, 0.99, 0.999].map(percentile_place);
        for (place, expected) in places.into_iter().zip([0.0, 1.0, 2.0, 3.0]) {
            assert!((place - expected).abs() < 1e-9);
        }
        assert!(percentile_place(1.0).is_finite());
        let names: Vec<String> = percentile_ticks(4.2)
            .into_iter()
            .map(|(_, name)| name)
            .collect();
        assert_eq!(names, ["least", "50", "90", "99", "99.9", "99.99"]);
    }
}
