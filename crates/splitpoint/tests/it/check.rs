//! A check counts each damaged place once, and its consequences separately.
//!
//! The stores here have every kind of record. These tests parse their files without the engine:
//! where each record is, what it replaced, whether it is live.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use splitpoint::check::{CheckReport, CheckStage};
use splitpoint::{Create, Db, Durability, Error, ErrorKind, Options, Sharing, SimDisk};

use crate::support::{Rng, changes, closed_as_large, is_slow, rounds, seed, tiny_with_whole_log};

const LIVE: usize = 8192;
const LINE: usize = 64;
const ENOSPC: i32 = 28;

/// A record of the log, as the bytes of the file have it.
#[derive(Clone, Copy, Debug)]
struct Entry {
    at: usize,
    bytes: usize,
    kind: u8,
    prev: Option<usize>,
    is_in_batch: bool,
    /// Where the record is that a slot names: this one, or the big one that it names.
    target: usize,
}

const DELETE: u8 = 2;
const COMMIT: u8 = 3;
const LINK: u8 = 5;
const BIG_PUT: u8 = 7;

impl Entry {
    fn range(&self) -> Range<usize> {
        self.at..self.at + self.bytes
    }
}

/// A closed store and the contents of its file.
struct Sample {
    bytes: Vec<u8>,
    /// Records of the log, in its order.
    log: Vec<Entry>,
    /// Log segments, in their order, with where their records end.
    segments: Vec<Range<usize>>,
    /// Segments of big records.
    bigs: Vec<Range<usize>>,
    /// Places of the slots in use, with what they hold.
    slots: BTreeMap<usize, u64>,
}

impl Sample {
    /// Creates a store in several sessions, with many segments, overwrites, deletes, big records,
    /// and batches of which some were not committed.
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let options = options();
        let disk = SimDisk::new();
        for _ in 0..3 {
            let db = disk.open(&options).expect("it opens");
            for _ in 0..120 {
                change(&disk, &db, &mut rng);
            }
            for key in [b"big", b"new"] {
                db.put(key, &rng.bytes(1500)).expect("nothing fails");
            }
            db.delete(b"new").expect("nothing fails");
            db.close().expect("nothing fails");
        }
        let sample = Self::read(closed_as_large(disk.file()));
        assert!(check(&sample.bytes).is_clean());
        let has = |kind| sample.log.iter().any(|entry| entry.kind == kind);
        assert!([DELETE, COMMIT, LINK, BIG_PUT].into_iter().all(has) && sample.segments.len() > 4);
        sample
    }

    /// Reads the file of a closed store.
    fn read(bytes: Vec<u8>) -> Self {
        let mut sample = Self {
            bytes,
            log: Vec::new(),
            segments: Vec::new(),
            bigs: Vec::new(),
            slots: BTreeMap::new(),
        };
        let newest = if sample.word(16) > sample.word(4096 + 16) { 0 } else { 4096 };
        let end = sample.word(LIVE + 192 + 64 * (sample.word(LIVE + 128) & 1) + 24);
        let (mut segment, mut at) = (sample.word(newest + 112), sample.word(newest + 136));
        while at != end {
            let entry = sample.entry(at);
            at += entry.bytes;
            sample.log.push(entry);
            let (value, key) = (at - 16, entry.kind);
            if key == LINK {
                sample.segments.push(segment..at);
                segment = sample.word(value);
                at = segment + 64;
            } else if key == BIG_PUT {
                let big = sample.word(value);
                let end = big + 64 + sample.entry(big + 64).bytes;
                sample.bigs.push(big..end);
            }
        }
        sample.segments.push(segment..end);
        sample.read_slots();
        sample
    }

    fn read_slots(&mut self) {
        let bucket_count = self.word(LIVE + 64) & 0x1_ffff_ffff;
        let pieces = (0..self.word(LIVE + 416)).map(|i| self.word(LIVE + 1024 + 8 * i) * 4096);
        let buckets = pieces.flat_map(|piece| (piece..piece + 4096).step_by(LINE));
        let mut lines: Vec<usize> = buckets.take(bucket_count).collect();
        let pieces = (0..self.word(LIVE + 424)).map(|i| self.word(LIVE + 2560 + 8 * i) * 4096);
        let overflow: Vec<usize> =
            pieces.flat_map(|piece| (piece..piece + 4096).step_by(LINE)).collect();
        let mut next = 0;
        while let Some(&line) = lines.get(next) {
            next += 1;
            let following = self.word(line + 56) & 0xffff_ffff;
            lines.extend((following != 0).then(|| overflow[following - 1]));
        }
        for place in lines.iter().flat_map(|line| (*line..line + 56).step_by(8)) {
            let slot = self.word(place) as u64;
            if slot != 0 {
                self.slots.insert(place, slot);
            }
        }
    }

    fn word(&self, at: usize) -> usize {
        word(&self.bytes, at)
    }

    fn entry(&self, at: usize) -> Entry {
        let flags = self.bytes[at + 4];
        let is = |bit: u8| flags >> bit & 1 == 1;
        let mut next = at + 8;
        let mut take = || {
            next += 8;
            self.word(next - 8)
        };
        let prev = is(4).then(|| take() * 8);
        let salt = is(5).then(&mut take);
        let short = (usize::from(self.bytes[at + 5]), self.word(at) >> 48);
        let (key, value) = if is(7) { (take(), take()) } else { short };
        let kind = flags & 0xf;
        assert_eq!(salt.is_some(), kind == BIG_PUT, "the record of a big one names its salt");
        let target = if kind == BIG_PUT { self.word(next) + 64 } else { at };
        let bytes = (next + key + value).next_multiple_of(8) - at;
        Entry { at, bytes, kind, prev, is_in_batch: is(6), target }
    }

    fn is_named(&self, at: usize) -> bool {
        self.slots.values().any(|slot| address_of(*slot) == at)
    }

    /// Returns the consequences of losing a record: the slots that name it, and the records that
    /// look live.
    fn follows(&self, entry: &Entry) -> (u64, u64) {
        let is_counted = !entry.is_in_batch || self.is_committed(entry);
        let has_prev = is_counted && entry.prev.is_some();
        (u64::from(self.is_named(entry.target)), u64::from(has_prev))
    }

    /// Returns whether the COMMIT behind the record of a batch counts it. Records of a failed batch
    /// may come before.
    fn is_committed(&self, entry: &Entry) -> bool {
        let behind = self.log.iter().skip_while(|other| other.at != entry.at);
        let behind: Vec<&Entry> = behind.filter(|other| other.kind != LINK).collect();
        let commit = behind.iter().position(|other| !other.is_in_batch);
        commit.is_some_and(|i| behind[i].kind == COMMIT && i <= self.word(behind[i].at + 8))
    }
}

