//! Open addressing: double hashing or linear probing, with or without Brent's rearrangement.

use std::fmt::Write as _;

use super::{Entries, Wanted, probe_of};
use crate::algorithm::{Counts, Refusal};

/// A slot that was never used, where a search ends.
const EMPTY: u32 = u32::MAX;
/// A slot whose entry was deleted, which a search passes.
const DELETED: u32 = u32::MAX - 1;

/// Entries that a search must pass before Brent's rearrangement is tried. The empty slot behind them
/// is a probe too: the original tries from three probes on.
const BRENT_PASSED_MIN: usize = 2;

/// Lines of a drawing.
const LINES_MAX: usize = 64;

/// The slots of a table.
#[derive(Debug)]
pub(super) struct Slots {
    bits: u32,
    /// The number of the entry in each slot.
    numbers: Vec<u32>,
    /// The digest of the entry in each slot, so that most searches need no other memory.
    digests: Vec<u32>,
}

impl Slots {
    pub(super) fn new(bits: u32) -> Self {
        Self { bits, numbers: vec![EMPTY; 1 << bits], digests: vec![0; 1 << bits] }
    }

    fn mask(&self) -> u32 {
        (1 << self.bits) - 1
    }

    pub(super) fn is_free(&self, slot: u32) -> bool {
        self.numbers[slot as usize] >= DELETED
    }

    /// Looks for a key at its home and from there in steps, until an empty slot or once around.
    ///
    /// Returns the entry with its slot, and the first slot that a new entry may take. Calls `pass`
    /// with the slots of other entries before that slot.
    fn search(
        &self,
        wanted: &Wanted<'_>,
        entries: &Entries,
        counts: &mut Counts,
        mut pass: impl FnMut(u32),
    ) -> (Option<(u32, u32)>, Option<u32>) {
        let (mut slot, mut free) = (wanted.home, None);
        for _ in 0..self.numbers.len() {
            counts.probes += 1;
            match self.numbers[slot as usize] {
                EMPTY => return (None, free.or(Some(slot))),
                DELETED => free = free.or(Some(slot)),
                number => {
                    counts.comparisons += 1;
                    if wanted.can_be(self.digests[slot as usize])
                        && wanted.is(&entries.all[number as usize])
                    {
                        return (Some((number, slot)), free);
                    }
                    if free.is_none() {
                        pass(slot);
                    }
                }
            }
            slot = slot.wrapping_add(wanted.step) & self.mask();
        }
        (None, free)
    }

    pub(super) fn find(
        &self,
        wanted: &Wanted<'_>,
        entries: &Entries,
        counts: &mut Counts,
    ) -> Option<u32> {
        self.search(wanted, entries, counts, |_| ()).0.map(|(number, _)| number)
    }

    /// Stores an entry unless its key is there, whose number is then returned. One slot always stays
    /// without an entry.
    pub(super) fn store(
        &mut self,
        wanted: &Wanted<'_>,
        value: &[u8],
        is_brent: bool,
        entries: &mut Entries,
        counts: &mut Counts,
    ) -> Result<Option<u32>, Refusal> {
        let mut passed = Vec::new();
        let pass = |slot| {
            if is_brent {
                passed.push(slot);
            }
        };
        let (found, free) = self.search(wanted, entries, counts, pass);
        if let Some((number, _)) = found {
            return Ok(Some(number));
        }
        let Some(free) = free.filter(|_| entries.len() + 1 < self.numbers.len()) else {
            return Err(Refusal::TableFull { slot_count: self.numbers.len() as u64 });
        };
        let slot = if passed.len() >= BRENT_PASSED_MIN {
            self.rearrange(wanted, &passed, free, counts)
        } else {
            free
        };
        self.numbers[slot as usize] = entries.add(wanted.digest, wanted.key, value);
        self.digests[slot as usize] = wanted.digest;
        Ok(None)
    }

    /// Returns the slot for a new entry after making it free.
    ///
    /// The new entry would be found with `passed + 1` probes. If the entry in slot `passed[i]` can go
    /// on `j` of its own steps to a free slot, and `i + j` is less than `passed`, both together are
    /// found with fewer probes. The smallest `i + j` wins, and of equals the smallest `i`.
    fn rearrange(
        &mut self,
        wanted: &Wanted<'_>,
        passed: &[u32],
        free: u32,
        counts: &mut Counts,
    ) -> u32 {
        let (mut best, mut cost) = (None, passed.len());
        for (i, &from) in passed.iter().enumerate() {
            // Even one step of this entry would cost as much.
            if i + 1 >= cost {
                break;
            }
            let digest = self.digests[from as usize];
            let (_, step) = probe_of(wanted.options.hashing, digest, self.bits);
            // An entry with the same step comes to the same free slot, which gains nothing.
            if step == wanted.step {
                continue;
            }
            let mut to = from;
            for j in 1..cost - i {
                to = to.wrapping_add(step) & self.mask();
                counts.probes += 1;
                if self.is_free(to) {
                    (best, cost) = (Some((from, to)), i + j);
                    break;
                }
            }
        }
        let Some((from, to)) = best else { return free };
        self.numbers[to as usize] = self.numbers[from as usize];
        self.digests[to as usize] = self.digests[from as usize];
        counts.moves += 1;
        from
    }

    /// Marks the slot of a key as deleted, and returns the number of its entry.
    pub(super) fn remove(
        &mut self,
        wanted: &Wanted<'_>,
        entries: &Entries,
        counts: &mut Counts,
    ) -> Option<u32> {
        let (number, slot) = self.search(wanted, entries, counts, |_| ()).0?;
        self.numbers[slot as usize] = DELETED;
        Some(number)
    }

    /// Returns the entries in the order of their slots.
    pub(super) fn numbers(&self) -> Vec<u32> {
        self.numbers.iter().copied().filter(|&slot| slot < DELETED).collect()
    }

    pub(super) fn show(&self, entries: &Entries) -> String {
        let mut out = String::new();
        let used = (0..).zip(&self.numbers).filter(|(_, slot)| **slot != EMPTY);
        let count = used.clone().count();
        for (slot, &number) in used.take(LINES_MAX) {
            let _ = if number == DELETED {
                writeln!(out, "  slot {slot}: deleted")
            } else {
                let entry = &entries.all[number as usize];
                let (key, digest) = (entry.key.escape_ascii(), entry.digest);
                writeln!(out, "  slot {slot}: {key}, digest {digest}")
            };
        }
        crate::algorithm::cut(out, count, LINES_MAX)
    }
}
