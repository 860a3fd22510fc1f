//! Addresses of kernel objects, by a model of the allocators.
//!
//! Old hash functions take parents, inodes and superblocks by their addresses, which no trace has. The
//! model hands out objects in chunks of pages at random frames, in the order in which the allocator of
//! each kernel did; an object that is freed leaves its slot to the next one. Each kind of object has its
//! own memory.
//!
//! What it leaves out: no cache takes over the pages of another one, and nothing ages.

use std::collections::HashSet;

use crate::random::Random;

/// Bytes of a page.
const PAGE_BYTES: u64 = 4096;
/// Where `i_data` is in an inode of 2.4.0.
const DATA_OFFSET: u64 = 152;

/// How the objects of a cache lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectLayout {
    /// Dentries of 2.2: 31 a page, 128 bytes apart, after one of four colors.
    Dentry22,
    /// Dentries of 2.4.0: 30 a page, behind the head of the slab, after one of three colors.
    Dentry24,
    /// Dentries of 6.x: 21 a page, in a shuffled order.
    Dentry6,
    /// Inodes of 2.2: 30 in two pages, from the end.
    Inode22,
    /// `i_data` in the inodes of 2.4.0: 9 a page.
    InodeData24,
    /// Superblocks of 2.2 and 2.4: each in one of the eight places of a page.
    Superblock22,
    /// Superblocks of 6.x: each in one of the sixteen places of eight pages.
    Superblock6,
}

impl ObjectLayout {
    /// Returns the binary logarithm of the pages of a chunk.
    const fn order(self) -> u32 {
        match self {
            Self::Inode22 => 1,
            Self::Superblock6 => 3,
            _ => 0,
        }
    }

    /// Returns how many objects a chunk has.
    const fn chunk_objects(self) -> u64 {
        match self {
            Self::Dentry22 => 31,
            Self::Dentry24 | Self::Inode22 => 30,
            Self::Dentry6 => 21,
            Self::InodeData24 => 9,
            Self::Superblock22 | Self::Superblock6 => 1,
        }
    }

    /// Returns the number that tells the random numbers of one kind of object from the others'.
    const fn kind(self) -> u64 {
        match self {
            Self::Dentry22 | Self::Dentry24 | Self::Dentry6 => 1,
            Self::Inode22 | Self::InodeData24 => 2,
            Self::Superblock22 | Self::Superblock6 => 3,
        }
    }

    /// Returns how many frames memory has, and its address.
    const fn memory(self) -> (u64, u64) {
        match self {
            Self::Dentry6 | Self::Superblock6 => (1 << 22, 0xffff_8880_0000_0000),
            _ => (1 << 17, 0xc000_0000),
        }
    }

    /// Returns the most objects of a model: half of memory, so that a free frame is found soon.
    pub fn object_count_max(self) -> u64 {
        (self.memory().0 >> self.order()) / 2 * self.chunk_objects()
    }

    /// Returns the addresses of the first `count` slots under `seed`, or `None` if they do not fit.
    ///
    /// # Examples
    ///
    /// ```
    /// use splitpoint_lab::replay::ObjectLayout;
    ///
    /// let dentries = ObjectLayout::Dentry22.addresses(2, 1);
    /// assert_eq!(dentries, Some(vec![0xc272_4060, 0xc272_40e0]));
    /// ```
    pub fn addresses(self, count: u64, seed: u64) -> Option<Vec<u64>> {
        if count > self.object_count_max() {
            return None;
        }
        let mut random = Random::new(seed.wrapping_mul(256).wrapping_add(self.kind()));
        let mut places: Vec<u64> = (0..self.chunk_objects()).collect();
        if self == Self::Dentry6 {
            for last in (1..places.len()).rev() {
                places.swap(last, (random.next() % (last as u64 + 1)) as usize);
            }
        }
        let (frame_count, base) = self.memory();
        let (mut taken, mut addresses) = (HashSet::new(), Vec::new());
        for chunk in 0..count.div_ceil(self.chunk_objects()) {
            let frame = loop {
                let frame = random.next() % (frame_count >> self.order());
                if taken.insert(frame) {
                    break frame << self.order();
                }
            };
            let start = base + frame * PAGE_BYTES;
            let drawn = match self {
                Self::Dentry6 => random.next() % 21,
                Self::Superblock22 => random.next() % 8,
                Self::Superblock6 => random.next() % 16,
                _ => 0,
            };
            let left = (count - addresses.len() as u64).min(self.chunk_objects());
            addresses.extend((0..left).map(|k| start + self.offset(chunk, k, drawn, &places)));
        }
        Some(addresses)
    }

