//! A crash at every write of a sync: what was synced before is found, whatever the cut.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use proptest::prelude::*;
use proptest::test_runner::Config;
use splitpoint::{Create, Error, PutMode, Result};

use super::disk::Disk;
use super::open::Options;
use super::store::Store;
use crate::Counted;

type Content = BTreeMap<Vec<u8>, Vec<u8>>;

/// What a table does to its file.
#[derive(Clone, Debug)]
enum Call {
    Write(u64, Vec<u8>),
    Sync,
}

#[derive(Debug, Default)]
struct Recording {
    image: Vec<u8>,
    calls: Vec<Call>,
    /// The call that fails, counted from here.
    fails_at: Option<usize>,
}

impl Recording {
    fn write(image: &mut Vec<u8>, offset: u64, bytes: &[u8]) {
        let start = usize::try_from(offset).expect("a small file");
        if image.len() < start + bytes.len() {
            image.resize(start + bytes.len(), 0);
        }
        image[start..start + bytes.len()].copy_from_slice(bytes);
    }

    fn call(&mut self, call: Call) -> Result<()> {
        if self.fails_at == Some(self.calls.len()) {
            let source = std::io::Error::other("a fault of the test");
            return Err(Error::Io { action: "write", path: ":test:".into(), source });
        }
        self.calls.push(call);
        Ok(())
    }
}

/// A file in memory that remembers every call.
#[derive(Clone, Debug, Default)]
struct RecordedDisk(Arc<Mutex<Recording>>);

impl RecordedDisk {
    fn of(image: Vec<u8>) -> Self {
        Self(Arc::new(Mutex::new(Recording { image, ..Recording::default() })))
    }

