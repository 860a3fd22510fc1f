//! Address space: how much of it stores take, what happens when they outgrow it, and what happens
//! when it is exhausted.
//!
//! A test of a limit on the whole process runs in a child process.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use splitpoint::backup::Backup;
use splitpoint::{Change, Create, Db, Durability, Error, Options, Recovery, Transaction};

use crate::small_disk::{mount_memory, unmount};
use crate::support::{Rng, assert_sound, is_slow, rounds, run_alone, seed, within};

const MIB: u64 = 1 << 20;

/// Returns the number of mappings of this process, or of those that `is_one` accepts.
fn mapping_count(is_one: impl Fn(&str) -> bool) -> u64 {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|line| is_one(line)).count() as u64
}

/// Returns the address space of this process, in bytes.
fn address_space_bytes() -> u64 {
    let statistics = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statistics.split(' ').next().unwrap().parse().unwrap();
    pages * rustix::param::page_size() as u64
}

/// Limits the address space of this process to what it has and so many bytes more; `None` lifts the
/// limit.
fn limit_to_another(bytes: Option<u64>) {
    let maximum = getrlimit(Resource::As).maximum;
    let current = bytes.map(|bytes| address_space_bytes() + bytes);
    setrlimit(Resource::As, Rlimit { current, maximum }).unwrap();
}

/// Returns a directory in memory if there is one, since nothing here depends on the disk.
fn directory() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        tempfile::tempdir_in(memory).unwrap()
    } else {
        tempfile::tempdir().unwrap()
    }
}

/// Bytes of the lines of 2^32 buckets, the most that there are.
const LINES_BYTES: u64 = 1 << 38;

/// On a file system in memory the opening would take all memory before it failed, and end this process.
#[test]
fn a_file_for_more_records_than_the_file_system_has_room_for_is_refused_at_once() {
    for dir in [directory(), tempfile::tempdir().unwrap()] {
        let system = rustix::fs::statvfs(dir.path()).unwrap();
        if system.f_bavail.saturating_mul(system.f_frsize) >= LINES_BYTES {
            println!("skipped: this file system has the room");
            continue;
        }
        let error = Options::new().expected_records(u64::MAX).open(dir.path().join("a"));
        let error = error.map(drop).unwrap_err();
        let Error::Io { source, .. } = &error else { panic!("{error}") };
        assert_eq!(source.kind(), std::io::ErrorKind::StorageFull);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "it has left a file");
    }
}

#[test]
fn a_file_system_that_counts_no_blocks_has_room_for_many_records() {
    let dir = tempfile::tempdir().unwrap();
    // Without a limit.
    if let Err(reason) = mount_memory(dir.path(), 0) {
        println!("skipped: {reason}");
        return;
    }
    let opened = Options::new().expected_records(8_000_000).open(dir.path().join("a"));
    let is_opened = opened.map(|db| db.put("key", "value").unwrap());
    unmount(dir.path());
    is_opened.unwrap();
}

#[test]
fn a_table_in_memory_for_more_records_than_memory_has_lines_for_is_refused() {
    if rustix::system::sysinfo().totalram as u64 >= LINES_BYTES {
        println!("skipped: this machine has the memory");
        return;
    }
    let error = Options::new().expected_records(u64::MAX).in_memory().unwrap_err();
    assert!(matches!(error, Error::Full { what: "memory", bytes: LINES_BYTES }), "{error}");
}

/// Returns the value of a key: any two differ.
fn value(number: u64, bytes: usize) -> Vec<u8> {
    let mut value = number.to_le_bytes().to_vec();
    value.resize(bytes, number as u8);
    value
}

