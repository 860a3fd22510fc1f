//! Files written by earlier versions: they open and hold what they held.
//!
//! `SPLITPOINT_WRITE_GOLDEN=1 cargo test -p splitpoint --test it golden` writes those of this
//! version, for a change of the format; the old ones stay.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use splitpoint::{Create, Db, Options, Recovery};

type Content = BTreeMap<Vec<u8>, Vec<u8>>;

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

/// Writes the contents of the golden files of version 1: new, replaced and deleted records, records
/// of no bytes, long and big ones, in a table that has split.
fn fill(db: &Db) -> splitpoint::Result<Content> {
    let mut content = Content::new();
    let mut put = |key: &[u8], value: &[u8]| {
        content.insert(key.to_vec(), value.to_vec());
        db.put(key, value)
    };
    for i in 0..200_u32 {
        put(format!("key {i}").as_bytes(), format!("value {}", i * i).as_bytes())?;
    }
    put(b"", b"no key")?;
    put(b"no value", b"")?;
    put(b"nul\0key", b"nul\0value")?;
    put(&[b'k'; 300], &[b'v'; 3])?;
    put(b"big", &vec![b'b'; 20_000])?;
    for i in (0..200_u32).step_by(3) {
        put(format!("key {i}").as_bytes(), b"replaced")?;
    }
    for i in (0..200_u32).step_by(5) {
        let key = format!("key {i}");
        content.remove(key.as_bytes());
        assert!(db.delete(key.as_bytes())?);
    }
    Ok(content)
}

fn expected() -> Content {
    fill(&Db::in_memory().unwrap()).unwrap()
}

/// The changes of the golden files with a checkpoint, behind those of [`fill`]: first big records that
/// are replaced and deleted, then those behind the checkpoint.
fn changes_behind() -> [Vec<(String, Option<Vec<u8>>)>; 2] {
    let bigs = (0..2_u8).flat_map(|round| {
        let value = vec![b'0' + round; 17_000];
        ["big a", "big b", "big c"].map(|key| (key.to_owned(), Some(value.clone())))
    });
    let before = bigs.chain([("big c".to_owned(), None)]).collect();
    let odd = (1..200_u32).step_by(2);
    let after = odd.map(|i| (format!("key {i}"), Some(b"after the checkpoint".to_vec())));
    let after = after.chain([("big b".to_owned(), Some(vec![b'z'; 18_000]))]).collect();
    [before, after]
}

/// Returns the contents after `count` of the changes behind the checkpoint.
fn expected_behind(count: usize) -> Content {
    let mut content = expected();
    let [before, after] = changes_behind();
    for (key, value) in before.into_iter().chain(after.into_iter().take(count)) {
        match value {
            Some(value) => content.insert(key.into_bytes(), value),
            None => content.remove(key.as_bytes()),
        };
    }
    content
}

fn is_asked_to_write() -> bool {
    std::env::var_os("SPLITPOINT_WRITE_GOLDEN").is_some()
}

/// Writes the golden files of a small store on request: one that was closed, and what a power loss in the next
/// session may leave, all but the superblock that says so.
fn write_small_if_asked() {
    if !is_asked_to_write() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("golden.spt");
    let db = Options::new().segment_bytes_min(4096).seed(1991).open(&path).unwrap();
    fill(&db).unwrap();
    db.close().unwrap();
    let closed = std::fs::read(&path).unwrap();
    std::fs::write(golden("v1-small-closed.spt"), &closed).unwrap();
    let db = Db::open(&path).unwrap();
    db.put("key 1", "value 1").unwrap();
    db.sync().unwrap();
    let mut changed = std::fs::read(&path).unwrap();
    changed[..8192].copy_from_slice(&closed[..8192]);
    std::fs::write(golden("v1-small-changed.spt"), changed).unwrap();
}

/// Writes the golden files of this version on request, of a store that was compacted: one closed, one
/// copied from under its writer.
fn write_if_asked() {
    if !is_asked_to_write() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("golden.spt");
    let options = Options::new().segment_bytes_min(4096).checkpoint_bytes_min(4096).seed(1991);
    let db = options.open(&path).unwrap();
    fill(&db).unwrap();
    let [before, after] = changes_behind();
    let apply = |(key, value): &(String, Option<Vec<u8>>)| match value {
        Some(value) => db.put(key, value).unwrap(),
        None => assert!(db.delete(key).unwrap()),
    };
    for _ in 0..3 {
        after.iter().for_each(apply);
        fill(&db).unwrap();
    }
    before.iter().for_each(apply);
    compact(&db);
    after.iter().for_each(apply);
    db.sync().unwrap();
    std::fs::copy(&path, golden("v1-compacted-unclosed.spt")).unwrap();
    db.close().unwrap();
    std::fs::copy(&path, golden("v1-compacted-closed.spt")).unwrap();
}

/// Compacts all there is to compact.
fn compact(db: &Db) {
    for _ in 0..10_000 {
        if db.maintain(1 << 20).unwrap().is_done {
            return;
        }
    }
    panic!("compaction goes on for ever: {:?}", db.stats());
}

fn content_of(db: &Db) -> Content {
    let entries = db.scan().unwrap();
    entries
        .map(|entry| entry.map(|entry| (entry.key.to_vec(), entry.value.to_vec())))
        .collect::<splitpoint::Result<_>>()
        .unwrap()
}

