//! `sp_stats`: counts and sizes; `sp_lookups`: what lookups have cost.

use std::ffi::c_int;

use splitpoint::stats::Lookups;

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

/// What the lookups of a handle have cost since it was opened.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct sp_lookups {
    /// Lookups.
    pub lookup_count: u64,
    /// Those that found their key.
    pub hit_count: u64,
    /// Records whose key was compared with the one that was asked for.
    pub compared_count: u64,
    /// Cache lines of the index that were read.
    pub line_count: u64,
}

/// Stores in `*lookups` what the lookups of the handle have cost. They are counted if
/// `sp_options_instrument` asked for it at the open; without it this is `SP_ERR_UNSUPPORTED`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sp_get_lookups(db: *const sp_db, lookups: *mut sp_lookups) -> c_int {
    let get = |db: &'static sp_db| {
        if lookups.is_null() {
            return Err(Failure::argument("the place for the counts is null"));
        }
        let uncounted = "the lookups are not counted: open with sp_options_instrument()";
        let found = db.native()?.lookups().ok_or_else(|| Failure::unsupported(uncounted))?;
        let Lookups { lookup_count, hit_count, compared_count, line_count } = found;
        let counts = sp_lookups { lookup_count, hit_count, compared_count, line_count };
        // SAFETY: a place for the counts, by the rules of the header.
        unsafe { lookups.write(counts) };
        Ok(SP_OK)
    };
    // SAFETY: null or an open handle, by the rules of the header.
    unsafe { call(db, get) }
}
