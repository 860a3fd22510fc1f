//! Every sample file is read exactly.

use splitpoint::{Create, Error, FileKind, Table, TableExt};
use splitpoint_legacy::{ByteOrder, Format, OldFile, Source, identify, open, open_damaged};

use crate::support::{expected, files_of, fixtures, listed, names, pairs_of};

/// Scans each sample, and looks up each of its keys and as many that are not there.
#[test]
fn every_sample_is_read_exactly() {
    assert_eq!(names().len(), 59);
    for name in names() {
        let expected = expected(&name);
        let file = open(&files_of(&name)[0]).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(pairs_of(&file) == expected, "{name}: the pairs differ");
        assert_eq!(file.len().unwrap(), expected.len() as u64, "{name}");
        // A lookup in a file that a crash or a bug has damaged fails as the original's does.
        let is_damaged = name.contains("unclean") || name.contains("buggywriter");
        for (key, value) in expected.iter().filter(|_| !is_damaged) {
            let found = file.get(key).unwrap();
            assert_eq!(found.as_deref(), Some(&value[..]), "{name}: {}", key.escape_ascii());
            let absent = [&key[..], b"\xff not there"].concat();
            assert!(file.get(&absent).unwrap().is_none(), "{name}");
        }
        let survey = file.survey().unwrap();
        assert!(is_damaged || survey.doubt_count == 0, "{name}: {:?}", survey.doubts);
        // What a file that was not closed states of itself is not what it has.
        let is_unclosed = name.contains("unclean");
        assert_eq!(survey.discrepancies().count(), 2 * usize::from(is_unclosed), "{name}");
        assert!(is_unclosed || survey.loss_count == 0, "{name}: {:?}", survey.doubts);
        let counted = survey.buckets.iter().map(|row| row.size * row.bucket_count);
        let hashed = if file.is_hashed() { survey.pair_count } else { 0 };
        assert_eq!(counted.sum::<u64>(), hashed, "{name}");
    }
}

/// Samples in which keys have several values, listed by the program that made the file.
#[test]
fn every_value_of_a_key_is_read() {
    for name in ["bdb53-btree-le-512-several", "cdb-tinycdb-several"] {
        let file = open(&files_of(name)[0]).unwrap();
        let mut expected = listed(&format!("{name}.values.txt"));
        let found = file.values().map(Result::unwrap);
        let mut found: Vec<_> =
            found.map(|one| (one.key.to_vec(), one.value.unwrap().to_vec())).collect();
        if name.starts_with("cdb") {
            // Read by table: the values of one key are in order, the keys are not.
            expected.sort_by(|one, other| one.0.cmp(&other.0));
            found.sort_by(|one, other| one.0.cmp(&other.0));
        }
        assert!(found == expected, "{name}");
        let survey = file.survey().unwrap();
        assert_eq!((survey.doubt_count, survey.pair_count), (0, 12), "{name}");
        for (key, values) in
            expected.chunk_by(|one, next| one.0 == next.0).map(|run| (&run[0].0, run))
        {
            assert_eq!(file.get(key).unwrap().as_deref(), Some(&values[0].1[..]), "{name}");
        }
    }
}

/// A salvage looks for what a scan does not find; of a sound file it says no more than a scan.
#[test]
fn a_salvage_of_a_sound_file_reports_no_damage() {
    for name in names() {
        let file = open(&files_of(&name)[0]).unwrap();
        let is_sound = file.survey().unwrap().doubt_count == 0;
        let mut saved = 0;
        let doubts = file.salvage(|_, is_doubtful| {
            saved += usize::from(!is_doubtful);
            Ok(())
        });
        let doubts = doubts.unwrap();
        assert_eq!(saved, expected(&name).len(), "{name}");
        assert!(!is_sound || doubts.is_empty(), "{name}: {doubts:?}");
    }
}

#[test]
fn every_sample_is_known_by_its_content() {
    for name in names() {
        let path = &files_of(&name)[0];
        let found = identify(path).unwrap().unwrap_or_else(|| panic!("{name} is not known"));
        let is_single_block = name.ends_with("-onepage");
        let format = match name.split('-').next().unwrap() {
            _ if is_single_block => Format::DbmOrSdbm,
            "bdb53" if name.contains("btree") => Format::BdbBtree,
            "bdb53" => Format::BdbHash,
            "cdb" => Format::Cdb,
            "dumb" => Format::Dumb,
            "db185" => Format::Db185Hash,
            "krb5db2" => Format::Krb5Hash,
            "gdbm" | "gdbmcompat" => Format::Gdbm,
            "ndbm" => Format::Dbm,
            "sdbm" => Format::Sdbm,
            other => panic!("{other} is new"),
        };
        assert_eq!(found.format, format, "{name}");
        let order = if name.contains("-be-") { ByteOrder::Big } else { ByteOrder::Little };
        let has_order = !matches!(format, Format::Cdb | Format::Dumb);
        assert_eq!(found.byte_order, has_order.then_some(order), "{name}: {found}");
    }
}

