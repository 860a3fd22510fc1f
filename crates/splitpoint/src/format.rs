//! skeleton
#![allow(missing_docs)]
pub const LOG_SEGMENT_BYTES_MIN: u64 = 64 << 10;