/// Opens a copy of a golden file, changes it, compacts it, and compares its contents each time.
fn check_compacts(name: &str, expected: &Content, is_recovery: fn(Recovery) -> bool) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("copy.spt");
    std::fs::copy(golden(name), &path).unwrap();
    let db = Options::new().read_only().open(&path).unwrap();
    assert!(is_recovery(db.recovery()), "{:?}", db.recovery());
    assert!(content_of(&db) == *expected, "{name}, read only");
    drop(db);

    let mut content = expected.clone();
    let db = Options::new().create(Create::Never).open(&path).unwrap();
    assert!(is_recovery(db.recovery()), "{:?}", db.recovery());
    assert!(content_of(&db) == content, "{name}, to change it");
    for round in 0..40_u32 {
        for i in 0..400 {
            let (key, value) = (format!("key {}", i % 97), format!("{round} {i}"));
            db.put(&key, &value).unwrap();
            content.insert(key.into_bytes(), value.into_bytes());
        }
    }
    assert!(db.delete("big a").unwrap());
    content.remove(&b"big a"[..]);
    compact(&db);
    let stats = db.stats().unwrap();
    assert!(stats.moved_bytes > 0 && stats.segments.segment_table > 0, "{stats:?}");
    assert!(content_of(&db) == content, "{name}, compacted");
    db.close().unwrap();

    let db = Options::new().create(Create::Never).open(&path).unwrap();
    assert_eq!(db.recovery(), Recovery::Clean);
    assert!(content_of(&db) == content, "{name}, opened again");
    let report = db.check().unwrap();
    assert!(report.is_clean(), "{name}: {:?}", report.damages);
    db.put("one more", "record").unwrap();
    assert_eq!(db.len(), content.len() as u64 + 1);
    db.close().unwrap();
}

/// Opens a copy of a golden file for reading and for writing, and compares its contents.
fn check(name: &str, is_recovery: fn(Recovery) -> bool) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("copy.spt");
    std::fs::copy(golden(name), &path).unwrap();
    for options in [Options::new().read_only(), Options::new().create(Create::Never)] {
        let db = options.open(&path).unwrap();
        assert!(is_recovery(db.recovery()), "{:?}", db.recovery());
        let found = content_of(&db);
        assert_eq!(found, expected());
        for (key, value) in &found {
            assert_eq!(db.get(key).unwrap().as_deref(), Some(&value[..]));
        }
        let report = db.check().unwrap();
        assert!(report.is_clean(), "{:?}", report.damages);
    }
    let db = Db::open(&path).unwrap();
    db.put(b"one more", b"record").unwrap();
    assert_eq!(db.len(), expected().len() as u64 + 1);
    db.close().unwrap();
    assert!(Db::open(&path).unwrap().contains(b"one more").unwrap());
}

#[test]
fn golden_v1_closed_opens_as_it_was_closed() {
    check("v1-closed.spt", |recovery| recovery == Recovery::Clean);
}

#[test]
fn golden_v1_small_opens_as_it_was_closed_unless_it_has_changed() {
    write_small_if_asked();
    check("v1-small-closed.spt", |recovery| recovery == Recovery::Clean);
    check("v1-small-changed.spt", |recovery| {
        matches!(recovery, Recovery::Replayed { dropped_bytes: 0, .. })
    });
}

#[test]
fn golden_v1_unclosed_is_replayed_from_its_log() {
    check("v1-unclosed.spt", |recovery| {
        // The second of the two opens finds what the first has closed.
        matches!(recovery, Recovery::Replayed { .. } | Recovery::Clean)
    });
}

#[test]
fn golden_v1_files_without_a_segment_table_are_compacted() {
    let is_replayed = |recovery| matches!(recovery, Recovery::Replayed { .. });
    let all = changes_behind()[1].len();
    check_compacts("v1-checkpoint-closed.spt", &expected_behind(all), |it| it == Recovery::Clean);
    check_compacts("v1-checkpoint-killed.spt", &expected_behind(all), is_replayed);
}

/// A checkpoint of that version is of no use to this one, so the whole log is replayed: it ends
/// somewhere behind the last sync.
#[test]
fn golden_v1_power_loss_holds_a_prefix_and_is_compacted() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("copy.spt");
    std::fs::copy(golden("v1-power-loss.spt"), &path).unwrap();
    let found = content_of(&Options::new().read_only().open(&path).unwrap());
    let mut prefixes = (0..=changes_behind()[1].len()).map(expected_behind);
    let prefix = prefixes.find(|content| *content == found).expect("a prefix of the changes");
    check_compacts("v1-power-loss.spt", &prefix, |recovery| {
        matches!(recovery, Recovery::Replayed { checkpoint_keys: 0, .. })
    });
}

#[test]
fn golden_v1_compacted_opens_and_is_compacted_again() {
    write_if_asked();
    let expected = expected_behind(changes_behind()[1].len());
    check_compacts("v1-compacted-closed.spt", &expected, |it| it == Recovery::Clean);
    check_compacts("v1-compacted-unclosed.spt", &expected, |recovery| {
        matches!(recovery, Recovery::Replayed { checkpoint_keys: 1.., .. })
    });
}
