//! Random operations on tables of all parameters, compared with a `BTreeMap` and checked.

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::test_runner::Config;

use splitpoint::hash::{HashFunction, HashId};
use splitpoint::{PutMode, Table, TableExt};
use splitpoint_legacy::ByteOrder;
use splitpoint_legacy::db185::{Cursor, Db185, Options};

use super::{Content, assert_content, assert_sound, assert_whole, content};

/// Parameters of a table.
#[derive(Clone, Debug)]
struct Setup {
    page_bits: u32,
    fill_factor: Option<u32>,
    expected_records: u64,
    order: ByteOrder,
    cache_bytes: usize,
    is_in_file: bool,
}

impl Setup {
    fn options(&self) -> Options {
        let options = Options::new()
            .page_bytes(1 << self.page_bits)
            .expected_records(self.expected_records)
            .byte_order(self.order)
            .cache_bytes(self.cache_bytes);
        match self.fill_factor {
            Some(fill_factor) => options.fill_factor(fill_factor),
            None => options,
        }
    }
}

fn setups() -> impl Strategy<Value = Setup> {
    let orders = prop_oneof![Just(ByteOrder::Little), Just(ByteOrder::Big)];
    let fill_factors = prop_oneof![Just(None), (1..60_u32).prop_map(Some)];
    let caches = prop_oneof![Just(0), Just(10_000), Just(1 << 20)];
    let files = any::<bool>();
    let pages = prop_oneof![6..10_u32, 6..=15_u32];
    (pages, fill_factors, 1..300_u64, orders, caches, files).prop_map(
        |(page_bits, fill_factor, expected_records, order, cache_bytes, is_in_file)| Setup {
            page_bits,
            fill_factor,
            expected_records,
            order,
            cache_bytes,
            is_in_file,
        },
    )
}

/// One step, on one of a few keys.
#[derive(Clone, Debug)]
enum Step {
    /// Key number, bytes to add to the key, bytes of the value relative to the page.
    Put(u16, KeySize, ValueSize, PutMode),
    Delete(u16, KeySize),
    Get(u16, KeySize),
    /// Delete everything that a scan returns, of which the first byte is below.
    DeleteInScan(u8),
    /// Go so many keys on with a cursor, or begin with another one.
    Walk(u16),
    Sync,
    Reopen,
}

#[derive(Clone, Copy, Debug)]
enum KeySize {
    Short,
    /// Near a multiple of what a page of a big pair holds.
    Pages(u8, i8),
}

#[derive(Clone, Copy, Debug)]
enum ValueSize {
    Bytes(u8),
    /// So that key and value are near a multiple of what a page of a big pair holds.
    Fill(u8, i8),
}

fn key(number: u16, size: KeySize, page_bytes: usize) -> Vec<u8> {
    let mut key = number.to_le_bytes().to_vec();
    match size {
        KeySize::Short if number == 0 => key.clear(),
        KeySize::Short => key.truncate(1 + usize::from(number % 2)),
        KeySize::Pages(pages, offset) => {
            let bytes = usize::from(pages) * (page_bytes - 14);
            key.resize(bytes.saturating_add_signed(offset.into()).max(2), b'k');
        }
    }
    key
}

fn value(size: ValueSize, key_bytes: usize, page_bytes: usize, seed: u8) -> Vec<u8> {
    let bytes = match size {
        ValueSize::Bytes(bytes) => usize::from(bytes),
        ValueSize::Fill(pages, offset) => {
            let bytes = usize::from(pages) * (page_bytes - 14);
            bytes.saturating_add_signed(offset.into()).saturating_sub(key_bytes)
        }
    };
    (0..bytes).map(|i| (i as u8).wrapping_mul(7) ^ seed).collect()
}

fn steps() -> impl Strategy<Value = Step> {
    let keys = prop_oneof![6 => Just(KeySize::Short),
        1 => (1..4_u8, -3..4_i8).prop_map(|(pages, offset)| KeySize::Pages(pages, offset))];
    let values = prop_oneof![4 => any::<u8>().prop_map(ValueSize::Bytes),
        1 => (1..5_u8, -9..10_i8).prop_map(|(pages, offset)| ValueSize::Fill(pages, offset))];
    let modes = prop_oneof![3 => Just(PutMode::Replace), 1 => Just(PutMode::New)];
    let number = 0..600_u16;
    prop_oneof![
        12 => (number.clone(), keys.clone(), values, modes)
            .prop_map(|(number, key, value, mode)| Step::Put(number, key, value, mode)),
        4 => (number.clone(), keys.clone()).prop_map(|(number, key)| Step::Delete(number, key)),
        3 => (number, keys).prop_map(|(number, key)| Step::Get(number, key)),
        1 => (0..40_u8).prop_map(Step::DeleteInScan),
        2 => (0..200_u16).prop_map(Step::Walk),
        1 => Just(Step::Sync),
        1 => Just(Step::Reopen),
    ]
}

