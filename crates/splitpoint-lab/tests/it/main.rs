//! The lab by its public functions.

mod drive;
mod edge;
mod ideal;
mod merge;
mod naive;
mod page;
mod replay;
mod schema;
mod sections;
