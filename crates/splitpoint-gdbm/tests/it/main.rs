//! C programs against the library: compiled when the tests run, and bound to ours or to the original.

#[cfg(test)]
mod calls;
#[cfg(test)]
mod corners;
#[cfg(test)]
mod crashes;
#[cfg(test)]
mod cut;
#[cfg(test)]
mod dumps;
#[cfg(test)]
mod header;
#[cfg(test)]
mod locks;
#[cfg(test)]
#[path = "../../../splitpoint-c/tests/it/memcheck.rs"]
mod memcheck;
#[cfg(test)]
mod old_files;
#[cfg(test)]
mod snapshots;
#[cfg(test)]
mod support;
#[cfg(test)]
mod symbols;
#[cfg(test)]
mod valgrind;
#[cfg(test)]
mod walks;
