//! The keys: read once into memory, or again for each pass in bounded memory.
//!
//! ```text
//! KeySource --open--> KeyInput --batches--> Keys: held, while memory suffices
//!                                                 streamed beyond: opened for each pass
//! ```
//!
//! # Invariants
//!
//! - A source gives the same keys in the same order at each open; if it does not, [`Keys`] detects
//!   it.
//! - The measured keys do not depend on whether they fit into memory, except with the probability
//!   in [`Duplicates::RemovedByFingerprint`].
//!
//! # Not here
//!
//! The command opens files; `drive` counts keys.

use std::fmt;
use std::io::Write;
use std::ops::ControlFlow;

use crate::memory;
use crate::study::{Duplicates, KeyFacts};

mod batch;
mod distinct;
mod facts;
mod format;
mod read;
mod shown;
mod text;

#[cfg(test)]
mod tests;

pub use batch::{KeyBatch, KeySlice};
pub use format::{Column, Encoding, Framing, Integer, KeyFormat};
pub use read::{KEY_BYTES_MAX, KeyInput, Noticed, Place, ReadError, reader};
pub use shown::{escaped, shown};

use distinct::{
    Bitmap, FINGERPRINT_BYTES, FingerprintSet, collision_p_max, fingerprint, part_of, repeated,
    repeated_memory_bytes,
};
use facts::Tally;

/// A source of keys.
pub trait KeySource: Sync {
    /// Begins to read from the first key on.
    ///
    /// # Errors
    ///
    /// If the source cannot be opened, for example because its file is gone.
    fn open(&self) -> Result<Box<dyn KeyInput + Send + '_>, ReadError>;

    /// Returns a place for the keys of a source that can be opened only once, or `None` if it can
    /// be opened again. The caller writes the keys there as `varint`, and `open` then reads them.
    ///
    /// # Errors
    ///
    /// If there is no such place.
    fn spill(&self) -> Result<Option<Box<dyn Write + '_>>, ReadError> {
        Ok(None)
    }

    /// Returns whether no two keys are equal, as in a store.
    fn is_distinct(&self) -> bool {
        false
    }
}

/// What to do with duplicate keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DuplicatePolicy {
    /// Skip them.
    #[default]
    Remove,
    /// Measure them like others. [`Keys`] looks for them only while the keys fit into memory.
    Keep,
}

/// A step of long work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phase {
    /// The name of the step.
    pub name: &'static str,
    /// The number of this pass over the keys, from 1.
    pub pass: u64,
    /// Passes of this kind.
    pub pass_count: u64,
}

/// Progress of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// Keys.
    pub key_count: u64,
    /// Keys of the complete step, if known.
    pub key_count_total: Option<u64>,
    /// Bytes read from the input.
    pub input_bytes: u64,
}

/// An observer of long work, which can stop it.
pub trait Watch: Send {
    /// Receives the progress, several times a second or more often.
    fn progress(&mut self, phase: Phase, done: Done);

    /// Returns whether the work is to stop.
    fn is_stopped(&self) -> bool;
}

/// A [`Watch`] that ignores everything.
impl Watch for () {
    fn progress(&mut self, _phase: Phase, _done: Done) {}

    fn is_stopped(&self) -> bool {
        false
    }
}

/// The keys to measure, with facts about them.
///
/// # Examples
///
/// ```
/// use splitpoint_lab::keys::{Bytes, DuplicatePolicy, KeyFormat, Keys, Column};
///
/// let column = Column { name: "1".to_owned(), has_header: false };
/// let source = Bytes { bytes: b"one\ntwo\none\n", format: KeyFormat::by_name("lines", column)? };
/// let keys = Keys::read(Box::new(source), DuplicatePolicy::Remove, 1 << 20, &mut ())?;
/// assert_eq!((keys.facts().key_count, keys.facts().duplicate_count), (2, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Keys<'s> {
    place: Held<'s>,
    facts: KeyFacts,
    noticed: Noticed,
}

enum Held<'s> {
    Memory(KeyBatch),
    Stream(Stream<'s>),
}

/// Keys that each pass reads again.
struct Stream<'s> {
    source: Box<dyn KeySource + 's>,
    /// Keys in it to skip.
    removed: Option<Bitmap>,
    /// All keys in it.
    key_count: u64,
}

