//! Files that the original programs wrote, read exactly.

use splitpoint::{ErrorKind, Table, TableExt};
use splitpoint_legacy::ByteOrder;
use splitpoint_legacy::db185::Options;

use super::{assert_content, content, expected, fixture, fixture_names, fnv1a_32};

/// Files in which a crash or a bug of the original has left keys where no lookup finds them.
const DAMAGED: [&str; 2] = ["db185-buggywriter-bigdelete", "db185-unclean-le-1024"];

#[test]
fn every_file_of_the_original_programs_is_read_exactly() {
    let names = fixture_names();
    assert_eq!(names.len(), 22);
    for name in names {
        println!("{name}");
        let mut options = Options::new().read_only();
        if name.ends_with("fnvhash") {
            options = options.hash(fnv1a_32());
        }
        let table = options.open(fixture(&format!("{name}.db"))).unwrap();
        if DAMAGED.contains(&&*name) {
            assert_eq!(content(&table), expected(&name));
            assert_eq!(table.len().unwrap(), expected(&name).len() as u64);
        } else {
            assert_content(&table, &expected(&name));
            assert_eq!(table.get(b"a key that nobody has put").unwrap(), None);
        }
        let stats = table.stats().unwrap();
        assert_eq!(stats.record_count, expected(&name).len() as u64);
    }
}

#[test]
fn a_small_cache_changes_nothing() {
    for name in ["db185-le-1024-big", "db185-be-256-bigmany", "db185-le-64-tiny"] {
        let options = Options::new().read_only().cache_bytes(0);
        let table = options.open(fixture(&format!("{name}.db"))).unwrap();
        assert_content(&table, &expected(name));
    }
}

#[test]
fn the_wrong_hash_function_is_noticed_and_a_scan_needs_none() {
    let path = fixture("db185-le-512-fnvhash.db");
    let error = Options::new().read_only().open(&path).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::HashMismatch);
    assert!(error.to_string().contains("x33"), "{error}");
    let table = Options::new().any_hash().open(&path).unwrap();
    assert_content(&table, &expected("db185-le-512-fnvhash"));
    assert_eq!(table.get(b"a key that nobody has put").unwrap(), None);
}

#[test]
fn the_parameters_of_a_file_are_told() {
    let parameters = |name: &str| {
        let table = Options::new().read_only().open(fixture(name)).unwrap();
        table.parameters()
    };
    let tiny = parameters("db185-le-64-tiny.db");
    assert_eq!((tiny.page_bytes, tiny.fill_factor), (64, Some(2)));
    assert_eq!(tiny.byte_order, ByteOrder::Little);
    assert_eq!(parameters("db185-be-4096-many.db").byte_order, ByteOrder::Big);
    assert_eq!(parameters("db185-le-32768.db").fill_factor, None);
    let churn = parameters("db185-le-512-churn.db");
    assert_eq!(churn.header_record_count, 356);
    assert_eq!(expected("db185-le-512-churn").len(), 375);
}

#[test]
fn a_later_version_of_the_format_is_named() {
    for name in ["krb5db2-v3-le-512-word.db", "krb5db2-v3-be-1024-big.db"] {
        let error = Options::new().read_only().open(fixture(name)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("krb5"), "{error}");
    }
}
