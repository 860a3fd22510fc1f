//! How large Linux 2.2.16 made its hash tables.
//!
//! # Source
//!
//! Lever 2000, section 3, for a machine of 64 MB; the rules are in [`SizeRule`].

use super::Row;
use crate::replay::{KernelTable, SizeRule};

const MEMORY_BYTES: u64 = 64 << 20;

pub(super) fn rows() -> Vec<Row> {
    [
        (KernelTable::Page, 16_384),
        (KernelTable::Buffer, 65_536),
        (KernelTable::Dentry, 8192),
        (KernelTable::Inode, 256),
    ]
    .into_iter()
    .map(|(table, published)| {
        let what = format!("{} cache, 64 MB: buckets", table.name());
        let computed = SizeRule::Linux2216.bucket_count(table, MEMORY_BYTES);
        Row::new("2.2.16 sizes", what, published, computed)
    })
    .collect()
}