impl fmt::Debug for Keys<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").field("facts", &self.facts).finish_non_exhaustive()
    }
}

/// Keys from bytes in memory.
#[derive(Clone, Debug)]
pub struct Bytes<'a> {
    /// The bytes.
    pub bytes: &'a [u8],
    /// The format of the keys.
    pub format: KeyFormat,
}

impl KeySource for Bytes<'_> {
    fn open(&self) -> Result<Box<dyn KeyInput + Send + '_>, ReadError> {
        reader(self.bytes, &self.format)
    }
}

impl<'s> Keys<'s> {
    /// Reads keys, and finds duplicates.
    ///
    /// It uses at most `memory_bytes`, and in addition a few megabytes or the longest key. If the
    /// keys do not fit, each pass reads them again. It then finds duplicates by fingerprints of 128
    /// bits, in as many passes as it takes to compare these in that memory.
    ///
    /// # Errors
    ///
    /// If the source cannot be read or is malformed, if `watch` stops the work, or if not even one
    /// bit a key and a million fingerprints fit.
    ///
    /// # Cost
    ///
    /// One pass over the source while the keys fit, with 24 bytes for each key beside it; otherwise
    /// `1 + keys * 22 B / memory_bytes` passes.
    pub fn read(
        source: Box<dyn KeySource + 's>,
        policy: DuplicatePolicy,
        memory_bytes: u64,
        watch: &mut dyn Watch,
    ) -> Result<Self, ReadError> {
        let mut first = FirstPass::new(policy, source.is_distinct());
        let mut input = source.open()?;
        let fits = first.read(&mut *input, memory_bytes, watch)?;
        if fits {
            let noticed = input.noticed();
            drop(input);
            return Ok(first.into_keys(noticed));
        }
        first.read_rest(&mut *input, &*source, watch)?;
        let noticed = input.noticed();
        drop(input);
        let mut stream = Stream { source, removed: None, key_count: first.stream_count };
        let (tally, duplicates, found) = match policy {
            _ if first.is_distinct => (first.tally, Duplicates::Removed, 0),
            DuplicatePolicy::Keep => (first.tally, Duplicates::Unchecked, 0),
            DuplicatePolicy::Remove => {
                let (tally, found) = stream.find_duplicates(memory_bytes, watch)?;
                let wrong_p = collision_p_max(stream.key_count);
                (tally, Duplicates::RemovedByFingerprint { wrong_p }, found)
            }
        };
        let duplicate_count = found + first.duplicate_count;
        let facts = facts_of(tally, noticed, duplicates, duplicate_count);
        Ok(Self { place: Held::Stream(stream), facts, noticed })
    }

    /// Returns the facts about the keys. The caller fills in source and format.
    pub fn facts(&self) -> &KeyFacts {
        &self.facts
    }

    /// Returns the facts, to add to.
    pub fn facts_mut(&mut self) -> &mut KeyFacts {
        &mut self.facts
    }

    /// Returns the facts about the form of the input.
    pub fn noticed(&self) -> Noticed {
        self.noticed
    }

    /// Returns the number of keys.
    pub fn len(&self) -> u64 {
        self.facts.key_count
    }

    /// Returns true if there is no key.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the keys, if they are in memory.
    pub fn held(&self) -> Option<&KeyBatch> {
        match &self.place {
            Held::Memory(batch) => Some(batch),
            Held::Stream(_) => None,
        }
    }

