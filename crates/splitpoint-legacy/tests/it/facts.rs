//! What a table says of itself: statistics, checks, names, and what it refuses.

use splitpoint::hash::HashFunction;
use splitpoint::{Error, Options, Table, TableExt as _};
use splitpoint_legacy::db185::Options as Db185Options;
use splitpoint_legacy::{Format, identify, open};

use crate::support::{expected, files_of, fixtures, names};

#[test]
fn statistics_of_every_sample_add_up_to_its_records() {
    for name in names() {
        let file = open(&files_of(&name)[0]).unwrap();
        let record_count = expected(&name).len() as u64;
        let stats = Table::stats(&file).unwrap();
        assert_eq!(stats.record_count, record_count, "{name}");
        assert_eq!(stats.path.as_deref(), Some(files_of(&name)[0].as_path()), "{name}");
        let file_bytes = std::fs::metadata(&files_of(&name)[0]).unwrap().len();
        assert_eq!(stats.file_bytes, file_bytes, "{name}");
        let rows = &stats.chains.rows;
        let hashed = if file.is_hashed() { record_count } else { 0 };
        assert_eq!(rows.iter().map(|row| row.item_count).sum::<u64>(), hashed, "{name}");
        assert!(rows.iter().all(|row| row.item_count == row.size * row.bucket_count), "{name}");
        let ideal: f64 = rows.iter().map(|row| row.ideal_bucket_count).sum();
        assert!(ideal.is_finite() && stats.chains.probes_hit.is_finite(), "{name}");
        let survey = file.survey().unwrap();
        let pairs: u64 = survey.buckets.iter().map(|row| row.size * row.bucket_count).sum();
        assert!(pairs >= record_count || !file.is_hashed(), "{name}: {pairs}");
        // A file that was not closed states what it had before.
        let is_sound = survey.discrepancies().next().is_none();
        let stated = file.stated_record_count();
        assert!(stated.is_none_or(|stated| stated <= record_count || !is_sound), "{name}");
    }
}

#[test]
fn a_check_of_every_sample_counts_its_records_and_finds_what_the_survey_does() {
    for name in names() {
        let file = open(&files_of(&name)[0]).unwrap();
        let check = file.check().unwrap();
        assert_eq!(check.record_count, expected(&name).len() as u64, "{name}");
        let survey = file.survey().unwrap();
        assert_eq!(check.damage_count, survey.doubt_count, "{name}");
        assert_eq!(survey.doubts.len() as u64, survey.doubt_count, "{name}");
    }
}

/// Its function is not known, so that the buckets are all that can be counted.
#[test]
fn statistics_without_the_hash_function_count_the_buckets() {
    let path = &files_of("db185-le-512-fnvhash")[0];
    let file = open(path).unwrap();
    let stats = Table::stats(&file).unwrap();
    assert_eq!(stats.record_count, 300);
    let buckets: u64 = stats.chains.rows.iter().map(|row| row.bucket_count).sum();
    assert_eq!(buckets, 36);
    // A bucket of each row, beside what chance gives the same table.
    let ideal: f64 = stats.chains.rows.iter().map(|row| row.ideal_bucket_count).sum();
    assert!((30.0..=36.1).contains(&ideal), "{ideal}");
}

#[test]
fn the_name_of_a_format_goes_with_whether_it_is_read() {
    let formats = [
        (Format::Db185Hash, "db 1.85 hash", true),
        (Format::Db185Btree, "db 1.85 btree", false),
        (Format::Krb5Hash, "krb5 libdb2 hash", true),
        (Format::BdbHash, "Berkeley DB hash", true),
        (Format::BdbBtree, "Berkeley DB btree", true),
        (Format::BdbRecno, "Berkeley DB recno", false),
        (Format::BdbQueue, "Berkeley DB queue", false),
        (Format::BdbHeap, "Berkeley DB heap", false),
        (Format::Gdbm, "gdbm", true),
        (Format::Dbm, "dbm/ndbm", true),
        (Format::Sdbm, "sdbm", true),
        (Format::DbmOrSdbm, "dbm/ndbm or sdbm", true),
        (Format::Cdb, "cdb", true),
        (Format::Dumb, "Python dbm.dumb", true),
        (Format::Store, "Splitpoint store", true),
    ];
    for (format, name, is_readable) in formats {
        assert_eq!((format.name(), format.is_readable()), (name, is_readable));
    }
    for name in names() {
        let found = identify(&files_of(&name)[0]).unwrap().unwrap();
        assert!(found.format.is_readable(), "{name}");
        assert!(found.to_string().starts_with(found.format.name()), "{name}: {found}");
    }
}

