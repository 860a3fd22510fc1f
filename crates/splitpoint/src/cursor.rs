//! Scans: they return every key of a store with its value, in the order of the file.
//!
//! A scan walks the log from its start to the end that the log had when the scan began, and asks
//! the index for each record whether to return it. It never visits buckets in order, so splits and
//! merges do not affect it.
//!
//! It returns the record that was the current version of its key when the scan began: on the chain
//! of `prev` from the key's slot, the first record that is not younger than the scan. Exactly one
//! record of a key satisfies that, so the scan returns each key once.
//!
//! Where space is used again the log has no start: the scan walks the segments that there are when it
//! begins, and a [`Horizon`] keeps them. A record that compaction moves meanwhile names the one that
//! it was.

use crate::error::Result;
use crate::format::Addr;
use crate::horizons::Horizon;
use crate::index::lookup::{find, is_held};
use crate::log::append::LogPosition;
use crate::log::record::Pair;
use crate::log::runs::{self, RunWalk};
use crate::log::scan::{LogWalk, Trust};
use crate::pins::Bunch;
use crate::store::{Store, Writer};
use crate::value::{Entry, Value};

/// Records that a scan reads ahead, so that the cache misses of their buckets overlap.
const READ_AHEAD: usize = 32;

/// Iterator over every key of a [`Db`](crate::Db) with its value; [`Db::scan`](crate::Db::scan)
/// returns it and documents what it guarantees.
///
/// After an error it returns `None`.
#[derive(Debug)]
pub struct Scan<'db> {
    store: &'db Store,
    walk: Option<Walk<'db>>,
    beginning: Beginning,
    /// Pins what the scan reads and what it returns.
    pins: Bunch<'db>,
    /// Keeps the records that it has yet to come to.
    _horizon: Horizon<'db>,
    /// Records read ahead; those from `next` on have not been examined yet.
    ahead: Vec<Candidate<'db>>,
    next: usize,
}

/// What a scan reads.
#[derive(Debug)]
enum Walk<'db> {
    /// The log, from its start to where it ended.
    Log(LogWalk<'db>),
    /// The segments of a table whose space is used again.
    Runs(RunWalk<'db>),
}

impl<'db> Walk<'db> {
    #[inline]
    fn next_pair(&mut self) -> Result<Option<(Addr, Pair<'db>)>> {
        match self {
            Self::Log(walk) => walk.next_pair(),
            Self::Runs(walk) => walk.next_pair(),
        }
    }
}

/// Which records were there when a scan began.
#[derive(Debug)]
enum Beginning {
    /// Those before the end of the log, in the segments that had been opened.
    Log { end: LogPosition, opened_count: usize },
    /// Those in these runs.
    Runs(runs::Runs),
}

/// A record that the scan returns if the index says that it is current.
#[derive(Clone, Copy, Debug)]
struct Candidate<'db> {
    addr: Addr,
    hash: u64,
    pair: Pair<'db>,
}

impl<'db> Scan<'db> {
    /// Begins a scan while the caller holds the writer's lock.
    pub(crate) fn new(store: &'db Store, writer: &Writer) -> Result<Self> {
        let (view, end) = (&store.region.view, writer.log.position());
        let (walk, beginning) = if let Some(runs) = writer.runs() {
            (Some(Walk::Runs(RunWalk::new(view, runs.clone()))), Beginning::Runs(runs))
        } else {
            let start = writer.superblock.log_start;
            let walk = LogWalk::new(view, start, Trust::Published, end.lsn)?;
            let opened_count = store.opened.count();
            (walk.map(Walk::Log), Beginning::Log { end, opened_count })
        };
        let pins = store.region.pins.bunch();
        let horizon = store.horizons.open();
        let ahead = Vec::with_capacity(READ_AHEAD);
        Ok(Self { store, walk, beginning, pins, _horizon: horizon, ahead, next: 0 })
    }

    /// Reads the next records ahead, fewer at the end of the scan and before a damaged one. Damage
    /// is an error only after the scan has returned the records before it.
    fn read_ahead(&mut self) -> Result<()> {
        self.ahead.clear();
        self.next = 0;
        let Some(walk) = &mut self.walk else { return Ok(()) };
        while self.ahead.len() < READ_AHEAD {
            match walk.next_pair() {
                Ok(Some((addr, pair))) => {
                    let hash = self.store.hash_of(pair.key);
                    self.store.prefetch_bucket(hash);
                    self.ahead.push(Candidate { addr, hash, pair });
                }
                Ok(None) => {
                    self.walk = None;
                    break;
                }
                Err(error) if self.ahead.is_empty() => return Err(error),
                Err(_) => break,
            }
        }
        Ok(())
    }

    /// Returns whether a record is the version of its key to return.
    #[inline]
    fn is_current(&self, record: &Candidate<'_>) -> Result<bool> {
        let is_newest = is_held(&self.store.region.windows, record.hash, record.addr)?;
        if is_newest { Ok(true) } else { self.was_current(record) }
    }

    /// Does the same for a record that no slot holds any more.
    #[cold]
    fn was_current(&self, record: &Candidate<'_>) -> Result<bool> {
        let region = &self.store.region;
        let newest = find(&region.windows, record.hash, |addr| {
            Ok((region.view.pair(addr)?.key == record.pair.key).then_some(addr))
        })?;
        let Some(mut version) = newest else { return Ok(false) };
        while self.is_younger(version) {
            let Some(prev) = region.view.version(version)?.header.prev else { return Ok(false) };
            version = prev;
        }
        Ok(version == record.addr)
    }

    /// Returns whether a record was appended after the scan began.
    fn is_younger(&self, addr: Addr) -> bool {
        let offset = addr.offset();
        let (end, opened_count) = match &self.beginning {
            Beginning::Runs(runs) => return !runs::contains(runs, offset),
            Beginning::Log { end, opened_count } => (*end, *opened_count),
        };
        let segment_end = end.segment_offset + crate::format::LOG_SEGMENT_BYTES_MAX;
        let is_in_tail = end.segment_offset != 0
            && (end.offset..segment_end).contains(&offset)
            && self.store.tail_segment_end(end.segment_offset) > offset;
        is_in_tail || self.store.opened.is_after(offset, opened_count)
    }
}

impl<'db> Iterator for Scan<'db> {
    type Item = Result<Entry<'db>>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if self.next == self.ahead.len()
                && let Err(error) = self.read_ahead()
            {
                self.walk = None;
                return Some(Err(error));
            }
            let record = *self.ahead.get(self.next)?;
            self.next += 1;
            match self.is_current(&record) {
                Ok(true) => {
                    let Pair { key, value } = record.pair;
                    let mut pinned = |bytes| Value::pinned(bytes, self.pins.take());
                    let (key, value) = (pinned(key), pinned(value));
                    return Some(Ok(Entry { key, value }));
                }
                Ok(false) => {}
                Err(error) => {
                    self.walk = None;
                    self.ahead.clear();
                    self.next = 0;
                    return Some(Err(error));
                }
            }
        }
    }
}

impl std::iter::FusedIterator for Scan<'_> {}
