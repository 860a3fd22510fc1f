//! The hash tables of Linux 2.2: page, buffer, dentry and inode cache, and Lever's variants.
//!
//! A long had 32 bits there, so we compute everything in 32 bits and cut a product to 32 bits
//! before shifting it. The part of each function that does not depend on the table's size is its
//! hash; the rest is its [`Reduction`].
//!
//! Keys are fields of 4 bytes, little-endian, in the order of [`KeyLayout`]; missing bytes count
//! as 0. Addresses are those of kernel objects.
//!
//! # Source
//!
//! Linux 2.2.5, 2.2.16 and 2.4.0: `pagemap.h`, `fs.h`, `dcache.h`, `buffer.c`, `dcache.c`,
//! `inode.c`. Lever, "Linux kernel hash table behavior: analysis and improvements", 2000. Written
//! from the formulas.

use super::{KeyLayout, Reduction, Specimen, word32};

/// Knuth's multiplier, the prime nearest to 2^32 over the golden ratio.
pub const KNUTH: u32 = 2_654_435_761;

/// The power of two in `sizeof(struct inode)`, which is 272: what inode addresses are divided by.
const INODE_LOW_BIT: u32 = 16;
/// The power of two in that of 2.4.0, which is 440.
const INODE_LOW_BIT_2_4: u32 = 8;
/// `L1_CACHE_BYTES` of a Pentium II.
const L1_CACHE_BYTES: u32 = 32;
/// A page has `2^PAGE_SHIFT` bytes.
const PAGE_SHIFT: u32 = 12;

/// Where not to use a function, for several of them.
const AVOID_OUTSIDE_REPLAY: &str =
    "outside of a replay: its input is the address of a kernel object";
const AVOID_ALIGNED_BLOCKS: &str =
    "where blocks are a power of two apart, as the metadata of ext2 groups are";
const AVOID_OR: &str =
    "at all: the OR sets the bits of the address for good, so that larger tables are wasted";

