//! Of what `scale --json` has printed, a run a line: the rows that the page shows.

use morpheus_harness::record::Record;
use serde_json::Value;

use super::result::{Report, Run};
use super::rows::envelope;

/// More reasons why something failed tell nothing new.
const MOST_NOTES: usize = 20;
/// Runs under further schedulers, and with further numbers of CPUs, are left out.
const MOST_SCHEDULERS: usize = 64;
const MOST_CPUS: usize = 16;

/// The rows of all runs. Lines that are none are passed over.
///
/// # Errors
/// When there is no figure in any of them.
pub fn rows_of(records: &[Value]) -> Result<Value, String> {
    let (mut host, mut runs): (_, Vec<Run>) = (None, Vec::new());
    let (mut schedulers, mut cpus) = (Vec::new(), Vec::new());
    for record in records {
        match serde_json::from_value(record.clone()) {
            Ok(Record::<Run>::Host(first)) => host = host.or(Some(first)),
            Ok(Record::Run(run))
                if fits(&mut schedulers, &run.scheduler, MOST_SCHEDULERS)
                    && fits(&mut cpus, &run.cpus, MOST_CPUS) =>
            {
                runs.push(run);
            }
            Ok(Record::Run(_)) | Err(_) => {}
        }
    }
    if let Some(host) = &mut host {
        // The one in force when the machine was described is none of those that were measured.
        host.scheduler = Some("as each run says".into());
    }
    let mut found = envelope(&Report { host, runs });
    if found.rows.is_empty() {
        return Err("has no run with a figure: it is to be what `scale --json` prints".into());
    }
    found.notes.truncate(MOST_NOTES);
    serde_json::to_value(found).map_err(|error| format!("has no rows: {error}"))
}

/// Whether it is known, or there is room for one more, which is known from then on.
fn fits<T: PartialEq + Clone>(known: &mut Vec<T>, one: &T, most: usize) -> bool {
    let is_known = known.contains(one);
    let has_room = known.len() < most;
    if !is_known && has_room {
        known.push(one.clone());
    }
    is_known || has_room
}

#[cfg(test)]
mod tests {
    use morpheus_harness::rows::Row;
    use serde_json::json;

    use super::*;

    fn run(case: &str, scheduler: &str, iteration: usize, value: f64) -> Value {
        json!({
            "record": "run", "bench": "scale", "case": case, "scheduler": scheduler, "ops": null, "cpus": 2,
            "iteration": iteration, "failed": null, "measured": {"value": value, "count": 1, "wall_ns": 1},
        })
    }

    #[test]
    fn a_case_has_its_medians_beside_the_kernels_own() {
        let mut records = Vec::new();
        for (round, (theirs, ours)) in [(4e6, 1e6), (2e6, 3e6), (9e6, 2e6)].into_iter().enumerate()
        {
            records.push(run("latency", "default", round + 1, theirs));
            records.push(run("latency", "morpheus", round + 1, ours));
        }
        records.push(run("throughput", "default", 1, 1e6));
        let mut failed = run("burst", "default", 1, 1.0);
        failed["failed"] = json!("thrown out");
        records.push(failed);
        let found = rows_of(&records).unwrap();
        let rows: Vec<Row> = serde_json::from_value(found["rows"].clone()).unwrap();
        let named = |row: &Row| format!("{}: {} of {}", row.case, row.figure, row.contender);
        assert_eq!(
            rows[..4].iter().map(named).collect::<Vec<_>>(),
            [
                "throughput: compressed/s of default",
                "latency: wake p99 of default",
                "latency: wake p99 of morpheus",
                "latency: ÷ default of morpheus"
            ]
        );
        let medians = rows[1..4].iter().map(|row| row.median);
        assert_eq!(medians.collect::<Vec<_>>(), [4e6, 2e6, 0.25].map(Some));
        let notes: Vec<String> = serde_json::from_value(found["notes"].clone()).unwrap();
        let failed = notes.iter().filter(|note| note.starts_with("Failed"));
        let expected = ["Failed: burst under default: thrown out."];
        assert_eq!(failed.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_file_of_absurdly_many_schedulers_is_cut() {
        let of = |number: usize| run("latency", &format!("scheduler {number}"), 1, 1e6);
        let records: Vec<Value> = (0..MOST_SCHEDULERS + 9).map(of).collect();
        let found = rows_of(&records).unwrap();
        assert_eq!(found["rows"].as_array().unwrap().len(), MOST_SCHEDULERS);
    }

    #[test]
    fn without_a_figure_it_says_what_it_is_to_be() {
        let mut failed = run("latency", "default", 1, 1.0);
        failed["failed"] = json!("thrown out");
        let unknown = run("speed", "default", 1, 1.0);
        for records in [vec![], vec![failed], vec![unknown]] {
            assert!(rows_of(&records).unwrap_err().contains("scale --json"));
        }
    }
}
