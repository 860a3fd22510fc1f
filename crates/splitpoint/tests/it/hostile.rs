//! Invalid input: foreign, damaged, truncated, locked, full, read-only.
//!
//! Whatever the file holds, opening and reading it ends soon: with an error, with a report of the
//! damage, or with the contents that were stored. It never panics, and never touches memory outside
//! of the file.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use splitpoint::hash::{HashFunction, HashId};
use splitpoint::{Create, Db, Error, ErrorKind, FileKind, Options, Recovery, Sharing, SimDisk};

use crate::small_disk::{FileSystem, SmallDisk};
use crate::support::{
    Content, Rng, assert_content, closed_as_large, content, is_slow, is_tmpfs, mend_superblock,
    rounds, seed, tiny, try_content, within, worst_hash,
};

/// A small store with every structure: several segments and sessions, a big record, overflow lines
/// in use and free, dead records.
fn small_store() -> (Vec<u8>, Content, Options) {
    let options = tiny().fill_factor(2.0).hash(worst_hash());
    let disk = SimDisk::new();
    let db = disk.open(&options).unwrap();
    for i in 0..60_u8 {
        db.put(&[i], &[i; 60]).unwrap();
    }
    for i in 10..50_u8 {
        db.delete(&[i]).unwrap();
    }
    db.close().unwrap();
    let db = disk.open(&options).unwrap();
    for i in 0..20_u8 {
        db.put(&[i], &vec![i; 10 * usize::from(i)]).unwrap();
    }
    db.put(b"big", &[9; 1500]).unwrap();
    let expected = content(&db);
    let stats = db.stats().unwrap();
    assert!(stats.overflow_line_count > 0 && stats.overflow_line_free_count > 0);
    assert!(stats.segments.big > 0 && stats.segments.log >= 2 * 4096);
    db.close().unwrap();
    (closed_as_large(disk.file()), expected, options)
}

/// The effect of a damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// Opening, reading or checking returned an error.
    Refused,
    /// The check reported damage.
    Reported,
    /// All records are there, and no damage.
    Whole,
    /// The contents are wrong, and nothing is reported.
    Wrong,
}

/// Opens a file of these bytes and reads all of it in every way.
fn examine(bytes: &[u8], expected: &Content, options: &Options) -> Outcome {
    let disk = SimDisk::with_file(bytes);
    let Ok(db) = disk.open(&options.clone().create(Create::Never)) else {
        return Outcome::Refused;
    };
    let mut is_whole = true;
    for (key, value) in expected {
        match db.get(key) {
            Ok(found) => is_whole &= found.as_deref() == Some(&value[..]),
            Err(_) => return Outcome::Refused,
        }
    }
    let mut is_whole_scan = true;
    for entry in db.scan().into_iter().flatten() {
        let Ok(entry) = entry else { return Outcome::Refused };
        is_whole_scan &= expected.get(&*entry.key).is_some_and(|value| *value == *entry.value);
    }
    is_whole &= is_whole_scan && try_content(&db).is_ok_and(|found| found == *expected);
    is_whole &= db.len() == expected.len() as u64;
    match db.check() {
        Err(_) => Outcome::Refused,
        Ok(report) if !report.is_clean() => Outcome::Reported,
        Ok(_) if is_whole => Outcome::Whole,
        Ok(_) => Outcome::Wrong,
    }
}

/// Writes to a store that may be damaged: errors are allowed, panics and endless loops are not.
fn provoke(bytes: &[u8], options: &Options) {
    let disk = SimDisk::with_file(bytes);
    let Ok(db) = disk.open(options) else { return };
    for i in 0..40_u8 {
        let _ = db.put(&[i], &[i; 100]);
    }
    for i in 20..60_u8 {
        let _ = db.delete(&[i]);
    }
    let _ = (db.sync(), db.stats(), db.check(), db.close());
}

