//! C programs against the library: compiled when the tests run.

#[cfg(test)]
#[path = "../../../splitpoint-c/tests/it/memcheck.rs"]
mod memcheck;
#[cfg(test)]
mod tables;
