//! A slot of a bucket: a tag of the hash and the address of a record.

use crate::format::Addr;

/// A slot: `tag << 40 | address`; 0 is empty, since no record is at address 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot(pub(crate) u64);

/// Hash bits 8 to 31, kept in the slot so that most other keys are ruled out without a look at
/// their records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag(pub(crate) u64);

impl Tag {
    /// The lowest bit of the hash that is in the tag.
    pub(crate) const FIRST_BIT: u32 = 8;
    /// The number of bits.
    pub(crate) const BITS: u32 = 24;

    /// Returns the tag of a hash.
    #[inline]
    pub(crate) fn of_hash(hash: u64) -> Self {
        Self(hash >> Self::FIRST_BIT & ((1 << Self::BITS) - 1))
    }
}

impl Slot {
    /// No record.
    pub(crate) const EMPTY: Self = Self(0);

    /// Returns the slot for a record.
    #[inline]
    pub(crate) fn new(tag: Tag, addr: Addr) -> Self {
        debug_assert!(addr.0 != 0 && addr.0 >> Addr::BITS == 0);
        Self(tag.0 << Addr::BITS | addr.0)
    }

    /// Returns whether there is no record.
    #[inline]
    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the tag.
    #[inline]
    pub(crate) fn tag(self) -> Tag {
        Tag(self.0 >> Addr::BITS)
    }

    /// Returns the address of the record.
    #[inline]
    pub(crate) fn addr(self) -> Addr {
        Addr(self.0 & ((1 << Addr::BITS) - 1))
    }

    /// Returns the lowest 32 bits of the hash of the slot's key, whose bits below the tag are in
    /// `low`.
    #[inline]
    pub(crate) fn low_hash(self, low: u64) -> u64 {
        self.tag().0 << Tag::FIRST_BIT | low & ((1 << Tag::FIRST_BIT) - 1)
    }

    /// Returns where in a slot bit `bit` of the hash is, if the tag has it.
    #[inline]
    pub(super) fn place_of_bit(bit: u32) -> Option<u32> {
        let bit = bit.checked_sub(Tag::FIRST_BIT).filter(|&bit| bit < Tag::BITS)?;
        Some(Addr::BITS + bit)
    }

    /// Returns bit `bit` of the hash of the slot's key, if the tag has it.
    #[inline]
    pub(crate) fn hash_bit(self, bit: u32) -> Option<bool> {
        debug_assert!(!self.is_empty(), "an empty slot is of no hash");
        Some(self.0 >> Self::place_of_bit(bit)? & 1 == 1)
    }
}

#[cfg(test)]
mod slot_tests {
    use super::*;

    #[test]
    fn slot_keeps_tag_and_address_and_tells_bits_8_to_31() {
        let hash = 0x0123_4567_89ab_cdef_u64;
        let slot = Slot::new(Tag::of_hash(hash), Addr((1 << 40) - 1));
        assert_eq!(slot.tag(), Tag(0x0089_abcd));
        assert_eq!(slot.addr(), Addr((1 << 40) - 1));
        for bit in 0..64 {
            let expected = (8..32).contains(&bit).then(|| hash >> bit & 1 == 1);
            assert_eq!(slot.hash_bit(bit), expected, "bit {bit}");
        }
        assert_eq!(slot.low_hash(0x1234_56ef), hash & 0xffff_ffff);
    }
}
