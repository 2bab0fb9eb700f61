// SPDX-License-Identifier: GPL-2.0-only
//! How busy the machine is, as the header of the kernel's area says it.

use std::fs;

/// The pressure in [`morpheus_kernel_header`](morpheus_common::abi::morpheus_kernel_header). 0 where the kernel does
/// not tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pressure {
    /// "some avg10" in hundredths of a percent.
    pub cpu: u32,
    /// The same for reads and writes.
    pub io: u32,
    /// The same for memory.
    pub memory: u32,
    /// Runnable threads that have no CPU.
    pub run_queue_depth: u32,
}

impl Pressure {
    /// As of now.
    #[must_use]
    pub fn read() -> Pressure {
        let some = |resource: &str| {
            fs::read_to_string(format!("/proc/pressure/{resource}"))
                .ok()
                .and_then(|text| some_avg10(&text))
                .unwrap_or(0)
        };
        let cpus = std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u32);
        Pressure {
            cpu: some("cpu"),
            io: some("io"),
            memory: some("memory"),
            run_queue_depth: fs::read_to_string("/proc/loadavg")
                .ok()
                .and_then(|text| runnable(&text))
                .unwrap_or(0)
                .saturating_sub(cpus),
        }
    }
}

/// From "some avg10=1.03 avg60=…".
fn some_avg10(text: &str) -> Option<u32> {
    let (_, rest) = text.split_once("some avg10=")?;
    let (number, _) = rest.split_once(' ')?;
    let (whole, hundredths) = number.split_once('.')?;
    if hundredths.len() != 2 {
        return None;
    }
    let hundredths: u32 = hundredths.parse().ok()?;
    whole
        .parse::<u32>()
        .ok()?
        .checked_mul(100)?
        .checked_add(hundredths)
}

/// From "0.20 0.18 0.12 1/80 11206": the first number before the slash.
fn runnable(text: &str) -> Option<u32> {
    let (number, _) = text.split(' ').nth(3)?.split_once('/')?;
    number.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn psi_in_hundredths() {
        let text = "some avg10=12.03 avg60=15.78 avg300=40.25 total=3942217648\nfull avg10=0.00 avg60=0.00";
        assert_eq!(some_avg10(text), Some(1203));
        assert_eq!(some_avg10("some avg10=0.00 avg60"), Some(0));
        for wrong in [
            "",
            "some avg10=",
            "some avg10=1 ",
            "some avg10=1.5 ",
            "some avg10=x.00 ",
        ] {
            assert_eq!(some_avg10(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn runnable_threads() {
        assert_eq!(runnable("0.20 0.18 0.12 7/80 11206\n"), Some(7));
        assert_eq!(runnable("0.20 0.18"), None);
    }
}
