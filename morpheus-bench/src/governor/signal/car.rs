//! Common average reference: what all channels have in common is noise of the reference electrode.

use super::{Filter, Size};

/// Subtracts from each sample the mean of its frame.
pub fn common_average(size: &Size) -> Filter {
    let channels = size.channels as usize;
    Box::new(move |window, output| {
        let frames = window.chunks_exact(channels);
        for (frame, out) in frames.zip(output.chunks_exact_mut(channels)) {
            let mean = frame.iter().sum::<f64>() / channels as f64;
            for (out, sample) in out.iter_mut().zip(frame) {
                *out = sample - mean;
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{assert_close, size};
    use super::super::{Kernel, Name, eeg};

    #[test]
    fn is_the_sample_less_the_mean_of_all_channels() {
        let size = size();
        let signal = eeg::generate(&size, 160, 1);
        let mut kernel = Kernel::new(Name::Car, &size);
        let output = kernel.process(&signal);
        for t in 0..160 {
            // Channel by channel from the last, in integers of a picovolt: another order, another arithmetic.
            let total: i128 = (0..64)
                .rev()
                .map(|c| (signal[t * 64 + c] * 1e9).round() as i128)
                .sum();
            let mean = total as f64 / 64.0 / 1e9;
            for c in 0..64 {
                assert_close(
                    output[t * 64 + c],
                    signal[t * 64 + c] - mean,
                    format_args!("{t}, {c}"),
                );
            }
        }
    }

    #[test]
    fn what_all_channels_share_goes_and_the_rest_stays() {
        let size = size();
        let window: Vec<f64> = (0..size.samples())
            .map(|i| 1_000.0 * (i / 64) as f64 + if i % 2 == 0 { 1.0 } else { -1.0 })
            .collect();
        let mut kernel = Kernel::new(Name::Car, &size);
        for (i, got) in kernel.process(&window).iter().enumerate() {
            assert_close(*got, if i % 2 == 0 { 1.0 } else { -1.0 }, i);
        }
    }
}
