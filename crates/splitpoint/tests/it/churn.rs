//! A snapshot that is kept while ten times what the store holds is overwritten: by the handle that
//! overwrites, and by another process.

use std::path::Path;

use splitpoint::{Db, ErrorKind, Options, Sharing, Snapshot};

use crate::processes::{Process, say, value_of};
use crate::support::{Content, HANG, Rng, assert_sound, seed};

const KEYS: u64 = 1_000;
/// What a file may have for each live byte, as long as nobody looks back.
const USUAL_BY_LIVE: u64 = 4;
/// What may wait for a checkpoint anyway, however small the store is.
const WAITING_BYTES_MIN: u64 = 2 << 20;

fn options() -> Options {
    Options::new()
        .segment_bytes_min(4096)
        .checkpoint_bytes_min(32 << 10)
        .poison_freed()
        .lock_timeout(HANG)
}

fn content_at(version: u64) -> Content {
    (0..KEYS).map(|key| (key.to_le_bytes().to_vec(), value_of(key, version))).collect()
}

/// Overwrites random keys until that is as many bytes as are live; returns the bytes that the file has then.
fn churn(db: &Db, rng: &mut Rng) -> u64 {
    let live_bytes = db.stats().expect("it is sound").live_bytes;
    let mut overwritten_bytes = 0;
    while overwritten_bytes < live_bytes {
        let key = rng.below(KEYS);
        let value = value_of(key, rng.below(1_000));
        overwritten_bytes += value.len() as u64;
        db.put(key.to_le_bytes(), value).expect("it is written");
    }
    settle(db);
    db.stats().expect("it is sound").file_bytes
}

/// Does what else a thread does in the background, at a time of its own.
fn settle(db: &Db) {
    match db.maintain(256 << 10) {
        Err(error) if error.kind() == ErrorKind::Unsupported => db.sync().expect("it is synced"),
        done => drop(done.expect("it is sound")),
    }
}

/// Returns whether a snapshot shows the first version of all keys; `false` if it is too old.
fn is_kept(snapshot: &Snapshot<'_>) -> bool {
    let found: splitpoint::Result<Content> = snapshot.scan().and_then(|scan| {
        scan.map(|entry| entry.map(|entry| (entry.key.to_vec(), entry.value.to_vec()))).collect()
    });
    match found {
        Ok(found) => {
            assert!(found == content_at(0), "{} keys", found.len());
            for (key, value) in &found {
                assert_eq!(snapshot.get(key).expect("it is kept").expect("a key"), &value[..]);
            }
            true
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::SnapshotTooOld, "{error}");
            let error = snapshot.get(1_u64.to_le_bytes()).expect_err("the scan was refused");
            assert_eq!(error.kind(), ErrorKind::SnapshotTooOld, "{error}");
            false
        }
    }
}

/// What a process does that keeps a snapshot, which may hold back so many bytes.
pub(crate) fn keep(path: &Path, bytes_max: u64) {
    let db = Options::new().read_only().max_snapshot_pin(bytes_max).open(path).expect("it opens");
    let snapshot = db.snapshot().expect("there is a place");
    say("kept");
    let mut line = String::new();
    while std::io::stdin().read_line(&mut line).expect("the parent lives") > 0 {
        say(if is_kept(&snapshot) { "it is exact" } else { "it is too old" });
    }
}

/// Who keeps the snapshot.
enum Keeper<'db> {
    Own(Snapshot<'db>),
    Other(Process),
}

impl<'db> Keeper<'db> {
    fn new(is_own: bool, db: &'db Db, path: &Path, bytes_max: u64) -> Self {
        if is_own {
            return Self::Own(db.snapshot().unwrap());
        }
        let mut other = Process::start("keep", path, bytes_max);
        assert!(other.says("kept"), "it was to keep a snapshot");
        Self::Other(other)
    }

    fn is_kept(&mut self) -> bool {
        match self {
            Self::Own(snapshot) => is_kept(snapshot),
            Self::Other(process) => {
                process.tell();
                process.says_which(&["it is exact", "it is too old"]) == 0
            }
        }
    }
}

/// Makes ten times the bytes of a store die beside a snapshot of it that may hold back so many, and checks
/// that the file is no larger than that and what it has without one. Returns whether it is kept to the end.
fn churn_beside_a_snapshot(sharing: Sharing, is_own: bool, bytes_max: u64) -> bool {
    let what = format!("{sharing:?}, own: {is_own}, {bytes_max}");
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.spt");
    let mut rng = Rng::new(seed());
    let db = options().sharing(sharing).max_snapshot_pin(bytes_max).open(&path).unwrap();
    db.put_many(&content_at(0)).unwrap();
    let usual_bytes = USUAL_BY_LIVE * db.stats().unwrap().live_bytes + WAITING_BYTES_MIN;
    let mut keeper = Keeper::new(is_own, &db, &path, bytes_max);
    let mut is_kept = true;
    for times in 1..=10 {
        let bytes = churn(&db, &mut rng);
        assert!(bytes <= bytes_max + usual_bytes, "{what}: {bytes} bytes after {times} times");
        let is_still_kept = keeper.is_kept();
        assert!(is_kept || !is_still_kept, "{what}: what is given up does not come back");
        is_kept = is_still_kept;
    }
    drop(keeper);
    // A few rounds of looks at those who look back, each of which frees some.
    let is_free = (0..10).any(|_| {
        churn(&db, &mut rng);
        db.stats().unwrap().segments.waiting <= usual_bytes
    });
    assert!(is_free, "{what}: {:?}", db.stats().unwrap());
    assert_sound(&db);
    is_kept
}

fn assert_kept(is_kept: bool, bytes_max: u64) {
    for sharing in [Sharing::OneWriter, Sharing::Shared] {
        for is_own in [true, false] {
            let what = format!("{sharing:?}, own: {is_own}, {bytes_max}");
            assert_eq!(churn_beside_a_snapshot(sharing, is_own, bytes_max), is_kept, "{what}");
        }
    }
}

#[test]
fn a_snapshot_within_its_bound_is_exact_beside_ten_times_its_bytes_of_changes() {
    assert_kept(true, 64 << 20);
}

#[test]
fn a_snapshot_beyond_its_bound_is_given_up_and_the_file_stays_within_it() {
    assert_kept(false, 400_000);
}
