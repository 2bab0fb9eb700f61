//! The signal processing that is measured: the four kernels of a brain-computer interface, on windows of many
//! channels, and the data set that they work on.
//!
//! A window is `window` frames of `channels` samples each, one frame after the other. The next one begins `hop`
//! frames later, so that windows overlap. The filters keep what they know at that point: what they put out is
//! what they would put out on the unbroken signal. All of it is double precision.

mod bandpass;
mod car;
pub mod eeg;
mod goertzel;
mod notch;

use clap::{Args, ValueEnum};
use serde::Serialize;

use bandpass::bandpass;
use car::common_average;
use goertzel::{BANDS, goertzel};
use notch::notch;

use morpheus_harness::arguments::name_of;

/// How large the windows and the filters are.
#[derive(Clone, Debug, PartialEq, Args, Serialize)]
pub struct Size {
    /// Channels of the signal
    #[arg(long, value_name = "N", default_value = "64", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub channels: u32,

    /// Frames a second
    #[arg(long, value_name = "HZ", default_value = "160", value_parser = clap::value_parser!(u32).range(64..=100_000))]
    pub rate: u32,

    /// Frames of a window
    #[arg(long, value_name = "N", default_value = "160", value_parser = clap::value_parser!(u32).range(16..=100_000))]
    pub window: u32,

    /// Frames from the beginning of a window to that of the next; with the rate it says how often a kernel runs
    #[arg(long, value_name = "N", default_value = "80", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub hop: u32,

    /// Taps of the band-pass filter, an odd number
    #[arg(long, value_name = "N", default_value = "129", value_parser = taps)]
    pub taps: u32,

    /// The frequency that the notch filter takes out; 60 in America, 50 in most of the world
    #[arg(long, value_name = "HZ", default_value = "60", value_parser = clap::value_parser!(u32).range(1..=50_000))]
    pub mains: u32,
}

/// Of a window, and of the whole signal: 32 MB.
const MOST_SAMPLES: usize = 4_000_000;

fn taps(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(n) if n % 2 == 1 && (3..=9_999).contains(&n) => Ok(n),
        _ => Err("an odd number from 3 to 9999 is needed".into()),
    }
}

impl Size {
    /// Checks that these numbers go together.
    ///
    /// # Errors
    /// A sentence that says which flag must change.
    pub fn check(&self) -> Result<(), String> {
        if self.hop > self.window {
            return Err("--hop must be at most --window, or frames would be left out".into());
        }
        if 2 * self.mains >= self.rate {
            return Err("--mains must be below half of --rate".into());
        }
        if self.samples() > MOST_SAMPLES {
            return Err(format!(
                "--window times --channels must be at most {MOST_SAMPLES}"
            ));
        }
        Ok(())
    }

    /// Frames of the signal that is played over and over: a minute, where that is not too much.
    pub fn frames(&self) -> usize {
        let minute = 60 * self.rate as usize;
        let most = MOST_SAMPLES / self.channels as usize;
        minute.min(most).max(self.window as usize)
    }

    /// Samples of a window.
    pub fn samples(&self) -> usize {
        self.window as usize * self.channels as usize
    }

    /// From one window to the next.
    pub fn period(&self) -> std::time::Duration {
        std::time::Duration::from_secs_f64(f64::from(self.hop) / f64::from(self.rate))
    }
}

/// The kernels that can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum Name {
    /// Nothing: what is left is the cost of measuring
    Noop,
    /// Common average reference: from each sample the mean over all channels is subtracted
    Car,
    /// A notch filter of second order against the mains
    NotchIir,
    /// Power in the alpha and beta bands by Goertzel's algorithm
    Goertzel,
    /// A band-pass filter of finite impulse response, 8 to 30 Hz
    BandpassFir,
}

impl Name {
    /// Those of the study.
    pub const STUDY: [Name; 4] = [Name::Car, Name::NotchIir, Name::Goertzel, Name::BandpassFir];

    /// As on the command line and in files.
    pub fn text(self) -> String {
        name_of(&self)
    }
}