/// Opens a number of stores, in files below `dir` or in memory, with a put and a get in each.
fn open_small_stores(dir: Option<&Path>, count: u64, records: u64) -> Vec<Db> {
    let options = Options::new().durability(Durability::Buffered);
    let open = |number| match dir {
        Some(dir) => options.open(dir.join(format!("{number}.spt"))).unwrap(),
        None => options.in_memory().unwrap(),
    };
    let stores: Vec<Db> = (0..count).map(open).collect();
    for (number, db) in (0..).zip(&stores) {
        for record in 0..records {
            db.put(&record.to_le_bytes(), &value(number, 20)).unwrap();
        }
    }
    for (number, db) in (0..).zip(&stores) {
        assert_eq!(db.get(&0_u64.to_le_bytes()).unwrap().as_deref(), Some(&value(number, 20)[..]));
    }
    stores
}

/// Raises the limit on open files as far as it goes and returns it.
fn raise_file_limit() -> u64 {
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    maximum.unwrap_or(u64::MAX)
}

/// Not a test by itself: another test runs it in a process.
#[test]
fn process_with_small_stores() {
    if std::env::var_os("SPLITPOINT_TEST_SMALL_STORES").is_none() {
        return;
    }
    let count = rounds(1000, 10_000).min(raise_file_limit() - 100);
    let dir = directory();
    // The default number of mappings, in case the system does not report its own.
    let limit = std::fs::read_to_string("/proc/sys/vm/max_map_count").ok();
    let limit = limit.and_then(|text| text.trim().parse().ok()).unwrap_or(65_530);
    for (path, records, mappings_max, bytes_max) in [
        (Some(dir.path()), 1, 4, 5 * MIB),
        (Some(dir.path()), 1000, 6, 5 * MIB),
        (None, 1, 1, MIB),
        (None, 1000, 1, MIB),
    ] {
        let count = if records > 1 { count / 10 } else { count };
        let (mappings, bytes) = (mapping_count(|_| true), address_space_bytes());
        let stores = open_small_stores(path, count, records);
        // The heap has grown, too.
        let mappings = mapping_count(|_| true).saturating_sub(mappings + 10);
        let bytes = address_space_bytes() - bytes;
        println!("{count} of {records}: {mappings} mappings, {bytes} bytes");
        assert!(mappings <= mappings_max * count, "{mappings} for {count} stores");
        assert!(bytes <= bytes_max * count, "{bytes} bytes for {count} stores");
        assert!(mappings_max * 10_000 < limit, "ten thousand need more than {limit} mappings");
        assert!(bytes_max * 10_000 < 1 << 40, "ten thousand need more than a TiB");
        drop(stores);
        for entry in std::fs::read_dir(dir.path()).unwrap() {
            std::fs::remove_file(entry.unwrap().path()).unwrap();
        }
    }
}

/// Ten thousand with `SPLITPOINT_SLOW=1`, as far as files may be open.
#[test]
fn ten_thousand_small_stores_fit_into_a_process() {
    run_alone("address_space::process_with_small_stores", "SPLITPOINT_TEST_SMALL_STORES", "1");
}

/// Not a test by itself: another test runs it in a process.
#[test]
fn process_of_4_gib() {
    if std::env::var_os("SPLITPOINT_TEST_4_GIB").is_none() {
        return;
    }
    let maximum = getrlimit(Resource::As).maximum;
    setrlimit(Resource::As, Rlimit { current: Some(4 << 30), maximum }).unwrap();
    let dir = directory();
    let files: Vec<Db> =
        (0..10).map(|i| Db::open(dir.path().join(format!("{i}.spt"))).unwrap()).collect();
    let tables: Vec<Db> = (0..10).map(|_| Db::in_memory().unwrap()).collect();
    for db in files.iter().chain(&tables) {
        for number in 0..3000_u64 {
            db.put(&number.to_le_bytes(), &value(number, 1000)).unwrap();
        }
    }
    for db in files.iter().chain(&tables) {
        for number in 0..3000_u64 {
            let found = db.get(&number.to_le_bytes()).unwrap();
            assert_eq!(found.as_deref(), Some(&value(number, 1000)[..]));
        }
    }
    assert!(address_space_bytes() < 2 << 30, "{} bytes", address_space_bytes());
    // The program itself still has room.
    assert_eq!(vec![1_u8; 256 << 20].iter().map(|&byte| u64::from(byte)).sum::<u64>(), 256 << 20);
}