/// Checks a file that may be damaged.
fn check(bytes: &[u8]) -> CheckReport {
    let disk = SimDisk::with_file(bytes);
    let db = disk.open(&options().create(Create::Never).read_only()).expect("it opens");
    let report = db.check().expect("a check reads only");
    assert!(disk.file() == bytes, "the check changed the file");
    assert!(report.damage_count < 1000 && report.damages.len() as u64 == report.damage_count);
    report
}

fn options() -> Options {
    tiny_with_whole_log().fill_factor(3.0).durability(Durability::Buffered)
}

fn word(bytes: &[u8], at: usize) -> usize {
    let word = bytes[at..at + 8].try_into().expect("8 bytes");
    usize::try_from(u64::from_le_bytes(word)).expect("64 bits")
}

/// Returns where the record is that a slot names.
fn address_of(slot: u64) -> usize {
    usize::try_from(slot & 0xff_ffff_ffff).expect("40 bits") * 8
}

/// Makes a change of any kind.
fn change(disk: &SimDisk, db: &Db, rng: &mut Rng) {
    let key = [rng.below(70) as u8];
    let value_bytes = if rng.below(25) == 0 { 1500 } else { rng.index(120) };
    match rng.below(10) {
        0 | 1 => drop(db.delete(&key).expect("nothing fails")),
        2 => {
            let value = vec![7; rng.index(60)];
            let keys: Vec<[u8; 1]> = (0..2 + rng.below(5)).map(|_| [rng.below(70) as u8]).collect();
            let change_of = |(i, key): (usize, &'_ [u8; 1])| match i % 3 {
                2 => (key.to_vec(), None),
                _ => (key.to_vec(), Some(value.clone())),
            };
            let batch: Vec<_> = keys.iter().enumerate().map(change_of).collect();
            if rng.below(3) == 0 {
                disk.fail_call(1, ENOSPC, false);
            }
            let _ = db.apply(&changes(&batch));
            disk.fail_call(u64::MAX, ENOSPC, false);
        }
        _ => db.put(&key, &rng.bytes(value_bytes)).expect("nothing fails"),
    }
}

/// Returns the bytes of `sample` with one bit of each of `places` flipped.
fn flipped(sample: &Sample, places: impl IntoIterator<Item = usize>) -> Vec<u8> {
    let mut bytes = sample.bytes.clone();
    for place in places {
        bytes[place] ^= 1 << (place % 8);
    }
    bytes
}

