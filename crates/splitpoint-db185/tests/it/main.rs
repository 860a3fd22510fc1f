//! C programs against the library: compiled when the tests run.

#[cfg(test)]
mod tables;
