//! Salvage of files of the 1991 package: by their pages, where the header does not lead to them.

use std::collections::BTreeMap;
use std::path::Path;

use splitpoint::{ErrorKind, TableExt};
use splitpoint_legacy::db185::Options;
use splitpoint_legacy::{ByteOrder, KeyValue};

use super::{Content, expected, fixture, fixture_names};

/// What a salvage gives: each key once.
struct Salvaged {
    pairs: Content,
    doubtful: usize,
    faults: Vec<String>,
}

fn salvage(path: &Path) -> Salvaged {
    let file = splitpoint_legacy::open_damaged(path).expect("the pages are known");
    let (mut pairs, mut doubtful) = (Content::new(), 0);
    let save = |one: KeyValue<'_>, is_doubtful: bool| {
        let (key, value) = (one.key, one.value?);
        let earlier = pairs.insert(key.to_vec(), value.to_vec());
        assert_eq!(earlier, None, "key {} twice", key.escape_ascii());
        doubtful += usize::from(is_doubtful);
        Ok(())
    };
    let faults = file.salvage(save).expect("damage is no error");
    let faults = faults.iter().map(ToString::to_string).collect();
    Salvaged { pairs, doubtful, faults }
}

/// Writes `bytes` to a file of its own and salvages it.
fn salvage_bytes(bytes: &[u8]) -> Salvaged {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("damaged.db");
    std::fs::write(&path, bytes).expect("the file is written");
    salvage(&path)
}

#[track_caller]
fn assert_all(found: &Salvaged, expected: &Content, what: &str) {
    let lost: Vec<_> =
        expected.iter().filter(|(key, value)| found.pairs.get(*key) != Some(*value)).collect();
    let (all, some) = (expected.len(), found.pairs.len());
    let first = lost.first().map(|(key, value)| (key.escape_ascii().to_string(), value.len()));
    assert!(
        lost.is_empty(),
        "{what}: {} of {all} lost, {some} found: {first:?}; {:?}",
        lost.len(),
        found.faults
    );
    assert_eq!(some, all, "{what}: pairs that were never there");
}

fn table(page_bytes: u32, order: ByteOrder, records: u32) -> (Vec<u8>, Content) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("table.db");
    let options = Options::new().page_bytes(page_bytes).byte_order(order).fill_factor(6);
    let table = options.open(&path).expect("a table");
    let mut content = Content::new();
    for number in 0..records {
        let key = format!("key {number}").into_bytes();
        let value_bytes = if number % 40 == 7 { 3 * page_bytes } else { number % 30 };
        let value: Vec<u8> = (0..value_bytes).map(|at| (at + number) as u8).collect();
        table.put_new(&key, &value).expect("there is room");
        content.insert(key, value);
    }
    table.close().expect("the file is written");
    (std::fs::read(&path).expect("the file"), content)
}

#[test]
fn a_sound_file_gives_what_a_scan_gives_and_nothing_is_in_doubt() {
    for name in fixture_names() {
        let found = salvage(&fixture(&format!("{name}.db")));
        if name.contains("unclean") || name.contains("buggywriter") {
            continue;
        }
        assert_all(&found, &expected(&name), &name);
        assert_eq!((found.doubtful, found.faults), (0, Vec::new()), "{name}");
    }
}

/// The original lost 228 of the 300 pairs that had been synced: it reads 284 of 1200.
#[test]
fn an_unclean_file_gives_more_than_the_original_reads() {
    let found = salvage(&fixture("db185-unclean-le-1024.db"));
    let text = std::fs::read_to_string(fixture("db185-unclean-le-1024.stored.txt")).unwrap();
    let stored: BTreeMap<&str, &str> =
        text.lines().map(|line| line[2..].split_once(' ').expect("key and value")).collect();
    for (key, value) in &found.pairs {
        assert_eq!(stored.get(&*super::hex(key)), Some(&&*super::hex(value)), "never stored");
    }
    assert!(!found.faults.is_empty());
    assert!(found.pairs.len() > 600, "{} of {}", found.pairs.len(), stored.len());
}

