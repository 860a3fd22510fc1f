//! The lab by its public functions.

mod drive;
mod edge;
mod ideal;
mod merge;
mod page;
mod schema;
