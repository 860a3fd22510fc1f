//! The lab by its public functions.

mod edge;
mod ideal;
mod merge;
mod page;