/// Works on a window, and puts out as many samples unless it says otherwise. It owns its state from one window to the next.
/// Inner loops go through slices of their own: to a vector that is captured they would look for its memory each time.
type Filter = Box<dyn FnMut(&[f64], &mut [f64]) + Send>;

/// A kernel with its state and room for its output.
pub struct Kernel {
    filter: Filter,
    output: Vec<f64>,
}

impl Kernel {
    /// One that has seen no signal yet. All of its memory is there from now on.
    pub fn new(name: Name, size: &Size) -> Self {
        let filter: Filter = match name {
            Name::Noop => Box::new(|_, _| ()),
            Name::Car => common_average(size),
            Name::NotchIir => notch(size),
            Name::Goertzel => goertzel(size),
            Name::BandpassFir => bandpass(size),
        };
        let length = match name {
            Name::Goertzel => BANDS.len() * size.channels as usize,
            _ => size.samples(),
        };
        Self {
            filter,
            // Not zeroes, for which the system would lend a page only when it is written.
            output: vec![1.0; length],
        }
    }

    /// Works on one window of [`Size::samples`] samples.
    #[inline(never)]
    pub fn process(&mut self, window: &[f64]) -> &[f64] {
        (self.filter)(window, &mut self.output);
        &self.output
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The study's size.
    pub fn size() -> Size {
        Size {
            channels: 64,
            rate: 160,
            window: 160,
            hop: 80,
            taps: 129,
            mains: 60,
        }
    }

    /// The tolerance within which every kernel must agree with its reference.
    pub const TOLERANCE: f64 = 1e-6;

    #[track_caller]
    pub fn assert_close(got: f64, expected: f64, what: impl std::fmt::Display) {
        let error = (got - expected).abs() / expected.abs().max(1.0);
        assert!(error < TOLERANCE, "{what}: {got}, not {expected}");
    }

    /// The output of a filter for the whole signal, put together from the first `hop` frames of each window.
    pub fn unbroken(name: Name, size: &Size, signal: &[f64]) -> Vec<f64> {
        let (step, length) = ((size.hop * size.channels) as usize, size.samples());
        let mut kernel = Kernel::new(name, size);
        let mut output = Vec::new();
        let mut at = 0;
        while at + length <= signal.len() {
            let window = kernel.process(&signal[at..at + length]);
            output.extend_from_slice(&window[..step]);
            at += step;
        }
        output
    }

    /// Every frame of every window, also those that the next one repeats, is that of the unbroken output.
    #[test]
    fn overlapping_windows_agree() {
        let size = Size { hop: 37, ..size() };
        let signal = eeg::generate(&size, 1_000, 11);
        let step = (size.hop * size.channels) as usize;
        for name in [Name::Car, Name::NotchIir, Name::BandpassFir] {
            let whole = unbroken(name, &size, &signal);
            let mut kernel = Kernel::new(name, &size);
            for i in 0..10 {
                let window = &signal[i * step..i * step + size.samples()];
                let output = kernel.process(window);
                for (j, got) in output.iter().enumerate() {
                    assert_close(*got, whole[i * step + j], format_args!("{name:?}, {j}"));
                }
            }
        }
    }

    #[test]
    fn numbers_that_do_not_fit_are_refused() {
        assert_eq!(size().check(), Ok(()));
        assert!(Size { hop: 161, ..size() }.check().is_err());
        assert!(
            Size {
                mains: 80,
                ..size()
            }
            .check()
            .is_err()
        );
        let large = Size {
            window: 100_000,
            hop: 1,
            ..size()
        };
        assert!(large.check().is_err());
        assert!(large.frames() * 64 >= large.samples() && size().frames() == 9_600);
        assert!(taps("128").is_err() && taps("129").is_ok() && taps("-1").is_err());
        assert_eq!(size().period().as_millis(), 500);
    }

    #[test]
    fn names_are_those_of_the_command_line_and_of_the_files() {
        for name in Name::value_variants() {
            let value = name.to_possible_value().unwrap();
            assert_eq!(value.get_name(), name.text());
            assert_eq!(serde_json::to_value(name).unwrap(), name.text());
        }
    }
}