/// Damages every byte of every record, live or dead, and of every segment header. Each is one
/// damage with its place, the slot that names the record, and the older version that it replaced;
/// not a hundred thousand.
#[test]
fn a_check_that_waits_for_a_turn_says_for_whom_and_can_be_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.spt");
    let writer = Options::new().sharing(Sharing::Shared).open(&path).unwrap();
    writer.put("key", "value").unwrap();
    let is_told = Arc::new(AtomicBool::new(false));
    let (told, stopped) = (is_told.clone(), is_told.clone());
    let reader = Options::new()
        .read_only()
        .lock_timeout(Duration::from_secs(20))
        .on_wait(move |holders| told.store(!holders.is_empty(), Ordering::SeqCst))
        .stop_waiting(move || stopped.load(Ordering::SeqCst));
    let reader = reader.open(&path).unwrap();
    writer
        .update("key", |_| {
            assert_eq!(reader.check().unwrap_err().kind(), ErrorKind::Locked);
            Some("new value")
        })
        .unwrap();
    assert!(is_told.load(Ordering::SeqCst));
}

#[test]
fn a_flipped_bit_anywhere_in_the_log_is_one_damage() {
    let sample = Sample::new(seed());
    let step = if is_slow() { 1 } else { 3 };
    for entry in &sample.log {
        for place in entry.range().step_by(step) {
            let report = check(&flipped(&sample, [place]));
            assert_eq!(report.damage_count, 1, "byte {place} of {entry:?}: {report:?}");
            let offset = report.damages[0].offset as usize;
            assert!(entry.range().contains(&offset), "byte {place} of {entry:?}: {report:?}");
            let found = (report.lost_slot_count, report.slotless_count);
            assert_eq!(found, sample.follows(entry), "byte {place} of {entry:?}: {report:?}");
        }
    }
    for segment in &sample.segments {
        for place in segment.start..segment.start + 64 {
            let report = check(&flipped(&sample, [place]));
            assert_eq!(report.damage_count, 1, "byte {place} of a header: {report:?}");
            let offset = report.damages[0].offset as usize;
            assert!((segment.start..segment.start + 64).contains(&offset), "{report:?}");
            assert_eq!((report.lost_slot_count, report.slotless_count), (0, 0), "{report:?}");
        }
    }
}

#[test]
fn a_damaged_big_record_is_one_damage_and_the_slot_that_names_it_follows() {
    let sample = Sample::new(seed());
    let mut named_count = 0;
    for big in &sample.bigs {
        let is_counted = sample.log.iter().any(|entry| {
            entry.target == big.start + 64 && (!entry.is_in_batch || sample.is_committed(entry))
        });
        let is_named = u64::from(sample.is_named(big.start + 64));
        named_count += is_named;
        for place in big.clone().step_by(37).chain(big.start..big.start + 80) {
            let report = check(&flipped(&sample, [place]));
            assert_eq!(report.damage_count, u64::from(is_counted), "{place} of {big:?}");
            assert_eq!(report.lost_slot_count, is_named, "{place} of {big:?}: {report:?}");
            assert_eq!(report.slotless_count, 0, "{place} of {big:?}: {report:?}");
        }
    }
    assert!(named_count > 0 && named_count < sample.bigs.len() as u64);
}

/// The record that names a live big record is lost, and the big record is damaged as well: two
/// places.
#[test]
fn a_big_record_behind_a_lost_name_is_verified_too() {
    let sample = Sample::new(seed());
    let is_live = |entry: &&Entry| entry.kind == BIG_PUT && sample.is_named(entry.target);
    let naming = sample.log.iter().find(is_live).expect("one is live");
    let report = check(&flipped(&sample, [naming.at + 16, naming.target + 200]));
    assert_eq!((report.damage_count, report.lost_slot_count), (2, 1), "{report:?}");
}