/// The functions of this family.
pub(super) const SPECIMENS: &[Specimen] = &[
    Specimen::new(
        "linux-2.2.5-page",
        32,
        |key, _| u64::from(page_2_2_5(word32(key, 0), word32(key, 1))),
        "Linux 2.2.5 and 2.0.34, page cache: inode and page number added, folded once",
        AVOID_OUTSIDE_REPLAY,
    )
    .of(KeyLayout::Page)
    .historic(Reduction::AddFold),
    Specimen::new(
        "lever-page-offset",
        32,
        |key, _| u64::from(page_offset(word32(key, 0), word32(key, 1))),
        "Lever 2000, page cache, \"offset\": the offset added unshifted as well",
        AVOID_OUTSIDE_REPLAY,
    )
    .of(KeyLayout::Page)
    .historic(Reduction::AddFold),
    Specimen::new(
        "lever-page-mult",
        32,
        |key, _| u64::from(page_mult(word32(key, 0), word32(key, 1))),
        "Lever 2000, page cache, \"mult\": Fibonacci hashing with the right shift",
        AVOID_OUTSIDE_REPLAY,
    )
    .of(KeyLayout::Page)
    .historic(Reduction::HighShift),
    Specimen::new(
        "linux-2.2.16-page",
        32,
        |key, _| u64::from(page_2_2_16(word32(key, 0), word32(key, 1))),
        "Linux 2.2.16, page cache: the fold is gone, the low bits of the offset are in",
        AVOID_OUTSIDE_REPLAY,
    )
    .of(KeyLayout::Page)
    .historic(Reduction::LowMask),
    Specimen::new(
        "linux-2.4.0-page",
        32,
        |key, _| u64::from(page_2_4_0(word32(key, 0), word32(key, 1))),
        "Linux 2.4.0, page cache: address_space and page number added, folded once",
        AVOID_OUTSIDE_REPLAY,
    )
    .of(KeyLayout::PageIndex)
    .historic(Reduction::AddFold),
    Specimen::new(
        "linux-2.2.5-buffer",
        32,
        |key, _| u64::from(buffer_2_2_5(word32(key, 0), word32(key, 1))),
        "Linux 2.2.5, buffer cache: device XOR block",
        AVOID_ALIGNED_BLOCKS,
    )
    .of(KeyLayout::Buffer)
    .historic(Reduction::LowMask),
    Specimen::new(
        "lever-buffer-mult-11",
        32,
        |key, _| u64::from(buffer_mult(word32(key, 1))),
        "Lever 2000, buffer cache, \"mult, shift 11\"; the device is not used",
        "with tables over 2^21: shift 11 leaves no more bits of the product",
    )
    .of(KeyLayout::Buffer)
    .historic(Reduction::Shift(11)),
    Specimen::new(
        "lever-buffer-mult-by-size",
        32,
        |key, _| u64::from(buffer_mult(word32(key, 1))),
        "Lever 2000, buffer cache, shifts 16, 17 and 18 for tables of 15, 14 and 13 bits",
        "at all: by his own rule the shifts are 17, 18 and 19, and the top bit is lost",
    )
    .of(KeyLayout::Buffer)
    .historic(Reduction::ShiftFrom(31)),
    Specimen::new(
        "steiner-buffer",
        32,
        |key, _| u64::from(buffer_steiner(word32(key, 1))),
        "Steiner, in Lever 2000, buffer cache: block times 127 by a shift; the device is not used",
        AVOID_ALIGNED_BLOCKS,
    )
    .of(KeyLayout::Buffer)
    .historic(Reduction::LowMask),
    Specimen::new(
        "linux-2.2.16-buffer",
        64,
        |key, _| u64::from(word32(key, 0)) << 32 | u64::from(word32(key, 1)),
        "Linux 2.2.16 and 2.3.9 to 2.4, buffer cache; all of it is in the reduction",
        "with tables under 2^12, for which it shifts by a negative number of bits",
    )
    .of(KeyLayout::Buffer)
    .historic(Reduction::Buffer2216),
    Specimen::new(
        "linux-2.2-name",
        32,
        |key, _| u64::from(name_2_2(key)),
        "Linux 2.1.61 to 2.4, names: rotate by 4 and XOR, the \"simplified CRC\"",
        "for names over 8 bytes: swapping two bytes that are 8 apart changes nothing",
    )
    .historic(Reduction::XorFoldTwice),
    Specimen::new(
        "linux-2.2.5-dentry",
        32,
        |key, _| u64::from(dentry_2_2_5(word32(key, 0), name_of(key))),
        "Linux 2.2.5, dentry cache: name hash plus the parent's address, XOR-folded twice",
        AVOID_OUTSIDE_REPLAY,
    )
    .of(KeyLayout::Dentry)
    .historic(Reduction::XorFoldTwice),
    Specimen::new(
        "lever-dentry-14bit",
        32,
        |key, _| u64::from(dentry_2_2_5(word32(key, 0), name_of(key))),
        "Lever 2000, dentry cache, \"14-bit\": additions in the place of the XORs",
        AVOID_OUTSIDE_REPLAY,
    )
    .of(KeyLayout::Dentry)
    .historic(Reduction::AddFoldTwice),
    Specimen::new(
        "lever-dentry-mult",
        32,
        |key, _| u64::from(dentry_mult(word32(key, 0), name_of(key))),
        "Lever 2000, dentry cache, \"mult\", shift 11; he tried shift 17 too",
        AVOID_OUTSIDE_REPLAY,
    )
    .of(KeyLayout::Dentry)
    .historic(Reduction::Shift(11)),
    Specimen::new(
        "linux-2.2.16-dentry",
        32,
        |key, _| u64::from(dentry_2_2_16(word32(key, 0), name_of(key))),
        "Linux 2.2.16 and 2.4.0, dentry cache: the address in lines of 32 bytes",
        AVOID_OUTSIDE_REPLAY,
    )
    .of(KeyLayout::Dentry)
    .historic(Reduction::XorFoldTwice),
    Specimen::new(
        "linux-2.2-inode",
        32,
        |key, _| u64::from(inode_2_2(word32(key, 0), word32(key, 1))),
        "Linux 2.2.5 and 2.2.16, inode cache: inode number OR the superblock's address",
        AVOID_OR,
    )
    .of(KeyLayout::Inode)
    .historic(Reduction::AddFoldTwice),
    Specimen::new(
        "linux-2.4.0-inode",
        32,
        |key, _| u64::from(inode_2_2(word32(key, 0) / L1_CACHE_BYTES, word32(key, 1))),
        "Linux 2.4.0, inode cache: inode number OR the superblock's address in lines of 32 bytes",
        AVOID_OR,
    )
    .of(KeyLayout::Inode)
    .historic(Reduction::AddFoldTwice),
];

