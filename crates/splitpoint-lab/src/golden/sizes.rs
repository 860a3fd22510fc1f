//! How large Linux 2.2.16 made its hash tables.
//!
//! # Source
//!
//! Linux 2.2.16, `mm/filemap.c`, `fs/buffer.c`, `fs/dcache.c`, `fs/inode.c`; Lever 2000, section 3,
//! for the same machine of 64 MB. Written from the rules.

use super::Row;

const PAGE_BYTES: u64 = 4096;
/// Of a pointer, the head of a chain of pages or buffers.
const POINTER_BYTES: u64 = 4;
/// Of a list head, the head of a chain of dentries or inodes.
const LIST_HEAD_BYTES: u64 = 8;

/// Buckets of the four tables of Linux 2.2.16 on a machine with so much memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TableSizes {
    page: u64,
    buffer: u64,
    dentry: u64,
    inode: u64,
}

impl TableSizes {
    /// Computes the sizes as the kernel did at boot.
    ///
    /// - page: one pointer per page of memory, rounded up to a power of two of pages;
    /// - buffer: 2^order pages of pointers, the least order with 2^order >= memory in MiB;
    /// - dentry: one list head per 8 KiB of memory, rounded up to a power of two of pages;
    /// - inode: fixed.
    pub(super) fn of_memory(memory_bytes: u64) -> Self {
        let whole_pages = |bytes: u64| bytes.div_ceil(PAGE_BYTES).next_power_of_two() * PAGE_BYTES;
        let pages = memory_bytes / PAGE_BYTES;
        let buffer_pages = (memory_bytes >> 20).next_power_of_two();
        Self {
            page: whole_pages(pages * POINTER_BYTES) / POINTER_BYTES,
            buffer: buffer_pages * PAGE_BYTES / POINTER_BYTES,
            dentry: whole_pages((memory_bytes >> 13) * LIST_HEAD_BYTES) / LIST_HEAD_BYTES,
            inode: 256,
        }
    }
}

pub(super) fn rows() -> Vec<Row> {
    let sizes = TableSizes::of_memory(64 << 20);
    [
        ("page", 16_384, sizes.page),
        ("buffer", 65_536, sizes.buffer),
        ("dentry", 8192, sizes.dentry),
        ("inode", 256, sizes.inode),
    ]
    .into_iter()
    .map(|(table, published, computed)| {
        Row::new("2.2.16 sizes", format!("{table} cache, 64 MB: buckets"), published, computed)
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twice_the_memory_doubles_all_tables_but_that_of_inodes() {
        let (once, twice) = (TableSizes::of_memory(64 << 20), TableSizes::of_memory(128 << 20));
        assert_eq!(
            [twice.page, twice.buffer, twice.dentry, twice.inode],
            [2 * once.page, 2 * once.buffer, 2 * once.dentry, once.inode]
        );
    }
}
