//! `sp_stats`: counts and sizes.

use std::ffi::c_int;

use crate::code::SP_OK;
use crate::failure::Failure;
use crate::handle::{call, sp_db};

/// Counts and sizes of a store at one moment.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct sp_stats {
    /// Number of keys.
    pub record_count: u64,
    /// Number of buckets.
    pub bucket_count: u64,
    /// Size of the file, or of the memory in use.
    pub file_bytes: u64,
    /// Bytes of records that a lookup finds.
    pub live_bytes: u64,
    /// Bytes of records that were replaced or deleted, which compaction gives back.
    pub dead_bytes: u64,
    /// Bytes of the log that are durable.
    pub durable_bytes: u64,
    /// Bytes of the log since the store was created.
    pub log_bytes: u64,
    /// Overflow lines that are part of a chain.
    pub overflow_line_count: u64,
    /// Keys divided by slots.
    pub load_factor: f64,
    /// Keys per bucket, on average, above which a bucket is split.
    pub fill_factor: f64,
}

/// Stores counts and sizes in `*stats`. Reads the whole index, 16 bytes a key; writers wait meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sp_get_stats(db: *const sp_db, stats: *mut sp_stats) -> c_int {
    let get = |db: &'static sp_db| {
        if stats.is_null() {
            return Err(Failure::argument("the place for the counts is null"));
        }
        let found = db.table().stats()?;
        let counts = sp_stats {
            record_count: found.record_count,
            bucket_count: found.geometry.bucket_count(),
            file_bytes: found.file_bytes,
            live_bytes: found.live_bytes,
            dead_bytes: found.dead_bytes,
            durable_bytes: found.durable_bytes,
            log_bytes: found.log_bytes,
            overflow_line_count: found.overflow_line_count,
            load_factor: found.load_factor,
            fill_factor: found.fill_factor,
        };
        // SAFETY: a place for the counts, by the rules of the header.
        unsafe { stats.write(counts) };
        Ok(SP_OK)
    };
    // SAFETY: null or an open handle, by the rules of the header.
    unsafe { call(db, get) }
}