/// Returns the bytes after a dentry's parent.
fn name_of(key: &[u8]) -> &[u8] {
    key.get(4..).unwrap_or_default()
}

/// Returns `inode / 16 + (offset >> 12)`.
pub fn page_2_2_5(inode: u32, offset: u32) -> u32 {
    (inode / INODE_LOW_BIT).wrapping_add(offset >> PAGE_SHIFT)
}

/// Returns `inode / 16 + (offset >> 12) + offset`.
pub fn page_offset(inode: u32, offset: u32) -> u32 {
    page_2_2_5(inode, offset).wrapping_add(offset)
}

/// Returns `(inode + offset) * 2654435761`; the bucket is its top bits.
pub fn page_mult(inode: u32, offset: u32) -> u32 {
    inode.wrapping_add(offset).wrapping_mul(KNUTH)
}

/// Returns `inode / 16 + (offset >> 12) + (offset & 4095)`.
pub fn page_2_2_16(inode: u32, offset: u32) -> u32 {
    page_2_2_5(inode, offset).wrapping_add(offset & ((1 << PAGE_SHIFT) - 1))
}

/// Returns `mapping / 8 + index`, with the address of an `address_space`.
pub fn page_2_4_0(mapping: u32, index: u32) -> u32 {
    (mapping / INODE_LOW_BIT_2_4).wrapping_add(index)
}

/// Returns `device ^ block`.
pub fn buffer_2_2_5(device: u32, block: u32) -> u32 {
    device ^ block
}

/// Returns `block * 2654435761`.
pub fn buffer_mult(block: u32) -> u32 {
    block.wrapping_mul(KNUTH)
}

/// Returns `(block << 7) - block + (block >> 10) + (block >> 18)`.
pub fn buffer_steiner(block: u32) -> u32 {
    (block << 7).wrapping_sub(block).wrapping_add(block >> 10).wrapping_add(block >> 18)
}

/// Returns the hash of a name: `h = rotl(h, 4) ^ c`, from 0.
pub fn name_2_2(name: &[u8]) -> u32 {
    name.iter().fold(0_u32, |hash, &byte| hash.rotate_left(4) ^ u32::from(byte))
}

/// Returns the name's hash plus the parent's address.
pub fn dentry_2_2_5(parent: u32, name: &[u8]) -> u32 {
    name_2_2(name).wrapping_add(parent)
}

/// Returns the name's hash plus the parent's address, times 2654435761.
pub fn dentry_mult(parent: u32, name: &[u8]) -> u32 {
    dentry_2_2_5(parent, name).wrapping_mul(KNUTH)
}

/// Returns the name's hash plus the parent's address in cache lines of 32 bytes.
pub fn dentry_2_2_16(parent: u32, name: &[u8]) -> u32 {
    name_2_2(name).wrapping_add(parent / L1_CACHE_BYTES)
}

/// Returns the inode number OR the superblock's address.
pub fn inode_2_2(superblock: u32, inode_number: u32) -> u32 {
    inode_number | superblock
}
