//! What a store must hold, for readers beside its writers and for the next process after a kill.
//!
//! The words are in memory, for the readers, and in a file. Bytes that a process has passed to
//! `write` are in the page cache whatever happens to the process, so a killed process shares that
//! memory with its parent and its successor.
//!
//! Each key has a version, the number of its changes including those in progress. Key and version
//! determine what the change did, so the version says what must be there.

use std::fs::File;
use std::ops::RangeInclusive;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use splitpoint::{Db, Recovery};

use crate::support::{Rng, assert_sound};

/// Keys of a store.
pub(super) const KEYS: u64 = 256;

/// Records that a warm restart applies at most: the copies that a step of compaction made, what names
/// them, and a link.
pub(super) const APPLIED_MAX: u64 = 34;

/// Words before those of the keys.
const HEAD_WORDS: u64 = 20;
/// Bytes of a version and its key at the beginning of a value.
const STAMP_BYTES: usize = 16;

/// Counters and states in the oracle's file.
#[derive(Clone, Copy, Debug)]
pub(super) enum Word {
    /// What the process does: a [`Phase`].
    Phase,
    /// How the store may be opened next: bits of [`way`].
    Ways,
    /// 1 if the store has not been opened since its last process was killed.
    IsLeft,
    /// Opens that have begun.
    OpenBegun,
    /// Opens that have returned.
    Opened,
    /// Closes that have begun.
    CloseBegun,
    /// Changes that were acknowledged.
    Changes,
    /// Calls of `sync` and changes with `Durability::Sync` that have returned.
    Syncs,
    /// Keys that the readers have read.
    Reads,
    /// Scans that the readers have done.
    Scans,
    /// Buckets when the store was last closed or left to be closed.
    Buckets,
    /// Times that there were fewer buckets than the time before.
    Shrinks,
    /// Times that there were more.
    Growths,
    /// Times that a process had made a checkpoint when it came to close.
    Checkpoints,
    /// Opens after a kill that created the store.
    Created,
    /// Opens after a kill that found the store closed.
    Clean,
    /// Opens after a kill that were warm restarts.
    TakenOver,
    /// Opens after a kill that read the log.
    Replayed,
    /// Records that the warm restarts applied.
    Applied,
    /// Times that a process had moved records when it came to close.
    Moves,
}

impl Word {
    /// The counters.
    pub(super) const COUNTERS: [Self; 16] = [
        Self::OpenBegun,
        Self::Opened,
        Self::CloseBegun,
        Self::Changes,
        Self::Syncs,
        Self::Reads,
        Self::Scans,
        Self::Shrinks,
        Self::Growths,
        Self::Checkpoints,
        Self::Created,
        Self::Clean,
        Self::TakenOver,
        Self::Replayed,
        Self::Applied,
        Self::Moves,
    ];
}

/// What a process was doing when it was killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    Starting,
    Opening,
    Rebuilding,
    Working,
    Closing,
}

impl Phase {
    pub(super) const ALL: [Self; 5] =
        [Self::Starting, Self::Opening, Self::Rebuilding, Self::Working, Self::Closing];
}

/// The ways in which a store can be opened.
pub(super) mod way {
    pub(in crate::kill) const CREATED: u64 = 1;
    pub(in crate::kill) const CLEAN: u64 = 2;
    pub(in crate::kill) const TAKEN_OVER: u64 = 4;
    pub(in crate::kill) const REPLAYED: u64 = 8;
}

/// The value that a change stored under a key; `None` for a delete.
///
/// Version 0 is a key that was never changed.
pub(super) fn value_of(key: u64, version: u64) -> Option<Vec<u8>> {
    let mut rng = Rng::new(key << 40 ^ version);
    if version == 0 || rng.below(5) < 2 {
        return None;
    }
    let filler_bytes = [0, 9, 40, 200, 3000][(rng.below(60) / 14) as usize] + rng.index(20);
    let mut value = Vec::with_capacity(STAMP_BYTES + filler_bytes);
    value.extend_from_slice(&version.to_le_bytes());
    value.extend_from_slice(&key.to_le_bytes());
    value.resize(STAMP_BYTES + filler_bytes, rng.next() as u8);
    Some(value)
}

/// Returns the bytes of a key; they differ in length.
pub(super) fn key_bytes(key: u64) -> Vec<u8> {
    let mut bytes = key.to_le_bytes().to_vec();
    bytes.resize(8 + (key % 4) as usize * 11, key as u8);
    bytes
}

