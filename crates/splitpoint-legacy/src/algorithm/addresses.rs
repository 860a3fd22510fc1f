//! The address arithmetic of the paper, as it is printed, and with its slips mended.
//!
//! ```text
//! #define BUCKET_TO_PAGE(bucket)  bucket + nhdr_pages + (bucket ? spares[log2(bucket + 1) - 1] : 0)
//! #define OADDR_TO_PAGE(oaddr)    BUCKET_TO_PAGE((1 << (oaddr >> 11)) - 1) + oaddr & 0x7ff;
//! ```
//!
//! C adds before it masks, so that the second macro masks the whole sum; the mask needs
//! parentheses.
//!
//! # Source
//!
//! Seltzer and Yigit 1991, section "Overflow Pages".

use crate::db185::{Shape, page_of_overflow};

/// The numbers in the header of a file that its addresses depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageMap {
    /// Pages of the header: `nhdr_pages`.
    pub header_pages: u32,
    /// Overflow pages up to and including each split point: `spares`.
    pub spares: [u32; 32],
}

impl PageMap {
    /// Returns the page of a bucket by the paper's `BUCKET_TO_PAGE`.
    pub fn bucket_to_page(&self, bucket: u32) -> u64 {
        let before = match bucket {
            0 => 0,
            _ => self.spares[ceil_log2(u64::from(bucket) + 1) as usize - 1],
        };
        u64::from(bucket) + u64::from(self.header_pages) + u64::from(before)
    }

    /// Returns the page of an overflow address by `OADDR_TO_PAGE`, with the parentheses that it
    /// needs.
    pub fn overflow_to_page(&self, addr: u16) -> u64 {
        self.bucket_to_page(last_bucket(addr)) + u64::from(addr & 0x7ff)
    }

    /// Returns the page of an overflow address by `OADDR_TO_PAGE` as it is printed: the sum is
    /// masked.
    pub fn overflow_to_page_as_printed(&self, addr: u16) -> u64 {
        (self.bucket_to_page(last_bucket(addr)) + u64::from(addr)) & 0x7ff
    }

    /// Returns the page of a bucket by the module that reads and writes db 1.85 files.
    pub fn bucket_page(&self, bucket: u32) -> u64 {
        self.shape().bucket_page_number(bucket)
    }

    /// Returns the page of an overflow address by that module, or `None` for position 0, which no
    /// page has.
    pub fn overflow_page(&self, addr: u16) -> Option<u64> {
        page_of_overflow(&self.shape(), addr)
    }

    fn shape(&self) -> Shape {
        Shape {
            page_bytes: 256,
            header_pages: self.header_pages,
            max_bucket: u32::MAX >> 1,
            low_mask: u32::MAX >> 2,
            high_mask: u32::MAX >> 1,
            split_point: 31,
            spares: self.spares,
            bitmaps: [0; 32],
        }
    }
}

/// The paper's `log2`: the smallest `i` with `2^i >= n`.
pub(super) fn ceil_log2(n: u64) -> u32 {
    n.next_power_of_two().trailing_zeros()
}

/// The last bucket before the split point of an overflow address.
fn last_bucket(addr: u16) -> u32 {
    ((1_u64 << (addr >> 11)) - 1) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn maps() -> impl Iterator<Item = PageMap> {
        // Overflow pages nowhere, everywhere, and more and more of them.
        [(0, 0), (7, 0), (3, 1)].into_iter().map(|(each, more)| {
            let mut spares = [0; 32];
            let mut count = 0;
            for (split_point, spare) in (0..).zip(&mut spares) {
                count += each + more * split_point;
                *spare = count;
            }
            PageMap { header_pages: 2, spares }
        })
    }

    #[test]
    fn the_paper_s_macro_gives_the_page_of_every_bucket_to_2_to_the_16() {
        for map in maps() {
            for bucket in 0..=1 << 16 {
                assert_eq!(map.bucket_to_page(bucket), map.bucket_page(bucket), "{bucket}");
            }
        }
    }

    #[test]
    fn the_mended_macro_gives_the_page_of_every_overflow_address() {
        for map in maps() {
            for addr in 0..=u16::MAX {
                let expected = (addr & 0x7ff != 0).then(|| map.overflow_to_page(addr));
                assert_eq!(map.overflow_page(addr), expected, "{addr:#06x}");
            }
        }
    }

    #[test]
    fn the_printed_macro_loses_the_pages_beyond_2047() {
        let map = maps().nth(1).unwrap();
        // While the sum is small, the mask does nothing.
        assert_eq!(map.overflow_to_page_as_printed(1), map.overflow_to_page(1));
        let addr = 1 << 11 | 1;
        assert_eq!(map.overflow_to_page(addr), 11);
        assert_eq!(map.overflow_to_page_as_printed(addr), 11);
        // A page number beyond 2047 is lost.
        let addr = 11 << 11 | 1;
        assert_ne!(map.overflow_to_page_as_printed(addr), map.overflow_to_page(addr));
    }
}
