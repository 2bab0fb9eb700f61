//! The smaller commands: set a governor, put things back, log frequencies.

use std::cell::Cell;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::config::{RecordOptions, RestoreOptions, SetOptions};
use super::frequency::{self, Sample};
use super::run::{before, describe, no_such_governor, set};
use super::state::{self, Before, Keeper, Purpose, Restored};
use super::sysfs::{self, Policy};
use crate::envelope::{Course, Envelope};
use crate::progress::Progress;
use crate::report::json;
use crate::rows::Row;
use crate::stats::{Spread, mean};
use crate::unit::Unit;
use crate::{clock, interrupt};

/// What a command has to say.
pub struct Said {
    /// Standard output.
    pub text: String,
    /// What went wrong, in sentences.
    pub failed: Vec<String>,
}

/// The policies, or that there are none.
///
/// # Errors
/// When there are none, or they cannot be read.
fn some_policies(root: &Path) -> Result<Vec<Policy>, String> {
    let policies = sysfs::policies(root)?;
    if policies.is_empty() {
        return Err("the kernel of this machine has no control over the CPUs' frequencies (no policy in cpufreq); in a \
                    virtual machine the host has"
            .into());
    }
    Ok(policies)
}

/// Sets a governor everywhere, and writes down what was there; without one shows what there is.
///
/// # Errors
/// When there is no cpufreq, no such governor, or a run is at work. The flag says whether that is bad usage.
pub fn set_governor(
    options: &SetOptions,
    root: &Path,
    directory: &Path,
) -> Result<Said, (bool, String)> {
    let failed = |why| (false, why);
    let policies = some_policies(root).map_err(failed)?;
    let Some(governor) = &options.governor else {
        let text = if options.json {
            json(&policies)
        } else {
            policies
                .iter()
                .map(|policy| describe(policy) + "\n")
                .collect()
        };
        return Ok(Said {
            text,
            failed: Vec::new(),
        });
    };
    if !policies.iter().all(|policy| policy.has(governor)) {
        return Err((true, no_such_governor(governor, &policies)));
    }
    #[derive(Serialize)]
    struct Set<'a> {
        governor: &'a str,
        dry_run: bool,
        /// What `restore` puts back, as far as it is changed by this.
        before: Vec<Before>,
    }
    let done = Set {
        governor,
        dry_run: options.dry_run,
        before: before(&policies)
            .into_iter()
            .filter(|before| before.value != *governor)
            .collect(),
    };
    if !options.dry_run {
        // First what a run that was killed has left: else it would be put back over this later.
        let left = state::restore(directory, Purpose::Run).map_err(failed)?;
        if !left.failed.is_empty() {
            return Err(failed(left.failed.join("; ")));
        }
        // What was there before the first `set` is what counts.
        let known = state::would_restore(directory, Purpose::Set).map_err(failed)?;
        if known.is_empty() {
            let policies = some_policies(root).map_err(failed)?;
            Keeper::new(directory, Purpose::Set, before(&policies))
                .map_err(failed)?
                .leave();
        }
        set(&policies, Some(governor)).map_err(|why| {
            failed(format!("{why}; changing the governor needs root; `governor restore` undoes what was changed"))
        })?;
    }
    let text = if options.json {
        json(&done)
    } else if done.before.is_empty() {
        format!("every CPU has {governor} already\n")
    } else {
        let verb = if options.dry_run { "would be" } else { "is" };
        let line = |was: &Before| {
            format!(
                "{} {verb} {governor}, was {}\n",
                was.path.display(),
                was.value
            )
        };
        done.before.iter().map(line).collect()
    };
    Ok(Said {
        text,
        failed: Vec::new(),
    })
}

/// Puts back what a run has left, then what `set` has changed.
///
/// # Errors
/// When a run is at work, or what is written down cannot be read.
pub fn restore(options: &RestoreOptions, directory: &Path) -> Result<Said, String> {
    let mut all = Restored::default();
    for purpose in [Purpose::Run, Purpose::Set] {
        if options.dry_run {
            all.done.extend(state::would_restore(directory, purpose)?);
        } else {
            let restored = state::restore(directory, purpose)?;
            all.done.extend(restored.done);
            all.failed.extend(restored.failed);
        }
    }
    let text = if options.json {
        json(&all)
    } else {
        said(&all.done, if options.dry_run { "would be" } else { "is" })
    };
    Ok(Said {
        text,
        failed: all.failed,
    })
}