/// Returns the one of `versions` of a key that a reader has found.
pub(super) fn version_of(
    key: u64,
    versions: RangeInclusive<u64>,
    found: Option<&[u8]>,
) -> Result<u64, String> {
    let Some(found) = found else {
        return versions
            .clone()
            .rev()
            .find(|&version| value_of(key, version).is_none())
            .ok_or_else(|| format!("key {key} is missing; {versions:?} has no delete"));
    };
    let stamp = found.first_chunk().ok_or_else(|| format!("key {key} has {found:?}"))?;
    let version = u64::from_le_bytes(*stamp);
    if !versions.contains(&version) {
        return Err(format!("key {key} has version {version} and not one of {versions:?}"));
    }
    match value_of(key, version) {
        Some(value) if value == found => Ok(version),
        expected => Err(format!("key {key} has {found:?} and not {expected:?}")),
    }
}

/// The words of one store.
#[derive(Debug)]
pub(super) struct Oracle {
    file: File,
    words: Vec<AtomicU64>,
}

impl Oracle {
    /// Creates the oracle of a store that does not exist yet.
    pub(super) fn create(path: &Path) {
        let bytes = vec![0; 8 * (HEAD_WORDS + 2 * KEYS) as usize];
        std::fs::write(path, bytes).expect("the oracle can be written");
        Self::open(path).set(Word::Ways, way::CREATED);
    }

    /// Reads the oracle as the last process left it.
    pub(super) fn open(path: &Path) -> Self {
        let file = File::options().read(true).write(true).open(path).expect("there is an oracle");
        let mut bytes = vec![0; 8 * (HEAD_WORDS + 2 * KEYS) as usize];
        file.read_exact_at(&mut bytes, 0).expect("the oracle has its size");
        let (words, _) = bytes.as_chunks();
        let words = words.iter().map(|&word| AtomicU64::new(u64::from_le_bytes(word))).collect();
        Self { file, words }
    }

    fn load(&self, index: u64) -> u64 {
        self.words[index as usize].load(Ordering::SeqCst)
    }

    fn store(&self, index: u64, word: u64) {
        self.words[index as usize].store(word, Ordering::SeqCst);
        self.file.write_all_at(&word.to_le_bytes(), 8 * index).expect("the oracle can be written");
    }

    pub(super) fn get(&self, word: Word) -> u64 {
        self.load(word as u64)
    }

    pub(super) fn set(&self, word: Word, value: u64) {
        self.store(word as u64, value);
    }

    /// Adds to a counter that several threads share.
    pub(super) fn add(&self, word: Word, count: u64) {
        let sum = self.words[word as usize].fetch_add(count, Ordering::SeqCst) + count;
        // Another thread may write its sum first; then the file has one of the two.
        self.file.write_all_at(&sum.to_le_bytes(), 8 * word as u64).expect("as above");
    }

    pub(super) fn phase(&self) -> Phase {
        Phase::ALL[self.get(Word::Phase) as usize]
    }

    pub(super) fn enter(&self, phase: Phase) {
        self.set(Word::Phase, phase as u64);
    }

    /// Returns the version up to which changes of a key have returned.
    pub(super) fn acknowledged(&self, key: u64) -> u64 {
        self.load(HEAD_WORDS + 2 * key)
    }

    /// Returns the version up to which they have begun.
    pub(super) fn intended(&self, key: u64) -> u64 {
        self.load(HEAD_WORDS + 2 * key + 1)
    }

    /// Notes that the next change of a key begins, and returns its version.
    pub(super) fn intend(&self, key: u64) -> u64 {
        let version = self.intended(key) + 1;
        self.store(HEAD_WORDS + 2 * key + 1, version);
        version
    }

    /// Notes that the change of a key has returned.
    pub(super) fn acknowledge(&self, key: u64) {
        self.store(HEAD_WORDS + 2 * key, self.intended(key));
    }

    /// Returns the keys with a change in progress.
    pub(super) fn in_flight(&self) -> Vec<u64> {
        (0..KEYS).filter(|&key| self.intended(key) > self.acknowledged(key)).collect()
    }

    /// Returns whether any change has returned that is in the log: the delete of a missing key is
    /// not.
    pub(super) fn has_changes(&self) -> bool {
        let is_put = |key, version| value_of(key, version).is_some();
        (0..KEYS).any(|key| (1..=self.acknowledged(key)).any(|version| is_put(key, version)))
    }

    /// Notes that the store is about to be opened.
    pub(super) fn begin_open(&self, is_rebuild: bool) {
        let ways = self.get(Word::Ways);
        // The superblock of a new store is written last, and says that it is closed.
        let created = if ways & way::CREATED != 0 { way::CLEAN } else { 0 };
        let rebuilt = if is_rebuild { way::REPLAYED | way::TAKEN_OVER } else { 0 };
        self.set(Word::Ways, ways | created | rebuilt);
        self.enter(if is_rebuild { Phase::Rebuilding } else { Phase::Opening });
        self.add(Word::OpenBegun, 1);
    }

