//! Histograms of the runs as one log: each comes from its child as a log of its own, and those of a runtime are added up.

use std::path::Path;
use std::time::{Duration, SystemTime};

use morpheus_harness::hdr_log::{self, Entry};
use morpheus_harness::histogram::Latencies;
use morpheus_harness::rows::view::named;

use super::result::RunResult;

/// The log that a child sends: wakes and timers of one run.
pub fn of_run(wakes: &Latencies, timers: &Latencies, lasted: Duration) -> Option<String> {
    let entries = [("wake", wakes), ("timer", timers)].map(|(tag, all)| Entry::new(tag, "", all));
    let bytes = hdr_log::render(SystemTime::now(), lasted, &entries).ok()?;
    String::from_utf8(bytes).ok()
}

/// Takes the logs out of the runs and writes one, with a tag for each runtime and probe.
///
/// # Errors
/// When the file cannot be written.
pub fn write(path: &Path, start: SystemTime, runs: &mut [RunResult]) -> Result<(), String> {
    let mut all: Vec<(String, Latencies)> = Vec::new();
    let mut lasted = Duration::ZERO;
    for run in runs {
        let Some(log) = run.log.take() else { continue };
        lasted += Duration::from_secs_f64(run.elapsed_s);
        for (probe, latencies) in hdr_log::read(log.as_bytes())? {
            let tag = format!("{}-{probe}", run.runtime);
            named(&mut all, tag).add(&latencies);
        }
    }
    let about = |tag: &str| match tag.ends_with("-wake") {
        true => "from an outside thread's wake until the task runs",
        false => "how late sleepers woke up, from the time meant",
    };
    let entries = all.iter();
    let entries = entries.map(|(tag, latencies)| Entry::new(tag, about(tag), latencies));
    hdr_log::write(Some(path), start, lasted, entries)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::executor::Runtime;

    #[test]
    fn the_rounds_of_a_runtime_are_added_up() {
        let of = |ns: u64| {
            let mut latencies = Latencies::default();
            latencies.record_ns(ns);
            latencies
        };
        let run = |runtime, ns| RunResult {
            log: of_run(&of(ns), &of(2 * ns), Duration::from_secs(1)),
            ..RunResult::empty(runtime)
        };
        let mut runs = [
            run(Runtime::Morpheus, 1_000),
            run(Runtime::TOKIO, 5_000),
            run(Runtime::Morpheus, 3_000),
            RunResult::failed(Runtime::SMOL, "it fails"),
        ];
        let path = std::env::temp_dir().join(format!("starvation-{}.hlog", std::process::id()));
        write(&path, SystemTime::now(), &mut runs).unwrap();
        let read = hdr_log::read(&std::fs::read(&path).unwrap()).unwrap();
        std::fs::remove_file(&path).unwrap();
        let found: Vec<(&str, u64)> = read
            .iter()
            .map(|(tag, latencies)| (tag.as_str(), latencies.len()))
            .collect();
        let expected = [
            ("morpheus-wake", 2),
            ("morpheus-timer", 2),
            ("tokio-wake", 1),
            ("tokio-timer", 1),
        ];
        assert_eq!(found, expected);
        assert!(
            runs.iter().all(|run| run.log.is_none()),
            "they are not printed"
        );
    }
}
