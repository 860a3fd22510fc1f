//! The atomic words that lock-free readers and the writer share: the standard library's, or
//! loom's when a test enumerates their interleavings.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::AtomicU64;
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::AtomicU64;
pub(crate) use std::sync::atomic::Ordering;
