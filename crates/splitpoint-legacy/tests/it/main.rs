//! The public interface: one module per feature.
//!
//! `SPLITPOINT_SLOW=1` runs more rounds and larger sizes; `SPLITPOINT_SEED=n` runs other cases.

mod algorithms;
mod berkeley;
mod btree;
mod cdb;
mod cut;
#[cfg(test)]
mod db185;
mod dumb;
mod facts;
mod fixtures;
mod hostile;
mod support;
