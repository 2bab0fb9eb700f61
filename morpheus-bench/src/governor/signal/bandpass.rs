//! A band-pass filter of finite impulse response: the difference of two low-passes, under a Hamming window.

use std::f64::consts::{PI, TAU};

use super::{Filter, Size};

/// From where to where the filter lets through, in Hz.
pub const PASSES: (f64, f64) = (8.0, 30.0);

/// The filter's taps: `2f/r·sinc` of the upper edge less that of the lower, windowed.
pub fn taps(count: u32, rate: f64, (low, high): (f64, f64)) -> Vec<f64> {
    let middle = f64::from(count - 1) / 2.0;
    (0..count)
        .map(|n| {
            let x = f64::from(n) - middle;
            let ideal = if x == 0.0 {
                2.0 * (high - low) / rate
            } else {
                ((TAU * high / rate * x).sin() - (TAU * low / rate * x).sin()) / (PI * x)
            };
            ideal * (0.54 - 0.46 * (TAU * f64::from(n) / f64::from(count - 1)).cos())
        })
        .collect()
}

/// Lets [`PASSES`] through, with `size.taps`.
pub fn bandpass(size: &Size) -> Filter {
    let channels = size.channels as usize;
    let step = size.hop as usize * channels;
    let taps = taps(size.taps, size.rate.into(), PASSES);
    // The `taps - 1` frames before the window, then the window.
    let frames_before = taps.len() - 1;
    let before = frames_before * channels;
    let mut signal = vec![0.0; before + size.samples()];
    Box::new(move |window, output| {
        let (taps, signal) = (&taps[..], &mut signal[..]);
        signal[before..].copy_from_slice(window);
        for (t, out) in output.chunks_exact_mut(channels).enumerate() {
            out.fill(0.0);
            // The newest sample goes with the first tap.
            let newest = frames_before + t;
            for (k, tap) in taps.iter().enumerate() {
                let at = (newest - k) * channels;
                for (y, x) in out.iter_mut().zip(&signal[at..at + channels]) {
                    *y += tap * x;
                }
            }
        }
        // The samples before the next window.
        signal.copy_within(step..step + before, 0);
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{assert_close, size, unbroken};
    use super::super::{Name, Size, eeg};
    use super::{PASSES, taps};
    use std::f64::consts::TAU;

    #[test]
    fn is_the_convolution_written_down() {
        for (count, hop) in [(129, 80), (9, 160), (301, 20)] {
            let size = Size {
                channels: 3,
                taps: count,
                hop,
                ..size()
            };
            let signal = eeg::generate(&size, 960, 4);
            let output = unbroken(Name::BandpassFir, &size, &signal);
            let taps = taps(count, 160.0, PASSES);
            for c in 0..3 {
                for t in 0..output.len() / 3 {
                    let mut expected = 0.0;
                    for (s, tap) in taps.iter().rev().enumerate() {
                        let at = (t + s) as i64 - (taps.len() as i64 - 1);
                        if at >= 0 {
                            expected += tap * signal[at as usize * 3 + c];
                        }
                    }
                    assert_close(output[t * 3 + c], expected, format_args!("{t}, {count}"));
                }
            }
        }
    }

    fn gain(taps: &[f64], hz: f64) -> f64 {
        let (mut re, mut im) = (0.0, 0.0);
        for (n, tap) in taps.iter().enumerate() {
            let (sin, cos) = (TAU * hz / 160.0 * n as f64).sin_cos();
            re += tap * cos;
            im += tap * sin;
        }
        re.hypot(im)
    }

    /// A Hamming window of 129 taps falls within 3.3 · 160 / 129 = 4.1 Hz and leaves less than a hundredth.
    #[test]
    fn lets_the_band_through_and_nothing_else() {
        let taps = taps(129, 160.0, PASSES);
        for hz in [0.0, 2.0, 4.0, 35.0, 50.0, 60.0, 80.0] {
            assert!(gain(&taps, hz) < 0.01, "{hz} Hz");
        }
        for hz in [12.0, 20.0, 26.0] {
            assert!((gain(&taps, hz) - 1.0).abs() < 0.01, "{hz} Hz");
        }
        // At the edges of a windowed filter it is a half.
        for hz in [8.0, 30.0] {
            assert!((gain(&taps, hz) - 0.5).abs() < 0.01, "{hz} Hz");
        }
        let mirrored: Vec<f64> = taps.iter().rev().copied().collect();
        for (a, b) in taps.iter().zip(&mirrored) {
            assert_close(*a, *b, "linear phase");
        }
    }

    /// A sine in the middle of the band comes out as it went in, half the taps later.
    #[test]
    fn delays_by_half_its_taps() {
        let size = Size {
            channels: 1,
            ..size()
        };
        let sine = |t: i64| (TAU * 19.0 * t as f64 / 160.0).sin();
        let signal: Vec<f64> = (0..1_600).map(sine).collect();
        let output = unbroken(Name::BandpassFir, &size, &signal);
        let gain = gain(&taps(129, 160.0, PASSES), 19.0);
        for t in 200..1_400 {
            assert_close(output[t as usize], gain * sine(t - 64), t);
        }
    }
}