    /// Returns the memory that the keys take, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        match &self.place {
            Held::Memory(batch) => batch.memory_bytes(),
            Held::Stream(stream) => {
                let bits = if stream.removed.is_some() { stream.key_count } else { 0 };
                Bitmap::memory_bytes(bits)
            }
        }
    }

    /// Calls `visit` with each key in order until it returns `Break`.
    ///
    /// # Errors
    ///
    /// If the source cannot be read, or its keys have changed.
    pub fn for_each(
        &self,
        mut visit: impl FnMut(&[u8]) -> ControlFlow<()> + Send,
    ) -> Result<(), ReadError> {
        self.for_each_window(|window| window.iter().try_for_each(&mut visit))
    }

    /// Calls `visit` with the keys in order, many at a time, until it returns `Break`. Another
    /// thread reads the next ones meanwhile.
    ///
    /// # Errors
    ///
    /// If the source cannot be read, or its keys have changed.
    pub fn for_each_window(
        &self,
        mut visit: impl FnMut(KeySlice<'_>) -> ControlFlow<()> + Send,
    ) -> Result<(), ReadError> {
        match &self.place {
            Held::Memory(batch) => {
                for start in (0..batch.len()).step_by(WINDOW_KEYS) {
                    let window = batch.slice(start..batch.len().min(start + WINDOW_KEYS));
                    if visit(window).is_break() {
                        break;
                    }
                }
                Ok(())
            }
            Held::Stream(stream) => stream.for_each_window(visit),
        }
    }

    /// Returns up to `key_count_max` keys, evenly spaced and in order, of `bytes_max` bytes at
    /// most.
    ///
    /// # Errors
    ///
    /// If the source cannot be read, or its keys have changed.
    pub fn sample(&self, key_count_max: u64, bytes_max: u64) -> Result<KeyBatch, ReadError> {
        let (all, mut sample, mut index) = (self.len(), KeyBatch::default(), 0_u64);
        let wanted = key_count_max.min(all);
        self.for_each(|key| {
            let taken = sample.len() as u64;
            // The first key of each of `wanted` equal ranges.
            if u128::from(index) * u128::from(wanted) >= u128::from(taken) * u128::from(all) {
                if taken == wanted || sample.key_bytes() + key.len() as u64 > bytes_max {
                    return ControlFlow::Break(());
                }
                sample.push(key);
            }
            index += 1;
            ControlFlow::Continue(())
        })?;
        Ok(sample)
    }
}

/// Keys in memory that a pass counts before it looks at the clock again.
const WINDOW_KEYS: usize = 1 << 17;

fn facts_of(
    tally: Tally,
    noticed: Noticed,
    duplicates: Duplicates,
    duplicate_count: u64,
) -> KeyFacts {
    KeyFacts {
        key_count: tally.key_count,
        key_bytes: tally.key_bytes,
        lengths: tally.lengths(),
        duplicate_count,
        duplicates,
        blank_count: noticed.blank_count,
        carriage_return_count: noticed.carriage_return_count,
        nul_count: noticed.nul_count,
        examples: tally.examples,
        ..KeyFacts::default()
    }
}

/// The first pass. It keeps the keys while they fit.
struct FirstPass {
    policy: DuplicatePolicy,
    is_distinct: bool,
    held: KeyBatch,
    tally: Tally,
    duplicate_count: u64,
    /// Keys that a pass over the stream will find.
    stream_count: u64,
    read_count: u64,
}

const READ: Phase = Phase { name: "read keys", pass: 1, pass_count: 1 };

impl FirstPass {
    fn new(policy: DuplicatePolicy, is_distinct: bool) -> Self {
        Self {
            policy,
            is_distinct,
            held: KeyBatch::default(),
            tally: Tally::default(),
            duplicate_count: 0,
            stream_count: 0,
            read_count: 0,
        }
    }

    /// Reads until the end, and returns true, or until memory is full.
    fn read(
        &mut self,
        input: &mut (dyn KeyInput + Send),
        memory_bytes: u64,
        watch: &mut dyn Watch,
    ) -> Result<bool, ReadError> {
        let mut batch = KeyBatch::default();
        loop {
            batch.clear();
            let has_more = input.read_batch(&mut batch)?;
            self.held.append(&batch)?;
            self.read_count += batch.len() as u64;
            tell(watch, READ, self.read_count, None, input.offset())?;
            if !has_more {
                self.find_repeated()?;
                return Ok(true);
            }
            if self.memory_bytes() > memory_bytes {
                if self.policy == DuplicatePolicy::Keep || self.is_distinct {
                    return Ok(false);
                }
                self.find_repeated()?;
                self.held.shrink();
                // Less than half would be full again soon, and looked through again.
                if self.memory_bytes() > memory_bytes / 2 {
                    return Ok(false);
                }
            }
        }
    }

    fn memory_bytes(&self) -> u64 {
        let compared = if self.is_distinct { 0 } else { repeated_memory_bytes(self.held.len()) };
        self.held.memory_bytes() + compared
    }

