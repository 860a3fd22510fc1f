//! The reserve: on a full disk no delete fails, and space comes back.

use std::fs;
use std::path::Path;

use splitpoint::{Db, Durability, Error, Options};

use crate::small_disk::{FileSystem, SmallDisk};
use crate::support::{Content, assert_content, assert_sound};

/// Sizes of values, by number.
#[derive(Clone, Copy, Debug)]
enum Form {
    /// All the same.
    Even(usize),
    /// From nothing to this.
    Mixed(usize),
    /// Small ones, and one of 16 that has a segment of its own.
    WithBig(usize),
}

const FORMS: [Form; 5] =
    [Form::Even(4), Form::Even(100), Form::Mixed(200), Form::Even(20_000), Form::WithBig(70_000)];

impl Form {
    fn value(self, number: u32) -> Vec<u8> {
        let random = number.wrapping_mul(0x9e37_79b1) >> 8;
        let bytes = match self {
            Self::Even(bytes) => bytes,
            Self::Mixed(bytes) => random as usize % bytes,
            Self::WithBig(bytes) if number.is_multiple_of(16) => bytes,
            Self::WithBig(_) => random as usize % 300,
        };
        vec![number as u8; bytes]
    }
}

#[derive(Clone, Copy, Debug)]
enum Order {
    Forward,
    Backward,
    Random,
}

impl Order {
    const ALL: [Self; 3] = [Self::Forward, Self::Backward, Self::Random];

    fn keys(self, count: u32) -> Vec<u32> {
        let mut keys: Vec<u32> = (0..count).collect();
        match self {
            Self::Forward => {}
            Self::Backward => keys.reverse(),
            Self::Random => keys.sort_unstable_by_key(|key| key.wrapping_mul(0x9e37_79b1)),
        }
        keys
    }
}

fn level(number: u32) -> Durability {
    match number % 64 {
        0 => Durability::Sync,
        1..32 => Durability::Async,
        _ => Durability::Buffered,
    }
}

/// A store on a full disk.
struct Full<'a> {
    db: Db,
    form: Form,
    expected: Content,
    options: &'a Options,
    path: &'a Path,
}

impl<'a> Full<'a> {
    fn open(options: &'a Options, path: &'a Path, form: Form) -> Self {
        let db = options.open(path).unwrap();
        Self { db, form, expected: Content::new(), options, path }
    }

    /// Stores new keys until one is refused; returns its number.
    fn fill(&mut self, from: u32) -> u32 {
        for number in from.. {
            let (key, value) = (number.to_le_bytes(), self.form.value(number));
            match self.db.put_with(key, &value, level(number)) {
                Ok(()) => drop(self.expected.insert(key.to_vec(), value)),
                Err(error) => {
                    assert!(matches!(error, Error::Io { .. }), "{error:?}");
                    return number;
                }
            }
        }
        unreachable!("no disk is so large")
    }

    fn delete(&mut self, keys: &[u32]) {
        for (i, number) in keys.iter().enumerate() {
            let key = number.to_le_bytes();
            match self.db.delete_with(key, level(*number)) {
                Ok(is_deleted) => assert!(is_deleted, "{:?}", self.form),
                Err(error) => {
                    let stats = self.db.stats().unwrap();
                    panic!("{:?}: delete {i} of {}: {error:?}: {stats:#?}", self.form, keys.len())
                }
            }
            self.expected.remove(&key[..]);
        }
    }

    fn reopen(self) -> Self {
        let Self { db, form, expected, options, path } = self;
        db.close().unwrap();
        let db = options.open(path).unwrap();
        assert_content(&db, &expected);
        Self { db, form, expected, options, path }
    }
}

fn options_of(segment_bytes: u64) -> Options {
    Options::new().segment_bytes_min(segment_bytes).durability(Durability::Buffered)
}

