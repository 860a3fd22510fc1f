//! C programs against the library: compiled when the tests run.

#[cfg(test)]
#[path = "../../../splitpoint-gdbm/tests/it/debian.rs"]
mod debian;
#[cfg(test)]
mod perl;
#[cfg(test)]
mod tables;