#[test]
fn what_is_not_a_store_is_named_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let mut zeros_then_data = vec![0; 20_000];
    zeros_then_data.push(1);
    for (bytes, name) in [
        (b"#!/bin/sh\necho hello\n".repeat(2000), "text"),
        (b"short".to_vec(), "text"),
        ([&b"SQLite format 3\0"[..], &vec![0; 30_000]].concat(), "an SQLite file"),
        (vec![0xff; 40_000], "other data"),
        (zeros_then_data, "zeros"),
        (b"\x89SPLIT\r".to_vec(), "other data"),
        (vec![0; 700], "zeros"),
    ] {
        fs::write(&path, &bytes).unwrap();
        for options in [Options::new(), Options::new().read_only()] {
            let error = options.open(&path).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotAStore, "{error}");
            assert!(error.to_string().contains(name), "{error}");
            assert!(error.to_string().contains("file"), "{error}");
        }
        assert_eq!(fs::read(&path).unwrap(), bytes);
    }
}

/// A creation that a power loss interrupted leaves blocks that were never written. Other zeros were
/// written by a program, or are holes.
#[test]
fn zeros_that_no_creation_left_are_refused_and_kept() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("zeros");
    let bytes = 1 << 20;
    fs::write(&path, vec![0; bytes]).unwrap();
    let holes = dir.path().join("holes");
    fs::File::create(&holes).unwrap().set_len(bytes as u64).unwrap();
    for path in [&path, &holes] {
        for create in [Create::IfMissing, Create::Never] {
            let error = Options::new().create(create).open(path).unwrap_err();
            assert!(
                matches!(error, Error::NotAStore { found: FileKind::BeginsWithZeros, .. }),
                "{error}"
            );
        }
        assert_eq!(fs::read(path).unwrap(), vec![0; bytes]);
    }
    // A look at a hole through a mapping gives it a page there.
    if !is_tmpfs(dir.path()) {
        assert!(fs::metadata(&holes).unwrap().blocks() * 512 < bytes as u64, "a hole got blocks");
    }
}

#[test]
fn what_an_interrupted_creation_leaves_becomes_a_store() {
    let dir = tempfile::tempdir().unwrap();
    let reserved = dir.path().join("reserved");
    let file = fs::File::create(&reserved).unwrap();
    if rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 1 << 20).is_err() {
        println!("skipped: no fallocate on this file system");
        return;
    }
    // Before the first change.
    let small = dir.path().join("small");
    fs::write(&small, vec![0; 20 << 10]).unwrap();
    // Killed while the file system allocated the header.
    let part = dir.path().join("part");
    fs::write(&part, vec![0; 12 << 10]).unwrap();
    // It does not tell which blocks were never written.
    let is_told = !is_tmpfs(dir.path());
    for path in is_told.then_some(&reserved).into_iter().chain([&small, &part]) {
        let db = Db::open(path).unwrap();
        assert_eq!(db.recovery(), Recovery::Created);
        db.put(b"key", b"value").unwrap();
        db.close().unwrap();
        assert_eq!(Db::open(path).unwrap().get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
    }
}

/// Opening a pipe would wait for the other end, and opening a device may have an effect.
#[test]
fn what_is_no_regular_file_is_refused_without_waiting() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    let dir = tempfile::tempdir().unwrap();
    let (fifo, socket) = (dir.path().join("fifo"), dir.path().join("socket"));
    mknodat(CWD, &fifo, FileType::Fifo, Mode::RWXU, 0).unwrap();
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let store = dir.path().join("store");
    Db::open(&store).unwrap().close().unwrap();
    for (path, kind) in [
        (dir.path(), FileKind::Directory),
        (&fifo, FileKind::NamedPipe),
        (&socket, FileKind::Socket),
        (Path::new("/dev/null"), FileKind::CharacterDevice),
    ] {
        let new = dir.path().join("new");
        let mut errors = vec![
            splitpoint::backup::backup(path, &new).unwrap_err(),
            splitpoint::repair::repair(path, &new).unwrap_err(),
            splitpoint::backup::backup(&store, path).unwrap_err(),
            splitpoint::repair::repair(&store, path).unwrap_err(),
            splitpoint::open_regular(path, fs::OpenOptions::new().read(true)).unwrap_err(),
        ];
        for create in [Create::IfMissing, Create::New, Create::Never] {
            errors.push(Options::new().create(create).open(path).unwrap_err());
        }
        errors.push(Options::new().read_only().open(path).unwrap_err());
        for error in errors {
            assert_eq!(error.path(), Some(path), "{error}");
            let Error::NotAStore { found, .. } = error else { panic!("{error}") };
            assert_eq!(found, kind);
        }
        assert!(!new.exists());
    }
}