#[test]
fn a_file_without_its_header_gives_every_pair() {
    for order in ByteOrder::ALL {
        for (page_bytes, records) in [(64, 300), (256, 1000), (1024, 2000), (4096, 3000)] {
            let (mut bytes, content) = table(page_bytes, order, records);
            bytes[..512].fill(0);
            let found = salvage_bytes(&bytes);
            let what = format!("pages of {page_bytes}, {order:?}");
            assert_all(&found, &content, &what);
            assert!(found.faults[0].contains("magic number"), "{what}: {:?}", found.faults);
        }
    }
}

/// Each word of the header in turn is made another one.
#[test]
fn a_file_with_a_wrong_word_in_its_header_gives_every_pair() {
    let (bytes, content) = table(512, ByteOrder::Little, 1500);
    for offset in (0..260).step_by(4) {
        for change in [0x01, 0x40_0000, 0x8000_0000_u32] {
            let mut bytes = bytes.clone();
            for (byte, change) in
                bytes[offset..offset + 4].iter_mut().zip(ByteOrder::Big.bytes_of_u32(change))
            {
                *byte ^= change;
            }
            // Another version is another format.
            if offset != 4 {
                let found = salvage_bytes(&bytes);
                assert_all(&found, &content, &format!("byte {offset}, {change:#x}"));
            }
        }
    }
}

#[test]
fn wrong_bitmaps_hide_nothing() {
    let (bytes, content) = table(512, ByteOrder::Little, 1500);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &bytes).unwrap();
    let word = |at: usize| ByteOrder::Big.u16([bytes[at], bytes[at + 1]]);
    let spares =
        |at: usize| ByteOrder::Big.u32([0, 1, 2, 3].map(|byte| bytes[68 + 4 * at + byte])) as usize;
    // The first bitmap: at split point 1, of which no pages are before.
    let addr = usize::from(word(196));
    assert_eq!((addr >> 11, spares(0)), (1, 0));
    let at = (1 + 1 + (addr & 0x7ff)) * 512;
    for fill in [0x00, 0xff, 0xa5] {
        let mut bytes = bytes.clone();
        bytes[at..at + 512].fill(fill);
        assert_all(&salvage_bytes(&bytes), &content, &format!("bitmap of {fill:#x}"));
        // Whoever wrote to it would take pages that are in use.
        std::fs::write(file.path(), &bytes).unwrap();
        let opened = Options::new().open(file.path());
        match opened.map(drop) {
            Ok(()) => assert_eq!(fill, 0xff, "no page is free"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}"),
        }
    }
}

/// With pages of twice the size, the two or three pages of such a file look well-formed, too.
#[test]
fn a_sound_file_of_a_few_records_gives_them_all() {
    for page_bytes in [256, 512, 4096, 32_768] {
        for order in ByteOrder::ALL {
            for records in 0..40 {
                let (bytes, content) = table(page_bytes, order, records);
                let found = salvage_bytes(&bytes);
                let what = format!("{records} records on {order:?} pages of {page_bytes}");
                assert_all(&found, &content, &what);
                assert_eq!((found.doubtful, &found.faults[..]), (0, &[][..]), "{what}");
            }
        }
    }
}

/// One page in the middle is overwritten: all pairs elsewhere are there, also those behind it.
#[test]
fn a_page_that_is_lost_takes_nothing_else_with_it() {
    let (bytes, content) = table(512, ByteOrder::Big, 1500);
    let pages = bytes.len() / 512;
    for page in (1..pages).step_by(7) {
        let mut bytes = bytes.clone();
        bytes[page * 512..][..512].fill(0xee);
        let found = salvage_bytes(&bytes);
        for (key, value) in &found.pairs {
            assert_eq!(content.get(key), Some(value), "page {page}: {}", key.escape_ascii());
        }
        let lost = content.len() - found.pairs.len();
        assert!(lost < 60, "page {page}: {lost} lost");
    }
}

/// Neither a text nor a file of nothing is taken for one.
#[test]
fn what_is_no_such_file_is_not_taken_for_one() {
    let dir = tempfile::tempdir().unwrap();
    for (name, bytes) in [
        ("text", b"a line of text\n".repeat(3000)),
        ("zeros", vec![0; 40_000]),
        ("ones", vec![0xff; 40_000]),
    ] {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        assert!(splitpoint_legacy::open_damaged(&path).is_err(), "{name}");
    }
}
