//! The `splitpoint` command.
fn main() {}
