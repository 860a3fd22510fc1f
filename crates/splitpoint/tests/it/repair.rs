//! Repair: saving what a damaged file still holds.
//!
//! Every value in these stores is unique, so the tests know which records a repair has used, and
//! where in the file they are. Whatever is damaged, a saved value was stored under its key,
//! undamaged records are saved, and the report has everything that may be wrong.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::{ControlFlow, Range};

use splitpoint::repair::{RepairReport, repair, repair_with};
use splitpoint::{Change, Create, Db, Durability, ErrorKind, Options, SimDisk};

use crate::support::{
    Content, Rng, bad_hash, changes, content, crc32c, rounds, seed, tiny_with_whole_log, within,
};

/// Offset of the first granule.
const HEADER_BYTES: usize = 16_384;
const ENOSPC: i32 = 28;

/// A store, and everything ever stored in it.
struct Case {
    bytes: Vec<u8>,
    newest: Content,
    /// All values that each key has had, including those that a power loss undid.
    versions: Versions,
    /// Keys of batches that failed.
    failed: BTreeSet<Vec<u8>>,
    options: Options,
}

type Versions = BTreeMap<Vec<u8>, BTreeSet<Vec<u8>>>;

/// Values, and `None` for a delete.
type Batch = Vec<(Vec<u8>, Option<Vec<u8>>)>;

fn random_batch(rng: &mut Rng) -> Batch {
    let change_count = 1 + rng.below(30);
    let mut change = |_| {
        let key = [b"key ".as_slice(), &[rng.below(60) as u8]].concat();
        let value_bytes = 16 + if rng.below(20) == 0 { 1500 } else { rng.index(120) };
        (key, (rng.below(5) > 0).then(|| rng.bytes(value_bytes)))
    };
    (0..change_count).map(&mut change).collect()
}

/// How the sessions of a program end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// By closing.
    Close,
    /// By power losses; the last session is closed.
    PowerLoss,
    /// By killing the process, also at the end.
    Kill,
}

impl Case {
    /// Runs a random program: splits, overwrites, deletes, merges, big records, many segments,
    /// batches of which some fail halfway.
    fn new(seed: u64, ending: Ending) -> Self {
        let mut rng = Rng::new(seed);
        let options = tiny_with_whole_log().fill_factor(3.0).durability(Durability::Buffered);
        let options = if seed % 4 == 3 { options.hash(bad_hash()) } else { options };
        let (mut disk, mut versions) = (SimDisk::new(), Versions::new());
        let mut failed = BTreeSet::new();
        let session_count = 3;
        let mut newest = Content::new();
        for session in 0..session_count {
            let db = disk.open(&options).expect("a store of these tests opens");
            for _ in 0..150 {
                let key = [b"key ".as_slice(), &[rng.below(60) as u8]].concat();
                match rng.below(10) {
                    0..2 => drop(db.delete(&key).expect("nothing fails here")),
                    kind => {
                        let value_bytes = 16 + if kind == 9 { 1500 } else { rng.index(120) };
                        let value = rng.bytes(value_bytes);
                        db.put(&key, &value).expect("nothing fails here");
                        versions.entry(key).or_default().insert(value);
                    }
                }
                if rng.below(25) == 0 {
                    let batch = random_batch(&mut rng);
                    if rng.below(2) == 0 {
                        disk.fail_call(1 + rng.below(3), ENOSPC, false);
                    }
                    if db.apply(&changes(&batch)).is_err() {
                        failed.extend(batch.iter().map(|(key, _)| key.clone()));
                    }
                    disk.fail_call(u64::MAX, ENOSPC, false);
                    for (key, value) in batch {
                        versions.entry(key).or_default().extend(value);
                    }
                }
                if rng.below(60) == 0 {
                    db.sync().expect("nothing fails here");
                }
            }
            // The log does not end with a batch: without the live header it would be unknown
            // whether lost zeros follow.
            db.put(b"last", &rng.bytes(16)).expect("nothing fails here");
            newest = content(&db);
            versions.entry(b"last".to_vec()).or_default().insert(newest[&b"last"[..]].clone());
            let is_last = session + 1 == session_count;
            match ending {
                Ending::Kill => disk = disk.kill(),
                Ending::PowerLoss if !is_last => {
                    let lost = disk.lose_power(rng.next());
                    drop(db);
                    disk = lost;
                }
                _ => drop(db.close().expect("nothing fails here")),
            }
        }
        Self { bytes: disk.file(), newest, versions, failed, options }
    }