#[test]
fn ten_stores_and_ten_tables_leave_room_under_a_limit_of_4_gib() {
    run_alone("address_space::process_of_4_gib", "SPLITPOINT_TEST_4_GIB", "1");
}

/// Stores numbered values from `from` on until one is refused, and returns the number of that one
/// with the error.
fn fill(db: &Db, from: u64) -> (u64, Error) {
    for number in from.. {
        if let Err(error) = db.put(&number.to_le_bytes(), &value(number, 5000)) {
            return (number, error);
        }
    }
    unreachable!("no process has so much address space")
}

fn assert_filled(db: &Db, count: u64) {
    assert_eq!(db.len(), count);
    for number in 0..count {
        let found = db.get(&number.to_le_bytes()).unwrap();
        assert_eq!(found.as_deref(), Some(&value(number, 5000)[..]));
    }
    assert_sound(db);
}

/// Not a test by itself: another test runs it in a process.
#[test]
fn process_whose_address_space_ends() {
    if std::env::var_os("SPLITPOINT_TEST_END").is_none() {
        return;
    }
    let dir = directory();
    let path = dir.path().join("large.spt");
    for path in [Some(&path), None] {
        let db = path.map_or_else(Db::in_memory, Db::open).unwrap();
        limit_to_another(Some(24 * MIB));
        let (count, error) = fill(&db, 0);
        assert!(count > 500, "{count}");
        let Error::Full { what, bytes } = &error else { panic!("{error:?}") };
        assert!(what.contains("address space") && *bytes > 0, "{error}");
        assert!(error.to_string().contains("address space"), "{error}");
        assert_filled(&db, count);
        // A change that needs no more address space succeeds.
        assert!(db.delete(&0_u64.to_le_bytes()).unwrap());
        db.put(&0_u64.to_le_bytes(), b"").unwrap();
        db.sync().unwrap();
        let (after, _) = fill(&db, count);
        limit_to_another(None);
        db.put(&0_u64.to_le_bytes(), &value(0, 5000)).unwrap();
        for number in after..2 * after {
            db.put(&number.to_le_bytes(), &value(number, 5000)).unwrap();
        }
        assert_filled(&db, 2 * after);
        let Some(path) = path else { continue };
        db.close().unwrap();

        // Too little to map the file, which is left as it is.
        limit_to_another(Some(4 * MIB));
        let error = Db::open(path).unwrap_err();
        assert!(error.to_string().contains("address space"), "{error}");
        let error = splitpoint::backup::backup(path, dir.path().join("copy.spt")).unwrap_err();
        assert!(error.to_string().contains("address space"), "{error}");
        // Enough to map it, and a little more.
        limit_to_another(Some(std::fs::metadata(path).unwrap().len() + 8 * MIB));
        let db = Db::open(path).unwrap();
        assert_eq!(db.recovery(), Recovery::Clean);
        assert_filled(&db, 2 * after);
        limit_to_another(None);
    }
}

#[test]
fn address_space_that_is_refused_is_an_error_that_loses_nothing() {
    run_alone("address_space::process_whose_address_space_ends", "SPLITPOINT_TEST_END", "1");
}

