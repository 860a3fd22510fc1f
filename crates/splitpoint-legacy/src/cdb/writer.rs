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
    let mut last = None;
    for &(hash, record) in records {
        // Many values of one key fill a run of slots, which need not be walked for each.
        let mut at = match last {
            Some((same, at)) if same == hash => at,
            _ => first_slot(hash, slot_count),
        };
        while slots[at as usize].1 != 0 {
            at = (at + 1) % slot_count;
        }
        slots[at as usize] = (hash, record);
        last = Some((hash, at));
    }
    slots
}