    fn repair(&self, bytes: &[u8]) -> (Content, RepairReport) {
        let options = self.options.clone();
        let (db, report) = SimDisk::with_file(bytes).repair(&options).expect("it was a store");
        let saved = content(&db);
        assert_eq!(report.key_count, saved.len() as u64);
        for (key, value) in &saved {
            let is_old = self.versions.get(key).is_some_and(|values| values.contains(value));
            assert!(is_old, "{key:?} never had the value that was saved");
        }
        (saved, report)
    }

    /// Checks what must hold for any damage: a report that says nothing is lost is true.
    #[track_caller]
    fn check_honest(&self, saved: &Content, report: &RepairReport, what: &str) {
        if report.is_whole() && report.is_end_known {
            assert_eq!(saved, &self.newest, "{what}: {report:?}");
        }
        let came_back = saved.keys().filter(|key| !self.newest.contains_key(*key)).count() as u64;
        let is_older = |(key, value): &(&Vec<u8>, &Vec<u8>)| {
            self.newest.get(*key).is_some_and(|newest| newest != *value)
        };
        let older = saved.iter().filter(is_older).count() as u64;
        if report.is_end_known {
            assert!(came_back + older <= report.stale_max(), "{what}: {came_back} {report:?}");
        }
    }

    /// Returns the range of the newest record of a key, with the record that names it if it is big.
    fn places(&self, key: &[u8]) -> Vec<Range<usize>> {
        let value = &self.newest[key];
        let at = find(&self.bytes, value).expect("the value is in the file");
        let record = at - key.len() - 40..at + value.len() + 8;
        if value.len() < 1500 {
            return vec![record];
        }
        // The header of the big segment, and the record that names it.
        let segment = at / 4096 * 4096;
        let naming = naming(&self.bytes, segment);
        vec![segment..record.end, naming - 16..naming + 16]
    }

    /// Returns whether a failed batch changed the key, and damage makes the batch look committed.
    fn is_in_doubt(&self, key: &[u8], report: &RepairReport) -> bool {
        report.doubtful_batched_count > 0 && self.failed.contains(key)
    }

