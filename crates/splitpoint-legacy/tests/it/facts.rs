//! What a table says of itself: statistics, checks, names, and what it refuses.

use splitpoint::Options;
use splitpoint_legacy::{Format, identify};

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
