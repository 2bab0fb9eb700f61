//! Slots: the memory that a worker writes and the controller reads.

pub(crate) mod area;
pub(crate) mod cores;
pub(crate) mod fork;
pub(crate) mod handle;
pub(crate) mod table;