/// Fills a disk, deletes half of the keys, puts as many bytes as a quarter of them had, and deletes all.
fn fill_and_delete(disk: &SmallDisk, options: &Options, form: Form, order: Order) {
    let path = disk.path().join("full.spt");
    // A full disk may have no room for its name.
    disk.write_ballast(0);
    let mut full = Full::open(options, &path, form);
    let count = full.fill(0);
    // Whatever the file system still has is used by somebody else.
    let ballast = disk.write_ballast(64 << 20);
    full.fill(count);
    let keys = order.keys(full.expected.len() as u32);
    let (half, rest) = keys.split_at(keys.len() / 2);
    full.delete(half);
    let before = full.expected.len();
    let mut number = 1 << 24;
    while full.expected.len() < before + half.len() / 4 {
        let (key, value) = (u32::to_le_bytes(number), form.value(number));
        let put = full.db.put_with(key, &value, level(number));
        if let Err(error) = put {
            let stats = full.db.stats().unwrap();
            let back = full.expected.len() - before;
            panic!("{form:?}, {order:?}: after {back} puts: {error}: {stats:#?}");
        }
        full.expected.insert(key.to_vec(), value);
        number += 1;
    }
    let mut full = full.reopen();
    full.delete(rest);
    let added: Vec<u32> = (1 << 24..number).collect();
    full.delete(&added);
    assert!(full.expected.is_empty());
    assert_sound(&full.db);
    let full = full.reopen();
    assert_sound(&full.db);
    drop(full);
    fs::remove_file(&path).unwrap();
    fs::remove_file(&ballast).unwrap();
}

fn fill_and_delete_all(file_system: FileSystem, kib: u64, segment_sizes: &[u64]) {
    let Some(disk) = SmallDisk::mount(file_system, kib) else { return };
    for &segment_bytes in segment_sizes {
        for form in FORMS {
            for order in Order::ALL {
                println!("{file_system:?}, {segment_bytes}, {form:?}, {order:?}");
                fill_and_delete(&disk, &options_of(segment_bytes), form, order);
            }
        }
    }
}

#[test]
fn no_delete_fails_on_a_full_disk_in_memory_and_space_comes_back() {
    fill_and_delete_all(FileSystem::Tmpfs, 3 << 10, &[4096]);
}

#[test]
fn no_delete_fails_on_a_full_disk_with_a_journal_and_space_comes_back() {
    fill_and_delete_all(FileSystem::Ext4, 8 << 10, &[64 << 10]);
}

/// With these seeds the last deletes made the image of a checkpoint a block smaller, and puts made it larger again,
/// when what was free lay in small parts.
#[test]
fn a_place_for_checkpoints_on_a_full_disk_is_large_enough_for_the_next_puts() {
    let Some(disk) = SmallDisk::mount(FileSystem::Tmpfs, 3 << 10) else { return };
    for seed in [29, 110, 119, 132, 149, 310, 316] {
        fill_and_delete(&disk, &options_of(4096).seed(seed), Form::Even(4), Order::Random);
    }
}

/// It refuses a range to `fallocate` that has its blocks.
#[test]
fn no_delete_fails_on_a_full_xfs_and_space_comes_back() {
    let Some(disk) = SmallDisk::mount(FileSystem::Xfs, 300 << 10) else { return };
    // A disk of the least size of that file system takes long to fill with small records.
    let ballast = disk.path().join("kept");
    fs::rename(disk.write_ballast(320 << 20), &ballast).unwrap();
    let file = fs::File::options().write(true).open(&ballast).unwrap();
    file.set_len(file.metadata().unwrap().len() - (8 << 20)).unwrap();
    file.sync_all().unwrap();
    for (form, order) in [(Form::Even(100), Order::Forward), (Form::Mixed(200), Order::Random)] {
        fill_and_delete(&disk, &options_of(64 << 10), form, order);
    }
}

/// Returns the size of the closed file of a store with so many records of 116 bytes.
fn closed_bytes(options: &Options, count: u32) -> u64 {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.spt");
    let db = options.open(&path).unwrap();
    for number in 0..count {
        db.put(format!("{number:016}"), [7; 100]).unwrap();
    }
    db.close().unwrap();
    fs::metadata(&path).unwrap().len()
}

#[test]
fn a_file_has_nothing_that_is_held_back_where_much_is_free() {
    let dir = tempfile::tempdir().unwrap();
    let system = rustix::fs::statvfs(dir.path()).unwrap();
    assert!(system.f_bavail * system.f_frsize > 128 << 20, "it is nearly full here");
    // Without compaction nothing is held back.
    let without = Options::new().keep_dead_records();
    for count in [0, 1, 1000, 6000, 10_000, 40_000] {
        let (bytes, least) = (closed_bytes(&Options::new(), count), closed_bytes(&without, count));
        println!("{count} records: {bytes} bytes, {least} without a reserve");
        assert!(bytes <= least, "{count} records: {bytes} bytes, {least} without a reserve");
    }
}
