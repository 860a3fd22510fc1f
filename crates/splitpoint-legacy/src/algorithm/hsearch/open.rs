//! Open addressing: double hashing or linear probing, with or without Brent's rearrangement.

use std::fmt::Write as _;

use super::{Entries, Wanted, probe_of};
use crate::algorithm::{Counts, Refusal};

/// A slot that was never used, where a search ends.
const EMPTY: u32 = u32::MAX;
/// A slot whose entry was deleted, which a search passes.
const DELETED: u32 = u32::MAX - 1;

/// Probes from which Brent's rearrangement is tried: more than this many.
const BRENT_THRESHOLD: usize = 2;

/// Lines of a drawing.
const LINES_MAX: usize = 64;

/// The slots of a table: numbers of entries.
#[derive(Debug)]
pub(super) struct Slots {
    bits: u32,
    slots: Vec<u32>,
    /// The digest of the entry in each slot, so that most searches need no other memory.
    digests: Vec<u32>,
}

impl Slots {
    pub(super) fn new(bits: u32) -> Self {
        Self { bits, slots: vec![EMPTY; 1 << bits], digests: vec![0; 1 << bits] }
    }

    fn mask(&self) -> u32 {
        (1 << self.bits) - 1
    }

    fn is_free(&self, slot: u32) -> bool {
        self.slots[slot as usize] >= DELETED
    }

    /// Looks for a key at its home and from there in steps, until an empty slot or once around.
    ///
    /// Returns the entry with its slot, and the first slot that a new entry may take. Calls `pass`
    /// with the slots of other entries.
    fn search(
        &self,
        wanted: &Wanted<'_>,
        entries: &Entries,
        counts: &mut Counts,
        mut pass: impl FnMut(u32),
    ) -> (Option<(u32, u32)>, Option<u32>) {
        let (mut slot, mut free) = (wanted.home, None);
        for _ in 0..self.slots.len() {
            counts.probes += 1;
            match self.slots[slot as usize] {
                EMPTY => return (None, free.or(Some(slot))),
                DELETED => free = free.or(Some(slot)),
                number => {
                    counts.comparisons += 1;
                    if wanted.can_be(self.digests[slot as usize])
                        && wanted.is(&entries.all[number as usize])
                    {
                        return (Some((number, slot)), free);
                    }
                    pass(slot);
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

    /// Stores an entry unless its key is there, whose number is then returned.
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
        let Some(free) = free else {
            return Err(Refusal::TableFull { slot_count: self.slots.len() as u64 });
        };
        let slot = if passed.len() > BRENT_THRESHOLD {
            self.rearrange(wanted, &passed, free, counts)
        } else {
            free
        };
        self.slots[slot as usize] = entries.add(wanted.digest, wanted.key, value);
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
        self.slots[to as usize] = self.slots[from as usize];
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
        self.slots[slot as usize] = DELETED;
        Some(number)
    }

    /// Returns the entries in the order of their slots.
    pub(super) fn numbers(&self) -> Vec<u32> {
        self.slots.iter().copied().filter(|&slot| slot < DELETED).collect()
    }

    pub(super) fn show(&self, entries: &Entries) -> String {
        let mut out = String::new();
        let used = (0..).zip(&self.slots).filter(|(_, slot)| **slot != EMPTY);
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
