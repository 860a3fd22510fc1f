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

/// Writes the golden files on request: one closed, one copied from under its writer.
fn write_if_asked() {
    if std::env::var_os("SPLITPOINT_WRITE_GOLDEN").is_none() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("golden.spt");
    let db = Options::new().segment_bytes_min(4096).seed(1991).open(&path).unwrap();
    fill(&db).unwrap();
    std::fs::copy(&path, golden("v1-unclosed.spt")).unwrap();
    db.close().unwrap();
    std::fs::copy(&path, golden("v1-closed.spt")).unwrap();
}

/// Opens a copy of a golden file for reading and for writing, and compares its contents.
fn check(name: &str, is_recovery: fn(Recovery) -> bool) {
    write_if_asked();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("copy.spt");
    std::fs::copy(golden(name), &path).unwrap();
    for options in [Options::new().read_only(), Options::new().create(Create::Never)] {
        let db = options.open(&path).unwrap();
        assert!(is_recovery(db.recovery()), "{:?}", db.recovery());
        let found: Content = db
            .scan()
            .unwrap()
            .map(|entry| entry.map(|entry| (entry.key.to_vec(), entry.value.to_vec())))
            .collect::<splitpoint::Result<_>>()
            .unwrap();
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
fn golden_v1_unclosed_is_replayed_from_its_log() {
    check("v1-unclosed.spt", |recovery| {
        // The second of the two opens finds what the first has closed.
        matches!(recovery, Recovery::Replayed { .. } | Recovery::Clean)
    });
}
