//! Whatever the file holds: open it, read all of it, change it, close it, open it again.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::{Source, mend};
use crate::db::Db;
use crate::error::Result;
use crate::options::{Create, Options};
use crate::storage::sim::SimDisk;

type Content = BTreeMap<Vec<u8>, Vec<u8>>;

/// Opens a file made by `input` and uses it in every way.
///
/// The first byte says how: bit 0 with the index rebuilt, bit 1 read-only, bit 2 in a real file,
/// which `to_file` writes, bit 3 mended. With bit 3 the second byte says what to mend; the
/// file follows.
///
/// Nothing may panic, loop without end or touch memory that the file does not have. If opening
/// finds no fault and neither does a check, then what is changed afterwards must be found again,
/// and nothing else may be touched by it.
///
/// # Panics
///
/// If any of this does not hold.
pub fn open_scan(input: &[u8], to_file: impl FnOnce(&[u8]) -> PathBuf) {
    let mut source = Source::new(input);
    let how = source.byte();
    let is_asked = |bit: u8| how & 1 << bit != 0;
    let mended = if is_asked(3) { source.byte() } else { 0 };
    let mut file = source.file();
    mend(&mut file, mended);
    let mut options = Options::new().create(Create::Never).checkpoint_bytes_min(3000);
    if is_asked(1) {
        options = options.read_only();
    }
    let first = if is_asked(0) { options.clone().rebuild_index() } else { options.clone() };
    if is_asked(2) {
        let path = to_file(&file);
        exercise(|is_first| if is_first { first.open(&path) } else { options.open(&path) });
    } else {
        let disk = SimDisk::with_file(&file);
        exercise(|is_first| disk.open(if is_first { &first } else { &options }));
    }
}

/// Uses a store twice, as `open` opens it the first time and then again.
fn exercise(open: impl Fn(bool) -> Result<Db>) {
    let Ok(db) = open(true) else { return };
    let expected = read(&db).and_then(|found| change(&db, found));
    let is_closed = db.close().is_ok();
    let Ok(db) = open(false) else {
        assert!(expected.is_none() || !is_closed, "a sound store does not open again");
        return;
    };
    let found = read(&db);
    if let Some(expected) = expected.filter(|_| is_closed) {
        assert_eq!(found, Some(expected), "what was changed is not what is found");
    }
}

/// Reads everything in every way; `None` if something is damaged, or a key is there twice.
fn read(db: &Db) -> Option<Content> {
    let stats = db.stats();
    let report = db.check();
    let is_clean = report.is_ok_and(|report| report.is_clean());
    let file_bytes = stats.as_ref().map_or(u64::MAX, |stats| stats.file_bytes);
    let (mut content, mut entry_count, mut is_whole) = (Content::new(), 0, true);
    for entry in db.scan().into_iter().flatten() {
        entry_count += 1;
        assert!(entry_count <= file_bytes / 8, "a scan without an end");
        let Ok(entry) = entry else {
            is_whole = false;
            continue;
        };
        if content.len() < 2000 {
            let earlier = content.insert(entry.key.to_vec(), entry.value.to_vec());
            is_whole &= earlier.is_none();
        }
    }
    let mut buf = Vec::new();
    for (key, value) in &content {
        let found = db.get(key);
        is_whole &= found.is_ok_and(|found| found.as_deref() == Some(&value[..]));
        is_whole &= db.get_into(key, &mut buf).is_ok_and(|is_found| is_found && buf == *value);
    }
    let keys: Vec<&[u8]> = content.keys().map(Vec::as_slice).collect();
    let _ = (db.get_many(&keys), db.get(b"no such key"), db.contains(b""));
    is_whole &= db.len() == content.len() as u64 && stats.is_ok();
    (is_clean && is_whole).then_some(content)
}

/// Changes a sound store, and returns what it holds then; `None` if a change was refused.
fn change(db: &Db, mut content: Content) -> Option<Content> {
    let first = content.keys().next().cloned().unwrap_or_default();
    let puts: [(&[u8], &[u8]); 5] =
        [(b"new", b"1"), (&first, b"2"), (b"", b""), (&[7; 300], &[8; 2000]), (b"new", &[9; 5])];
    for (key, value) in puts {
        db.put(key, value).ok()?;
        content.insert(key.to_vec(), value.to_vec());
    }
    let keys: Vec<[u8; 2]> = (0..60).map(|i| [b'k', i]).collect();
    let pairs: Vec<(&[u8], &[u8])> = keys.iter().map(|key| (&key[..], &[5; 90][..])).collect();
    db.put_many(&pairs).ok()?;
    content.extend(pairs.iter().map(|(key, value)| (key.to_vec(), value.to_vec())));
    for key in content.keys().step_by(2).cloned().collect::<Vec<_>>() {
        assert!(db.delete(&key).ok()?, "a key that is there is not deleted");
        content.remove(&key);
    }
    db.sync().ok()?;
    let found = read(db);
    assert_eq!(found.as_ref(), Some(&content), "a sound store is not sound after changes");
    found
}
