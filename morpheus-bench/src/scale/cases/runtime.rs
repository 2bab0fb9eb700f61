//! Morpheus's runtime beside hogs of its own, as `starvation` measures it, beside a busy thread of another process for each CPU.

use std::process::Command;
use std::time::Duration;

use morpheus_harness::arguments::name_of;
use morpheus_harness::envelope::Envelope;
use morpheus_harness::report;
use morpheus_harness::supervised::Supervised;
use serde_json::Value;

use super::super::child::{Answer, Job};
use super::super::result::Measured;
use crate::scx;

/// The names of the figures beside the one that is compared.
const MORE: [&str; 5] = [
    "wake p99",
    "timer p50",
    "timer p99",
    "requests/s",
    "neighbours' CPU",
];
/// Until the runtime knows its hogs: in emulation their first polls take seconds.
const WARMUP_S: f64 = 3.0;
/// `starvation` may take this much longer: guests are slow, and so are some schedulers.
const GRACE: Duration = Duration::from_secs(60);

/// Runs it once, with these arguments.
pub fn measure(job: &Job, arguments: &str) -> Answer {
    let program = scx::find("starvation").ok_or("there is no program starvation")?;
    let duration = job.duration();
    let mut command = Command::new(program);
    command
        .args(["--json", "--runtime", "morpheus", "--workers", "2"])
        .args(["--neighbours", &job.cpus.to_string()])
        .args(["--duration", &duration.as_secs_f64().to_string()])
        .args(["--warmup", &WARMUP_S.to_string()])
        .args(["--link", &name_of(&job.link)])
        .args(arguments.split(' '));
    let mut child = Supervised::start(&mut command)?;
    // Its window is extended up to four times until there are enough wakes.
    let bound = duration * 4 + Duration::from_secs_f64(2.0 * WARMUP_S) + GRACE;
    child
        .wait(bound, |_| ())
        .ok_or("starvation stands still, killed")?;
    read(&child.output(), job.case.about().figure)
}

/// The figure that is compared, and those beside it.
fn read(output: &str, figure: &str) -> Answer {
    let found: Envelope<Value> =
        report::from_json(output).map_err(|error| format!("no figures of starvation: {error}"))?;
    if let Some(why) = found.failed.first() {
        return Err(why.clone());
    }
    let of = |figure: &str| {
        let row = found.rows.iter().find(|row| row.figure == figure)?;
        row.median
    };
    let more = |name: &str| Some((name.to_owned(), of(name)?));
    Ok(Measured {
        value: of(figure),
        count: of("wakes").unwrap_or_default() as u64,
        more: MORE.into_iter().filter_map(more).collect(),
        ..Measured::default()
    })
}

#[cfg(test)]
mod tests {
    use morpheus_harness::rows::Row;
    use morpheus_harness::unit::Unit;

    use super::*;

    #[test]
    fn the_figure_is_of_the_case_and_the_others_stand_beside_it() {
        let mut found = Envelope::new("starvation", Value::Null);
        for (figure, value) in [
            ("wake p99", 7e5),
            ("timer p99", 2e6),
            ("requests/s", 398.0),
            ("wakes", 3e3),
        ] {
            found.rows.push(Row::new(
                "hogs",
                "morpheus",
                figure,
                Unit::Count,
                vec![value],
            ));
        }
        let text = serde_json::to_string(&found).unwrap();
        let hogs = read(&text, "wake p99").unwrap();
        assert_eq!((hogs.value, hogs.count), (Some(7e5), 3_000));
        assert_eq!(hogs.more["timer p99"], 2e6);
        assert_eq!(read(&text, "requests/s").unwrap().value, Some(398.0));
        found.failed.push("morpheus: stands still".into());
        let text = serde_json::to_string(&found).unwrap();
        let error = read(&text, "wake p99").unwrap_err();
        assert!(error.contains("stands still"), "{error}");
        assert!(read("oops", "wake p99").is_err());
    }
}
