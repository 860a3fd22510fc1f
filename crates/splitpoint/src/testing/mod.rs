//! Test apparatus inside the crate: programs for the simulated machine, fuzz targets, mutants.
//!
//! | module | content | compiled for |
//! |---|---|---|
//! | `crash_tests` | programs that crash at each event of a simulated machine | tests |
//! | `kill_tests` | kills at each store, and what the next open finds | tests |
//! | `fuzzing` | what the fuzz targets run | tests and the feature `fuzzing` |
//! | `history` | whether a history of transactions is serializable | tests |
//! | `meanwhile` | what a test has another handle do at a point of a call | all builds; outside tests empty calls |
//! | `mutant` | mistakes that a test can ask the engine to make | all builds; outside tests a constant `false` |
//!
//! The machine itself is in `storage::sim`. Tests of one module are beside it.

// Two attributes: clippy recognizes a test module by `cfg(test)` alone.
#[cfg(test)]
#[cfg(not(loom))]
mod crash_tests;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
#[cfg(test)]
#[cfg(not(loom))]
pub(crate) mod history;
#[cfg(test)]
#[cfg(not(loom))]
mod kill_tests;
pub(crate) mod meanwhile;
pub(crate) mod mutant;