fn delete_in_scan(table: &Db185, below: u8, model: &mut Content) {
    let mut seen = Content::new();
    for entry in table.scan().expect("a scan begins") {
        let entry = entry.expect("nothing is damaged");
        assert!(seen.insert(entry.key.to_vec(), entry.value.to_vec()).is_none());
        if entry.key.first().is_some_and(|first| *first < below) {
            assert!(table.delete(&entry.key).expect("nothing is damaged"));
        }
    }
    assert_eq!(seen, *model, "a scan that deletes");
    model.retain(|key, _| key.first().is_none_or(|first| *first >= below));
}

/// A walk with a cursor, beside which the table changes.
#[derive(Default)]
struct Walk {
    cursor: Cursor,
    came: BTreeSet<Vec<u8>>,
    /// The keys that the table has had since it began.
    staying: BTreeSet<Vec<u8>>,
}

impl Walk {
    fn of(model: &Content) -> Self {
        Self { staying: model.keys().cloned().collect(), ..Self::default() }
    }

    /// Goes on, and returns whether it has come to the end.
    fn go_on(&mut self, count: usize, table: &mut Db185, model: &Content) -> bool {
        for _ in 0..count {
            let Some((key, value)) = self.cursor.next(table).expect("nothing is damaged") else {
                assert!(self.staying.is_subset(&self.came), "a key that stays does not come");
                return true;
            };
            assert_eq!(model.get(key).map(Vec::as_slice), Some(value));
            assert!(self.came.insert(key.to_vec()), "a key comes twice");
        }
        false
    }
}

/// The child of a fork may have a file that lacks what its parent has not synced.
#[test]
fn a_walk_goes_on_in_an_older_file_with_fewer_buckets() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name| dir.path().join(name);
    let options = Options::new().page_bytes(256);
    let mut table = options.open(path("a")).unwrap();
    let mut model = Content::new();
    for number in 0..4000_u32 {
        table.put(&number.to_le_bytes(), b"value").unwrap();
        if number == 300 {
            table.sync().unwrap();
            std::fs::copy(path("a"), path("b")).unwrap();
        }
        if number <= 300 {
            model.insert(number.to_le_bytes().to_vec(), b"value".to_vec());
        }
    }
    for count in [0, 1, 700, 2000, 3990] {
        let mut cursor = Cursor::default();
        let mut came = Vec::new();
        for _ in 0..count {
            let (key, _) = cursor.next(&mut table).unwrap().unwrap();
            came.push(key.to_vec());
        }
        let mut older = options.open(path("b")).unwrap();
        if count > 0 {
            assert!(older.parameters().overflow_pages < table.parameters().overflow_pages);
        }
        while let Some((key, _)) = cursor.next(&mut older).unwrap() {
            came.push(key.to_vec());
        }
        came.retain(|key| model.contains_key(key));
        assert_eq!(came.len(), model.len(), "after {count}");
        assert_eq!(came.iter().collect::<BTreeSet<_>>().len(), model.len());
    }
}

#[test]
fn what_was_read_ahead_counts_only_while_nothing_changes() {
    let same = HashFunction::user(HashId(0x8000_1a33), "same", |_, _| 0).unwrap();
    let options = Options::new().hash(same);
    let mut table = options.in_memory().unwrap();
    for key in ["a", "b", "c"] {
        table.put(key.as_bytes(), b"old").unwrap();
    }
    let mut cursor = Cursor::default();
    assert!(!cursor.is_ahead(&mut table));
    let first = cursor.next(&mut table).unwrap().unwrap().0.to_vec();
    assert!(cursor.is_ahead(&mut table));
    let mut rest = [b"a", b"b", b"c"].into_iter().filter(|key| key[..] != first[..]);
    let (deleted, replaced) = (rest.next().unwrap(), rest.next().unwrap());
    assert!(table.delete(deleted).unwrap());
    table.put(replaced, b"new").unwrap();
    assert!(!cursor.is_ahead(&mut table));
    assert_eq!(cursor.next(&mut table).unwrap(), Some((&replaced[..], &b"new"[..])));
    assert_eq!(cursor.next(&mut table).unwrap(), None);
    // Another table that has changed as often is another one.
    let mut other = options.in_memory().unwrap();
    let mut cursor = Cursor::default();
    table.put(b"d", b"").unwrap();
    cursor.next(&mut table).unwrap();
    for key in ["e", "f", "g", "h", "i", "j"] {
        other.put(key.as_bytes(), b"").unwrap();
        assert_ne!(cursor.is_ahead(&mut other), cursor.is_ahead(&mut table));
    }
}