    /// Counts the keys that occurred before, and removes them if that is wanted.
    fn find_repeated(&mut self) -> Result<(), ReadError> {
        if self.is_distinct {
            return Ok(());
        }
        let needed_bytes = repeated_memory_bytes(self.held.len());
        if !memory::is_there(needed_bytes) {
            return Err(ReadError::NoMemory { needed_bytes });
        }
        let (marks, count) = repeated(&self.held);
        self.duplicate_count += count;
        if count > 0 && self.policy == DuplicatePolicy::Remove {
            self.held.retain(|index| !marks.has(index as u64));
        }
        Ok(())
    }

    fn into_keys<'s>(mut self, noticed: Noticed) -> Keys<'s> {
        let duplicates = match self.policy {
            DuplicatePolicy::Keep => Duplicates::Kept,
            DuplicatePolicy::Remove => Duplicates::Removed,
        };
        self.held.iter().for_each(|key| self.tally.add(key));
        let facts = facts_of(self.tally, noticed, duplicates, self.duplicate_count);
        Keys { place: Held::Memory(self.held), facts, noticed }
    }

    /// Reads to the end without keeping keys, except those that can be read only once.
    fn read_rest(
        &mut self,
        input: &mut (dyn KeyInput + Send),
        source: &dyn KeySource,
        watch: &mut dyn Watch,
    ) -> Result<(), ReadError> {
        let held = std::mem::take(&mut self.held);
        held.iter().for_each(|key| self.tally.add(key));
        let mut spill = source.spill()?;
        if let Some(spill) = &mut spill {
            // The duplicates among them are gone and have been counted.
            self.stream_count = held.len() as u64;
            held.iter().try_for_each(|key| write_varint_key(spill, key))?;
        } else {
            self.stream_count = self.read_count;
            // The fingerprints will find them again.
            self.duplicate_count = 0;
        }
        drop(held);
        let mut batch = KeyBatch::default();
        let mut has_more = true;
        while has_more {
            batch.clear();
            has_more = input.read_batch(&mut batch)?;
            for key in batch.iter() {
                self.tally.add(key);
                if let Some(spill) = &mut spill {
                    write_varint_key(spill, key)?;
                }
            }
            self.read_count += batch.len() as u64;
            self.stream_count += batch.len() as u64;
            tell(watch, READ, self.read_count, None, input.offset())?;
        }
        if let Some(spill) = &mut spill {
            spill.flush()?;
        }
        Ok(())
    }
}

fn write_varint_key(out: &mut impl Write, key: &[u8]) -> Result<(), ReadError> {
    let (mut length, mut prefix, mut used) = (key.len(), [0; 10], 0);
    loop {
        let has_more = length >= 0x80;
        prefix[used] = (length & 0x7f) as u8 | if has_more { 0x80 } else { 0 };
        (length, used) = (length >> 7, used + 1);
        if !has_more {
            break;
        }
    }
    out.write_all(&prefix[..used])?;
    out.write_all(key)?;
    Ok(())
}

fn tell(
    watch: &mut dyn Watch,
    phase: Phase,
    key_count: u64,
    key_count_total: Option<u64>,
    input_bytes: u64,
) -> Result<(), ReadError> {
    watch.progress(phase, Done { key_count, key_count_total, input_bytes });
    if watch.is_stopped() { Err(ReadError::Stopped { key_count }) } else { Ok(()) }
}

/// Fewest slots of fingerprints for each key, in hundredths.
const FINGERPRINT_SLOTS_HUNDREDTHS: u64 = 135;
/// Fewest fingerprints that one pass compares.
const FINGERPRINTS_MIN: u64 = 1 << 12;