    /// Returns where object `k` of a chunk is in it.
    fn offset(self, chunk: u64, k: u64, drawn: u64, places: &[u64]) -> u64 {
        match self {
            Self::Dentry22 => 32 * (3 - chunk % 4) + 128 * k,
            Self::Dentry24 => 32 * (chunk % 3) + 160 + 128 * k,
            Self::Dentry6 => 192 * places[((drawn + k) % 21) as usize],
            Self::Inode22 => 272 * ((30 - k) % 30),
            Self::InodeData24 => 64 + 448 * k + DATA_OFFSET,
            Self::Superblock22 => 512 * drawn,
            Self::Superblock6 => 2048 * drawn,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Addresses of seed 1 that an independent program computed.
    #[test]
    fn the_addresses_of_seed_1_are_the_published_ones() {
        let check = |layout: ObjectLayout, expected: &[(usize, u64)]| {
            let addresses = layout.addresses(100, 1).unwrap();
            for &(at, address) in expected {
                assert_eq!(addresses[at], address, "{layout:?} {at}");
            }
        };
        check(
            ObjectLayout::Dentry22,
            &[
                (0, 0xc272_4060),
                (1, 0xc272_40e0),
                (2, 0xc272_4160),
                (30, 0xc272_4f60),
                (31, 0xd7fe_b040),
                (62, 0xd9d7_6020),
            ],
        );
        check(ObjectLayout::Dentry24, &[(0, 0xc272_40a0), (1, 0xc272_4120), (30, 0xd7fe_b0c0)]);
        check(
            ObjectLayout::Dentry6,
            &[
                (0, 0xffff_8883_9af8_1180),
                (1, 0xffff_8883_9af8_1540),
                (2, 0xffff_8883_9af8_1d80),
                (31, 0xffff_8883_184a_bb40),
            ],
        );
        check(
            ObjectLayout::Inode22,
            &[
                (0, 0xd3b4_8000),
                (1, 0xd3b4_9ed0),
                (2, 0xd3b4_9dc0),
                (29, 0xd3b4_8110),
                (30, 0xdd41_c000),
            ],
        );
        check(ObjectLayout::Superblock22, &[(0, 0xccb3_8600), (1, 0xc2a0_cc00), (2, 0xde0a_a200)]);
        check(
            ObjectLayout::Superblock6,
            &[(0, 0xffff_8882_659c_1800), (1, 0xffff_8881_1506_3000), (2, 0xffff_8881_f055_4800)],
        );
    }

    #[test]
    fn no_two_objects_share_an_address_and_more_than_fit_are_refused() {
        for layout in [
            ObjectLayout::Dentry22,
            ObjectLayout::Dentry24,
            ObjectLayout::Dentry6,
            ObjectLayout::Inode22,
            ObjectLayout::InodeData24,
            ObjectLayout::Superblock22,
            ObjectLayout::Superblock6,
        ] {
            let addresses = layout.addresses(10_000, 7).unwrap();
            assert_eq!(addresses.iter().collect::<HashSet<_>>().len(), 10_000, "{layout:?}");
            assert_eq!(layout.addresses(layout.object_count_max() + 1, 7), None);
        }
    }
}
