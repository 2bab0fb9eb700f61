//! Decisions: how spares are staffed, how labels are judged, which stalls become events. No clocks, no threads.

pub(crate) mod history;
pub(crate) mod pace;
pub(crate) mod rating;
pub(crate) mod reporting;
pub(crate) mod staffing;
