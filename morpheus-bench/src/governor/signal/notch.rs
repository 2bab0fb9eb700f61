//! A notch filter of second order: takes the mains out and leaves the rest.
//!
//! The bilinear transform of `(s² + ω²) / (s² + s·ω/Q + ω²)`, which has zeroes on the unit circle at the notch. One
//! section in transposed direct form II for each channel.

use std::f64::consts::TAU;

use super::{Filter, Size};

/// The notch's frequency over its width at -3 dB.
pub const QUALITY: f64 = 30.0;

/// Takes out `size.mains`.
pub fn notch(size: &Size) -> Filter {
    let omega = TAU * f64::from(size.mains) / f64::from(size.rate);
    let alpha = omega.sin() / (2.0 * QUALITY);
    // `b0` and `b2` are equal, and so are `b1` and `a1`; all are over `a0`.
    let a0 = 1.0 + alpha;
    let (b0, b1, a2) = (1.0 / a0, -2.0 * omega.cos() / a0, (1.0 - alpha) / a0);
    let channels = size.channels as usize;
    let hop = size.hop.min(size.window) as usize;
    // Two delays for each channel: at the beginning of the next window, and while a window is worked on.
    let mut state = vec![[0.0; 2]; channels];
    let mut running = state.clone();
    Box::new(move |window, output| {
        let running = &mut running[..];
        running.copy_from_slice(&state);
        let frames = window.chunks_exact(channels);
        let frames = frames.zip(output.chunks_exact_mut(channels));
        for (number, (frame, out)) in frames.enumerate() {
            for ((x, y), [s1, s2]) in frame.iter().zip(out).zip(running.iter_mut()) {
                *y = b0 * x + *s1;
                *s1 = b1 * x - b1 * *y + *s2;
                *s2 = b0 * x - a2 * *y;
            }
            if number + 1 == hop {
                state.copy_from_slice(running);
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{assert_close, size, unbroken};
    use super::super::{Name, Size, eeg};
    use super::QUALITY;
    use std::f64::consts::{PI, TAU};

    /// The response to one sample, in closed form: from the poles of the transfer function, which are
    /// written down here without the filter's coefficients.
    fn impulse_response(size: &Size, length: usize) -> Vec<f64> {
        let omega = TAU * f64::from(size.mains) / f64::from(size.rate);
        let alpha = omega.sin() / (2.0 * QUALITY);
        let radius = ((1.0 - alpha) / (1.0 + alpha)).sqrt();
        let angle = (omega.cos() / (1.0 - alpha * alpha).sqrt()).acos();
        // 1 / (1 - 2 r cos(θ) z⁻¹ + r² z⁻²) has the response rⁿ sin((n + 1) θ) / sin θ.
        let pole = |n: i64| match n {
            n if n < 0 => 0.0,
            n => radius.powi(n as i32) * ((n + 1) as f64 * angle).sin() / angle.sin(),
        };
        (0..length as i64)
            .map(|n| (pole(n) - 2.0 * omega.cos() * pole(n - 1) + pole(n - 2)) / (1.0 + alpha))
            .collect()
    }

    #[test]
    fn is_the_convolution_with_its_response_in_closed_form() {
        for mains in [50, 60] {
            let size = Size {
                channels: 3,
                mains,
                ..size()
            };
            let signal = eeg::generate(&size, 800, 2);
            let response = impulse_response(&size, 800);
            let output = unbroken(Name::NotchIir, &size, &signal);
            for t in 0..output.len() / 3 {
                for c in 0..3 {
                    let expected: f64 =
                        (0..=t).map(|k| response[k] * signal[(t - k) * 3 + c]).sum();
                    assert_close(output[t * 3 + c], expected, t);
                }
            }
        }
    }

    /// On a sine, long after it began, the amplitude is that of the analog filter at the frequency that the bilinear
    /// transform maps to.
    #[test]
    fn has_the_amplitude_that_the_analog_filter_has() {
        let size = Size {
            channels: 1,
            ..size()
        };
        for hz in [1.0_f64, 10.0, 30.0, 58.0, 59.0, 60.0, 61.0, 75.0] {
            let omega = TAU * hz / 160.0;
            let signal: Vec<f64> = (0..16_000).map(|t| (omega * t as f64).sin()).collect();
            let output = unbroken(Name::NotchIir, &size, &signal);
            // By a correlation over whole periods: 3,200 frames are 20 s.
            let tail = &output[output.len() - 3_200..];
            let from = output.len() - 3_200;
            let (mut re, mut im) = (0.0, 0.0);
            for (i, y) in tail.iter().enumerate() {
                let phase = omega * (from + i) as f64;
                re += y * phase.sin() / 1_600.0;
                im += y * phase.cos() / 1_600.0;
            }
            let (w, w0) = ((PI * hz / 160.0).tan(), (PI * 60.0 / 160.0).tan());
            let gap = w0 * w0 - w * w;
            let expected = gap.abs() / gap.hypot(w * w0 / QUALITY);
            assert_close(re.hypot(im), expected, hz);
        }
    }
}