impl Stream<'_> {
    /// Marks the duplicates, and returns the facts about the other keys.
    ///
    /// Fingerprints divide the keys into parts that fit into memory, with equal keys in the same
    /// part. Each pass looks at one part.
    fn find_duplicates(
        &mut self,
        memory_bytes: u64,
        watch: &mut dyn Watch,
    ) -> Result<(Tally, u64), ReadError> {
        let map_bytes = Bitmap::memory_bytes(self.key_count);
        let slots_max = memory_bytes.saturating_sub(map_bytes) / FINGERPRINT_BYTES;
        let keys_per_part = slots_max * 100 / FINGERPRINT_SLOTS_HUNDREDTHS;
        if keys_per_part < FINGERPRINTS_MIN.min(self.key_count) {
            return Err(ReadError::Memory {
                needed_bytes: map_bytes + 2 * FINGERPRINTS_MIN * FINGERPRINT_BYTES,
                allowed_bytes: memory_bytes,
            });
        }
        let part_count = self.key_count.div_ceil(keys_per_part);
        let per_part = self.key_count.div_ceil(part_count);
        let slot_count = (per_part * FINGERPRINT_SLOTS_HUNDREDTHS / 100 + 1024).min(slots_max);
        let needed_bytes = map_bytes + slot_count * FINGERPRINT_BYTES;
        if !memory::is_there(needed_bytes) {
            return Err(ReadError::NoMemory { needed_bytes });
        }
        let mut set = FingerprintSet::new(slot_count as usize);
        let (mut removed, mut tally) = (Bitmap::new(self.key_count), Tally::default());
        for part in 0..part_count {
            set.clear();
            let phase = Phase { name: "find duplicates", pass: part + 1, pass_count: part_count };
            self.mark_part(part, part_count, phase, &mut set, &mut removed, &mut tally, watch)?;
        }
        let found = self.key_count - tally.key_count;
        self.removed = Some(removed);
        tally.examples = self.first_examples()?;
        Ok((tally, found))
    }

    #[expect(clippy::too_many_arguments, reason = "the state of one loop")]
    fn mark_part(
        &self,
        part: u64,
        part_count: u64,
        phase: Phase,
        set: &mut FingerprintSet,
        removed: &mut Bitmap,
        tally: &mut Tally,
        watch: &mut dyn Watch,
    ) -> Result<(), ReadError> {
        let mut ordinal = 0;
        let mut outcome = Ok(());
        self.for_each_window(|window| {
            for key in window.iter() {
                let fingerprint = fingerprint(key);
                if part_of(fingerprint, part_count) == part {
                    match set.insert(fingerprint) {
                        Ok(true) => tally.add(key),
                        Ok(false) => removed.set(ordinal),
                        Err(distinct::Full) => {
                            outcome = Err(ReadError::Malformed {
                                place: Place::Key(ordinal + 1),
                                reason: "the fingerprints of these keys collide: somebody may \
                                         have chosen the keys"
                                    .to_owned(),
                            });
                            return ControlFlow::Break(());
                        }
                    }
                }
                ordinal += 1;
            }
            outcome = tell(watch, phase, ordinal, Some(self.key_count), 0);
            if outcome.is_err() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        outcome
    }

    fn first_examples(&self) -> Result<Vec<String>, ReadError> {
        let mut tally = Tally::default();
        self.for_each_window(|window| {
            window.iter().take(8).for_each(|key| tally.add(key));
            ControlFlow::Break(())
        })?;
        Ok(tally.examples)
    }

    fn for_each_window(
        &self,
        mut visit: impl FnMut(KeySlice<'_>) -> ControlFlow<()> + Send,
    ) -> Result<(), ReadError> {
        let mut pass = StreamPass { stream: self, input: self.source.open()?, ordinal: 0 };
        let (mut current, mut next) = (KeyBatch::default(), KeyBatch::default());
        let mut has_more = pass.fill(&mut current)?;
        loop {
            let (flow, filled) = rayon::join(
                || visit(current.slice(0..current.len())),
                || if has_more { pass.fill(&mut next).map(Some) } else { Ok(None) },
            );
            if flow.is_break() {
                return Ok(());
            }
            match filled? {
                Some(more) => has_more = more,
                None => break,
            }
            std::mem::swap(&mut current, &mut next);
        }
        if pass.ordinal != self.key_count {
            let reason = format!(
                "it changed while it was measured: {} keys, {} before",
                pass.ordinal, self.key_count
            );
            return Err(ReadError::Malformed { place: Place::Whole, reason });
        }
        Ok(())
    }
}

/// One pass over a stream.
struct StreamPass<'a> {
    stream: &'a Stream<'a>,
    input: Box<dyn KeyInput + Send + 'a>,
    ordinal: u64,
}

impl StreamPass<'_> {
    /// Fills `batch` with the next keys, without those to skip.
    fn fill(&mut self, batch: &mut KeyBatch) -> Result<bool, ReadError> {
        batch.clear();
        let has_more = self.input.read_batch(batch)?;
        let first = self.ordinal;
        self.ordinal += batch.len() as u64;
        if let Some(removed) = &self.stream.removed {
            batch.retain(|index| !removed.has(first + index as u64));
        }
        Ok(has_more)
    }
}