/// Grows a table until it has outgrown its address space several times, with values borrowed at
/// each step and a scan that began before.
fn grow_with_borrowed_values(db: &Db) {
    const BYTES: usize = 4000;
    const COUNT: u64 = 18_000;
    for number in 0..10_u64 {
        db.put(&number.to_le_bytes(), &value(number, BYTES)).unwrap();
    }
    let mut scan = db.scan().unwrap();
    let first = scan.next().unwrap().unwrap();
    let mut borrowed = Vec::new();
    for number in 10..COUNT {
        db.put(&number.to_le_bytes(), &value(number, BYTES)).unwrap();
        if number % 100 == 0 {
            let value = db.get(&(number / 2).to_le_bytes()).unwrap().unwrap();
            borrowed.push((number / 2, value));
        }
    }
    for (number, borrowed) in &borrowed {
        assert_eq!(**borrowed, value(*number, BYTES)[..], "{number}");
    }
    let mut scanned = vec![first];
    scanned.extend(scan.map(Result::unwrap));
    let mut numbers: Vec<u64> = scanned
        .iter()
        .map(|entry| {
            let number = u64::from_le_bytes((*entry.key).try_into().unwrap());
            assert_eq!(*entry.value, value(number, BYTES)[..]);
            number
        })
        .collect();
    numbers.sort_unstable();
    assert!(numbers.iter().copied().eq(0..10), "{numbers:?}");
    for number in 0..COUNT {
        let found = db.get(&number.to_le_bytes()).unwrap();
        assert_eq!(found.as_deref(), Some(&value(number, BYTES)[..]));
    }
    assert_sound(db);
    // Every value that was returned is unchanged.
    assert_eq!(*scanned[0].value, value(0, BYTES)[..]);
}

/// Many buckets beside the records, so that windows move too.
fn many_buckets() -> Options {
    Options::new().fill_factor(1.0).durability(Durability::Buffered)
}

#[test]
fn values_and_scans_of_a_file_outlive_its_moves() {
    let dir = directory();
    let path = dir.path().join("grows.spt");
    let db = many_buckets().open(&path).unwrap();
    grow_with_borrowed_values(&db);
    let name = path.to_string_lossy().into_owned();
    let of_kind = |kind: &str| mapping_count(|line| line.contains(&name) && line.contains(kind));
    // 4, 16, 64 and 256 MiB.
    assert_eq!(of_kind("r--s"), 4, "mappings of the view");
    // The first piece of the buckets: behind the live header, in 1 MiB, and in what they moved to from there.
    assert_eq!((of_kind("rw-s 00002000"), of_kind("rw-s 00004000")), (1, 2), "mappings of buckets");
    db.close().unwrap();
    assert_eq!(mapping_count(|line| line.contains(&name)), 0, "all of it is given back");
    let db = Options::new().create(Create::Never).open(&path).unwrap();
    assert_sound(&db);
    assert_eq!(db.len(), 18_000);
}

/// Not a test by itself. With half a GiB of address space, a table in memory reserves little at a
/// time, and moves at 256 KiB, 8 MiB and 64 MiB: first when a segment of the log is opened, then
/// when the one after it is prepared.
#[test]
fn process_with_a_table_that_moves() {
    if std::env::var_os("SPLITPOINT_TEST_MOVES").is_none() {
        return;
    }
    let taken = address_space_bytes();
    let db = many_buckets().in_memory().unwrap();
    limit_to_another(Some(512 * MIB));
    grow_with_borrowed_values(&db);
    drop(db);
    limit_to_another(None);
    // The heap may have added arenas of 64 MiB each.
    assert!(address_space_bytes() < taken + (300 << 20), "all of it is given back");
}

#[test]
fn values_and_scans_of_a_table_in_memory_outlive_its_moves() {
    let db = many_buckets().in_memory().unwrap();
    grow_with_borrowed_values(&db);
    run_alone("address_space::process_with_a_table_that_moves", "SPLITPOINT_TEST_MOVES", "1");
}

/// A big value has a segment to itself, so the table moves between the change and the record in the
/// tail of the log that names it.
#[test]
fn a_table_in_memory_that_moves_for_a_big_value_goes_on_where_it_was() {
    let db = Db::in_memory().unwrap();
    for (number, bytes) in [(0, 20), (1, 1 << 20), (2, 20), (3, 30 << 20), (4, 20)] {
        db.put(&u64::to_le_bytes(number), &value(number, bytes)).unwrap();
    }
    db.apply(&[
        Change::Put { key: b"small", value: b"value" },
        Change::Put { key: b"big", value: &value(5, 90 << 20) },
        Change::Delete { key: &1_u64.to_le_bytes() },
    ])
    .unwrap();
    for (number, bytes) in [(0, 20), (2, 20), (3, 30 << 20), (4, 20)] {
        let found = db.get(&u64::to_le_bytes(number)).unwrap();
        assert!(found.as_deref() == Some(&value(number, bytes)[..]), "{number}");
    }
    assert!(db.get(b"big").unwrap().as_deref() == Some(&value(5, 90 << 20)[..]));
    assert_eq!(db.scan().unwrap().map(Result::unwrap).count(), 6);
    assert_sound(&db);
}

