//! The connection to `morpheus-stacks`, which takes the stacks of polls that are stalled for
//! [`report_after`](crate::Builder::report_after): what identifies a poll, what labels are called, and the runtimes whose
//! stacks the summary shows.

use std::sync::{Arc, Mutex};

use morpheus_stacks::captor;
use morpheus_stacks::groups::Shared;

use crate::report::label;
use crate::report::summary;
use morpheus_system::lock::lock;

/// Identifies a stalled poll: a watched one by its slot and number, one that is not watched by its core and the last sign
/// of life of that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A watched poll: slot and `poll_seq`.
    Slot(usize, u64),
    /// A poll that is not watched: core, and its last sign of life.
    Core(usize, u64),
}

/// A poll that has been stalled for `report_after`. Its label is `None` when it is not watched.
pub(crate) type Long = captor::Long<Place>;

/// Follows the stalled polls of one runtime; the controller's.
pub(crate) type Captor = captor::Captor<Place>;

/// The stalls of one runtime, none yet.
pub(crate) fn shared() -> Arc<Shared> {
    Arc::new(Shared::new(name_of, keep_for_summary))
}

fn name_of(label: Option<u32>) -> String {
    match label.and_then(label::by_id) {
        Some(label) => label.origin().to_string(),
        None => "not watched".to_owned(),
    }
}

/// Runtimes that had stalls, for the summary; none unless it was asked for.
static FOR_SUMMARY: Mutex<Vec<Arc<Shared>>> = Mutex::new(Vec::new());
/// A process that starts more runtimes than this, one after the other, has the last ones in the summary.
const MOST_IN_SUMMARY: usize = 64;

fn keep_for_summary(shared: &Arc<Shared>) {
    if !summary::wants_summary() {
        return;
    }
    let mut kept = lock(&FOR_SUMMARY);
    if kept.len() >= MOST_IN_SUMMARY {
        kept.remove(0);
    }
    kept.push(shared.clone());
}

/// The table of all runtimes' groups; empty if nothing was stalled.
pub(crate) fn summary() -> String {
    let kept = lock(&FOR_SUMMARY).clone();
    kept.iter()
        .map(|shared| shared.stalls().to_string())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_have_the_names_of_labels() {
        let id = label::of(label::Origin::Named("groups by label")).id();
        assert_eq!(name_of(Some(id)), "groups by label");
        assert_eq!(name_of(None), "not watched");
        assert_eq!(name_of(Some(u32::MAX)), "not watched");
    }
}
