//! What reading costs, by the bytes that are read: no lookup becomes a scan, and no file keeps a
//! walk busy.

use std::path::PathBuf;

use splitpoint::{Table, TableExt};

use crate::Source;
use crate::byte_order::ByteOrder;
use crate::files::Files;
use crate::identify::by_magic;
use crate::identity::Format;
use crate::old_file::OldFile;
use crate::open::{by_format, open};

fn sample(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// The first miss looks over the whole file for pairs that are out of place; none after it does.
#[test]
fn a_miss_is_one_lookup() {
    for name in [
        "ndbm-le-word",
        "sdbm-le-word",
        "gdbm-std-512.gdbm",
        "krb5db2-v3-le-512-word.db",
        "bdb53-le-512-word.bdb53",
    ] {
        let file = open(sample(name)).unwrap();
        let file_bytes = std::fs::metadata(&file.identity().path).unwrap().len();
        assert!(file.get(b"not there").unwrap().is_none(), "{name}");
        let before = file.read_bytes();
        for number in 0..100_u32 {
            assert!(file.get(&number.to_le_bytes()).unwrap().is_none(), "{name}");
        }
        let mean = (file.read_bytes() - before) / 100;
        assert!(mean <= 4096 && mean < file_bytes / 8, "{name}: {mean} of {file_bytes}");
        // A key that is there needs no look at the rest, even in a new handle.
        let key = file.scan().unwrap().next().unwrap().unwrap().key.to_vec();
        let file = open(sample(name)).unwrap();
        let before = file.read_bytes();
        assert!(file.get(&key).unwrap().is_some(), "{name}");
        assert!(file.read_bytes() - before <= 8192, "{name}");
    }
}

const PAGE_BYTES: usize = 512;

/// A file of Kerberos' with one bucket of 100 big pairs, all of which are on one chain of 300 pages
/// that hold next to nothing: one byte of a key, and the last one the value.
fn many_pairs_on_one_chain() -> Vec<u8> {
    let mut file = vec![0; PAGE_BYTES * 302];
    let be = |file: &mut Vec<u8>, at: usize, number: u32| {
        file[at..at + 4].copy_from_slice(&ByteOrder::Big.bytes_of_u32(number));
    };
    let (magic, version, lorder) = (0x0006_1561, 3, 4321);
    for (at, number) in
        [(0, magic), (4, version), (8, lorder), (12, 512), (32, 1), (40, 8), (48, 1)]
    {
        be(&mut file, at, number);
    }
    be(&mut file, PAGE_BYTES + 4, u32::MAX);
    file[PAGE_BYTES + 8..PAGE_BYTES + 11].copy_from_slice(&[0, 100, 2]);
    for pair in 0..100 {
        // Key 0 is a big pair; address 1 is the first page after the bucket.
        file[PAGE_BYTES + 14 + 4 * pair..][..4].copy_from_slice(&[0, 0, 0, 1]);
    }
    for page in 2..302 {
        let at = PAGE_BYTES * page;
        let is_last = page == 301;
        be(&mut file, at + 4, if is_last { u32::MAX } else { page as u32 + 1 });
        file[at + 10] = 3;
        file[at + 14..at + 18].copy_from_slice(&[0, 1, 0, u8::from(is_last)]);
    }
    file
}

/// A file of Berkeley DB with 30 keys, whose values are all in one tree of 300 leaves, of which
/// only the last has a value.
fn many_keys_of_one_tree() -> Vec<u8> {
    const PAIRS: usize = 30;
    const LEAF: u8 = 12;
    let mut file = vec![0; PAGE_BYTES * 302];
    let le = |file: &mut Vec<u8>, at: usize, number: u32| {
        file[at..at + 4].copy_from_slice(&number.to_le_bytes());
    };
    for (at, number) in [(12, 0x0006_1561), (16, 9), (20, 512), (96, 1)] {
        le(&mut file, at, number);
    }
    le(&mut file, PAGE_BYTES + 8, 1);
    file[PAGE_BYTES + 20] = 2 * PAIRS as u8;
    file[PAGE_BYTES + 25] = 13;
    let mut end = PAGE_BYTES;
    for pair in 0..PAIRS {
        let (key, value) = (end - 2, end - 10);
        file[PAGE_BYTES + key..][..2].copy_from_slice(&[1, pair as u8]);
        file[PAGE_BYTES + value..][..8].copy_from_slice(&[4, 0, 0, 0, 2, 0, 0, 0]);
        for (index, start) in [(2 * pair, key), (2 * pair + 1, value)] {
            let at = PAGE_BYTES + 26 + 2 * index;
            file[at..at + 2].copy_from_slice(&(start as u16).to_le_bytes());
        }
        end = value;
    }
    for page in 2..302 {
        let at = PAGE_BYTES * page;
        file[at + 25] = LEAF;
        if page == 301 {
            file[at + 20] = 1;
            file[at + 22..at + 24].copy_from_slice(&508_u16.to_le_bytes());
            file[at + 26..at + 28].copy_from_slice(&508_u16.to_le_bytes());
            file[at + 508..at + 512].copy_from_slice(&[1, 0, 1, b'v']);
        } else {
            file[at + 22..at + 24].copy_from_slice(&512_u16.to_le_bytes());
            le(&mut file, at + 16, page as u32 + 1);
        }
    }
    file
}

/// What pairs share is read for each of them until the walk has read more than a sound file has.
#[test]
fn pairs_that_share_pages_do_not_keep_a_walk_busy() {
    keeps_no_walk_busy(many_pairs_on_one_chain(), Format::Krb5Hash);
    keeps_no_walk_busy(many_keys_of_one_tree(), Format::BdbHash);
}

fn keeps_no_walk_busy(image: Vec<u8>, format: Format) {
    let file_bytes = image.len() as u64;
    let source = Source::of_bytes(image);
    let files = Files { data: source.path().to_path_buf(), dir: None, index: None };
    let identity = by_magic(&source, &files).unwrap().unwrap();
    assert_eq!(identity.format, format);
    let file = OldFile::new(by_format(source, identity, false).unwrap());
    let results: Vec<_> = file.scan().unwrap().collect();
    let (pairs, faults): (Vec<_>, Vec<_>) = results.into_iter().partition(Result::is_ok);
    let (pair_count, fault_count) = (pairs.len(), faults.len());
    assert!((1..20).contains(&pair_count) && fault_count > 0, "{pair_count} {fault_count}");
    let budget_bytes = 3 * file_bytes + (1 << 20);
    assert!(file.read_bytes() <= 3 * budget_bytes, "{}", file.read_bytes());
    let survey = file.survey().unwrap();
    assert!(survey.loss_count > 0);
    let before = file.read_bytes();
    let _ = file.get(b"some other key");
    let faults = file.salvage(|_, _| Ok(())).unwrap();
    assert!(!faults.is_empty());
    assert!(file.read_bytes() - before <= 5 * budget_bytes);
}

/// A btree of one leaf with the key `k`, whose value begins on page 2 as `value` says.
fn btree_of(value: &[u8]) -> Vec<u8> {
    let mut file = vec![0; PAGE_BYTES * 2];
    let le = |file: &mut Vec<u8>, at: usize, number: u32| {
        file[at..at + 4].copy_from_slice(&number.to_le_bytes());
    };
    for (at, number) in [(12, 0x0005_3162), (16, 9), (20, 512), (32, 3), (48, 1), (88, 1)] {
        le(&mut file, at, number);
    }
    le(&mut file, PAGE_BYTES + 8, 1);
    let at = 508 - value.len();
    // Items, the end of the free bytes, and the offsets of key and value.
    for (field, number) in [(20, 2), (22, at), (26, 508), (28, at)] {
        file[PAGE_BYTES + field..][..2].copy_from_slice(&(number as u16).to_le_bytes());
    }
    file[PAGE_BYTES + 25] = 5;
    file[PAGE_BYTES + 508..].copy_from_slice(&[1, 0, 1, b'k']);
    file[PAGE_BYTES + at..][..value.len()].copy_from_slice(value);
    file
}

/// Two overflow pages that name each other, in a file with a hole behind them.
#[test]
fn a_loop_of_overflow_pages_is_left_at_once() {
    let mut image = btree_of(&[0, 0, 3, 0, 2, 0, 0, 0, 0xe8, 3, 0, 0]);
    for (number, next, bytes) in [(2_u32, 3_u32, 1), (3, 2, 1)] {
        let mut page = vec![0; PAGE_BYTES];
        page[8..12].copy_from_slice(&number.to_le_bytes());
        page[16..20].copy_from_slice(&next.to_le_bytes());
        (page[22], page[25]) = (bytes, 7);
        image.extend(page);
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("loop");
    std::fs::write(&path, image).unwrap();
    std::fs::File::options().write(true).open(&path).unwrap().set_len(1 << 31).unwrap();
    let file = open(&path).unwrap();
    assert!(file.get(b"k").is_err());
    assert!(file.read_bytes() < 64 << 10, "{}", file.read_bytes());
}

/// Reading a key does not read the values of its neighbours on the page.
#[test]
fn a_lookup_reads_no_tree_of_values() {
    const LEAVES: u32 = 2000;
    let mut image = btree_of(&[0, 0, 2, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
    // The root of the tree, with its first leaf and its last.
    let mut page = vec![0; PAGE_BYTES];
    page[20..26].copy_from_slice(&[2, 0, 0xf0, 1, 2, 4]);
    page[26..30].copy_from_slice(&[0xf8, 1, 0xf0, 1]);
    page[504..508].copy_from_slice(&3_u32.to_le_bytes());
    page[496..500].copy_from_slice(&(2 + LEAVES).to_le_bytes());
    image.extend(page);
    for leaf in 3..3 + LEAVES {
        let mut page = vec![0; PAGE_BYTES];
        page[8..12].copy_from_slice(&leaf.to_le_bytes());
        let next = if leaf == 2 + LEAVES { 0 } else { leaf + 1 };
        page[16..20].copy_from_slice(&next.to_le_bytes());
        page[20..26].copy_from_slice(&[1, 0, 0xfc, 1, 1, 12]);
        page[26..28].copy_from_slice(&508_u16.to_le_bytes());
        page[508..512].copy_from_slice(&[1, 0, 1, b'v']);
        image.extend(page);
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tree");
    std::fs::write(&path, image).unwrap();
    let file = open(&path).unwrap();
    assert_eq!(file.get(b"k").unwrap().as_deref(), Some(&b"v"[..]));
    assert!(file.read_bytes() < 16 << 10, "{}", file.read_bytes());
    assert_eq!(file.values().count(), LEAVES as usize);
    assert_eq!(file.survey().unwrap().doubts, []);
}

/// What is not in a file takes no memory.
#[test]
fn a_btree_of_terabytes_is_opened() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("huge");
    std::fs::write(&path, btree_of(&[1, 0, 1, b'v'])).unwrap();
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    // The limit of ext4 is 16 TiB.
    if file.set_len(15 << 40).is_err() {
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), "left out: no file of 15 TiB can be made here");
        return;
    }
    let file = open(&path).unwrap();
    assert_eq!(file.get(b"k").unwrap().as_deref(), Some(&b"v"[..]));
}