/// It is neither a missing file nor an existing one, and nothing is created through the link.
#[test]
fn a_link_that_leads_nowhere_is_refused_with_its_target() {
    let dir = tempfile::tempdir().unwrap();
    let (link, first) = (dir.path().join("link"), dir.path().join("sub/first"));
    let gone = dir.path().join("sub/gone");
    fs::create_dir(dir.path().join("sub")).unwrap();
    std::os::unix::fs::symlink("gone", &first).unwrap();
    std::os::unix::fs::symlink("sub/first", &link).unwrap();
    for create in [Create::IfMissing, Create::New, Create::Never] {
        let error = Options::new().create(create).open(&link).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(&format!("link to `{}`, which does not exist", gone.display())));
        let Error::NotAStore { found, .. } = error else { panic!("{error}") };
        assert_eq!(found, FileKind::DanglingLink { target: gone.clone() });
    }
    assert!(!gone.exists());
    // A link to an existing file is followed.
    Db::open(&gone).unwrap().put(b"key", b"value").unwrap();
    assert_eq!(Db::open(&link).unwrap().len(), 1);
}

#[test]
fn create_decides_about_missing_empty_and_existing_files() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let never = Options::new().create(Create::Never);
    assert_eq!(never.open(&path).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(Options::new().read_only().open(&path).unwrap_err().kind(), ErrorKind::NotFound);
    assert!(!path.exists());
    File::create(&path).unwrap();
    assert_eq!(never.open(&path).unwrap_err().kind(), ErrorKind::NotAStore);
    let new = Options::new().create(Create::New);
    assert_eq!(new.open(&path).unwrap_err().kind(), ErrorKind::Exists);
    assert_eq!(fs::metadata(&path).unwrap().len(), 0);
    assert_eq!(Db::open(&path).unwrap().recovery(), Recovery::Created);
    assert_eq!(never.open(&path).unwrap().recovery(), Recovery::Clean);
    assert_eq!(new.open(&path).unwrap_err().kind(), ErrorKind::Exists);
    let missing = dir.path().join("no such directory").join("file");
    let error = Db::open(&missing).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().ends_with("No such file or directory (os error 2)"), "{error}");
}

#[test]
fn a_newer_version_is_refused_with_both_numbers() {
    let (mut bytes, _, options) = small_store();
    for offset in [0, 4096] {
        bytes[offset + 8] = 2;
        mend_superblock(&mut bytes, offset);
    }
    let error = SimDisk::with_file(&bytes).open(&options).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Version);
    let text = error.to_string();
    assert!(text.contains("version 2") && text.contains("version 1"), "{text}");
}

/// Cuts a file: a mapping beyond its end would kill this process by SIGBUS. `damage` shows that
/// every cut is detected.
#[test]
fn a_truncated_file_is_refused_without_a_signal() {
    let (bytes, _, options) = small_store();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cut.spt");
    for len in (0..bytes.len()).step_by(511) {
        for options in [options.clone().create(Create::Never), options.clone().read_only()] {
            fs::write(&path, &bytes[..len]).unwrap();
            let Ok(db) = options.open(&path) else { continue };
            let _ = (db.get(b"big"), try_content(&db), db.check(), db.stats());
        }
    }
}

/// Flips bits in the links of the free overflow lines, which no lookup reads: the check must report
/// a list that would allocate a line in use.
#[test]
fn a_damaged_list_of_free_lines_is_reported_before_it_does_harm() {
    let options = tiny().fill_factor(7.0);
    let disk = SimDisk::new();
    let db = disk.open(&options).unwrap();
    for i in 0..250_u8 {
        db.put(&[i], &[i; 6]).unwrap();
    }
    for i in 0..180_u8 {
        db.delete(&[i]).unwrap();
    }
    let expected = content(&db);
    db.close().unwrap();
    let bytes = closed_as_large(disk.file());
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let (overflow_at, first) = (word(8192 + 2560) as usize * 4096, word(8192 + 328) as usize);
    assert!(first > 0, "no line was given back");
    let link_at = overflow_at + (first - 1) * 64 + 60;
    for number in 0..=255 {
        let mut changed = bytes.clone();
        changed[link_at] = number;
        if number == bytes[link_at] {
            assert_eq!(examine(&changed, &expected, &options), Outcome::Whole);
        } else {
            assert_eq!(examine(&changed, &expected, &options), Outcome::Reported, "{number}");
        }
    }
}

