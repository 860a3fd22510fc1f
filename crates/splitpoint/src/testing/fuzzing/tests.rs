//! The bases, and the inputs that are kept: those that reach much code, and those that failed once.

use std::path::{Path, PathBuf};

use super::*;
use crate::{Create, Options, Recovery, SimDisk};

/// Where the sources of this module are.
fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/testing/fuzzing")
}

/// Makes a small store with all that the format has: segments that are linked, big records, dead
/// ones, lines in overflow and given back, two sessions.
fn fill(disk: &SimDisk) -> crate::Db {
    let options = Options::new().segment_bytes_min(4096).fill_factor(7.0).seed(7);
    let options = options.checkpoint_bytes_min(2500);
    let db = disk.open(&options).expect("it opens");
    for i in 0..120_u8 {
        db.put(&[i], &[i; 20]).expect("there is room");
    }
    for i in 0..100_u8 {
        db.delete(&[i]).expect("there is room");
    }
    db.close().expect("nothing fails");
    let db = disk.open(&options).expect("it opens");
    for i in 0..30_u8 {
        db.put(&[i], &[]).expect("there is room");
    }
    db.put(b"big", &[3; 1100]).expect("there is room");
    db.put(&[5], b"replaced").expect("there is room");
    db.put(&[b'k'; 300], b"long").expect("there is room");
    let stats = db.stats().expect("nothing fails");
    assert!(stats.segments.big > 0 && stats.segments.log > 4096);
    assert!(stats.overflow_line_count > 0 && stats.overflow_line_free_count > 0);
    db
}

/// Writes the bases, if that is asked for: after a change of the format.
fn write_if_asked() {
    if std::env::var_os("SPLITPOINT_WRITE_CORPUS").is_none() {
        return;
    }
    let disk = SimDisk::new();
    let db = fill(&disk);
    std::fs::write(directory().join("left.sparse"), sparse(&disk.file())).expect("it is written");
    db.close().expect("nothing fails");
    std::fs::write(directory().join("closed.sparse"), sparse(&disk.file())).expect("it is written");
}

#[test]
fn bases_are_sound_stores() {
    write_if_asked();
    for base in Base::ALL {
        let file = base.file();
        let mut again = Vec::new();
        Source::new(&sparse(&file)).change(&mut again);
        assert_eq!(again, file);
        let mut mended = file.clone();
        mend(&mut mended, 0xff);
        assert!(mended == file, "{base:?} has checksums that mend does not know");
        let db = SimDisk::with_file(&file).open(&Options::new().create(Create::Never)).unwrap();
        match base {
            Base::Closed => assert_eq!(db.recovery(), Recovery::Clean),
            Base::Left => assert!(matches!(db.recovery(), Recovery::WarmRestart { .. })),
            Base::Lost => match db.recovery() {
                Recovery::Replayed { checkpoint_keys, dropped_bytes, .. } => {
                    assert!(checkpoint_keys > 0 && dropped_bytes == 0);
                }
                other => panic!("{other:?}"),
            },
        }
        let report = db.check().unwrap();
        assert!(report.is_clean(), "{base:?}: {:?}", report.damages);
        assert_eq!(db.len(), 52);
    }
}

/// Damages each part of a base and mends it: the checksum must be right again.
#[test]
fn mended_damage_is_found_by_its_content_and_not_by_its_checksum() {
    for offset in [52, 4096 + 52, 8192 + 400, 12_400] {
        let mut file = Base::Closed.file();
        file[offset] ^= 1;
        mend(&mut file, 0xff);
        let db = SimDisk::with_file(&file).open(&Options::new().create(Create::Never)).unwrap();
        let report = db.check().unwrap();
        let checksum = report.damages.iter().find(|damage| damage.what.contains("checksum"));
        assert_eq!(checksum, None, "{offset}");
    }
}

/// Runs every kept input of a target.
#[track_caller]
fn replay(target: &str, run: impl Fn(&[u8])) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut input_count = 0;
    for entry in std::fs::read_dir(corpus).expect("a corpus") {
        let path = entry.expect("it is listed").path();
        let input = std::fs::read(&path).expect("it is read");
        let passes = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(&input)));
        assert!(passes.is_ok(), "{} fails, see above", path.display());
        input_count += 1;
    }
    assert!(input_count > 0, "no input for {target}");
}

#[test]
fn every_input_of_open_scan_passes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fuzz.spt");
    replay("open_scan", |input| {
        open_scan(input, |file| {
            std::fs::write(&path, file).unwrap();
            path.clone()
        });
    });
}

#[test]
fn every_input_of_recovery_passes() {
    replay("recovery", recovery);
}

#[test]
fn every_input_of_record_passes() {
    replay("record", record);
}