/// The header of a page of metadata of Berkeley DB.
fn metadata(magic: u32, flags: u32) -> Vec<u8> {
    let mut page = vec![0; 4096];
    page[12..16].copy_from_slice(&magic.to_le_bytes());
    page[16] = 9;
    page[20..24].copy_from_slice(&4096_u32.to_le_bytes());
    page[48..52].copy_from_slice(&flags.to_le_bytes());
    page
}

#[test]
fn kinds_of_berkeley_db_are_told_apart_by_their_metadata() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file.db");
    for (magic, flags, expected) in [
        (0x0005_3162, 0, "Berkeley DB btree, version 9, pages of 4096, little-endian"),
        (
            0x0005_3162,
            0x20,
            "Berkeley DB btree, version 9, pages of 4096, several databases by name, little-endian",
        ),
        (0x0005_3162, 2, "Berkeley DB recno, version 9, pages of 4096, little-endian"),
        (0x0004_2253, 0, "Berkeley DB queue, version 9, pages of 4096, little-endian"),
        (0x0007_4582, 0, "Berkeley DB heap, version 9, pages of 4096, little-endian"),
    ] {
        std::fs::write(&path, metadata(magic, flags)).unwrap();
        assert_eq!(identify(&path).unwrap().unwrap().to_string(), expected);
        let refused = open(&path).unwrap_err();
        // A btree is read, but this one has no root.
        let is_corrupt = matches!(refused, Error::Corrupt { what: "root of a tree", .. });
        let is_refused = matches!(refused, Error::Unsupported { .. });
        let is_btree = magic == 0x0005_3162 && flags == 0;
        assert!(if is_btree { is_corrupt } else { is_refused }, "{expected}: {refused}");
    }
}

#[test]
fn a_splitpoint_store_is_identified_also_when_it_was_never_used() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("new.spt");
    for use_count in 0..3 {
        let store = Options::new().open(&path).unwrap();
        if use_count > 0 {
            store.put(b"key", b"value").unwrap();
        }
        store.close().unwrap();
        let found = identify(&path).unwrap().map(|found| found.format);
        assert_eq!(found, Some(Format::Store), "after {use_count} uses");
    }
}

#[test]
fn the_file_of_ndbm_is_found_without_its_ending() {
    let dir = tempfile::tempdir().unwrap();
    let sample = &files_of("db185-le-512-small")[0];
    std::fs::copy(sample, dir.path().join("aliases.db")).unwrap();
    let file = open(dir.path().join("aliases")).unwrap();
    assert_eq!(Table::len(&file).unwrap(), expected("db185-le-512-small").len() as u64);
    assert!(open(dir.path().join("other")).is_err());
}

#[test]
fn an_old_file_refuses_changes_and_has_nothing_to_sync() {
    let file = open(fixtures().join("gdbm-std-512.gdbm")).unwrap();
    Table::sync(&file).expect("nothing is to be synced");
    assert!(matches!(file.put(b"key", b"value"), Err(Error::ReadOnly)));
    assert!(Table::capabilities(&file).is_read_only);
}

#[test]
fn parameters_that_db185_cannot_have_are_refused_with_the_reason() {
    for (options, expected) in [
        (Db185Options::new().page_bytes(1 << 20), "page size"),
        (Db185Options::default().fill_factor(0), "fill factor"),
    ] {
        let refused = options.in_memory().unwrap_err();
        assert!(matches!(refused, Error::Invalid { what, .. } if what == expected), "{refused}");
    }
}

#[test]
fn db185_refuses_files_of_another_format_by_name() {
    for (sample, format) in [
        ("gdbm-std-512.gdbm", "gdbm"),
        ("krb5db2-v3-le-512-word.db", "krb5"),
        ("bdb53-le-512-word.bdb53", "Berkeley DB"),
    ] {
        let refused = Db185Options::new().read_only().open(fixtures().join(sample)).unwrap_err();
        let is_refused = matches!(refused, Error::NotAStore { .. } | Error::Unsupported { .. });
        assert!(is_refused && refused.to_string().contains(format), "{sample}: {refused}");
    }
}

#[test]
fn one_process_at_a_time_changes_a_file_of_db185() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("one.db");
    let options = || Db185Options::new().hash(HashFunction::x33());
    let first = options().open(&path).unwrap();
    first.put(b"key", b"value").unwrap();
    assert!(matches!(options().open(&path), Err(Error::Locked { .. })));
    let counts = first.cache();
    first.close().unwrap();
    assert_eq!(options().open(&path).unwrap().get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
    assert!(format!("{counts:?}").contains("CacheCounts"));
}
