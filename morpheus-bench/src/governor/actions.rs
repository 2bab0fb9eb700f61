//! The smaller commands: set a governor, put things back, log frequencies. Each prints what it has to say, and returns what
//! went wrong, in sentences.

use std::cell::Cell;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use morpheus_harness::envelope::{Course, Envelope};
use morpheus_harness::interrupt;
use morpheus_harness::progress::Progress;
use morpheus_harness::refusal::Refusal;
use morpheus_harness::report::{json, print};
use morpheus_harness::rows::Row;
use morpheus_harness::stats::{Spread, mean};
use morpheus_harness::unit::Unit;

use super::config::{RecordOptions, RestoreOptions, SetOptions};
use super::frequency::{self, Sample};
use super::state::{self, Before, Keeper, Purpose, Restored};
use super::sysfs::{self, Policy};

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
/// When there is no cpufreq, no such governor, or a run is at work.
pub fn set_governor(
    options: &SetOptions,
    root: &Path,
    directory: &Path,
) -> Result<Vec<String>, Refusal> {
    let policies = some_policies(root)?;
    let Some(governor) = &options.governor else {
        print(&match options.json {
            true => json(&policies),
            false => policies.iter().map(Policy::describe).collect(),
        });
        return Ok(Vec::new());
    };
    sysfs::check_governor(&policies, governor).map_err(Refusal::Usage)?;
    // The settings that this changes, which `restore` puts back.
    let mut changed = Before::of(&policies);
    changed.retain(|before| before.value != *governor);
    if !options.dry_run {
        // First what a run that was killed has left: else it would be put back over this later.
        let left = state::restore(directory, Purpose::Run, false)?;
        if !left.failed.is_empty() {
            return Err(Refusal::Failed(left.failed.join("; ")));
        }
        // Only the settings from before the first `set` are kept.
        let known = state::restore(directory, Purpose::Set, true)?;
        if known.done.is_empty() {
            let before = Before::of(&some_policies(root)?);
            Keeper::new(directory, Purpose::Set, before)?.leave();
        }
        sysfs::set_governor(&policies, governor).map_err(|why| {
            format!("{why}; changing the governor needs root; `governor restore` undoes what was changed")
        })?;
    }
    let verb = is(options.dry_run);
    let line = |Before { path, value }: &Before| {
        format!("{} {verb} {governor}, was {value}\n", path.display())
    };
    print(&if options.json {
        let dry_run = options.dry_run;
        json(&serde_json::json!({ "governor": governor, "dry_run": dry_run, "before": changed }))
    } else if changed.is_empty() {
        format!("every CPU has {governor} already\n")
    } else {
        changed.iter().map(line).collect()
    });
    Ok(Vec::new())
}

fn is(dry_run: bool) -> &'static str {
    if dry_run { "would be" } else { "is" }
}

/// Puts back what a run has left, then what `set` has changed.
///
/// # Errors
/// When a run is at work, or what is written down cannot be read.
pub fn restore(options: &RestoreOptions, directory: &Path) -> Result<Vec<String>, Refusal> {
    let mut all = Restored::default();
    for purpose in [Purpose::Run, Purpose::Set] {
        let restored = state::restore(directory, purpose, options.dry_run)?;
        all.done.extend(restored.done);
        all.failed.extend(restored.failed);
    }
    let verb = is(options.dry_run);
    let line =
        |Before { path, value }: &Before| format!("{} {verb} {value} again\n", path.display());
    print(&if options.json {
        json(&all)
    } else if all.done.is_empty() {
        "nothing to put back\n".into()
    } else {
        all.done.iter().map(line).collect()
    });
    Ok(all.failed)
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
pub fn record(options: &RecordOptions, root: &Path) -> Result<Vec<String>, Refusal> {
    let policies = some_policies(root)?;
    let mut log: Option<Box<dyn Write>> = match &options.output {
        Some(path) => Some(Box::new(File::create(path).map_err(|error| {
            format!("{} cannot be written: {error}", path.display())
        })?)),
        None if options.json => None,
        None => Some(Box::new(std::io::stdout())),
    };
    let lasting = Duration::from_secs_f64(options.duration_s);
    let interval = Duration::from_millis(options.interval_ms.into());
    // Where the log is what is shown, nothing else is.
    let shown = options.output.is_none();
    let progress = Progress::new(lasting, shown);
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
    let wait = |left: Duration| {
        progress.tick(begun.elapsed());
        std::thread::sleep(left.min(lasting.saturating_sub(begun.elapsed())));
        begun.elapsed() < lasting && !interrupt::happened() && !failed.get()
    };
    let take = |sample: Sample| {
        put(&sample.csv());
        samples.push(sample);
    };
    frequency::sample_while(&policies, |number| interval * number, wait, take);
    progress.clear();
    let found = seen(options, &policies, &samples);
    print(&match (options.json, shown) {
        (true, _) => json(&found),
        (false, true) => String::new(),
        (false, false) => found.text(),
    });
    // A reader of standard output that closes the pipe has seen enough: no error.
    let path = options.output.iter().filter(|_| failed.get());
    let why = path.map(|path| format!("{} could not be written to its end", path.display()));
    Ok(why.collect())
}
