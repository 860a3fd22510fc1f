//! What is saved of a store that was compacted: its log does not have all.
//!
//! | source | when | what may be wrong |
//! |---|---|---|
//! | the index, or the checkpoint and the log after it | the file opens for reading, and has as many slots as keys | nothing: what is damaged is lost and told |
//! | every valid record, the newest of each key | else | deleted keys may be back, and values be older than the last |
//!
//! How old a record is, the second source knows of those in the log by their log sequence number, and of
//! those that compaction moved by the RELOCATE record that names them. Where that is gone, a copy is
//! taken to be as young as it may be: as the log when the next such segment was begun. A tombstone
//! deletes only the version that it names, so that no key is lost whose order is not known. A record of
//! a batch counts, whether or not it was committed.

use std::collections::BTreeMap;

use super::bigs::{OwnedPair, read_big, verify_big};
use super::reader::Reader;
use super::report::RepairReport;
use super::segments::Headers;
use super::{hash_of_store, options_of, read_superblocks};
use crate::db::Db;
use crate::error::Result;
use crate::format::{Addr, SegmentHeader, Superblock, u64_at};
use crate::hash::HashFunction;
use crate::index::Lines;
use crate::index::lookup::{for_each_line, is_held};
use crate::index::shape::Shape;
use crate::linear::BucketIndex;
use crate::log::record::{Record, RecordKind};
use crate::log::relocation::Relocation;
use crate::log::resync::{Powers, decode_at, records_of, scan};
use crate::log::runs::run_at;
use crate::log::segment::Segment;
use crate::options::{Create, Options, Sharing};
use crate::recovery::open_file;
use crate::store::Store;

/// Bytes of records between two reports of progress.
const BYTES_PER_REPORT: u64 = 2 << 20;

/// A damaged store that was compacted.
pub(super) struct Compacted {
    superblock: Option<Superblock>,
    superblock_count: u32,
    hash: Option<HashFunction>,
    headers: Headers,
}

/// A record that may be saved, or a tombstone.
struct Candidate {
    /// How young it is.
    rank: u64,
    offset: u64,
    /// The number of its segment.
    segment: u32,
}

/// Where pairs are: their offsets and their segments.
type Places = Vec<(u64, u32)>;

impl Compacted {
    /// Returns the store, if it is a compacted one.
    pub(super) fn find(reader: &mut Reader<'_>, options: &Options) -> Result<Option<Self>> {
        let (superblock, superblock_count, _) = read_superblocks(reader)?;
        if superblock.as_ref().is_some_and(|superblock| !superblock.is_compacted) {
            return Ok(None);
        }
        let headers = Headers::find(reader)?;
        if superblock.is_none() && headers.compacted().next().is_none() {
            return Ok(None);
        }
        let hash = superblock.as_ref().and_then(|superblock| hash_of_store(superblock, options));
        Ok(Some(Self { superblock, superblock_count, hash, headers }))
    }

    /// Returns the options of the new store.
    pub(super) fn options(&self, options: &Options) -> Options {
        options_of(self.superblock.as_ref(), self.hash.as_ref(), options)
    }

    /// Stores in `db`, which is empty, what can be saved; `is_file` if the source may be opened.
    pub(super) fn save(
        &self,
        reader: &mut Reader<'_>,
        db: &Db,
        is_file: bool,
    ) -> Result<RepairReport> {
        let mut report = RepairReport {
            file_bytes: reader.file_bytes(),
            superblock_count: self.superblock_count,
            ..RepairReport::default()
        };
        if let (Some(superblock), None) = (&self.superblock, &self.hash) {
            report.replaced_hash = Some(superblock.hash_name.clone());
        }
        // A block that the disk cannot read would end the process, if it were mapped.
        let source = if is_file && reader.unreadable.is_empty() { self.open(reader) } else { None };
        match source {
            Some((store, addrs)) => save_held(reader, &store, &addrs, db, &mut report)?,
            None => self.save_all(reader, db, &mut report)?,
        }
        report.key_count = db.len();
        report.unreadable_count = reader.unreadable.len() as u64;
        Ok(report)
    }

    /// Opens the file for reading, with its own index or one from the checkpoint; returns also what
    /// the slots name.
    fn open(&self, reader: &Reader<'_>) -> Option<(Store, Vec<Addr>)> {
        let mut options =
            Options::new().create(Create::Never).read_only().sharing(Sharing::Exclusive);
        if let Some(hash) = &self.hash {
            options = options.hash(hash.clone());
        }
        [options.clone(), options.rebuild_index()].iter().find_map(|options| {
            let opened = open_file(reader.source.path(), options).ok()?;
            let store = Store::new(opened, options);
            let addrs = held(&store)?;
            store.lock().ok()?.find_segments().ok()?;
            Some((store, addrs))
        })
    }