fn said(done: &[Before], verb: &str) -> String {
    if done.is_empty() {
        return "nothing to put back\n".into();
    }
    let line =
        |before: &Before| format!("{} {verb} {} again\n", before.path.display(), before.value);
    done.iter().map(line).collect()
}

/// The frequencies of each policy.
fn seen(
    options: &RecordOptions,
    policies: &[Policy],
    samples: &[Sample],
) -> Envelope<RecordOptions> {
    const CASE: &str = "frequencies";
    let mut found = Envelope::new("governor", options.clone());
    found.interrupted = interrupt::happened();
    found.begin(CASE, "all readings of each policy");
    for policy in policies {
        let points = frequency::points(samples, |sample| sample.policy == policy.name);
        let khz: Vec<f64> = points.iter().map(|(_, khz)| *khz).collect();
        let name = format!("{}, {}", policy.name, policy.governor);
        let spread = Spread::of(&khz);
        let one = |value: Option<f64>| value.into_iter().collect();
        for (figure, values) in [
            ("mean", one(mean(&khz))),
            ("least", one(spread.map(|spread| spread.min))),
            ("most", one(spread.map(|spread| spread.max))),
            ("p50", khz),
        ] {
            let row = Row::new(CASE, &name, figure, Unit::Frequency, values);
            found.rows.push(row);
        }
        found.courses.push(Course {
            title: "frequency over time".into(),
            contender: name,
            unit: Unit::Frequency,
            points,
        });
    }
    found
}

/// Logs frequencies, or until Ctrl-C.
///
/// # Errors
/// When there is no cpufreq, or the log cannot be written.
pub fn record(options: &RecordOptions, root: &Path) -> Result<Said, String> {
    let policies = some_policies(root)?;
    let mut log: Option<Box<dyn Write>> = match &options.output {
        Some(path) => {
            let file = File::create(path);
            let file =
                file.map_err(|error| format!("{} cannot be written: {error}", path.display()))?;
            Some(Box::new(file))
        }
        None if options.json => None,
        None => Some(Box::new(std::io::stdout())),
    };
    let end = Instant::now() + Duration::from_secs_f64(options.duration_s);
    let interval = Duration::from_millis(options.interval_ms.into());
    // Where the log is what is shown, nothing else is.
    let shown = options.output.is_none();
    let progress = Progress::new(Duration::from_secs_f64(options.duration_s), shown);
    progress.say("frequencies".into());
    let failed = Cell::new(false);
    let mut put = |line: &str| {
        if let Some(log) = &mut log
            && writeln!(log, "{line}").and_then(|()| log.flush()).is_err()
        {
            failed.set(true);
        }
    };
    put(frequency::HEAD);
    let mut samples = Vec::new();
    let begun = Instant::now();
    let wait = |left| {
        progress.tick(begun.elapsed());
        sleep_until((Instant::now() + left).min(end));
        Instant::now() < end && !interrupt::happened() && !failed.get()
    };
    frequency::sample_while(
        &policies,
        |number| interval * number,
        wait,
        |sample| {
            put(&sample.csv());
            samples.push(sample);
        },
    );
    progress.clear();
    let found = seen(options, &policies, &samples);
    let text = match (options.json, shown) {
        (true, _) => json(&found),
        (false, true) => String::new(),
        (false, false) => found.text(),
    };
    // A reader of standard output that closes the pipe has seen enough: no error.
    let failed = match &options.output {
        Some(path) if failed.get() => vec![format!(
            "{} could not be written to its end",
            path.display()
        )],
        _ => Vec::new(),
    };
    Ok(Said { text, failed })
}

/// In steps, so that Ctrl-C is noticed.
fn sleep_until(at: Instant) {
    while Instant::now() < at && !interrupt::happened() {
        clock::sleep_until(at.min(Instant::now() + Duration::from_millis(200)));
    }
}