/// Copies a pair of files to names that say nothing: what a file is called does not count.
#[test]
fn a_pair_of_files_is_found_by_either_and_by_their_common_name() {
    let dir = tempfile::tempdir().unwrap();
    for (name, keys) in [("sdbm-ruby-word", 900), ("ndbm-be-word", 900), ("gdbmcompat-ndbm", 200)] {
        for end in [".pag", ".dir"] {
            let file = format!("{name}{end}");
            std::fs::copy(fixtures().join(&file), dir.path().join(&file)).unwrap();
        }
        for end in ["", ".pag", ".dir"] {
            let file = open(dir.path().join(format!("{name}{end}"))).unwrap();
            assert_eq!(file.len().unwrap(), keys, "{name}{end}");
        }
        // Without its trie every pair is still there, and is found.
        std::fs::copy(fixtures().join(format!("{name}.pag")), dir.path().join("alone")).unwrap();
        let alone = open(dir.path().join("alone")).unwrap();
        assert!(pairs_of(&alone) == expected(name), "{name} alone");
        let (key, value) = expected(name).pop_last().unwrap();
        assert_eq!(alone.get(&key).unwrap().as_deref(), Some(&value[..]));
        assert!(alone.get(b"not there").unwrap().is_none());
    }
}

#[test]
fn the_ruby_and_the_perl_hash_are_told_apart() {
    let hash_of = |name: &str| open(&files_of(name)[0]).unwrap().stats().unwrap().hash_name;
    assert_eq!(hash_of("sdbm-ruby-word"), "sdbm-65587");
    assert_eq!(hash_of("sdbm-le-word"), "sdbm");
    assert_eq!(hash_of("sdbm-apr-word"), "sdbm");
    assert_eq!(hash_of("ndbm-be-word"), "dbm");
    // x86 has signed characters; the other way round is not told by keys that are ASCII.
    assert_eq!(hash_of("gdbm-std-bin"), "gdbm-signed");
    assert_eq!(hash_of("bdb53-le-512-word"), "fnv1-32 from 0");
    assert_eq!(hash_of("krb5db2-v3-be-1024-big"), "x33");
}

/// Opening a pipe would wait until somebody writes to it.
#[test]
fn what_is_no_regular_file_is_refused_without_waiting() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use splitpoint_legacy::db185::Options;

    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo");
    mknodat(CWD, &fifo, FileType::Fifo, Mode::RWXU, 0).unwrap();
    for (path, kind) in [(fifo.as_path(), FileKind::NamedPipe), (dir.path(), FileKind::Directory)] {
        for error in [
            identify(path).unwrap_err(),
            open(path).unwrap_err(),
            open_damaged(path).unwrap_err(),
            OldFile::db185(path, &Options::new()).unwrap_err(),
            Options::new().open(path).unwrap_err(),
            Options::new().create(Create::New).open(path).unwrap_err(),
            Options::new().read_only().open(path).unwrap_err(),
            Source::open(path).unwrap_err(),
        ] {
            let Error::NotAStore { found, .. } = error else { panic!("{error}") };
            assert_eq!(found, kind);
        }
    }
}

#[test]
fn nothing_is_written() {
    let file = open(&files_of("gdbm-std-512")[0]).unwrap();
    assert!(file.capabilities().is_read_only);
    assert!(matches!(file.put(b"k", b"v"), Err(Error::ReadOnly)));
    assert!(matches!(file.delete(b"k"), Err(Error::ReadOnly)));
}

#[test]
fn what_is_known_and_not_read_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let mut btree = vec![0; 4096];
    btree[12..16].copy_from_slice(&0x0005_3162_u32.to_le_bytes());
    btree[16] = 9;
    let mut old_btree = vec![0; 4096];
    old_btree[..4].copy_from_slice(&[0, 5, 0x31, 0x62]);
    let [mut recno, mut several] = [btree.clone(), btree.clone()];
    recno[48] = 2;
    several[48] = 0x20;
    several[21] = 0x10;
    let mut queue = btree.clone();
    queue[12..16].copy_from_slice(&0x0004_2253_u32.to_le_bytes());
    for (bytes, format) in [
        (several, Format::BdbBtree),
        (old_btree, Format::Db185Btree),
        (recno, Format::BdbRecno),
        (queue, Format::BdbQueue),
    ] {
        let path = dir.path().join("file");
        std::fs::write(&path, bytes).unwrap();
        assert_eq!(identify(&path).unwrap().unwrap().format, format);
        assert!(matches!(open(&path), Err(Error::Unsupported { .. })), "{format:?}");
    }
    std::fs::write(dir.path().join("text"), "neither\n".repeat(1000)).unwrap();
    assert_eq!(identify(dir.path().join("text")).unwrap(), None);
    assert!(matches!(open(dir.path().join("text")), Err(Error::NotAStore { .. })));
    std::fs::write(dir.path().join("empty"), "").unwrap();
    assert_eq!(identify(dir.path().join("empty")).unwrap(), None);
}