    /// Stores every valid record, from the oldest to the youngest.
    fn save_all(&self, reader: &mut Reader<'_>, db: &Db, report: &mut RepairReport) -> Result<()> {
        report.is_order_lost = true;
        let segments: Vec<Segment> = self.headers.all().copied().collect();
        let (places, mut order) = self.candidates(reader, &segments, report)?;
        order.sort_unstable_by_key(|candidate| candidate.rank);
        let mut bytes = (u32::MAX, Vec::new());
        let (mut saved_bytes, mut told_bytes) = (0, 0);
        for candidate in order {
            let segment = &segments[candidate.segment as usize];
            if self.headers.is_big(segment) {
                let Some(pair) = read_big(reader, segment) else { continue };
                db.put(&pair.key, &pair.value)?;
                saved_bytes += segment.bytes;
            } else {
                read_segment(reader, segment, candidate.segment, &mut bytes);
                let at = (candidate.offset - segment.offset) as usize;
                let Some(record) = decode_at(&bytes.1, segment.offset, at) else { continue };
                saved_bytes += record.bytes.len() as u64;
                if record.header.kind == RecordKind::Put {
                    db.put(record.key(), record.value())?;
                } else {
                    match self.deleted(reader, &record, &segments, &places) {
                        Some(OwnedPair { key, value })
                            if db.get(&key)?.is_some_and(|last| *last == *value) =>
                        {
                            db.delete(&key)?;
                        }
                        Some(_) => {}
                        None => report.unknown_delete_count += 1,
                    }
                }
            }
            if saved_bytes - told_bytes >= BYTES_PER_REPORT {
                told_bytes = saved_bytes;
                reader.advance("save", db.len(), saved_bytes)?;
            }
        }
        Ok(())
    }

    /// Finds every valid record; returns where the pairs are, by offset, and all that is to be done.
    fn candidates(
        &self,
        reader: &mut Reader<'_>,
        segments: &[Segment],
        report: &mut RepairReport,
    ) -> Result<(Places, Vec<Candidate>)> {
        let (mut places, mut order, mut moved) = (Vec::new(), Vec::new(), BTreeMap::new());
        let (mut powers, mut bytes) = (Powers::new(), Vec::new());
        for (number, segment) in (0_u32..).zip(segments) {
            if self.headers.is_big(segment) {
                if let Some(header) = verify_big(reader, segment) {
                    report.record_count += 1;
                    report.record_bytes += header.record_bytes();
                    let (rank, offset) = (segment.base_lsn, segment.first());
                    places.push((offset, number));
                    order.push(Candidate { rank, offset, segment: number });
                }
                continue;
            }
            let here = segment.end().min(reader.file_bytes()).saturating_sub(segment.offset);
            reader.read(segment.offset, here, &mut bytes);
            let found = scan(&bytes, segment, &mut powers);
            report.segment_count += u64::from(!found.runs.is_empty());
            let records = found.runs.iter().flat_map(|run| records_of(&bytes, segment, run));
            for record in records {
                report.record_count += 1;
                report.record_bytes += record.bytes.len() as u64;
                let (rank, offset) = (segment.lsn_at(record.offset), record.offset);
                match record.header.kind {
                    RecordKind::Put => places.push((offset, number)),
                    RecordKind::Delete => {}
                    RecordKind::Relocate => {
                        if let Ok(relocation) = Relocation::decode(&record) {
                            moved.insert((relocation.salt(), relocation.first()), rank);
                        }
                        continue;
                    }
                    _ => continue,
                }
                order.push(Candidate { rank, offset, segment: number });
            }
            reader.verified_bytes += here;
            reader.advance("verify", 0, reader.verified_bytes)?;
        }
        for candidate in &mut order {
            let segment = &segments[candidate.segment as usize];
            if self.headers.is_compacted(segment) {
                // An earlier segment may have been at the same place.
                let of_segment = (segment.salt, segment.offset)..=(segment.salt, candidate.offset);
                let named = moved.range(of_segment).next_back();
                candidate.rank = named.map_or_else(|| self.rank_of(segment), |(_, &lsn)| lsn);
            }
        }
        places.sort_unstable();
        Ok((places, order))
    }

    /// Returns how young the records of a segment are that compaction moved, as far as its number
    /// tells.
    fn rank_of(&self, segment: &Segment) -> u64 {
        let after = |sequence: u64, segments: &mut dyn Iterator<Item = &Segment>| {
            let later = segments.filter(|other| other.sequence > sequence);
            later.min_by_key(|other| other.sequence).copied()
        };
        let next = after(segment.sequence, &mut self.headers.compacted());
        let log = next.and_then(|next| after(next.sequence, &mut self.headers.logs()));
        log.map_or(u64::MAX, |log| log.base_lsn)
    }

