//! Scans: they return every key of a store with its value, in the order of the file.
//!
//! A scan walks the segments that there are when it begins, up to where records were appended then,
//! and asks the index for each record whether to return it. It never visits buckets in order, so
//! splits and merges do not affect it.
//!
//! It returns the record that was the current version of its key when the scan began: on the chain
//! of `prev` from the key's slot, the first record that is not younger than the scan. Exactly one
//! record of a key satisfies that, so the scan returns each key once.
//!
//! A [`Horizon`] keeps the segments. A record that compaction moves meanwhile names the one that it
//! was.
//!
//! Where damaged headers hide segments, the scan walks along the log and ends at the damage.

mod hash_order;

pub use hash_order::Cursor;

use std::ops::Range;

use crate::error::{Error, Result};
use crate::format::Addr;
use crate::horizons::Horizon;
use crate::index::lookup::{find, is_held};
use crate::log::record::Pair;
use crate::log::runs::{self, RunWalk, Runs};
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
    /// Where the records are that were there when the scan began.
    runs: Runs,
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
    /// The segments.
    Runs(RunWalk<'db>),
    /// The log, from its start to where it ended: of a store whose segments cannot be found.
    Log(LogWalk<'db>),
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

/// A record that the scan returns if the index says that it is current.
#[derive(Clone, Copy, Debug)]
struct Candidate<'db> {
    addr: Addr,
    hash: u64,
    pair: Pair<'db>,
}

impl<'db> Scan<'db> {
    /// Begins a scan while the caller holds the writer's lock.
    pub(crate) fn new(store: &'db Store, writer: &mut Writer) -> Result<Self> {
        let view = &store.region.view;
        let found = writer.find_segments();
        let runs = writer.runs().unwrap_or_default();
        let walk = match found {
            Ok(()) => Some(Walk::Runs(RunWalk::new(view, runs.clone()))),
            Err(Error::Corrupt { .. }) if !writer.superblock.is_compacted => {
                let (start, end) = (writer.superblock.log_start, writer.log.position());
                LogWalk::new(view, start, Trust::Published, end.lsn)?.map(Walk::Log)
            }
            Err(error) => return Err(error),
        };
        let pins = store.region.pins.bunch();
        let horizon = store.horizons.open();
        let ahead = Vec::with_capacity(READ_AHEAD);
        Ok(Self { store, walk, runs, pins, _horizon: horizon, ahead, next: 0 })
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
        let Some(newest) = newest else { return Ok(false) };
        Ok(self.version_at_begin(newest)? == Some(record.addr))
    }

    /// Returns the record of a key that was current when the scan began, if it had one: `newest` or
    /// one before it.
    pub(crate) fn version_at_begin(&self, newest: Addr) -> Result<Option<Addr>> {
        let mut version = newest;
        while self.is_younger(version) {
            let prev = self.store.region.view.version(version)?.header.prev;
            let Some(prev) = prev else { return Ok(None) };
            version = prev;
        }
        Ok(Some(version))
    }

    /// Returns where the records are that were there when the scan began.
    pub(crate) fn runs(&self) -> &[Range<u64>] {
        &self.runs
    }

    /// Returns the next record to return.
    #[inline]
    pub(crate) fn next_current(&mut self) -> Result<Option<(Addr, Pair<'db>)>> {
        loop {
            if self.next == self.ahead.len() {
                let read = self.read_ahead();
                if read.is_err() {
                    self.end();
                }
                read?;
            }
            let Some(record) = self.ahead.get(self.next).copied() else { return Ok(None) };
            self.next += 1;
            match self.is_current(&record) {
                Ok(true) => return Ok(Some((record.addr, record.pair))),
                Ok(false) => {}
                Err(error) => {
                    self.end();
                    return Err(error);
                }
            }
        }
    }

    /// Ends the scan after an error.
    #[cold]
    fn end(&mut self) {
        self.walk = None;
        self.ahead.clear();
        self.next = 0;
    }

    /// Returns whether a record was appended after the scan began.
    fn is_younger(&self, addr: Addr) -> bool {
        !runs::contains(&self.runs, addr.offset())
    }
}

impl<'db> Iterator for Scan<'db> {
    type Item = Result<Entry<'db>>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let (_, Pair { key, value }) = match self.next_current().transpose()? {
            Ok(current) => current,
            Err(error) => return Some(Err(error)),
        };
        let mut pinned = |bytes| Value::pinned(bytes, self.pins.take());
        let (key, value) = (pinned(key), pinned(value));
        Some(Ok(Entry { key, value }))
    }
}

impl std::iter::FusedIterator for Scan<'_> {}