    fn with<T>(&self, f: impl FnOnce(&mut Recording) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Disk for RecordedDisk {
    fn path(&self) -> &Path {
        Path::new(":test:")
    }

    fn file_bytes(&self) -> u64 {
        self.with(|recording| recording.image.len() as u64)
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        self.with(|recording| {
            let start = recording.image.len().min(usize::try_from(offset).expect("small"));
            let there = &recording.image[start..];
            let count = there.len().min(bytes.len());
            bytes[..count].copy_from_slice(&there[..count]);
            bytes[count..].fill(0);
        });
        Ok(())
    }

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.with(|recording| {
            recording.call(Call::Write(offset, bytes.to_vec()))?;
            Recording::write(&mut recording.image, offset, bytes);
            Ok(())
        })
    }

    fn sync(&mut self) -> Result<()> {
        self.with(|recording| recording.call(Call::Sync))
    }
}

fn options(page_bytes: u32, fill_factor: u32) -> Options {
    Options::new().page_bytes(page_bytes).fill_factor(fill_factor).cache_bytes(0)
}

fn open(options: &Options, disk: &RecordedDisk) -> Store {
    options.open_disk(Box::new(disk.clone())).expect("what a crash leaves can be opened")
}

/// What a batch of changes between two syncs does: key number, and the size of the value or a
/// delete.
type Batch = Vec<(u16, Option<u16>)>;

fn key(number: u16) -> Vec<u8> {
    // Some keys are longer than a page.
    let len = if number % 17 == 3 { 70 } else { 5 };
    let mut key = format!("{number:05}").into_bytes();
    key.resize(len, b'.');
    key
}

fn change(store: &mut Store, model: &mut Content, batch: &Batch, seed: u8) {
    for &(number, bytes) in batch {
        let key = key(number);
        match bytes {
            Some(bytes) => {
                let value = vec![seed ^ number as u8; bytes.into()];
                assert!(store.put(&key, &value, PutMode::Replace).expect("there is room"));
                model.insert(key, value);
            }
            None => assert_eq!(store.delete(&key).expect("sound"), model.remove(&key).is_some()),
        }
    }
}

fn content(store: &mut Store) -> Content {
    let mut content = Content::new();
    for bucket in 0..store.bucket_end() {
        for (key, value) in store.pairs_of(bucket as u32).expect("nothing is damaged") {
            assert!(content.insert(key, value).is_none(), "a key twice after a crash");
        }
    }
    content
}

/// Checks what a crash has left in `image`, when `synced` had been synced and `target` was being
/// synced.
fn check_image(options: &Options, image: Vec<u8>, synced: &Content, target: &Content) {
    let is_allowed = |key: &[u8], value: Option<&[u8]>| {
        [synced, target].iter().any(|state| state.get(key).map(Vec::as_slice) == value)
    };
    let keys: BTreeSet<&Vec<u8>> = synced.keys().chain(target.keys()).collect();
    if image.is_empty() {
        assert!(synced.is_empty());
        return;
    }
    let disk = RecordedDisk::of(image);
    for is_read_only in [true, false] {
        let options = if is_read_only { options.clone().read_only() } else { options.clone() };
        let mut store = match options.open_disk(Box::new(disk.clone())) {
            // The first header has not been written: to this table nothing was ever synced.
            Err(Error::NotAStore { .. }) if synced.is_empty() => return,
            store => store.expect("what a crash leaves can be opened"),
        };
        for key in &keys {
            let value = store.get(key).expect("nothing is damaged");
            assert!(
                is_allowed(key, value.as_deref()),
                "{:?}: {value:?}",
                String::from_utf8_lossy(key)
            );
        }
        let found = content(&mut store);
        for key in &keys {
            assert!(is_allowed(key, found.get(*key).map(Vec::as_slice)), "{key:?}");
        }
        assert!(found.keys().all(|key| keys.contains(key)));
        if is_read_only {
            assert_eq!(store.len().expect("sound"), found.len() as u64);
            assert_nothing_is_missing(&disk);
        } else {
            let report = store.check().expect("the pages can be read");
            assert!(report.is_clean(), "{:?}", report.damages);
            // The table can be used as any other.
            let mut model = found;
            let batch = (0..60).map(|number| (number, (number % 3 != 0).then_some(20)));
            let batch: Batch = batch
                .filter(|&(n, bytes)| bytes.is_some() || model.contains_key(&key(n)))
                .collect();
            change(&mut store, &mut model, &batch, 77);
            store.sync().expect("the file is written");
            let mut store = open(&options, &disk);
            assert_eq!(content(&mut store), model);
            // A count that is too high would pass for a loss.
            assert_eq!(store.key_estimate as usize, model.len());
        }
    }
}

/// Checks that pages that were to be written when it crashed do not pass for lost ones.
fn assert_nothing_is_missing(disk: &RecordedDisk) {
    let file = tempfile::NamedTempFile::new().expect("a file");
    disk.with(|recording| std::fs::write(file.path(), &recording.image)).expect("it is written");
    let file = crate::open(file.path()).expect("what a crash leaves can be opened");
    let survey = file.survey().expect("the pages can be read");
    let is_loss = |one: &crate::Discrepancy| one.counted == Counted::Pages && one.is_shortfall();
    assert_eq!(survey.discrepancies().find(is_loss), None);
    assert_eq!(survey.fault(), None);
}

/// Runs batches with a sync after each, and cuts each sync after each of its writes; and once more
/// with some of the writes since the last barrier missing, as `drops` says.
fn crash_everywhere(options: &Options, batches: &[Batch], drops: u64) {
    let disk = RecordedDisk::default();
    let mut store = open(&options.clone().create(Create::IfMissing), &disk);
    let mut synced = Content::new();
    for (number, batch) in batches.iter().enumerate() {
        let before = disk.with(|recording| {
            recording.calls.clear();
            recording.image.clone()
        });
        let mut target = synced.clone();
        change(&mut store, &mut target, batch, number as u8);
        // Nothing is written before the sync, so a crash before it needs no test.
        let early_calls = disk.with(|recording| recording.calls.len());
        // Only if the overflow pages ran short was there a sync meanwhile.
        assert_eq!(early_calls, 0, "a change has written to the file");
        store.sync().expect("the file is written");
        let calls = disk.with(|recording| recording.calls.clone());
        for cut in 0..=calls.len() {
            let mut image = before.clone();
            let mut dropped = before.clone();
            let barrier = calls[..cut].iter().rposition(|call| matches!(call, Call::Sync));
            for (i, call) in calls[..cut].iter().enumerate() {
                let Call::Write(offset, bytes) = call else { continue };
                Recording::write(&mut image, *offset, bytes);
                let is_durable = barrier.is_some_and(|barrier| i < barrier);
                if is_durable || drops >> (i % 61) & 1 == 0 {
                    Recording::write(&mut dropped, *offset, bytes);
                }
            }
            check_image(options, image, &synced, &target);
            check_image(options, dropped, &synced, &target);
        }
        synced = target;
        assert_eq!(content(&mut store), synced);
    }
}

fn batches() -> impl Strategy<Value = Vec<Batch>> {
    let bytes = prop_oneof![
        5 => (0..40_u16).prop_map(Some),
        1 => (60..300_u16).prop_map(Some),
        2 => Just(None),
    ];
    let batch = proptest::collection::vec((0..60_u16, bytes), 0..50);
    proptest::collection::vec(batch, 1..4)
}

proptest! {
    #![proptest_config(Config {
        cases: if std::env::var_os("SPLITPOINT_SLOW").is_some_and(|value| value == "1") { 300 } else { 6 },
        failure_persistence: None,
        ..Config::default()
    })]

    #[test]
    fn a_crash_at_any_write_keeps_what_was_synced(
        batches in batches(),
        fill_factor in 1..20_u32,
        page_bits in 6..9_u32,
        drops in any::<u64>(),
    ) {
        crash_everywhere(&options(1 << page_bits, fill_factor), &batches, drops);
    }
}

