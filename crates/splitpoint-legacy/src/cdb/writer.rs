//! A cdb file that is written.

use std::io::{self, Seek, SeekFrom, Write};

use super::{HEAD_BYTES, PAIR_BYTES, TABLES, bytes_of, first_slot, hash};

/// Writes a cdb file, record by record.
///
/// The bytes are those that Bernstein's `cdbmake` and tinycdb write for the same records in the
/// same order. A key may come several times; every reader finds its first record, and those that
/// can look for more find the others.
///
/// # Examples
///
/// ```
/// use splitpoint::TableExt as _;
/// use splitpoint_legacy::CdbWriter;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// let path = dir.path().join("words.cdb");
/// let mut words = CdbWriter::new(std::io::BufWriter::new(std::fs::File::create(&path)?))?;
/// assert!(words.put(b"one", b"1")?);
/// words.finish()?;
/// assert_eq!(splitpoint_legacy::open(&path)?.get(b"one")?.as_deref(), Some(&b"1"[..]));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct CdbWriter<W> {
    out: W,
    /// Hash and place of each record.
    records: Vec<(u32, u32)>,
    /// Length of what is written.
    end: u64,
}

impl<W: Write + Seek> CdbWriter<W> {
    /// Begins a file; `out` is empty. Wrap a file into a [`BufWriter`](io::BufWriter).
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn new(mut out: W) -> io::Result<Self> {
        out.write_all(&[0; HEAD_BYTES])?;
        Ok(Self { out, records: Vec::new(), end: HEAD_BYTES as u64 })
    }

    /// Adds a record, or returns `false` if the file would be longer than the 4 GiB that the format
    /// can address; nothing has changed then.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    ///
    /// # Cost
    ///
    /// Eight bytes of memory for each record.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> io::Result<bool> {
        let slot_bytes = 2 * PAIR_BYTES * (self.records.len() as u64 + 1);
        let end = self.end + PAIR_BYTES + key.len() as u64 + value.len() as u64;
        if end + slot_bytes > u64::from(u32::MAX) {
            return Ok(false);
        }
        self.out.write_all(&bytes_of(key.len() as u32, value.len() as u32))?;
        self.out.write_all(key)?;
        self.out.write_all(value)?;
        self.records.push((hash(key), self.end as u32));
        self.end = end;
        Ok(true)
    }

    /// Writes the tables and their places, and returns what the file was written to, flushed.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn finish(mut self) -> io::Result<W> {
        // Stable: records of one table keep their order.
        self.records.sort_by_key(|(hash, _)| hash % TABLES as u32);
        let mut head = Vec::with_capacity(HEAD_BYTES);
        let mut rest = &self.records[..];
        for index in 0..TABLES as u32 {
            let count = rest.iter().take_while(|(hash, _)| hash % TABLES as u32 == index).count();
            let (records, others) = rest.split_at(count);
            rest = others;
            let slots = table_of(records);
            head.extend_from_slice(&bytes_of(self.end as u32, slots.len() as u32));
            for (hash, record) in &slots {
                self.out.write_all(&bytes_of(*hash, *record))?;
            }
            self.end += PAIR_BYTES * slots.len() as u64;
        }
        self.out.seek(SeekFrom::Start(0))?;
        self.out.write_all(&head)?;
        self.out.flush()?;
        Ok(self.out)
    }
}

/// Returns the slots of a table: twice as many as records.
fn table_of(records: &[(u32, u32)]) -> Vec<(u32, u32)> {
    let mut slots = vec![(0, 0); 2 * records.len()];
    let slot_count = slots.len() as u64;
    // Of each slot the one to look at next: itself if it is empty, or one behind full ones. Many
    // values of one key, and many keys of a hostile source, fill a run of slots, which must not be
    // walked for each.
    let mut next: Vec<u32> = (0..slot_count as u32).collect();
    for &(hash, record) in records {
        let at = first_empty(&mut next, first_slot(hash, slot_count) as u32);
        slots[at as usize] = (hash, record);
        next[at as usize] = (at + 1) % slot_count as u32;
    }
    slots
}

/// Returns the first empty slot from `at` on, and halves the way there.
fn first_empty(next: &mut [u32], mut at: u32) -> u32 {
    while next[at as usize] != at {
        let behind = next[next[at as usize] as usize];
        next[at as usize] = behind;
        at = behind;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `cdbmake` does it: each record walks from its first slot to an empty one.
    fn walked(records: &[(u32, u32)]) -> Vec<(u32, u32)> {
        let mut slots = vec![(0, 0); 2 * records.len()];
        for &(hash, record) in records {
            let first = first_slot(hash, slots.len() as u64) as usize;
            let places = (first..slots.len()).chain(0..first);
            let empty = places.into_iter().find(|&at| slots[at].1 == 0).expect("half are empty");
            slots[empty] = (hash, record);
        }
        slots
    }

    #[test]
    fn records_are_in_the_slots_where_a_walk_puts_them() {
        for (count, hashes) in [(0, 1), (1, 1), (300, 2), (300, 150), (300, 299), (1000, 7)] {
            let hash = |number: u32| (number % hashes * 199) << 8;
            let records: Vec<_> = (1..=count).map(|number| (hash(number), number)).collect();
            assert!(table_of(&records) == walked(&records), "{count} of {hashes}");
        }
    }

    /// Those of a hostile source; a walk for each would take an hour.
    #[test]
    fn many_records_of_few_first_slots_take_no_walk_each() {
        for hashes in [2, 200_000] {
            let hash = |number: u32| (number % hashes) << 8;
            let records: Vec<_> = (1..=400_000).map(|number| (hash(number), number)).collect();
            let slots = table_of(&records);
            assert!(slots[..400_000].iter().all(|slot| slot.1 != 0), "{hashes}");
        }
    }
}