fn run(setup: &Setup, steps: &[Step]) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("table.db");
    let open = || {
        let options = setup.options();
        let table = if setup.is_in_file { options.open(&path) } else { options.in_memory() };
        table.expect("the table opens")
    };
    let page_bytes = 1 << setup.page_bits;
    let mut table = open();
    let mut model = Content::new();
    let mut walk = Walk::default();
    for (number, step) in steps.iter().enumerate() {
        match *step {
            Step::Put(key_number, key_size, value_size, mode) => {
                let key = key(key_number, key_size, page_bytes);
                let value = value(value_size, key.len(), page_bytes, number as u8);
                let is_stored = table.put_bytes(&key, &value, mode, None).expect("there is room");
                assert_eq!(is_stored, mode == PutMode::Replace || !model.contains_key(&key));
                if is_stored {
                    model.insert(key, value);
                }
            }
            Step::Delete(number, size) => {
                let key = key(number, size, page_bytes);
                let was_there = table.delete(&key).expect("nothing is damaged");
                assert_eq!(was_there, model.remove(&key).is_some());
            }
            Step::Get(number, size) => {
                let key = key(number, size, page_bytes);
                let value = table.get(&key).expect("nothing is damaged");
                assert_eq!(value.as_deref(), model.get(&key).map(Vec::as_slice));
            }
            Step::DeleteInScan(below) => delete_in_scan(&table, below, &mut model),
            Step::Walk(count) => {
                if walk.go_on(count.into(), &mut table, &model) {
                    walk = Walk::of(&model);
                }
            }
            Step::Sync => table.sync().expect("the file is written"),
            Step::Reopen if setup.is_in_file => {
                drop(table);
                assert_whole(&path, model.len());
                table = open();
                assert_eq!(content(&table), model);
            }
            Step::Reopen => {}
        }
        walk.staying.retain(|key| model.contains_key(key));
    }
    assert!(walk.go_on(usize::MAX, &mut table, &model));
    assert_content(&table, &model);
    assert_sound(&table);
    if setup.is_in_file {
        table.close().expect("the file is written");
        assert_whole(&path, model.len());
        let table = setup.options().read_only().open(&path).expect("the table opens");
        assert_content(&table, &model);
        assert_sound(&table);
    }
}

/// The original fails with an error of no meaning, and has lost pairs that were there before.
#[test]
fn running_out_of_overflow_pages_loses_nothing() {
    let table = Options::new().page_bytes(64).fill_factor(1000).in_memory().unwrap();
    let mut model = Content::new();
    for number in 0_u32.. {
        let (key, value) = (number.to_le_bytes(), vec![number as u8; 900]);
        match table.put_new(&key, &value) {
            Ok(is_stored) => assert!(is_stored),
            Err(error) => {
                assert_eq!(error.kind(), splitpoint::ErrorKind::Full);
                assert!(error.to_string().contains("overflow pages"), "{error}");
                break;
            }
        }
        model.insert(key.to_vec(), value);
    }
    assert!(model.len() > 700, "{} pairs of 19 pages each", model.len());
    assert_content(&table, &model);
    assert_sound(&table);
    // What needs no new page is still possible, and what is deleted makes room.
    table.put_new(b"s", b"").unwrap();
    assert!(table.delete(&3_u32.to_le_bytes()).unwrap());
    table.put_new(b"again", &[1; 800]).unwrap();
    assert_sound(&table);
}

proptest! {
    #![proptest_config(Config {
        cases: if std::env::var_os("SPLITPOINT_SLOW").is_some_and(|value| value == "1") { 3000 } else { 24 },
        failure_persistence: None,
        ..Config::default()
    })]

    #[test]
    fn tables_of_all_parameters_agree_with_a_map(
        setup in setups(),
        steps in proptest::collection::vec(steps(), 1..400),
    ) {
        run(&setup, &steps);
    }
}
