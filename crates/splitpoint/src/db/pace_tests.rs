//! Changes that are not waited for become durable all the same.

use std::time::Duration;

use crate::background::without_threads;
use crate::{Db, Durability, ErrorKind, Options, Result, Table};

/// Stores pairs, as a store or as any table.
type PutMany = fn(&Db, &[(&[u8], &[u8])]) -> Result<()>;

const PUT_MANY: [PutMany; 2] =
    [|db, pairs| db.put_many(pairs), |db, pairs| Table::put_many_bytes(db, pairs, None)];

/// Opens a store in `dir` in which a change is due to be synced at once.
fn open(dir: &tempfile::TempDir) -> Db {
    let options = Options::new().async_age_max(Some(Duration::ZERO));
    options.open(dir.path().join("a.spt")).expect("a new store")
}

fn is_all_durable(db: &Db) -> bool {
    let stats = db.stats().expect("it is sound");
    assert_eq!(stats.unsafe_age.is_none(), stats.durable_bytes == stats.log_bytes);
    stats.durable_bytes == stats.log_bytes
}

/// Waits for the thread in the background, however busy the machine is.
fn wait_for_sync(db: &Db) {
    while !is_all_durable(db) {
        std::thread::yield_now();
    }
}

#[test]
fn a_writer_that_may_have_no_thread_syncs_itself() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir);
    without_threads(|| {
        for i in 0..20_u8 {
            db.put_with(&[i], &[i], Durability::Async).unwrap();
            assert!(is_all_durable(&db), "change {i}");
        }
        db.put_many(&[(b"a", b"1"), (b"b", b"2")]).unwrap();
        assert!(is_all_durable(&db));
        db.put_with(b"key", b"value", Durability::Buffered).unwrap();
        assert!(!is_all_durable(&db), "nobody asked for that");
    });
}

#[test]
fn what_a_refused_put_many_has_stored_is_synced() {
    let too_large = vec![0; 1 << 32];
    let pairs: [(&[u8], &[u8]); 4] = [(b"a", b"1"), (b"b", b"2"), (b"c", &too_large), (b"d", b"4")];
    let levels = [Durability::Async, Durability::Sync];
    for (durability, put_many) in levels.into_iter().flat_map(|it| PUT_MANY.map(|put| (it, put))) {
        let dir = tempfile::tempdir().unwrap();
        let options = Options::new().durability(durability).async_age_max(Some(Duration::ZERO));
        let db = options.open(dir.path().join("a.spt")).unwrap();
        let error = put_many(&db, &pairs).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooLarge);
        assert_eq!(db.len(), 2, "those before it are stored");
        if durability == Durability::Sync {
            assert!(is_all_durable(&db));
        }
        wait_for_sync(&db);
        assert_eq!(db.get(b"b").unwrap().as_deref(), Some(&b"2"[..]));
        assert!(db.get(b"d").unwrap().is_none());
    }
}

#[test]
fn a_put_many_that_is_refused_in_a_later_chunk_keeps_the_chunks_before() {
    let too_large = vec![0; 1 << 32];
    let keys: Vec<[u8; 1]> = (0..100).map(|i| [i]).collect();
    for (refused, put_many) in
        [0, 31, 32, 33, 99].into_iter().flat_map(|it| PUT_MANY.map(|put| (it, put)))
    {
        let db = Db::in_memory().unwrap();
        let mut pairs: Vec<(&[u8], &[u8])> = keys.iter().map(|key| (&key[..], &key[..])).collect();
        pairs[refused].1 = &too_large;
        assert_eq!(put_many(&db, &pairs).unwrap_err().kind(), ErrorKind::TooLarge);
        assert_eq!(db.len(), refused as u64);
    }
}

#[test]
fn a_table_stores_and_finds_batches_of_any_length() {
    let keys: Vec<[u8; 2]> = (0..100_u16).map(u16::to_le_bytes).collect();
    for count in [0, 1, 15, 16, 17, 31, 32, 33, 50] {
        let dir = tempfile::tempdir().unwrap();
        let db =
            Options::new().durability(Durability::Sync).open(dir.path().join("a.spt")).unwrap();
        let pairs: Vec<(&[u8], &[u8])> =
            keys[..count].iter().map(|key| (&key[..], &key[..])).collect();
        Table::put_many_bytes(&db, &pairs, None).unwrap();
        assert!(is_all_durable(&db), "{count}");
        // As many again that are not there.
        let wanted: Vec<&[u8]> = keys[..2 * count].iter().map(|key| &key[..]).collect();
        let found = Table::get_many_bytes(&db, &wanted).unwrap();
        let expected = (0..2 * count).map(|i| (i < count).then_some(wanted[i]));
        assert!(found.iter().map(Option::as_deref).eq(expected), "{count}");
    }
}

/// A bound of nothing at all: every change waits whenever a sync is under way.
#[test]
fn writers_that_must_wait_for_each_sync_end() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir);
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let db = &db;
            scope.spawn(move || {
                for i in 0..50 {
                    db.put(&[thread, i], &[i; 1000]).expect("there is room");
                }
            });
        }
    });
    assert_eq!(db.len(), 200);
    wait_for_sync(&db);
}

#[test]
fn the_age_of_the_oldest_change_that_is_not_durable_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.spt");
    let db = Options::new().durability(Durability::Buffered).open(&path).unwrap();
    assert_eq!(db.stats().unwrap().unsafe_age, None);
    db.put(b"a", b"1").unwrap();
    let first = db.stats().unwrap().unsafe_age.expect("it is not durable");
    db.put(b"b", b"2").unwrap();
    let second = db.stats().unwrap().unsafe_age.expect("neither is");
    assert!(second >= first, "{second:?} is the age of the first");
    db.sync().unwrap();
    assert_eq!(db.stats().unwrap().unsafe_age, None);
    let memory = Db::in_memory().unwrap();
    memory.put(b"a", b"1").unwrap();
    assert_eq!(memory.stats().unwrap().unsafe_age, None);
}