/// Flips each byte of the header of a store that a killed process left, in its first session and in
/// a later one. No record may be lost without a report.
#[test]
fn a_flipped_byte_in_the_header_of_an_unclosed_store_loses_nothing_silently() {
    for session_count in [1, 2, 3] {
        let options = tiny().fill_factor(2.0).hash(worst_hash());
        let mut disk = SimDisk::new();
        let mut expected = Content::new();
        for session in 0..session_count {
            let db = disk.open(&options).unwrap();
            for i in 0..30_u8 {
                db.put(&[session, i], &[i; 30]).unwrap();
            }
            expected = content(&db);
            if session + 1 < session_count {
                db.close().unwrap();
            } else {
                disk = disk.kill();
            }
        }
        let bytes = disk.file();
        for offset in 0..12_288 {
            // The zeros of the superblocks, which `damage` flips one by one.
            if offset < 8192 && bytes[offset] == 0 && !offset.is_multiple_of(16) && !is_slow() {
                continue;
            }
            let mut flipped = bytes.clone();
            flipped[offset] ^= 0xff;
            let outcome = examine(&flipped, &expected, &options);
            assert_ne!(outcome, Outcome::Wrong, "byte {offset}, session {session_count}");
        }
    }
}

/// Damages several bytes at once, at random and in runs, in a closed store and in one that a killed
/// process left, whose live header is trusted. Nothing may panic or loop forever.
#[test]
fn random_damage_never_panics_or_loops() {
    let (bytes, expected, options) = small_store();
    let mut rng = Rng::new(seed());
    let disk = SimDisk::with_file(&bytes);
    let db = disk.open(&options).unwrap();
    db.put(&[0], &[0; 0]).unwrap();
    db.delete(&[0]).unwrap();
    db.put(&[0], &expected[&vec![0]]).unwrap();
    let left = disk.file();
    assert!(matches!(
        SimDisk::with_file(&left).open(&options).unwrap().recovery(),
        Recovery::WarmRestart { .. }
    ));
    within("random damage", move || {
        for round in 0..rounds(4000, 200_000) {
            let is_left = round % 2 == 1;
            let mut damaged = if is_left { left.clone() } else { bytes.clone() };
            let count = 1 + rng.index(8);
            for _ in 0..count {
                // Half of the damage goes where the structures are.
                let limit = if rng.below(2) == 0 { 24_576 } else { damaged.len() };
                let at = rng.index(limit);
                let end = (at + 1 + rng.index(16)).min(damaged.len());
                let fill = [0, 0xff, rng.next() as u8][rng.index(3)];
                for byte in &mut damaged[at..end] {
                    *byte = if rng.below(4) == 0 { *byte ^ 1 } else { fill };
                }
            }
            if rng.below(4) == 0 {
                mend_superblock(&mut damaged, 0);
                mend_superblock(&mut damaged, 4096);
            }
            let outcome = std::panic::catch_unwind(|| {
                provoke(&damaged, &options);
                examine(&damaged, &expected, &options)
            });
            assert!(outcome.is_ok(), "round {round} panics");
        }
    });
}

/// Sets each field of the live header of a store that a killed process left to many values: no
/// checksum protects it, since it must be valid after each store to it.
#[test]
fn any_live_header_is_survived() {
    let options = tiny().fill_factor(2.0).hash(worst_hash());
    let disk = SimDisk::new();
    let db = disk.open(&options).unwrap();
    for i in 0..60_u8 {
        db.put(&[i], &[i; 60]).unwrap();
        if i % 3 == 0 {
            db.delete(&[i / 2]).unwrap();
        }
    }
    let expected = content(&db);
    let bytes = disk.file();
    let file_bytes = bytes.len() as u64;
    within("live header", move || {
        for word in 0..300 {
            let at = 8192 + 8 * word;
            let was = u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
            for value in [
                0,
                1,
                was + 1,
                was.wrapping_sub(1),
                was + 8,
                was ^ 4096,
                was << 1,
                u64::MAX,
                1 << 32,
                1 << 33,
                file_bytes,
                file_bytes / 4096,
                file_bytes / 4096 - 1,
            ] {
                let mut changed = bytes.clone();
                changed[at..at + 8].copy_from_slice(&value.to_le_bytes());
                let outcome = std::panic::catch_unwind(|| {
                    provoke(&changed, &options);
                    examine(&changed, &expected, &options)
                });
                assert!(outcome.is_ok(), "word {word} with {value:#x} panics");
            }
        }
    });
}