    /// Returns the offsets of the headers of all segments.
    fn segments(&self) -> Vec<usize> {
        let is_segment = |at: &usize| self.bytes[*at..].starts_with(b"SEGM");
        (HEADER_BYTES..self.bytes.len()).step_by(4096).filter(is_segment).collect()
    }
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

/// Returns the range of the value of the record that names the big segment of 4 KiB at `segment`.
fn naming(bytes: &[u8], segment: usize) -> usize {
    let value = [(segment as u64).to_le_bytes(), 4096_u64.to_le_bytes()].concat();
    find(&bytes[HEADER_BYTES..], &value).expect("it is named") + HEADER_BYTES
}

fn overlap(a: &Range<usize>, b: &Range<usize>) -> bool {
    a.start < b.end && b.start < a.end
}

#[test]
fn what_is_not_damaged_is_saved_whole() {
    for seed in seed()..seed() + rounds(20, 400) {
        for ending in [Ending::Close, Ending::PowerLoss, Ending::Kill] {
            let case = Case::new(seed, ending);
            let (saved, report) = case.repair(&case.bytes);
            assert!(saved == case.newest, "seed {seed}, {ending:?}: {report:?}");
            assert!(
                report.is_whole() && report.is_end_known,
                "seed {seed}, {ending:?}: {report:?}"
            );
            let superblock_count = if ending == Ending::Kill { 2..=2 } else { 1..=2 };
            assert!(superblock_count.contains(&report.superblock_count));
        }
    }
}

/// The log alone leads to every record: superblocks and live tables may hold anything.
#[test]
fn without_superblocks_live_header_or_index_nothing_is_lost() {
    for seed in seed()..seed() + rounds(4, 100) {
        for ending in [Ending::Close, Ending::PowerLoss, Ending::Kill] {
            let case = Case::new(seed, ending);
            for range in [0..4096, 4096..8192, 0..8192, 8192..12_288, 0..12_288, 0..HEADER_BYTES] {
                for fill in [0, 0x5a] {
                    let mut damaged = case.bytes.clone();
                    damaged[range.clone()].fill(fill);
                    let (saved, report) = case.repair(&damaged);
                    let what = format!("seed {seed}, {ending:?}, {range:?} {fill}: {report:?}");
                    assert!(saved == case.newest, "{what}");
                    assert!(report.is_whole(), "{what}");
                    assert_eq!(report.is_end_known, range.end <= 8192, "{what}");
                    let is_default = report.superblock_count == 0;
                    assert_eq!(is_default, range.start == 0 && range.end > 4096, "{what}");
                }
            }
        }
    }
}

/// Damages each segment header in turn, with the superblocks and without: the LINK before it is
/// enough.
#[test]
fn a_lost_segment_header_loses_nothing_but_a_big_record() {
    for seed in seed()..seed() + rounds(3, 40) {
        let case = Case::new(seed, Ending::Close);
        for has_superblocks in [true, false] {
            for (i, at) in case.segments().into_iter().enumerate() {
                let mut damaged = case.bytes.clone();
                damaged[at..at + 64].fill(0xa5);
                if !has_superblocks {
                    damaged[..8192].fill(0);
                }
                let (saved, report) = case.repair(&damaged);
                let what = format!("seed {seed}, segment {i} at {at}: {report:?}");
                case.check_honest(&saved, &report, &what);
                let is_big = case.bytes[at + 4] == 3;
                let is_first = i == 0;
                if is_big {
                    assert_eq!(report.lost_big_count, 1, "{what}");
                    assert!(saved.len() + 1 >= case.newest.len(), "{what}");
                } else if !is_first || has_superblocks {
                    assert!(report.is_whole(), "{what}");
                    assert!(saved == case.newest, "{what}");
                } else {
                    assert!(!report.is_whole(), "{what}");
                }
            }
        }
    }
}

/// Damages each sector in turn: every key whose newest record is elsewhere is saved with that
/// record.
#[test]
fn a_lost_sector_loses_only_what_is_in_it() {
    let seed = seed();
    for (seed, ending) in
        [(seed, Ending::Close), (seed + 1, Ending::PowerLoss), (seed + 3, Ending::Kill)]
    {
        let case = Case::new(seed, ending);
        let mut rng = Rng::new(seed);
        let places: Vec<(&Vec<u8>, Vec<Range<usize>>)> =
            case.newest.keys().map(|key| (key, case.places(key))).collect();
        for fill in 0..rounds(2, 3) {
            for at in (HEADER_BYTES..case.bytes.len()).step_by(512) {
                let sector = at..at + 512;
                let mut damaged = case.bytes.clone();
                match fill {
                    0 => damaged[sector.clone()].fill(0),
                    1 => damaged[sector.clone()].copy_from_slice(&rng.bytes(512)),
                    _ => damaged[at + rng.index(512)] ^= 1,
                }
                let (saved, report) = case.repair(&damaged);
                let what = format!("seed {seed}, {ending:?}, fill {fill}, sector at {at}");
                case.check_honest(&saved, &report, &what);
                for (key, places) in &places {
                    let is_hit = places.iter().any(|place| overlap(place, &sector));
                    if !is_hit && !case.is_in_doubt(key, &report) {
                        let newest = case.newest.get(*key);
                        assert!(saved.get(*key) == newest, "{what}: {key:?} {report:?}");
                    }
                }
            }
        }
    }
}

/// Damages several places at random, cuts the file, and combines both. Nothing may panic or loop,
/// and the report must be true.
#[test]
fn random_damage_is_told() {
    let seed = seed();
    let cases: Vec<Case> = [Ending::Close, Ending::PowerLoss, Ending::Kill]
        .into_iter()
        .map(|ending| Case::new(seed, ending))
        .collect();
    within("random damage", move || {
        let mut rng = Rng::new(seed);
        for round in 0..rounds(700, 60_000) {
            let case = &cases[rng.index(cases.len())];
            let mut damaged = case.bytes.clone();
            for _ in 0..=rng.index(5) {
                let at = rng.index(damaged.len());
                let most = [8, 600, 9000][rng.index(3)];
                let end = (at + 1 + rng.index(most)).min(damaged.len());
                match rng.below(3) {
                    0 => damaged[at / 512 * 512..end].fill(0),
                    1 => damaged[at] ^= 1 << rng.below(8),
                    _ => {
                        let garbage = rng.bytes(end - at);
                        damaged[at..end].copy_from_slice(&garbage);
                    }
                }
            }
            if rng.below(4) == 0 {
                damaged.truncate(rng.index(damaged.len()));
            }
            let Ok(_) = SimDisk::with_file(&damaged).repair(&case.options) else {
                assert!(damaged.len() <= HEADER_BYTES, "round {round}: it was a store");
                continue;
            };
            let (saved, report) = case.repair(&damaged);
            case.check_honest(&saved, &report, &format!("seed {seed}, round {round}"));
        }
    });
}

/// Cuts a store at many lengths: the part before the cut is saved, and the loss is reported.
#[test]
fn a_cut_file_gives_what_lies_before_the_cut() {
    let case = Case::new(seed(), Ending::Close);
    let places: Vec<(&Vec<u8>, Vec<Range<usize>>)> =
        case.newest.keys().map(|key| (key, case.places(key))).collect();
    for len in (0..case.bytes.len()).step_by(311) {
        let cut = &case.bytes[..len];
        if len < 8 {
            let error = SimDisk::with_file(cut).repair(&case.options).expect_err("too short");
            assert_eq!(error.kind(), ErrorKind::NotAStore);
            continue;
        }
        let (saved, report) = case.repair(cut);
        assert!(saved == case.newest || !report.is_whole(), "{len}: {report:?}");
        case.check_honest(&saved, &report, &format!("length {len}"));
        for (key, places) in &places {
            let is_before = places.iter().all(|place| place.end <= len);
            if is_before && !case.is_in_doubt(key, &report) {
                assert!(saved.contains_key(*key), "{len}: {key:?} {report:?}");
            }
        }
    }
}

/// Writes headers, links and records with valid checksums and malicious contents: loops, giant
/// lengths, overlapping segments. The work stays within the size of the file.
#[test]
fn a_file_made_to_harm_is_read_in_time() {
    let case = Case::new(seed(), Ending::Close);
    let seed = seed();
    within("hostile files", move || {
        let mut rng = Rng::new(seed);
        let segments = case.segments();
        for round in 0..rounds(300, 20_000) {
            let mut bytes = case.bytes.clone();
            for _ in 0..=rng.index(4) {
                let at = segments[rng.index(segments.len())];
                let other = segments[rng.index(segments.len())] as u64;
                let (field, word) = match rng.below(6) {
                    0 => (8, rng.below(40)),
                    1 => (16, 4096 << rng.below(40)),
                    2 => (24, rng.below(1 << 20) / 8 * 8),
                    3 => (24, (1 << 62) - 8 * rng.below(3)),
                    4 => (32, other),
                    _ => (
                        40,
                        u64::from_le_bytes(*bytes[other as usize + 40..].first_chunk().unwrap()),
                    ),
                };
                bytes[at + field..at + field + 8].copy_from_slice(&word.to_le_bytes());
                let crc = crc32c(&bytes[at..at + 60]);
                bytes[at + 60..at + 64].copy_from_slice(&crc.to_le_bytes());
            }
            if rng.below(2) == 0 {
                bytes[..8192].fill(0);
            }
            let repaired = SimDisk::with_file(&bytes).repair(&case.options);
            assert!(repaired.is_ok(), "round {round}: {repaired:?}");
        }
        // A header on each granule, each with the largest size that it may have.
        for kind in [1, 3] {
            let mut bytes = vec![0x11; 8 << 20];
            for at in (HEADER_BYTES..bytes.len()).step_by(4096) {
                let aligned = 1_u64 << at.trailing_zeros().min(21);
                let size = if kind == 1 { aligned } else { (bytes.len() - at) as u64 };
                let mut header = [0; 64];
                header[..5].copy_from_slice(&[b'S', b'E', b'G', b'M', kind]);
                header[16..24].copy_from_slice(&size.to_le_bytes());
                let crc = crc32c(&header[..60]);
                header[60..].copy_from_slice(&crc.to_le_bytes());
                bytes[at..at + 64].copy_from_slice(&header);
            }
            let (_, report) = SimDisk::with_file(&bytes).repair(&Options::new()).unwrap();
            assert_eq!(report.key_count, 0);
        }
    });
}

#[test]
fn the_damaged_file_is_not_touched_and_the_new_one_is_a_store() {
    let dir = tempfile::tempdir().unwrap();
    let (source, target) = (dir.path().join("damaged.spt"), dir.path().join("saved.spt"));
    let case = Case::new(seed(), Ending::Close);
    let mut damaged = case.bytes.clone();
    damaged[4096..12_288].fill(0xee);
    fs::write(&source, &damaged).unwrap();
    let mut permissions = fs::metadata(&source).unwrap().permissions();
    permissions.set_readonly(true);
    fs::set_permissions(&source, permissions).unwrap();
    let before = fs::metadata(&source).unwrap();
    let report = repair(&source, &target).unwrap();
    let after = fs::metadata(&source).unwrap();
    assert!(fs::read(&source).unwrap() == damaged, "the file was changed");
    assert_eq!(before.modified().unwrap(), after.modified().unwrap());
    assert_eq!(before.len(), after.len());
    assert!(report.is_whole() && report.superblock_count == 1, "{report:?}");
    let db = Options::new().create(Create::Never).open(&target).unwrap();
    crate::support::assert_content(&db, &case.newest);
    let names = fs::read_dir(dir.path()).unwrap().count();
    assert_eq!(names, 2, "something else was left");
}

#[test]
fn a_repair_that_cannot_be_done_leaves_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let (source, target) = (dir.path().join("damaged.spt"), dir.path().join("saved.spt"));
    let is_alone = || fs::read_dir(dir.path()).unwrap().count() == 1;
    for (bytes, found) in
        [(&b""[..], "an empty file"), (b"#!/bin/sh\n", "text"), (&vec![0xff; 70_000], "other data")]
    {
        fs::write(&source, bytes).unwrap();
        let error = repair(&source, &target).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotAStore, "{error}");
        assert!(error.to_string().contains(found), "{error}");
        assert!(is_alone());
    }
    let case = Case::new(seed(), Ending::Close);
    fs::write(&source, &case.bytes).unwrap();
    assert_eq!(repair(&source, &source).unwrap_err().kind(), ErrorKind::Exists);
    let missing = dir.path().join("none.spt");
    assert_eq!(repair(&missing, &target).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(repair(dir.path(), &target).unwrap_err().kind(), ErrorKind::NotAStore);

    for phase in ["search", "verify", "save"] {
        let watch = |progress: splitpoint::repair::RepairProgress| {
            assert!(progress.bytes <= progress.bytes_total);
            if progress.phase == phase { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let error = repair_with(&source, &target, &Options::new(), watch).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io, "{phase}: {error}");
        assert!(is_alone(), "{phase}");
    }
    let db = case.options.open(&source).unwrap();
    let error = repair(&source, &target).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Locked, "{error}");
    drop(db);
    assert!(is_alone());
}