/// Damages several records that do not follow each other: as many damages as records.
#[test]
fn damage_in_many_places_is_as_many_damages() {
    for round in 0..rounds(60, 2000) {
        let mut rng = Rng::new(seed() ^ (round << 20));
        let sample = Sample::new(seed() ^ (round % 5));
        let (mut hit, mut places) = (BTreeSet::new(), Vec::new());
        for _ in 0..=rng.below(20) {
            let i = rng.index(sample.log.len());
            let is_beside = hit.contains(&(i + 1)) || i > 0 && hit.contains(&(i - 1));
            // A LINK and the header behind it: another test.
            if is_beside || sample.log[i].kind == LINK || !hit.insert(i) {
                continue;
            }
            let entry = sample.log[i];
            places.extend((0..=rng.below(4)).map(|_| entry.at + rng.index(entry.bytes)));
        }
        for segment in &sample.segments[1..] {
            if rng.below(4) == 0 {
                places.push(segment.start + rng.index(64));
                // What follows a header is one place with it.
                let first = sample.log.iter().position(|entry| entry.at == segment.start + 64);
                if first.is_none_or(|first| !hit.contains(&first)) {
                    hit.insert(usize::MAX - segment.start);
                }
            }
        }
        places.sort_unstable();
        places.dedup();
        let report = check(&flipped(&sample, places.iter().copied()));
        assert_eq!(report.damage_count, hit.len() as u64, "{places:?}: {report:?}");
        let offsets: BTreeSet<u64> = report.damages.iter().map(|damage| damage.offset).collect();
        assert_eq!(offsets.len(), hit.len(), "each is told once: {report:?}");
    }
}

/// Damages a LINK and the header that it names: the segment is lost, and all segments after it are
/// read.
#[test]
fn a_lost_segment_does_not_hide_those_behind_it() {
    let sample = Sample::new(seed());
    let count = sample.segments.len();
    for lost in 1..count {
        let link = sample.segments[lost - 1].end - 8;
        let header = sample.segments[lost].start + 24;
        let report = check(&flipped(&sample, [link, header]));
        assert_eq!(report.damage_count, 2, "segment {lost} of {count}: {report:?}");
        let is_in = |at: usize| sample.segments[lost].contains(&at);
        let of_segment = |entry: &&Entry| is_in(entry.at) && sample.is_named(entry.target);
        let expected = sample.log.iter().filter(of_segment).count() as u64;
        assert_eq!(report.lost_slot_count, expected, "segment {lost} of {count}: {report:?}");
    }
}

#[test]
fn an_overwritten_segment_is_one_damage_and_two_are_two() {
    let sample = Sample::new(seed());
    let count = sample.segments.len();
    for fill in [0, 0xff] {
        for first in 0..count {
            let mut bytes = sample.bytes.clone();
            bytes[sample.segments[first].clone()].fill(fill);
            let report = check(&bytes);
            assert_eq!(report.damage_count, 1, "segment {first} of {count}: {report:?}");
            let Some(second) = sample.segments.get(first + 1) else { continue };
            bytes[second.clone()].fill(fill);
            let report = check(&bytes);
            assert_eq!(report.damage_count, 2, "segments from {first} of {count}: {report:?}");
        }
    }
}

/// Returns the file with each kind of damage of the index, with a name. Each is one damage.
fn index_damages(sample: &Sample, place: usize) -> Vec<(&'static str, Vec<u8>)> {
    let slot = sample.slots[&place];
    let with = |place: usize, slot: u64| {
        let mut bytes = sample.bytes.clone();
        bytes[place..place + 8].copy_from_slice(&slot.to_le_bytes());
        bytes
    };
    let line = place / LINE * LINE;
    let hole = (line..line + 56).step_by(8).find(|place| !sample.slots.contains_key(place));
    let mut damages = vec![
        ("a wrong address", with(place, slot ^ 1 << 3)),
        ("an address outside the file", with(place, slot ^ 1 << 39)),
        ("a wrong tag", with(place, slot ^ 1 << 50)),
        ("a slot of zeros", with(place, 0)),
        ("a slot of ones", with(place, u64::MAX)),
    ];
    damages.extend(hole.map(|hole| ("a slot twice", with(hole, slot))));
    damages
}

#[test]
fn a_damaged_slot_is_one_damage() {
    let sample = Sample::new(seed());
    for &place in sample.slots.keys() {
        for (what, bytes) in index_damages(&sample, place) {
            let report = check(&bytes);
            assert_eq!(report.damage_count, 1, "{what} at {place}: {report:?}");
            // A key without a slot is named by its record.
            let offset = report.damages[0].offset as usize;
            let record = address_of(sample.slots[&place]);
            assert!(offset / LINE == place / LINE || offset == record, "{what}: {report:?}");
        }
    }
}

