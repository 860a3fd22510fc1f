//! `AddrSet`: a set of addresses, or of 8-byte units of a file, in bounded memory.

use std::ops::Range;

use crate::bitmap::Bitmap;
use crate::format::Addr;

/// One bit for each 8 bytes of a file, whatever is in the set.
#[derive(Debug)]
pub(super) struct AddrSet(Bitmap);

impl AddrSet {
    /// Makes an empty set for a file of this size.
    pub(super) fn for_file(file_bytes: u64) -> Self {
        Self(Bitmap::new(file_bytes / 8 + 1))
    }

    /// Adds or removes an address and returns whether it was in; `None` outside the file.
    #[inline]
    pub(super) fn set(&mut self, addr: Addr, is_in: bool) -> Option<bool> {
        self.0.set(addr.0, is_in)
    }

    /// Returns whether an address is in.
    pub(super) fn has(&self, addr: Addr) -> bool {
        self.0.has(addr.0)
    }

    /// Adds every unit of a range of file offsets, which begins and ends at one.
    pub(super) fn add_range(&mut self, range: Range<u64>) {
        for unit in range.start / 8..range.end.div_ceil(8) {
            self.0.set(unit, true);
        }
    }

    /// Returns the addresses that are in, ascending.
    pub(super) fn iter(&self) -> impl Iterator<Item = Addr> + '_ {
        self.0.iter().map(Addr)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_what_was_added_and_nothing_outside_its_file() {
        let mut set = AddrSet::for_file(4096);
        assert_eq!(set.set(Addr(7), true), Some(false));
        assert_eq!(set.set(Addr(7), true), Some(true));
        set.add_range(504..528);
        assert!(set.iter().eq([7, 63, 64, 65].map(Addr)));
        assert!(set.has(Addr(65)) && !set.has(Addr(66)) && !set.has(Addr(1 << 39)));
        assert_eq!(set.set(Addr(64), false), Some(true));
        assert_eq!(set.set(Addr(1 << 39), true), None);
        assert!(set.iter().eq([7, 63, 65].map(Addr)));
    }
}