/// Later passes over the log report nothing: they find what was replaced, and save what was not.
/// They still ask whether to go on, and the file exists before all of them.
#[test]
fn a_repair_asks_in_every_pass_whether_to_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let (source, target) = (dir.path().join("damaged.spt"), dir.path().join("saved.spt"));
    let partial = dir.path().join("saved.spt.repair-in-progress");
    let case = Case::new(seed(), Ending::Close);
    fs::write(&source, &case.bytes).unwrap();
    let mut told = Vec::new();
    let report = repair_with(&source, &target, &Options::new(), |progress| {
        assert!(partial.exists());
        told.push((progress.phase, progress.bytes));
        ControlFlow::Continue(())
    });
    let report = report.unwrap();
    assert!(report.segment_count > 1, "{report:?}");
    assert_eq!(told[0], ("search", 0));
    let verified = told.iter().rfind(|(phase, _)| *phase == "verify").expect("a phase");
    let asked_count = told.iter().filter(|asked| *asked == verified).count() as u64;
    assert!(asked_count > report.segment_count, "{asked_count} times, {report:?}");
}

/// The repaired store keeps the parameters, as far as a superblock has them.
#[test]
fn the_new_store_has_the_hash_function_and_the_fill_factor_of_the_old_one() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let options = Options::new().hash(bad_hash()).fill_factor(2.5);
    let db = options.open(at("old")).unwrap();
    db.put(b"key", b"value").unwrap();
    db.close().unwrap();

    let keep = |_| ControlFlow::Continue(());
    let report =
        repair_with(at("old"), at("same"), &Options::new().hash(bad_hash()), keep).unwrap();
    assert_eq!(report.replaced_hash, None);
    let stats = options.open(at("same")).unwrap().stats().unwrap();
    assert_eq!((stats.hash_name.as_str(), stats.fill_factor), ("few-bits", 2.5));

    let report = repair(at("old"), at("other")).unwrap();
    assert_eq!(report.replaced_hash.as_deref(), Some("few-bits"));
    let db = Db::open(at("other")).unwrap();
    assert_eq!(db.get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
    assert_eq!(db.stats().unwrap().hash_name, "rapidhash-v3");
}

