//! Goertzel's algorithm: the power at a few frequencies, cheaper than a whole transform.
//!
//! For each channel the powers of the bins of a band are added up. A bin is a frequency that has a whole number of
//! periods in the window; its power is the square of the transform's magnitude there.

use std::f64::consts::TAU;

use super::{Filter, Size};

/// Alpha and beta rhythm, in Hz, both ends included.
pub const BANDS: [(f64, f64); 2] = [(8.0, 13.0), (13.0, 30.0)];

/// Puts out a value for each channel of the first band, then of the second.
pub fn goertzel(size: &Size) -> Filter {
    let channels = size.channels as usize;
    let twice_cosine = |bin: u32| 2.0 * (TAU * f64::from(bin) / f64::from(size.window)).cos();
    let bands = BANDS.map(|band| bins(size, band).map(twice_cosine).collect::<Vec<f64>>());
    // The recurrence's last two values for each channel.
    let (mut last, mut before) = (vec![0.0; channels], vec![0.0; channels]);
    Box::new(move |window, output| {
        let (last, before) = (&mut last[..], &mut before[..]);
        for (band, powers) in bands.iter().zip(output.chunks_exact_mut(channels)) {
            powers.fill(0.0);
            for twice_cosine in band {
                last.fill(0.0);
                before.fill(0.0);
                for frame in window.chunks_exact(channels) {
                    let state = last.iter_mut().zip(before.iter_mut());
                    for (x, (last, before)) in frame.iter().zip(state) {
                        let next = x + twice_cosine * *last - *before;
                        *before = *last;
                        *last = next;
                    }
                }
                for (power, (a, b)) in powers.iter_mut().zip(last.iter().zip(before.iter())) {
                    *power += a * a + b * b - twice_cosine * a * b;
                }
            }
        }
    })
}

/// The bins whose frequency lies in a band.
fn bins(size: &Size, (low, high): (f64, f64)) -> std::ops::RangeInclusive<u32> {
    let of = |hz: f64| hz * f64::from(size.window) / f64::from(size.rate);
    of(low).ceil() as u32..=of(high).floor() as u32
}

#[cfg(test)]
mod tests {
    use super::super::tests::{assert_close, size};
    use super::super::{Kernel, Name, Size, eeg};
    use super::{BANDS, bins};
    use std::f64::consts::TAU;

    /// The transform's sum, term by term.
    fn power(signal: &[f64], size: &Size, channel: usize, bin: u32) -> f64 {
        let (channels, window) = (size.channels as usize, size.window as usize);
        let (mut re, mut im) = (0.0, 0.0);
        for t in 0..window {
            let turn = (t as u64 * u64::from(bin) % u64::from(size.window)) as f64;
            let (sin, cos) = (TAU * turn / f64::from(size.window)).sin_cos();
            re += signal[t * channels + channel] * cos;
            im -= signal[t * channels + channel] * sin;
        }
        re * re + im * im
    }

    #[test]
    fn is_the_sum_of_the_transform_over_the_bins() {
        for size in [
            size(),
            Size {
                channels: 5,
                window: 300,
                rate: 250,
                ..size()
            },
        ] {
            let signal = eeg::generate(&size, size.window as usize, 3);
            let mut kernel = Kernel::new(Name::Goertzel, &size);
            let output = kernel.process(&signal);
            for (b, band) in BANDS.into_iter().enumerate() {
                for c in 0..size.channels as usize {
                    let expected: f64 =
                        bins(&size, band).map(|k| power(&signal, &size, c, k)).sum();
                    assert_close(output[b * size.channels as usize + c], expected, c);
                }
            }
        }
    }

    #[test]
    fn a_sine_of_one_bin_has_its_power_there_and_nowhere_else() {
        let size = size();
        let window: Vec<f64> = (0..size.samples())
            .map(|i| 3.0 * (TAU * 20.0 * (i / 64) as f64 / 160.0).sin())
            .collect();
        let mut kernel = Kernel::new(Name::Goertzel, &size);
        let output = kernel.process(&window);
        // Amplitude 3 over 160 frames: (3 · 160 / 2)².
        for c in 0..64 {
            assert_close(output[c], 0.0, c);
            assert_close(output[64 + c], 57_600.0, c);
        }
    }

    #[test]
    fn a_window_of_a_second_has_a_bin_a_hertz() {
        assert_eq!(bins(&size(), BANDS[0]), 8..=13);
        assert_eq!(bins(&size(), BANDS[1]), 13..=30);
    }
}
