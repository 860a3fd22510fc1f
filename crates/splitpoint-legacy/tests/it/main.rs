//! Tests of the public API.

mod fixtures;
mod hostile;
mod support;