/// A deleted key whose record is damaged, and so is the way from the tombstone to it: the hash in
/// the tombstone still says that the key is gone, if the function is good enough.
#[test]
fn a_delete_is_known_by_its_hash_when_its_record_is_lost() {
    for (options, is_known) in
        [(tiny_with_whole_log(), true), (tiny_with_whole_log().hash(bad_hash()), false)]
    {
        let disk = SimDisk::new();
        let db = disk.open(&options).unwrap();
        db.put(b"key", b"the first value").unwrap();
        db.put(b"key", b"the second value").unwrap();
        db.delete(b"key").unwrap();
        db.put(b"other", b"value").unwrap();
        db.close().unwrap();
        let mut bytes = disk.file();
        let at = find(&bytes, b"the second value").unwrap();
        bytes[at] ^= 1;
        let (db, report) = SimDisk::with_file(&bytes).repair(&options).unwrap();
        assert_eq!(db.contains(b"key").unwrap(), !is_known);
        assert!(db.contains(b"other").unwrap());
        assert_eq!(report.unknown_delete_count, u64::from(!is_known));
        assert!(!report.is_whole() && report.damaged_count == 1, "{report:?}");
    }
}

/// The record that names a big one is damaged: the big one is saved in its place, marked as
/// doubtful.
#[test]
fn a_big_record_that_nothing_names_is_saved_in_doubt() {
    let disk = SimDisk::new();
    let db = disk.open(&tiny_with_whole_log()).unwrap();
    let (older, newer) = (vec![1; 2000], vec![2; 2000]);
    db.put(b"key", &older).unwrap();
    db.put(b"key", &newer).unwrap();
    db.close().unwrap();
    let bytes = disk.file();
    for (value, kept) in [(&older, &newer), (&newer, &newer)] {
        let segment = find(&bytes, value).unwrap() / 4096 * 4096;
        let mut damaged = bytes.clone();
        damaged[naming(&bytes, segment)] ^= 1;
        let (db, report) = SimDisk::with_file(&damaged).repair(&tiny_with_whole_log()).unwrap();
        assert_eq!(db.get(b"key").unwrap().as_deref(), Some(&kept[..]));
        assert_eq!((report.doubtful_count, report.lost_big_count), (1, 0), "{report:?}");
    }
}