    /// Returns the pair that a tombstone deletes, if the record that it names is still there.
    fn deleted(
        &self,
        reader: &mut Reader<'_>,
        tombstone: &Record<'_>,
        segments: &[Segment],
        places: &[(u64, u32)],
    ) -> Option<OwnedPair> {
        let (hash, superblock) = (self.hash.as_ref()?, self.superblock.as_ref()?);
        let offset = tombstone.header.prev?.offset();
        let place = places.binary_search_by_key(&offset, |place| place.0).ok()?;
        let number = places[place].1;
        let segment = &segments[number as usize];
        let pair = if self.headers.is_big(segment) {
            read_big(reader, segment)?
        } else {
            let mut bytes = (u32::MAX, Vec::new());
            read_segment(reader, segment, number, &mut bytes);
            let at = (offset - segment.offset) as usize;
            let record = decode_at(&bytes.1, segment.offset, at)?;
            OwnedPair { key: record.key().to_vec(), value: record.value().to_vec() }
        };
        let is_whole = tombstone.value().len() == 8;
        let is_named =
            is_whole && hash.hash(&pair.key, superblock.seed) == u64_at(tombstone.value(), 0);
        is_named.then_some(pair)
    }
}

/// Reads a segment, unless `bytes` has it.
fn read_segment(
    reader: &mut Reader<'_>,
    segment: &Segment,
    number: u32,
    bytes: &mut (u32, Vec<u8>),
) {
    if bytes.0 != number {
        let here = segment.end().min(reader.file_bytes()).saturating_sub(segment.offset);
        reader.read(segment.offset, here, &mut bytes.1);
        bytes.0 = number;
    }
}

/// Returns what the slots of a store name, ascending, if they are as many as its keys.
fn held(store: &Store) -> Option<Vec<Addr>> {
    let windows = &store.region.windows;
    let shape = Shape::of_word(windows.shape().load(crate::atomic::Ordering::Acquire));
    let mut addrs = Vec::new();
    for bucket in (0..shape.geometry.bucket_count()).map(BucketIndex) {
        let add = |_, line: &crate::index::line::Line| {
            addrs.extend(line.slots_in_use().map(|(_, slot)| slot.addr()));
        };
        for_each_line(windows, bucket, add).ok()?;
    }
    addrs.sort_unstable_by_key(|addr| addr.0);
    (addrs.len() as u64 == store.region.live().record_count()).then_some(addrs)
}