#[test]
fn arbitrary_bytes_are_refused() {
    let (bytes, _, options) = small_store();
    let mut rng = Rng::new(seed());
    within("arbitrary bytes", move || {
        for round in 0..rounds(300, 20_000) {
            let len = rng.index(40_000);
            let mut file = rng.bytes(len);
            match round % 3 {
                0 => file[..8.min(len)].copy_from_slice(&bytes[..8.min(len)]),
                1 => {
                    let head = len.min(8192);
                    file[..head].copy_from_slice(&bytes[..head]);
                }
                _ => {}
            }
            let outcome = examine(&file, &Content::from([(vec![0], vec![0])]), &options);
            assert_ne!(outcome, Outcome::Whole);
            provoke(&file, &options);
        }
        for filler in [0xff, 0x01, 0x80] {
            let mut file = vec![filler; 200_000];
            file[..8192].copy_from_slice(&bytes[..8192]);
            let expected = Content::from([(vec![0], vec![0])]);
            assert_ne!(examine(&file, &expected, &options), Outcome::Whole);
            file[8192..16_384].copy_from_slice(&bytes[8192..16_384]);
            assert_ne!(examine(&file, &expected, &options), Outcome::Whole);
            provoke(&file, &options);
        }
    });
}

#[test]
fn a_superblock_made_to_harm_is_refused_before_it_is_used() {
    let (bytes, expected, options) = small_store();
    within("superblocks", move || {
        for offset in 16..192 {
            for value in [0x00, 0x01, 0x7f, 0x80, 0xff] {
                let mut changed = bytes.clone();
                for block in [0, 4096] {
                    changed[block + offset] = value;
                    mend_superblock(&mut changed, block);
                }
                let outcome = std::panic::catch_unwind(|| {
                    provoke(&changed, &options);
                    examine(&changed, &expected, &options)
                });
                assert!(outcome.is_ok(), "byte {offset} with {value:#x} panics");
            }
        }
    });
}

#[test]
fn the_wrong_hash_function_is_refused_with_both_names() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("hash.spt");
    let user = |function| HashFunction::user(HashId(0x8000_0001), "mine", function).unwrap();
    let mine = user(|key, _| key.len() as u64);
    let db = Options::new().hash(mine.clone()).open(&path).unwrap();
    db.put(b"key", b"value").unwrap();
    db.close().unwrap();
    let other = user(|key, _| key.len() as u64 + 1);
    for (hash, names) in [
        (None, ["mine", "any of this library"]),
        (Some(HashFunction::rapidhash_v3()), ["mine", "rapidhash-v3"]),
        (Some(other), ["mine", "another mine"]),
    ] {
        let mut options = Options::new();
        if let Some(hash) = hash {
            options = options.hash(hash);
        }
        for options in [options.clone(), options.read_only()] {
            let error = options.open(&path).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::HashMismatch);
            assert!(names.iter().all(|name| error.to_string().contains(name)), "{error}");
        }
    }
    let db = Options::new().hash(mine).open(&path).unwrap();
    assert!(db.contains(b"key").unwrap());
    drop(db);
    fs::remove_file(&path).unwrap();
    for hash in HashFunction::all() {
        let db = Options::new().hash(hash.clone()).open(&path).unwrap();
        db.put(b"key", b"value").unwrap();
        drop(db);
        assert!(Db::open(&path).unwrap().contains(b"key").unwrap(), "{hash:?}");
        assert_eq!(Db::open(&path).unwrap().stats().unwrap().hash_name, hash.name());
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn a_store_is_opened_for_writing_once_in_a_process() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("locked.spt");
    let alone = || Options::new().sharing(Sharing::Exclusive);
    for (first, others) in [
        (Options::new(), vec![Options::new(), alone(), alone().read_only()]),
        (alone(), vec![Options::new(), alone(), alone().read_only(), Options::new().read_only()]),
    ] {
        let db = first.open(&path).unwrap();
        for options in others {
            let error = options.open(&path).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Locked);
            assert!(error.to_string().contains("is locked by this process (writer"), "{error}");
        }
        drop(db);
    }
    let first = Options::new().read_only().open(&path).unwrap();
    let second = Options::new().read_only().open(&path).unwrap();
    assert_eq!(alone().open(&path).unwrap_err().kind(), ErrorKind::Locked);
    drop((first, second));
    let third = alone().read_only().open(&path).unwrap();
    assert_eq!(Db::open(&path).unwrap_err().kind(), ErrorKind::Locked);
    drop(third);
    alone().open(&path).unwrap();
}