/// Fails each call to the storage in turn during a batch: repair finds what an open finds, whatever
/// follows the uncommitted records, and wherever else there is damage.
#[test]
fn a_batch_that_was_not_committed_is_not_saved() {
    let mut uncommitted_max = 0;
    for call in 1.. {
        let disk = SimDisk::new();
        let options = tiny_with_whole_log().durability(Durability::Buffered);
        let db = disk.open(&options).unwrap();
        for key in 0..40_u8 {
            db.put(&[key], b"an old value").unwrap();
        }
        let mut rng = Rng::new(8);
        let values: Vec<Vec<u8>> = (0..60).map(|i| rng.bytes(100 + i % 7 * 400)).collect();
        let batch: Batch = (0..60_u8)
            .map(|key| (vec![key], (key % 5 > 0).then(|| values[usize::from(key)].clone())))
            .collect();
        let before = content(&db);
        disk.fail_call(call, ENOSPC, false);
        let call_count = disk.call_count();
        let applied = db.apply(&changes(&batch));
        if disk.call_count() < call_count + call {
            assert!(applied.is_ok());
            break;
        }
        let expected = if applied.is_ok() { content(&db) } else { before };
        assert_eq!(content(&db), expected);
        let killed = disk.kill().file();
        db.put(b"behind", b"the batch").unwrap();
        let followed = disk.kill().file();
        db.close().unwrap();
        for (file, is_followed) in [(killed, false), (followed, true), (disk.file(), true)] {
            let mut expected = expected.clone();
            if is_followed {
                expected.insert(b"behind".to_vec(), b"the batch".to_vec());
            }
            let (saved, report) = SimDisk::with_file(&file).repair(&options).unwrap();
            assert!(content(&saved) == expected, "call {call}: {report:?}");
            // A partly written LINK is a gap.
            assert!(report.is_whole() || !is_followed, "call {call}: {report:?}");
            assert!(report.is_end_known, "call {call}: {report:?}");
            assert!(applied.is_err() || report.uncommitted_count == 0, "call {call}: {report:?}");
            uncommitted_max = uncommitted_max.max(report.uncommitted_count);

            let mut damaged = file.clone();
            let at = find(&file, b"an old value").unwrap();
            damaged[at] ^= 1;
            expected.remove(&[0_u8][..]);
            let (saved, report) = SimDisk::with_file(&damaged).repair(&options).unwrap();
            let mut found = content(&saved);
            found.remove(&[0_u8][..]);
            assert!(found == expected, "call {call}: {report:?}");
            assert_eq!(report.doubtful_batched_count, 0, "call {call}: {report:?}");
        }
    }
    assert!(uncommitted_max > 10, "at most {uncommitted_max} records had no COMMIT");
}

