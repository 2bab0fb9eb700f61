//! A signal like that of electrodes on a head, from a seed: nobody's, and the same on every machine.
//!
//! In microvolts. Each channel has noise of its own that falls with frequency, an alpha rhythm (10 Hz) that comes
//! and goes and is strongest at the back, a beta rhythm (21 Hz) strongest in the middle, and hum of the mains. All
//! have a slow drift of the reference in common, and the front ones a blink every few seconds.

use std::f64::consts::{PI, TAU};

use super::Size;

/// A small generator of random numbers (splitmix64), so that a seed means the same for ever.
pub struct Random(u64);

impl Random {
    /// Every seed is as good as any other.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// From 0 to below 1.
    fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Mean 0, deviation 1 (Box and Muller).
    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (TAU * self.unit()).cos()
    }
}

/// What differs from channel to channel.
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
    fn a_seed_means_the_same_for_ever() {
        let mut random = Random::new(0);
        // The first outputs of splitmix64 for seed 0.
        assert_eq!(random.bits(), 0xE220_A839_7B1D_CDAF);
        assert_eq!(random.bits(), 0x6E78_9E6A_A1B9_65F4);
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