/// The original loses 1204 of 2000 synced keys here.
#[test]
fn changes_without_a_sync_leave_the_file_as_it_was() {
    let options = options(1024, 8);
    let disk = RecordedDisk::default();
    let mut store = open(&options, &disk);
    let mut model = Content::new();
    change(&mut store, &mut model, &(0..2000).map(|n| (n, Some(30))).collect(), 1);
    store.sync().unwrap();
    let image = disk.with(|recording| recording.image.clone());
    change(&mut store, &mut model.clone(), &(1000..5000).map(|n| (n, Some(40))).collect(), 2);
    assert!(disk.with(|recording| recording.image == image));
    drop(store);
    assert_eq!(content(&mut open(&options, &disk)), model);
}

/// After a failed call the handle either goes on, and the next sync has everything, or says that
/// it cannot.
#[test]
fn a_failed_sync_can_be_tried_again_unless_nobody_knows_what_was_written() {
    let options = options(256, 4);
    let batch: Batch = (0..60).map(|n| (n, Some(50))).collect();
    for fails_at in 0.. {
        let disk = RecordedDisk::default();
        let mut store = open(&options, &disk);
        let mut model = Content::new();
        change(&mut store, &mut model, &batch, 1);
        store.sync().unwrap();
        change(&mut store, &mut model, &(20..90).map(|n| (n, Some(70))).collect(), 2);
        disk.with(|recording| {
            recording.fails_at = Some(recording.calls.len() + fails_at);
        });
        if store.sync().is_ok() {
            assert!(fails_at > 20, "{fails_at} calls");
            return;
        }
        disk.with(|recording| recording.fails_at = None);
        match store.sync() {
            Ok(()) => {
                assert_eq!(content(&mut store), model);
                assert_eq!(content(&mut open(&options, &disk)), model);
            }
            Err(error) => assert_eq!(error.kind(), splitpoint::ErrorKind::Poisoned),
        }
    }
}
