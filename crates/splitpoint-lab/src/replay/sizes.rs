//! How large the kernels of an era make their hash tables.
//!
//! # Source
//!
//! Linux 2.2.16, 2.4.0 and 6.x: `mm/filemap.c`, `fs/buffer.c`, `fs/dcache.c`, `fs/inode.c`,
//! `mm/mm_init.c`. Written from the rules.

use serde::{Deserialize, Serialize};

use super::KernelTable;

const PAGE_BYTES: u64 = 4096;
/// Of a pointer of 4 bytes, the head of a chain of pages or buffers.
const POINTER_BYTES: u64 = 4;
/// Of a list head of two pointers, the head of a chain of dentries or inodes.
const LIST_HEAD_BYTES: u64 = 8;
/// Largest order of an allocation of pages, 2 MiB: a larger table was halved until it could be had.
const ORDER_MAX: u32 = 9;
/// Memory above which a table of today grows by half of what memory does.
const ADAPT_BYTES: u64 = 64 << 30;

/// A rule by which memory decides how many buckets a table has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SizeRule {
    /// Always this many buckets.
    Fixed(u64),
    /// Linux 2.2.16.
    Linux2216,
    /// Linux 2.4.0.
    Linux240,
    /// Linux 6.x: `alloc_large_system_hash`.
    Linux6,
}

impl SizeRule {
    /// Returns how many buckets a table has on a machine with this much memory.
    ///
    /// # Examples
    ///
    /// Lever's machine of 512 MB had 65,536 buckets of dentries under 2.2.16:
    ///
    /// ```
    /// use splitpoint_lab::replay::{KernelTable, SizeRule};
    ///
    /// assert_eq!(SizeRule::Linux2216.bucket_count(KernelTable::Dentry, 512 << 20), 65_536);
    /// ```
    pub fn bucket_count(self, table: KernelTable, memory_bytes: u64) -> u64 {
        let pages = memory_bytes / PAGE_BYTES;
        let of_pointers = |order: u32| (PAGE_BYTES << order.min(ORDER_MAX)) / POINTER_BYTES;
        let of_list_heads = |order: u32| (PAGE_BYTES << order.min(ORDER_MAX)) / LIST_HEAD_BYTES;
        match (self, table) {
            (Self::Fixed(bucket_count), _) => bucket_count,
            (Self::Linux6, KernelTable::Dentry) => large_system_hash(memory_bytes, 13),
            (Self::Linux6, _) => large_system_hash(memory_bytes, 14),
            (_, KernelTable::Page) => of_pointers(order_of(POINTER_BYTES * pages)),
            (_, KernelTable::Dentry) => of_list_heads(order_of(LIST_HEAD_BYTES * (pages / 2))),
            (Self::Linux2216, KernelTable::Buffer) => of_pointers(log2_up(memory_bytes >> 20)),
            (Self::Linux2216, KernelTable::Inode) => 256,
            (Self::Linux240, KernelTable::Buffer) => of_pointers(log2_up(4 * (pages >> 14))),
            (Self::Linux240, KernelTable::Inode) => {
                of_list_heads(order_of(LIST_HEAD_BYTES * (pages / 4)))
            }
        }
    }
}

/// Returns the least `o` with `4096 << o` at least `bytes`.
fn order_of(bytes: u64) -> u32 {
    log2_up(bytes.div_ceil(PAGE_BYTES))
}

/// Returns the least `o` with `1 << o` at least `n`.
fn log2_up(n: u64) -> u32 {
    n.max(1).next_power_of_two().ilog2()
}

/// One bucket for each `1 << scale` bytes of memory, a power of two, in at most 1/16 of memory.
fn large_system_hash(memory_bytes: u64, mut scale: u32) -> u64 {
    let memory_bytes = memory_bytes.clamp(1 << 20, 1 << 52).next_multiple_of(1 << 20);
    let mut adapted = ADAPT_BYTES;
    while adapted < memory_bytes {
        scale += 1;
        adapted <<= 2;
    }
    let most = (memory_bytes / 16 / 8).next_power_of_two();
    (memory_bytes >> scale).next_power_of_two().min(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_of_the_past_have_the_tables_that_they_had() {
        use KernelTable::{Buffer, Dentry, Inode, Page};
        let sizes = |rule: SizeRule, memory_mib: u64| {
            [Page, Buffer, Dentry, Inode].map(|table| rule.bucket_count(table, memory_mib << 20))
        };
        assert_eq!(sizes(SizeRule::Linux2216, 64), [16_384, 65_536, 8192, 256]);
        assert_eq!(sizes(SizeRule::Linux2216, 128), [32_768, 131_072, 16_384, 256]);
        assert_eq!(sizes(SizeRule::Linux2216, 512), [131_072, 524_288, 65_536, 256]);
        assert_eq!(sizes(SizeRule::Linux240, 64), [16_384, 4096, 8192, 4096]);
        assert_eq!(sizes(SizeRule::Linux240, 128), [32_768, 8192, 16_384, 8192]);
        assert_eq!(sizes(SizeRule::Linux240, 512), [131_072, 32_768, 65_536, 32_768]);
    }

    #[test]
    fn twice_the_memory_doubles_the_tables_of_2_2_16_except_that_of_inodes() {
        for table in KernelTable::ALL {
            let size = |memory_mib: u64| SizeRule::Linux2216.bucket_count(table, memory_mib << 20);
            let factor = if table == KernelTable::Inode { 1 } else { 2 };
            assert_eq!(size(128), factor * size(64), "{}", table.name());
        }
    }

    #[test]
    fn a_machine_of_today_has_the_tables_of_its_boot_log() {
        let size = |table, gib: u64| SizeRule::Linux6.bucket_count(table, gib << 30);
        assert_eq!(size(KernelTable::Dentry, 24), 4_194_304);
        assert_eq!(size(KernelTable::Inode, 24), 2_097_152);
        assert_eq!(size(KernelTable::Dentry, 2), 262_144);
        // Four times the memory of 64 GiB has twice the buckets.
        assert_eq!(size(KernelTable::Dentry, 256), 2 * size(KernelTable::Dentry, 64));
    }
}