    /// Checks how the store was opened, and notes how it may be opened if this process is killed.
    #[track_caller]
    pub(super) fn end_open(&self, recovery: Recovery) {
        let ways = self.get(Word::Ways);
        let (way, counter) = match recovery {
            Recovery::Created => (way::CREATED, Word::Created),
            Recovery::Clean => (way::CLEAN, Word::Clean),
            Recovery::WarmRestart { .. } => (way::TAKEN_OVER, Word::TakenOver),
            Recovery::Replayed { .. } => (way::REPLAYED, Word::Replayed),
            other => panic!("a way in that this test does not know: {other:?}"),
        };
        assert!(way & ways != 0, "{recovery:?} is none of the ways {ways:#06b}");
        if let Recovery::WarmRestart { records } = recovery {
            assert!(records <= APPLIED_MAX, "{records} records were applied");
            self.add(Word::Applied, records);
        }
        self.add(counter, self.get(Word::IsLeft));
        self.set(Word::IsLeft, 0);
        let next = match way {
            way::CREATED | way::CLEAN => way::CLEAN,
            // An index built from no record has no boot id.
            way::REPLAYED if !self.has_changes() => way::REPLAYED | way::TAKEN_OVER,
            _ => way::TAKEN_OVER,
        };
        self.set(Word::Ways, next);
        self.enter(Phase::Working);
        self.add(Word::Opened, 1);
    }

    /// Notes that this handle is about to make its first change.
    pub(super) fn begin_changes(&self) {
        let first = if self.has_changes() { 0 } else { way::REPLAYED };
        self.set(Word::Ways, self.get(Word::Ways) | way::TAKEN_OVER | first);
    }

    /// Notes that the store is about to be closed.
    pub(super) fn begin_close(&self, buckets: u64) {
        let before = self.get(Word::Buckets);
        self.add(Word::Growths, u64::from(buckets > before));
        self.add(Word::Shrinks, u64::from(buckets < before));
        self.set(Word::Buckets, buckets);
        self.set(Word::Ways, self.get(Word::Ways) | way::CLEAN);
        self.enter(Phase::Closing);
        self.add(Word::CloseBegun, 1);
    }

    /// Notes that it is closed.
    pub(super) fn end_close(&self) {
        if self.get(Word::Ways) & way::REPLAYED == 0 {
            self.set(Word::Ways, way::CLEAN);
        }
    }

    /// Returns the version of each key that a store shows, which must be one that the oracle
    /// allows, by `get` and by `scan` alike.
    pub(super) fn versions(&self, db: &Db) -> Result<Vec<u64>, String> {
        let failed = |error: splitpoint::Error| error.to_string();
        let mut versions = Vec::new();
        for key in 0..KEYS {
            let allowed = self.acknowledged(key)..=self.intended(key);
            let found = db.get(&key_bytes(key)).map_err(failed)?;
            versions.push(version_of(key, allowed, found.as_deref())?);
        }
        let mut scanned: Vec<Option<Vec<u8>>> = vec![None; KEYS as usize];
        for entry in db.scan().map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let number = entry.key.first_chunk().map_or(u64::MAX, |key| u64::from_le_bytes(*key));
            if number >= KEYS || *entry.key != *key_bytes(number) {
                return Err(format!("a scan returned key {:?}", &entry.key[..]));
            }
            if scanned[number as usize].replace(entry.value.to_vec()).is_some() {
                return Err(format!("a scan returned key {number} twice"));
            }
        }
        for ((key, &version), scanned) in (0..).zip(&versions).zip(scanned) {
            if scanned != value_of(key, version) {
                return Err(format!("a scan returned {scanned:?} for version {version} of {key}"));
            }
        }
        Ok(versions)
    }

    /// Checks a store against the oracle: every change that returned is there, each one in progress
    /// may be, nothing else is. From then on, what was found counts.
    #[track_caller]
    pub(super) fn settle(&self, db: &Db, writer_count: u64) -> Vec<u64> {
        let versions = self.versions(db).unwrap_or_else(|error| panic!("{error}"));
        let is_there = |key: u64| value_of(key, versions[key as usize]).is_some();
        let record_count = (0..KEYS).filter(|&key| is_there(key)).count() as u64;
        assert_eq!(db.len(), record_count);
        assert_sound(db);
        let in_flight = self.in_flight();
        for writer in 0..writer_count {
            // The puts of a batch are in the order of their keys: a prefix of them is there.
            let applied =
                in_flight.iter().filter(|&key| key % writer_count == writer).map(|&key| {
                    let is_put = value_of(key, self.intended(key)).is_some();
                    !is_put || versions[key as usize] == self.intended(key)
                });
            assert!(applied.is_sorted_by(|a, b| a >= b), "the changes of {in_flight:?} in order");
        }
        for key in in_flight {
            let version = versions[key as usize];
            self.store(HEAD_WORDS + 2 * key, version);
            self.store(HEAD_WORDS + 2 * key + 1, version);
        }
        versions
    }
}