/// The progress of the writer of a growing table.
#[derive(Default)]
struct Progress {
    begun: AtomicU64,
    done: AtomicU64,
    is_over: AtomicBool,
}

impl Progress {
    /// Looks up keys that exist, and keys that do not yet.
    fn look_up(&self, db: &Db, rng: &mut Rng, bytes: usize) {
        let done = self.done.load(Ordering::SeqCst);
        let number = rng.below(done.max(1));
        // The newest is in the newest memory.
        for number in [number, done.saturating_sub(1)] {
            if number < done {
                let found = db.get(&number.to_le_bytes()).unwrap();
                assert_eq!(found.as_deref(), Some(&value(number, bytes)[..]), "{number} of {done}");
            }
        }
        let missing = u64::MAX - number;
        assert_eq!(db.get(&missing.to_le_bytes()).unwrap(), None);
    }

    /// Checks a table, or a copy of one, that was complete up to `done` when it was begun.
    fn check_content(&self, db: &Db, done: u64, bytes: usize) {
        let mut numbers = Vec::new();
        for entry in db.scan().unwrap() {
            let entry = entry.unwrap();
            let number = u64::from_le_bytes((*entry.key).try_into().unwrap());
            assert_eq!(*entry.value, value(number, bytes)[..]);
            numbers.push(number);
        }
        numbers.sort_unstable();
        let begun = self.begun.load(Ordering::SeqCst);
        let count = numbers.len() as u64;
        assert!((done..=begun).contains(&count), "{count} not in {done}..={begun}");
        assert!(numbers.iter().copied().eq(0..count), "keys are missing");
    }
}

/// Grows a table from nothing while two threads look up its keys, one scans it, and one keeps
/// copying it: a table in a file from its file, as another process would.
fn grow_under_readers(db: &Db, path: Option<&Path>, count: u64, bytes: usize) {
    let progress = &Progress::default();
    let dir = directory();
    let copy = dir.path().join("copy.spt");
    let seed = seed();
    let copies = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for reader in 0..2 {
            scope.spawn(move || {
                let mut rng = Rng::new(seed + reader);
                while !progress.is_over.load(Ordering::Relaxed) {
                    progress.look_up(db, &mut rng, bytes);
                }
            });
        }
        scope.spawn(|| {
            while !progress.is_over.load(Ordering::Relaxed) {
                let done = progress.done.load(Ordering::SeqCst);
                progress.check_content(db, done, bytes);
            }
        });
        let copier = scope.spawn(|| {
            while !progress.is_over.load(Ordering::Relaxed) {
                let done = progress.done.load(Ordering::SeqCst);
                let source = path.map_or_else(|| db.backup_with(), Backup::of_file);
                source.replace_existing().write(&copy).unwrap();
                progress.check_content(&Db::open(&copy).unwrap(), done, bytes);
                copies.fetch_add(1, Ordering::Relaxed);
            }
        });
        let _over = SetOnDrop(&progress.is_over);
        for number in 0..count {
            progress.begun.store(number + 1, Ordering::SeqCst);
            db.put(&number.to_le_bytes(), &value(number, bytes)).unwrap();
            progress.done.store(number + 1, Ordering::SeqCst);
            let is_half = number == count / 2;
            while is_half && copies.load(Ordering::Relaxed) == 0 && !copier.is_finished() {
                std::thread::yield_now();
            }
        }
    });
    assert!(copies.load(Ordering::Relaxed) > 0);
    progress.check_content(db, count, bytes);
    assert_sound(db);
}

struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn readers_of_a_file_see_current_values_while_it_moves() {
    within("readers of a file that moves", || {
        for round in 0..rounds(3, 30) {
            let dir = directory();
            let path = dir.path().join("grows.spt");
            // Through 4 and 16 MiB of view; then through windows alone.
            let (count, bytes) = if round % 2 == 0 { (9000, 2000) } else { (60_000, 8) };
            let db = many_buckets().open(&path).unwrap();
            grow_under_readers(&db, Some(&path), count, bytes);
        }
    });
}

#[test]
fn readers_of_a_table_in_memory_see_current_values_while_it_moves() {
    within("readers of a table that moves", || {
        for round in 0..rounds(6, 60) {
            let (count, bytes) = if round % 2 == 0 { (2000, 2000) } else { (20_000, 8) };
            let db = many_buckets().in_memory().unwrap();
            grow_under_readers(&db, None, count, bytes);
        }
    });
}

/// A read-only handle that does not trust the index builds a private one in memory, in two threads,
/// while its overflow lines outgrow their address space.
#[test]
fn a_read_only_handle_whose_own_index_moves_finds_everything() {
    let dir = directory();
    let (path, copy) = (dir.path().join("left.spt"), dir.path().join("copy.spt"));
    let count = if is_slow() { 1_000_000 } else { 250_000 };
    let db = Options::new().fill_factor(7.0).open(&path).unwrap();
    for number in 0..count {
        db.put(&u64::to_le_bytes(number), &value(number, 80)).unwrap();
    }
    // A copy is another file, so its tables are not trusted.
    std::fs::copy(&path, &copy).unwrap();
    drop(db);
    let db = Options::new().read_only().open(&copy).unwrap();
    assert!(matches!(db.recovery(), Recovery::Replayed { .. }), "{:?}", db.recovery());
    assert!(db.stats().unwrap().overflow_line_count > 4000);
    for number in 0..count {
        let found = db.get(&number.to_le_bytes()).unwrap();
        assert_eq!(found.as_deref(), Some(&value(number, 80)[..]));
    }
    assert_sound(&db);
}

/// Returns whether the process got no memory, or no address space for the store.
fn is_want_of_memory(error: &Error) -> bool {
    matches!(error, Error::Full { what: Error::MEMORY | Error::ADDRESS_SPACE, .. })
}

/// Calls `attempt` with more and more room until it succeeds; returns how often it got no memory.
fn attempts_without_memory(step_bytes: u64, mut attempt: impl FnMut() -> Result<(), Error>) -> u64 {
    for number in 0..300 {
        limit_to_another(Some(MIB + number * step_bytes));
        let attempted = attempt();
        limit_to_another(None);
        match attempted {
            Ok(()) => return number,
            Err(error) => assert!(is_want_of_memory(&error), "{error:?}"),
        }
    }
    panic!("it gets no memory however much there is");
}

/// Adds changes of `value_bytes` bytes until one gets no memory; returns how many the transaction has.
fn fill_transaction(tx: &mut Transaction<'_>, value_bytes: usize) -> u64 {
    let value = vec![7; value_bytes];
    for number in 0..20_000_000_u64 {
        if let Err(error) = tx.put(number.to_le_bytes(), &value) {
            assert!(matches!(error, Error::Full { what: Error::MEMORY, .. }), "{error:?}");
            assert!(error.to_string().starts_with("the memory of this process is full"), "{error}");
            return number;
        }
    }
    panic!("no process has so much memory");
}