/// Damage of the log explains its consequences and nothing else: damage of the index is reported
/// beside it.
#[test]
fn damage_of_the_index_is_not_taken_for_what_follows_from_that_of_the_log() {
    let sample = Sample::new(seed());
    let mut rng = Rng::new(seed());
    let places: Vec<usize> = sample.slots.keys().copied().collect();
    for entry in &sample.log {
        let place = places[rng.index(places.len())];
        let named = address_of(sample.slots[&place]);
        // The slot of the record itself, or of what it replaced, does not tell the two apart.
        if entry.kind == LINK || named == entry.target || is_beside(&sample, entry, place) {
            continue;
        }
        for (what, mut bytes) in index_damages(&sample, place) {
            bytes[entry.at + 6] ^= 4;
            let report = check(&bytes);
            assert_eq!(report.damage_count, 2, "{what} at {place} and {entry:?}: {report:?}");
        }
    }
}

/// Returns whether the slot at `place` is in a line with one of the key of `entry`, or of a batch
/// that is in doubt with it.
fn is_beside(sample: &Sample, entry: &Entry, place: usize) -> bool {
    let Some(at) = sample.log.iter().position(|other| other.at == entry.at) else { return true };
    let is_of_batch = |other: &&Entry| other.is_in_batch || other.kind == LINK;
    let before = sample.log[..at].iter().rev().take_while(is_of_batch);
    let behind = sample.log[at + 1..].iter().take_while(is_of_batch);
    let mut versions: BTreeSet<usize> = before.chain(behind).map(|other| other.target).collect();
    versions.insert(entry.target);
    for other in &sample.log {
        if other.prev.is_some_and(|prev| versions.contains(&prev)) {
            versions.insert(other.target);
        }
    }
    let line = place / LINE;
    let slots = sample.slots.iter().filter(|(place, _)| *place / LINE == line);
    slots.into_iter().any(|(_, slot)| versions.contains(&address_of(*slot)))
}

/// A killed process left a wrong count in the live header, which no checksum covers.
#[test]
fn a_wrong_count_is_one_damage_with_and_without_damage_of_the_log() {
    let disk = SimDisk::new();
    let db = disk.open(&options()).expect("it opens");
    for i in 0..100_u8 {
        db.put(&[i], &[i; 40]).expect("there is room");
    }
    // Otherwise the next open reads the log up to the damage, and trusts no count.
    db.sync().expect("nothing fails");
    let mut bytes = disk.file();
    let count_at = LIVE + 192 + 64 * (word(&bytes, LIVE + 128) & 1);
    assert_eq!(word(&bytes, count_at), 100);
    bytes[count_at] += 3;
    let check_left = |bytes: &[u8]| {
        let disk = SimDisk::with_file(bytes);
        let db = disk.open(&options().create(Create::Never)).expect("it opens");
        db.check().expect("a check reads only")
    };
    let report = check_left(&bytes);
    assert_eq!((report.damage_count, report.damages[0].what), (1, "record count"));
    let record = (0..bytes.len()).find(|&at| bytes[at..].starts_with(&[7; 40]));
    bytes[record.expect("it was stored") + 3] ^= 1;
    let report = check_left(&bytes);
    let what: Vec<&str> = report.damages.iter().map(|damage| damage.what).collect();
    assert_eq!(what, ["record checksum", "record count"]);
}

#[test]
fn a_check_tells_how_far_it_is_and_can_be_stopped() {
    let db = Db::in_memory().expect("memory");
    for i in 0..60_000_u32 {
        db.put(&i.to_le_bytes(), &[7; 20]).expect("there is room");
    }
    db.put(b"big", &vec![1; 5 << 20]).expect("there is room");
    let mut told = Vec::new();
    let report = db.check_with(|progress| {
        told.push(progress);
        ControlFlow::Continue(())
    });
    assert!(report.expect("nobody stops it").is_clean());
    for stage in [CheckStage::Log, CheckStage::Index] {
        let of_stage: Vec<_> = told.iter().filter(|progress| progress.stage == stage).collect();
        let last = of_stage.last().expect("each stage is told");
        assert!(of_stage.len() > 1 && of_stage.is_sorted_by_key(|progress| progress.bytes));
        assert_eq!(last.bytes, last.bytes_total, "{stage:?}");
    }
    assert!(told.is_sorted_by_key(|progress| progress.stage == CheckStage::Index));
    for count in [0, 1, told.len() - 1] {
        let mut left = count;
        let stopped = db.check_with(|_| {
            left = left.wrapping_sub(1);
            if left == usize::MAX { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        let error = stopped.expect_err("it was stopped");
        let Error::Io { source, .. } = &error else { panic!("{error:?}") };
        assert_eq!(source.kind(), std::io::ErrorKind::Interrupted, "{error}");
    }
    db.put(b"key", b"the lock was given up").expect("there is room");
}