const HOLD_ENV: &str = "SPLITPOINT_TEST_HOLD";

/// Not a test by itself: the process of the next test. It opens the store, prints a line, and holds
/// the store until its input ends.
#[test]
fn holder_process_opens_the_store_and_waits() {
    let Some(path) = std::env::var_os(HOLD_ENV) else { return };
    let _db = Db::open(&path).unwrap();
    fs::write(Path::new(&path).with_extension("held"), b"").unwrap();
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).unwrap();
}

#[test]
fn a_store_held_by_another_process_is_refused_with_its_pid() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("locked.spt");
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "hostile::holder_process_opens_the_store_and_waits"])
        .env(HOLD_ENV, &path)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    while !path.with_extension("held").exists() {
        assert!(child.try_wait().unwrap().is_none(), "the holder has ended");
        std::thread::yield_now();
    }
    assert!(Options::new().read_only().open(&path).unwrap().is_empty());
    let alone = Options::new().sharing(Sharing::Exclusive);
    for options in [Options::new(), alone.clone(), alone.read_only()] {
        match options.open(&path).unwrap_err() {
            Error::Locked { holders, .. } => assert_eq!(holders[0].pid, Some(child.id())),
            other => panic!("{other}"),
        }
    }
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    Db::open(&path).unwrap();
}

#[test]
fn a_read_only_handle_reads_everything_and_changes_nothing() {
    let (bytes, expected, options) = small_store();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("read.spt");
    fs::write(&path, &bytes).unwrap();
    let db = options.clone().read_only().open(&path).unwrap();
    assert_eq!(db.recovery(), Recovery::Clean);
    assert_content(&db, &expected);
    assert_eq!(db.put(b"key", b"value").unwrap_err().kind(), ErrorKind::ReadOnly);
    assert_eq!(db.put_new(&[0], b"value").unwrap_err().kind(), ErrorKind::ReadOnly);
    assert_eq!(db.put_many(&[(b"a", b"b")]).unwrap_err().kind(), ErrorKind::ReadOnly);
    assert_eq!(db.delete(&[0]).unwrap_err().kind(), ErrorKind::ReadOnly);
    assert!(splitpoint::Table::capabilities(&db).is_read_only);
    db.sync().unwrap();
    db.stats().unwrap();
    db.close().unwrap();
    assert_eq!(fs::read(&path).unwrap(), bytes);
}

/// Copies what a killed process left to a file with another boot and inode. A read-only handle
/// rebuilds the index in memory and does not write the file; a writer rebuilds it in place.
#[test]
fn an_unclosed_copy_is_read_with_a_private_index_and_taken_over_by_a_writer() {
    let options = tiny().hash(worst_hash());
    let disk = SimDisk::new();
    let db = disk.open(&options).unwrap();
    for i in 0..200_u8 {
        db.put(&[i], &[i; 50]).unwrap();
    }
    db.put(b"big", &[1; 5000]).unwrap();
    let expected = content(&db);
    let bytes = disk.file();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("copy.spt");
    fs::write(&path, &bytes).unwrap();
    let db = options.clone().read_only().open(&path).unwrap();
    assert!(matches!(db.recovery(), Recovery::Replayed { dropped_bytes: 0, .. }));
    assert_content(&db, &expected);
    assert!(db.stats().unwrap().overflow_line_count > 0);
    drop(db);
    assert_eq!(fs::read(&path).unwrap(), bytes);
    let db = options.open(&path).unwrap();
    assert!(matches!(db.recovery(), Recovery::Replayed { dropped_bytes: 0, .. }));
    assert_content(&db, &expected);
    db.close().unwrap();
    let db = options.open(&path).unwrap();
    assert_eq!(db.recovery(), Recovery::Clean);
    assert_content(&db, &expected);
}

