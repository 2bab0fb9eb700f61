//! Remarks on a study's figures, in sentences.

use morpheus_harness::rows::Row;
use morpheus_harness::rows::view::distinct;

use super::record::Run;
use super::study::Study;

impl Study {
    /// Remarks on the figures in these rows.
    pub fn notes(&self, rows: &[Row]) -> Vec<String> {
        let mut notes: Vec<String> = Vec::new();
        let load = self.runs.iter().map(|run| run.condition.load).max();
        if let Some(load) = load.filter(|load| *load > 0) {
            notes.push(format!(
                "With load: busy processes on the other CPUs, {load} of them."
            ));
        }
        if self.runs.iter().any(|run| run.condition.on_worker) {
            notes.push(
                "Beside the scheduler morpheus, the kernels ran on a worker that is registered with it: as SCHED_OTHER, whatever \
                 policy the others had."
                    .into(),
            );
        }
        for run in &self.runs {
            if let Some(why) = &run.refused {
                notes.push(format!("{why}; measured as {}.", run.policy.kernel_name()));
            }
            if let Some(why) = &run.spoilt {
                let (name, kernel) = (run.condition.name(), run.kernel.text());
                notes.push(format!(
                    "{name}, {kernel}, repeat {} is left out: {why}.",
                    run.repeat + 1
                ));
            }
        }
        let is_unsettled = |run: &&Run| run.spoilt.is_none() && run.settled == Some(false);
        let not_settled = self.runs.iter().filter(is_unsettled).count();
        if not_settled > 0 {
            notes.push(format!(
                "In {not_settled} of {} runs the median had not settled after the warm-up, nor in as long again.",
                self.runs.len()
            ));
        }
        if rows.iter().any(|row| row.judged.is_some()) {
            notes.push(
                "A governor that misses its limit is a trap: the CPU is all but idle, and each window is worked on slowly. schedutil asks \
                 for 1.25 times the utilisation that it sees, of which half is forgotten after 32 ms; for a real-time thread it asks for \
                 the highest frequency when that begins to run, and forgets it when that sleeps."
                    .into(),
            );
        } else if !self.about.config.policies.is_empty() {
            notes.push(
                "Whether a governor is a trap cannot be told: that takes performance and one that follows the load (schedutil, ondemand, \
                 conservative), both without load."
                    .into(),
            );
        }
        distinct(notes)
    }
}
