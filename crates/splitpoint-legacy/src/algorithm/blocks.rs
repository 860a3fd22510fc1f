//! A file of fixed blocks in memory, of which only those that were written take space.

use std::collections::HashMap;

use foldhash::fast::FixedState;

/// Blocks by their numbers. A block that was never written is zero, as a hole of a file is.
#[derive(Clone, Debug)]
pub(super) struct Blocks {
    block_bytes: usize,
    written: HashMap<u64, Box<[u8]>, FixedState>,
    /// The number of the block behind the last.
    end: u64,
}

impl Blocks {
    /// Returns an empty file of blocks of `block_bytes`.
    pub(super) fn new(block_bytes: usize) -> Self {
        Self { block_bytes, written: HashMap::default(), end: 0 }
    }

    pub(super) fn block_bytes(&self) -> usize {
        self.block_bytes
    }

    /// Returns the block, or `None` in a hole and behind the end.
    pub(super) fn get(&self, number: u64) -> Option<&[u8]> {
        self.written.get(&number).map(|block| &**block)
    }

    /// Returns the block to change it, which writes it.
    pub(super) fn get_mut(&mut self, number: u64) -> &mut [u8] {
        self.end = self.end.max(number + 1);
        let block_bytes = self.block_bytes;
        self.written.entry(number).or_insert_with(|| vec![0; block_bytes].into())
    }

    /// Returns the numbers of the blocks that were written, in order.
    pub(super) fn numbers(&self) -> Vec<u64> {
        let mut numbers: Vec<u64> = self.written.keys().copied().collect();
        numbers.sort_unstable();
        numbers
    }

    /// Returns how many blocks were written.
    pub(super) fn written_count(&self) -> u64 {
        self.written.len() as u64
    }

    /// Returns the length of the file in bytes.
    pub(super) fn file_bytes(&self) -> u64 {
        self.end.saturating_mul(self.block_bytes as u64)
    }

    /// Returns the bytes of the file that were never written.
    pub(super) fn hole_bytes(&self) -> u64 {
        (self.end - self.written_count()).saturating_mul(self.block_bytes as u64)
    }

    /// Returns the bytes of the file.
    pub(super) fn file(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.file_bytes() as usize];
        for (&number, block) in &self.written {
            let start = number as usize * self.block_bytes;
            bytes[start..start + self.block_bytes].copy_from_slice(block);
        }
        bytes
    }

    /// Returns whether bit `bit` of the file is set, from the lowest of each byte.
    pub(super) fn is_set(&self, bit: u64) -> bool {
        let (block, at) = self.place_of(bit);
        self.get(block).is_some_and(|block| block[at] >> (bit % 8) & 1 == 1)
    }

    /// Sets bit `bit` of the file.
    pub(super) fn set(&mut self, bit: u64) {
        let (block, at) = self.place_of(bit);
        self.get_mut(block)[at] |= 1 << (bit % 8);
    }

    fn place_of(&self, bit: u64) -> (u64, usize) {
        let byte = bit / 8;
        (byte / self.block_bytes as u64, (byte % self.block_bytes as u64) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_written_blocks_take_space() {
        let mut blocks = Blocks::new(16);
        blocks.get_mut(3)[0] = 7;
        assert_eq!((blocks.file_bytes(), blocks.hole_bytes()), (64, 48));
        let file = blocks.file();
        assert_eq!((file.len(), file[48], file[0]), (64, 7, 0));
    }

    #[test]
    fn bits_are_counted_from_the_lowest_of_each_byte() {
        let mut blocks = Blocks::new(16);
        blocks.set(9);
        assert!(blocks.is_set(9) && !blocks.is_set(8) && !blocks.is_set(1 << 40));
        assert_eq!(blocks.file()[1], 2);
    }
}