#[test]
fn a_file_copied_while_open_is_replayed_and_not_taken_over() {
    let dir = tempfile::tempdir().unwrap();
    let (path, copy) = (dir.path().join("open.spt"), dir.path().join("copy.spt"));
    let db = Db::open(&path).unwrap();
    for i in 0..1000_u32 {
        db.put(&i.to_le_bytes(), &[3; 30]).unwrap();
    }
    let expected = content(&db);
    fs::copy(&path, &copy).unwrap();
    db.put(b"later", b"").unwrap();
    let copied = Db::open(&copy).unwrap();
    // Those that link segments count, too.
    assert!(matches!(
        copied.recovery(),
        Recovery::Replayed { records: 1000..1010, dropped_bytes: 0, .. }
    ));
    assert_content(&copied, &expected);
}

#[test]
fn a_file_without_permission_is_refused_by_the_system() {
    if is_root() {
        println!("skipped: root may open every file");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("secret.spt");
    Db::open(&path).unwrap().close().unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    let error = Db::open(&path).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.to_string().starts_with("cannot open"), "{error}");
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
}

#[test]
fn a_store_on_read_only_media_is_read_and_not_written() {
    let Some(disk) = SmallDisk::mount(FileSystem::Tmpfs, 1024) else { return };
    let (closed, unclosed) = (disk.path().join("closed.spt"), disk.path().join("unclosed.spt"));
    let db = Db::open(&closed).unwrap();
    db.put(b"key", b"value").unwrap();
    fs::copy(&closed, &unclosed).unwrap();
    let expected = content(&db);
    db.close().unwrap();
    disk.remount("ro");
    for path in [&closed, &unclosed] {
        let error = Db::open(path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io, "{error}");
        assert_content(&Options::new().read_only().open(path).unwrap(), &expected);
    }
    let error = Db::open(disk.path().join("new.spt")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    disk.remount("rw");
    assert_content(&Db::open(&unclosed).unwrap(), &expected);
}

/// Damages a closed file on disk, so that the checks also run over real mappings, with the index
/// rebuilt on request.
#[test]
fn rebuild_index_repairs_a_damaged_index() {
    let (bytes, expected, options) = small_store();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("damaged.spt");
    fs::write(&path, &bytes).unwrap();
    let file = File::options().write(true).open(&path).unwrap();
    // The first bucket piece is the first granule behind the header.
    file.write_all_at(&[0xee; 64], 16_384).unwrap();
    let db = options.open(&path).unwrap();
    assert!(!db.check().unwrap().is_clean());
    drop(db);
    let db = options.clone().rebuild_index().open(&path).unwrap();
    assert_content(&db, &expected);
    drop(db);
    assert_content(&options.open(&path).unwrap(), &expected);
}

#[test]
fn a_scan_returns_what_is_before_a_damaged_record_then_the_error_then_no_more() {
    let disk = SimDisk::new();
    let db = disk.open(&Options::new()).unwrap();
    for i in 0..100 {
        db.put(format!("key number {i:02}").as_bytes(), b"value").unwrap();
    }
    db.close().unwrap();
    let file = disk.file();
    for damaged in [0, 1, 31, 32, 33, 99] {
        let key = format!("key number {damaged:02}").into_bytes();
        let at = file.windows(key.len()).position(|window| window == key).expect("it is there");
        let mut file = file.clone();
        // The first word of the record, which is its whole header.
        file[at - 8..at].fill(0xff);
        let db = SimDisk::with_file(&file).open(&Options::new().read_only()).unwrap();
        let mut scan = db.scan().unwrap();
        for i in 0..damaged {
            let entry = scan.next().expect("there are more").unwrap();
            assert_eq!(*entry.key, *format!("key number {i:02}").as_bytes());
        }
        let error = scan.next().expect("the damage").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(scan.next().is_none() && scan.next().is_none());
    }
}