/// Damages each record of a batch in turn, including its COMMIT: the others are saved, marked as
/// doubtful.
#[test]
fn what_damage_leaves_of_a_batch_is_saved_in_doubt() {
    for is_followed in [false, true] {
        let disk = SimDisk::new();
        let db = disk.open(&tiny_with_whole_log()).unwrap();
        db.put(b"changed", b"the old value").unwrap();
        db.put(b"deleted", b"a value to go").unwrap();
        db.apply(&[
            Change::Put { key: b"new", value: b"the first" },
            Change::Delete { key: b"deleted" },
            Change::Put { key: b"changed", value: b"the last" },
        ])
        .unwrap();
        if is_followed {
            db.put(b"behind", b"the batch").unwrap();
        }
        db.close().unwrap();
        let bytes = disk.file();
        let (saved, report) = SimDisk::with_file(&bytes).repair(&tiny_with_whole_log()).unwrap();
        assert_eq!(content(&saved), content(&disk.open(&tiny_with_whole_log()).unwrap()));
        assert!(report.is_whole() && report.uncommitted_count == 0, "{report:?}");

        // Its kind, no key, 16 bytes of value, of which the first 8 are the count.
        let commit = find(&bytes, &[3, 0, 16, 0, 3, 0, 0, 0, 0, 0, 0, 0]).unwrap();
        let [first, last] = [&b"the first"[..], b"the last"].map(|it| find(&bytes, it).unwrap());
        for (damage, doubtful_count, new, changed) in [
            (first, 2, None, &b"the last"[..]),
            (last, 2, Some(&b"the first"[..]), b"the old value"),
            (commit, 3, Some(b"the first"), b"the last"),
        ] {
            let mut damaged = bytes.clone();
            damaged[damage] ^= 1;
            let (saved, report) =
                SimDisk::with_file(&damaged).repair(&tiny_with_whole_log()).unwrap();
            assert_eq!(report.doubtful_batched_count, doubtful_count, "{report:?}");
            assert_eq!((report.uncommitted_count, report.is_whole()), (0, false), "{report:?}");
            assert!(report.stale_max() >= doubtful_count, "{report:?}");
            assert_eq!(saved.get(b"new").unwrap().as_deref(), new);
            assert_eq!(saved.get(b"changed").unwrap().as_deref(), Some(changed));
            assert!(!saved.contains(b"deleted").unwrap());
            assert_eq!(saved.contains(b"behind").unwrap(), is_followed);
        }
    }
}

