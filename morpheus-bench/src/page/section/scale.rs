//! `scale --json`: a whole machine under several schedulers, a run a line.

use serde_json::Value;

use super::{Section, one};
use crate::record::Record;
use crate::scale::result::{Report, Run};
use crate::scale::rows::envelope;

/// More reasons why something failed tell nothing new.
const MOST_NOTES: usize = 20;
/// Runs under further schedulers, and with further numbers of CPUs, are left out.
const MOST_SCHEDULERS: usize = 64;
const MOST_CPUS: usize = 16;

/// The rows of all runs. Lines that are none are passed over.
pub fn section(records: &[Value]) -> Result<Section, String> {
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
    let object = serde_json::to_value(found).map_err(|error| format!("has no rows: {error}"))?;
    one(&object)
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
    use super::*;
    use serde_json::json;

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
        let section = section(&records).unwrap();
        let titles: Vec<&str> = section.figures.iter().map(|f| f.title.as_str()).collect();
        assert_eq!(titles, ["throughput: compressed/s", "latency: wake p99"]);
        let medians = &section.figures[1].table;
        assert_eq!(
            medians.heads[..3],
            ["contender", "wake p99", "÷ default"].map(str::to_owned)
        );
        assert_eq!(
            medians.rows[0][..2],
            ["default", "4.00 ms"].map(str::to_owned)
        );
        assert_eq!(
            medians.rows[1][..3],
            ["morpheus", "2.00 ms", "0.250×"].map(str::to_owned)
        );
        let failed: Vec<&String> = section
            .notes
            .iter()
            .filter(|note| note.starts_with("Failed"))
            .collect();
        assert_eq!(failed, ["Failed: burst under default: thrown out."]);
    }

    #[test]
    fn a_file_of_absurdly_many_schedulers_is_cut() {
        let of = |number: usize| run("latency", &format!("scheduler {number}"), 1, 1e6);
        let records: Vec<Value> = (0..MOST_SCHEDULERS + 9).map(of).collect();
        let section = section(&records).unwrap();
        assert_eq!(section.figures[0].table.rows.len(), MOST_SCHEDULERS);
    }

    #[test]
    fn without_a_figure_it_says_what_it_is_to_be() {
        let mut failed = run("latency", "default", 1, 1.0);
        failed["failed"] = json!("thrown out");
        let unknown = run("speed", "default", 1, 1.0);
        for records in [vec![], vec![failed], vec![unknown]] {
            assert!(section(&records).unwrap_err().contains("scale --json"));
        }
    }
}