/// Not a test by itself: another test runs it in a process.
#[test]
fn process_without_memory_for_a_transaction() {
    if std::env::var_os("SPLITPOINT_TEST_NO_MEMORY").is_none() {
        return;
    }
    let dir = directory();
    let options = Options::new().durability(Durability::Buffered).transaction_bytes(8 << 30);
    let db = options.open(dir.path().join("a.spt")).unwrap();
    // Changes whose bytes, and changes whose places in the list take the memory.
    for value_bytes in [MIB as usize, 100, 0] {
        let (mut kept, mut undone) = (db.begin().unwrap(), db.begin().unwrap());
        limit_to_another(Some(100 * MIB));
        let count = fill_transaction(&mut kept, value_bytes);
        fill_transaction(&mut undone, value_bytes);
        assert!(kept.get((count - 1).to_le_bytes()).unwrap().is_some());
        undone.rollback();
        undone.put("after", "").unwrap();
        limit_to_another(None);
        assert!(kept.get(count.to_le_bytes()).unwrap().is_none(), "it was refused");
        kept.put("more", "").unwrap();
        kept.commit().unwrap();
        assert_eq!(db.len(), count + 1);
        assert!(db.contains((count - 1).to_le_bytes()).unwrap());
        undone.commit().unwrap();
        assert_eq!(db.len(), count + 2);
        db.retain(|_, _| false).unwrap();
    }
    // What it reads: copies of its own values, keys, and the changes that a scan copies.
    let mut tx = db.begin().unwrap();
    tx.put("large", vec![7; 64 << 20]).unwrap();
    assert!(attempts_without_memory(16 * MIB, || tx.get("large").map(drop)) > 1);
    let mut next = 0_u64;
    let mut read = || {
        while next < 4_000_000 {
            tx.contains(next.to_le_bytes())?;
            next += 1;
        }
        Ok(())
    };
    assert!(attempts_without_memory(64 * MIB, &mut read) > 0);
    assert!(attempts_without_memory(16 * MIB, || tx.scan().map(drop)) > 1);
    tx.commit().unwrap();
    assert_sound(&db);
}

#[test]
fn a_transaction_without_memory_is_an_error_and_keeps_its_changes() {
    let name = "address_space::process_without_memory_for_a_transaction";
    run_alone(name, "SPLITPOINT_TEST_NO_MEMORY", "1");
}

/// Not a test by itself: another test runs it in a process.
#[test]
fn process_without_memory_for_a_batch() {
    const COUNT: u64 = 200_000;
    if std::env::var_os("SPLITPOINT_TEST_NO_MEMORY").is_none() {
        return;
    }
    let dir = directory();
    let options = Options::new().durability(Durability::Buffered).transaction_bytes(8 << 30);
    let db = options.open(dir.path().join("a.spt")).unwrap();
    db.put("before", "1").unwrap();
    let keys: Vec<[u8; 8]> = (0..COUNT).map(u64::to_le_bytes).collect();
    // The last key comes twice.
    let changes: Vec<Change<'_>> =
        keys.iter().chain(keys.last()).map(|key| Change::Put { key, value: b"2" }).collect();
    let failed = attempts_without_memory(2 * MIB, || {
        let applied = db.apply(&changes);
        let count = if applied.is_ok() { COUNT } else { 0 };
        assert_eq!(db.len(), 1 + count);
        assert_eq!(db.contains(keys[0]).unwrap(), applied.is_ok());
        applied
    });
    assert!(failed > 4, "{failed}");
    assert_sound(&db);
    let mut get_many = || db.get_many((0..4_000_000_u64).map(u64::to_le_bytes)).map(drop);
    assert!(attempts_without_memory(16 * MIB, &mut get_many) > 1);
    db.retain(|_, _| false).unwrap();
    // More than the allocator keeps of what was freed.
    let keys = 2_000_000_u64;
    let failed = attempts_without_memory(32 * MIB, || {
        let mut tx = db.begin()?;
        (0..keys).try_for_each(|key| tx.put(key.to_le_bytes(), "3"))?;
        let committed = tx.commit();
        assert_eq!(db.len(), if committed.is_ok() { keys } else { 0 });
        committed
    });
    assert!(failed > 1, "{failed}");
    assert_sound(&db);
}

#[test]
fn a_batch_without_memory_is_an_error_and_changes_nothing() {
    let name = "address_space::process_without_memory_for_a_batch";
    run_alone(name, "SPLITPOINT_TEST_NO_MEMORY", "1");
}
