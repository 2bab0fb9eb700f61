//! A synthetic signal like that of EEG electrodes, from a seed: no person's data, and the same on every machine.
//!
//! In microvolts. Each channel has noise of its own that falls with frequency, an alpha rhythm (10 Hz) that comes
//! and goes and is strongest at the back, a beta rhythm (21 Hz) strongest in the middle, and hum of the mains. All
//! have a slow drift of the reference in common, and the front ones a blink every few seconds.

use std::f64::consts::{PI, TAU};

use super::Size;
use crate::random::Random;

/// The parameters that differ from channel to channel.
struct Channel {
    /// From 0 at the front to 1 at the back.
    back: f64,
    alpha_phase: f64,
    beta_phase: f64,
    hum: f64,
    hum_phase: f64,
    /// Noise that remembers: for about a millisecond, a tenth of a second, a second.
    noise: [f64; 3],
}

/// `frames` frames of `size.channels` samples.
pub fn generate(size: &Size, frames: usize, seed: u64) -> Vec<f64> {
    let mut random = Random::new(seed);
    let rate = f64::from(size.rate);
    let last = f64::from(size.channels.max(2) - 1);
    let mut channels: Vec<Channel> = (0..size.channels)
        .map(|i| Channel {
            back: f64::from(i) / last,
            alpha_phase: random.unit() * PI / 2.0,
            beta_phase: random.unit() * PI / 2.0,
            hum: 2.0 + 6.0 * random.unit(),
            hum_phase: random.unit() * TAU,
            noise: [0.0; 3],
        })
        .collect();
    // How much of it is left a frame later, and how large each part is in microvolts.
    let memory = [0.001, 0.1, 1.0].map(|seconds: f64| (-1.0 / (seconds * rate)).exp());
    let deviation = [3.0, 6.0, 9.0];
    let (mut drift, mut blink_at) = (0.0, 2.0);
    let mut signal = Vec::with_capacity(frames * channels.len());
    for frame in 0..frames {
        let t = frame as f64 / rate;
        drift = 0.999 * drift + random.normal();
        if t > blink_at + 0.3 {
            blink_at = t + 2.0 + 4.0 * random.unit();
        }
        let blinking = ((t - blink_at) / 0.3).clamp(0.0, 1.0);
        let blink = 120.0 * (PI * blinking).sin();
        // The alpha rhythm swells for some seconds and fades.
        let swell = 0.5 + 0.5 * (TAU * t / 7.3).sin();
        for channel in &mut channels {
            for ((noise, keep), size) in channel.noise.iter_mut().zip(memory).zip(deviation) {
                *noise = keep * *noise + (1.0 - keep * keep).sqrt() * size * random.normal();
            }
            let middle = (PI * channel.back).sin();
            signal.push(
                channel.noise.iter().sum::<f64>()
                    + 20.0 * channel.back * swell * (TAU * 10.0 * t + channel.alpha_phase).sin()
                    + 5.0 * middle * (TAU * 21.0 * t + channel.beta_phase).sin()
                    + channel.hum * (TAU * f64::from(size.mains) * t + channel.hum_phase).sin()
                    + (1.0 - channel.back).powi(3) * blink
                    + drift,
            );
        }
    }
    signal
}

#[cfg(test)]
mod tests {
    use super::super::tests::size;
    use super::super::{Kernel, Name};
    use super::*;

    #[test]
    fn a_seed_repeats_its_signal() {
        let of = |seed| generate(&size(), 20, seed);
        assert_eq!(of(5), of(5));
        assert_ne!(of(5), of(6));
    }

    #[test]
    fn looks_like_an_electroencephalogram() {
        let size = size();
        let signal = generate(&size, 160 * 60, 7);
        assert_eq!(signal.len(), 160 * 60 * 64);
        assert!(signal.iter().all(|x| x.is_finite() && x.abs() < 1_000.0));
        // The back has more alpha than the front, and more of it than of beta per bin.
        let mut kernel = Kernel::new(Name::Goertzel, &size);
        let (mut front, mut back, mut beta) = (0.0, 0.0, 0.0);
        for window in signal.chunks_exact(size.samples()) {
            let powers = kernel.process(window);
            front += powers[8];
            back += powers[60];
            beta += powers[64 + 60];
        }
        assert!(back > 2.0 * front, "{back} {front}");
        assert!(back / 6.0 > 2.0 * beta / 18.0, "{back} {beta}");
    }
}