/// Stores the records at `addrs` that are valid, and notes the others.
fn save_held(
    reader: &mut Reader<'_>,
    store: &Store,
    addrs: &[Addr],
    db: &Db,
    report: &mut RepairReport,
) -> Result<()> {
    let runs = store.lock()?.runs().unwrap_or_default();
    let view = &store.region.view;
    let read = |addr: Addr| {
        let run = run_at(&runs, addr.offset())?;
        let header = view.segment(run.start - SegmentHeader::BYTES).ok()?;
        let record = view.version(addr).ok()?;
        record.verify(header.salt).ok()?;
        let hash = store.hash_of(record.key());
        is_held(&store.region.windows, hash, addr).ok()?.then_some(record)
    };
    (report.is_tail_found, report.is_end_known) = (true, true);
    report.segment_count = runs.len() as u64;
    let mut told_bytes = 0;
    for &addr in addrs {
        let Some(record) = read(addr) else {
            // How long it was is not known.
            report.note(addr.offset(), 8);
            report.missing_bytes += 8;
            continue;
        };
        db.put(record.key(), record.value())?;
        report.record_count += 1;
        report.record_bytes += record.bytes.len() as u64;
        if report.record_bytes - told_bytes >= BYTES_PER_REPORT {
            told_bytes = report.record_bytes;
            reader.advance("save", report.record_count, told_bytes)?;
        }
    }
    Ok(())
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;
    use std::path::Path;

    use crate::format::{LIVE_BYTES, LIVE_OFFSET};
    use crate::repair::{repair, repair_in_memory};
    use crate::{Db, Durability, Options};

    type Model = BTreeMap<Vec<u8>, Vec<u8>>;

    const KEYS: u64 = 150;

    fn value(i: u64, round: u64) -> Vec<u8> {
        let bytes = if i.is_multiple_of(50) { 5000 } else { 40 };
        vec![(i * 7 + round) as u8; bytes]
    }

    /// Makes a compacted store and closes it; returns what it holds.
    fn compacted(path: &Path) -> Model {
        let options = Options::new().durability(Durability::Buffered).seed(7);
        let options = options.segment_bytes_min(4096).checkpoint_bytes_min(8192);
        let db = options.open(path).expect("a new store");
        for round in 0..30 {
            for i in 0..KEYS {
                db.put(i.to_le_bytes(), value(i, round)).expect("there is room");
            }
            db.maintain(u64::MAX).expect("nothing fails");
        }
        for i in (0..KEYS).step_by(9) {
            db.delete(i.to_le_bytes()).expect("nothing fails");
        }
        assert!(db.store().lock().expect("nothing fails").superblock.is_compacted);
        let model = content(&db);
        db.close().expect("nothing fails");
        model
    }

    fn content(db: &Db) -> Model {
        let entries = db.scan().expect("it is sound").map(|entry| entry.expect("it is sound"));
        entries.map(|entry| (entry.key.into_vec(), entry.value.into_vec())).collect()
    }

    #[test]
    fn a_sound_store_is_saved_as_it_is_by_its_index_or_its_checkpoint() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("a.spt");
        let model = compacted(&path);
        for is_live_damaged in [false, true] {
            let saved = dir.path().join(format!("saved-{is_live_damaged}.spt"));
            if is_live_damaged {
                let mut bytes = fs::read(&path).expect("it is there");
                bytes[LIVE_OFFSET as usize..][..LIVE_BYTES as usize].fill(0xff);
                fs::write(&path, bytes).expect("there is room");
            }
            let report = repair(&path, &saved).expect("it is saved");
            assert!(report.is_whole(), "{report:?}");
            assert!(content(&Db::open(&saved).expect("it opens")) == model);
        }
    }

    #[test]
    fn a_damaged_record_costs_its_key_and_no_other() {
        let dir = tempfile::tempdir().expect("a directory");
        let (path, saved) = (dir.path().join("a.spt"), dir.path().join("saved.spt"));
        let mut model = compacted(&path);
        let (key, bytes) = (61_u64.to_le_bytes(), value(61, 29));
        let mut file = fs::read(&path).expect("it is there");
        let pair = [&key[..], &bytes].concat();
        let places = (0..file.len() - pair.len()).filter(|&at| file[at..].starts_with(&pair));
        for at in places.collect::<Vec<_>>() {
            file[at + 20] ^= 1;
        }
        fs::write(&path, file).expect("there is room");
        let report = repair(&path, &saved).expect("it is saved");
        assert_eq!((report.damaged_count, report.is_order_lost), (1, false), "{report:?}");
        model.remove(&key[..]).expect("it was there");
        assert!(content(&Db::open(&saved).expect("it opens")) == model);
    }

    #[test]
    fn without_index_and_checkpoint_every_valid_record_is_saved_and_the_report_says_so() {
        let dir = tempfile::tempdir().expect("a directory");
        let (path, saved) = (dir.path().join("a.spt"), dir.path().join("saved.spt"));
        let model = compacted(&path);
        let mut file = fs::read(&path).expect("it is there");
        // The live header, and the superblocks or not.
        for from in [LIVE_OFFSET as usize, 0] {
            file[from..(LIVE_OFFSET + LIVE_BYTES) as usize].fill(0xff);
            let (db, report) = repair_in_memory(&file, &Options::new()).expect("it is saved");
            assert!(report.is_order_lost && !report.is_whole(), "{report:?}");
            let found = content(&db);
            assert!(model.keys().all(|key| found.contains_key(key)), "a key is lost");
            let right = model.iter().filter(|&(key, value)| found[key] == *value).count();
            println!("{right} of {} values are the last, {} keys", model.len(), found.len());
        }
        fs::write(&path, file).expect("there is room");
        let report = repair(&path, &saved).expect("it is saved");
        assert!(report.is_order_lost, "{report:?}");
        assert!(Db::open(&saved).expect("it opens").check().expect("it is sound").is_clean());
    }

    #[test]
    fn a_repair_of_any_damage_ends_and_saves_only_values_that_were_stored() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("a.spt");
        let _ = compacted(&path);
        let file = fs::read(&path).expect("it is there");
        let step = if std::env::var_os("SPLITPOINT_SLOW").is_some() { 101 } else { 4001 };
        for at in (0..file.len()).step_by(step) {
            let mut damaged = file.clone();
            let end = (at + 700).min(file.len());
            damaged[at..end].fill(at as u8 | 1);
            let saved = repair_in_memory(&damaged, &Options::new());
            let Ok((db, _)) = saved else { continue };
            for (key, found) in content(&db) {
                let i = u64::from_le_bytes(key.try_into().expect("8 bytes"));
                assert!((0..30).any(|round| value(i, round) == found), "byte {at}");
            }
        }
    }
}