/// The end of the log is damaged, so a COMMIT may have been there.
#[test]
fn a_batch_before_a_damaged_end_is_in_doubt() {
    let disk = SimDisk::new();
    let db = disk.open(&tiny_with_whole_log()).unwrap();
    db.apply(&[Change::Put { key: b"a", value: b"1" }, Change::Put { key: b"b", value: b"2" }])
        .unwrap();
    db.close().unwrap();
    let bytes = disk.file();
    let commit = find(&bytes, &[3, 0, 16, 0, 2, 0, 0, 0, 0, 0, 0, 0]).unwrap() - 4;
    // Zeros, the end of the file, and zeros without the live header.
    let mut zeros = bytes.clone();
    zeros[commit..].fill(0);
    let mut headless = zeros.clone();
    headless[8192..12_288].fill(0xff);
    let is_border = commit.is_multiple_of(512);
    for (damaged, is_sure) in
        [(&zeros, false), (&bytes[..commit].to_vec(), false), (&headless, !is_border)]
    {
        let (saved, report) = SimDisk::with_file(damaged).repair(&tiny_with_whole_log()).unwrap();
        let (count, doubtful_count) = if is_sure { (0, 0) } else { (2, 2) };
        assert_eq!((saved.len(), report.doubtful_batched_count), (count, doubtful_count));
        assert_eq!(report.uncommitted_count, 2 - doubtful_count, "{report:?}");
    }
}
