//! Damaged files give an error or a partial result that says so.

use std::path::{Path, PathBuf};

use splitpoint::{Error, Table, TableExt};
use splitpoint_legacy::{ByteOrder, KeyValue, open};

use crate::support::{expected, files_of, pairs_of};

/// Samples that are small, one of each format.
const SMALL: [&str; 5] =
    ["sdbm-be-bin", "ndbm-le-churn", "gdbm-std-bin", "krb5db2-v3-le-512-word", "bdb53-le-512-word"];

/// Reads all that a file gives; an error is one of those that a damaged file may have.
fn read_all(path: &Path) -> usize {
    let is_fair = |error: &Error| {
        let kinds = (
            matches!(
                error,
                Error::Corrupt { .. } | Error::NotAStore { .. } | Error::Version { .. }
            ),
            matches!(error, Error::Unsupported { .. } | Error::TooLarge { .. }),
        );
        assert!(kinds.0 || kinds.1, "{error:?}");
    };
    let file = match open(path) {
        Ok(file) => file,
        Err(error) => {
            is_fair(&error);
            return 0;
        }
    };
    let (mut pairs, mut faults) = (0, 0);
    for entry in file.scan().expect("a scan") {
        match entry {
            Ok(entry) => {
                pairs += 1;
                // A lookup agrees with the scan.
                if pairs % 64 == 1 {
                    let value = file.get(&entry.key).expect("a lookup");
                    assert_eq!(value.as_deref(), Some(&*entry.value));
                }
            }
            Err(error) => {
                is_fair(&error);
                faults += 1;
            }
        }
    }
    let survey = file.survey().expect("a survey");
    assert!(survey.pair_count >= pairs as u64);
    if faults > 0 {
        assert!(survey.loss_count > 0 || survey.pair_count > pairs as u64);
    }
    let _ = (file.len(), file.stats(), file.get(b"some key"), file.parameters());
    pairs
}

/// A copy of a sample that is damaged again and again.
struct Victim {
    dir: tempfile::TempDir,
    path: PathBuf,
    bytes: Vec<u8>,
}

impl Victim {
    fn new(name: &str) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let mut files = files_of(name);
        for file in &files {
            let name = file.file_name().expect("a name");
            std::fs::copy(file, dir.path().join(name)).expect("a copy");
        }
        let path = dir.path().join(files.remove(0).file_name().expect("a name"));
        let bytes = std::fs::read(&path).expect("the copy");
        Self { dir, path, bytes }
    }

    fn write(&self, bytes: &[u8]) {
        std::fs::write(&self.path, bytes).expect("the copy is written");
    }
}

fn rounds(few: usize) -> usize {
    if std::env::var_os("SPLITPOINT_SLOW").is_some_and(|value| value == "1") {
        few * 40
    } else {
        few
    }
}

#[test]
fn files_that_are_cut_short_give_what_is_left() {
    for name in SMALL {
        let victim = Victim::new(name);
        let whole = pairs_of(&open(&victim.path).unwrap());
        let step = (victim.bytes.len() / rounds(30)).max(1);
        for length in (0..victim.bytes.len()).step_by(step) {
            victim.write(&victim.bytes[..length]);
            assert!(read_all(&victim.path) <= whole.len(), "{name} cut at {length}");
        }
    }
}

#[test]
fn files_with_a_flipped_byte_give_an_error_or_the_rest() {
    for name in SMALL {
        let victim = Victim::new(name);
        let count = victim.bytes.len();
        // All of the header, then bytes all over the file.
        let step = (count / rounds(30)).max(1);
        let offsets = (0..rounds(100).min(count)).chain((0..count).step_by(step));
        for offset in offsets {
            for mask in [0xff, 0x80, 0x01] {
                let mut bytes = victim.bytes.clone();
                bytes[offset] ^= mask;
                victim.write(&bytes);
                read_all(&victim.path);
            }
        }
    }
}

/// A trie with a bit flipped names other blocks; every pair is still found.
#[test]
fn a_damaged_trie_loses_no_pair() {
    for name in ["sdbm-be-bin", "ndbm-le-churn"] {
        let victim = Victim::new(name);
        let path = victim.dir.path().join(format!("{name}.dir"));
        let dir = std::fs::read(&path).unwrap();
        let expected = expected(name);
        for bit in 0..dir.len().min(16) * 8 {
            let mut bytes = dir.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(&path, bytes).unwrap();
            let file = open(&victim.path).unwrap();
            let pairs = file.scan().unwrap().filter_map(Result::ok);
            assert_eq!(pairs.count(), expected.len(), "{name}, bit {bit}");
            for (key, value) in expected.iter().step_by(37) {
                assert_eq!(
                    file.get(key).unwrap().as_deref(),
                    Some(&value[..]),
                    "{name}, bit {bit}"
                );
            }
        }
    }
}

/// By the few keys that a table of large blocks would have, an empty trie would look right.
#[test]
fn a_dir_that_is_empty_does_not_change_what_the_blocks_are() {
    for name in ["ndbm-be-word", "ndbm-le-word", "sdbm-be-word", "sdbm-ruby-word"] {
        let victim = Victim::new(name);
        std::fs::write(victim.path.with_extension("dir"), []).unwrap();
        let file = open(&victim.path).unwrap();
        assert!(file.identity().details.contains(&"blocks of 1024".to_owned()), "{name}");
        let pairs = file.scan().unwrap().filter_map(Result::ok);
        assert_eq!(pairs.count(), expected(name).len(), "{name}");
    }
}

/// Breaks what leads to the buckets: the directory of gdbm, the number of buckets of the others.
#[test]
fn a_salvage_finds_the_buckets_that_nothing_leads_to() {
    for (name, from, to) in [
        // The offset and size of the directory.
        ("gdbm-std-512", 8, 20),
        ("gdbm-std-4096", 8, 20),
        ("gdbm-be-std-word", 8, 20),
        ("gdbm-i386-off32-word", 8, 16),
        // The number of buckets.
        ("krb5db2-v3-le-512-word", 28, 32),
        ("bdb53-le-512-word", 72, 76),
    ] {
        let victim = Victim::new(name);
        let mut bytes = victim.bytes.clone();
        bytes[from..to].fill(0);
        victim.write(&bytes);
        let file = splitpoint_legacy::open_damaged(&victim.path).unwrap();
        let mut saved = std::collections::BTreeMap::new();
        let save = |one: KeyValue<'_>, _is_doubtful: bool| {
            let earlier = saved.insert(one.key.to_vec(), one.value?.to_vec());
            assert_eq!(earlier, None, "{name}: twice");
            Ok(())
        };
        file.salvage(save).unwrap();
        let expected = expected(name);
        let lost = expected.iter().filter(|(key, value)| saved.get(*key) != Some(*value));
        assert_eq!(lost.count(), 0, "{name}: {} of {}", saved.len(), expected.len());
    }
}

/// A file whose end is far away, as a crash or a bug of the original leaves it: what is not there is
/// not read, byte by byte.
#[test]
fn the_holes_of_a_sparse_file_are_skipped() {
    const FAR_BYTES: u64 = 1 << 41;
    for name in ["ndbm-le-churn", "sdbm-be-bin", "gdbm-std-bin"].into_iter().chain(SMALL) {
        let victim = Victim::new(name);
        let file = std::fs::File::options().write(true).open(&victim.path).unwrap();
        file.set_len(FAR_BYTES).unwrap();
        let file = open(&victim.path).unwrap();
        let expected = expected(name);
        assert!(pairs_of(&file) == expected, "{name}");
        let (key, value) = expected.last_key_value().unwrap();
        assert_eq!(file.get(key).unwrap().as_deref(), Some(&value[..]), "{name}");
        assert!(file.get(b"not there").unwrap().is_none(), "{name}");
        assert_eq!(file.survey().unwrap().pair_count, expected.len() as u64, "{name}");
        let mut saved = 0;
        file.salvage(|_, is_doubtful| {
            saved += usize::from(!is_doubtful);
            Ok(())
        })
        .unwrap();
        assert_eq!(saved, expected.len(), "{name}");
        // Alone, a .pag is known by its blocks.
        if victim.path.extension().is_some_and(|end| end == "pag") {
            std::fs::remove_file(victim.path.with_extension("dir")).unwrap();
            assert!(pairs_of(&open(&victim.path).unwrap()) == expected, "{name} alone");
        }
    }
}

/// A trie of which every bit is set names blocks far beyond the end of the file: it is told, and
/// not believed.
#[test]
fn a_trie_larger_than_the_table_loses_no_pair() {
    for name in ["sdbm-be-bin", "ndbm-le-churn"] {
        let victim = Victim::new(name);
        let path = victim.path.with_extension("dir");
        let bits = std::fs::read(&path).unwrap();
        std::fs::write(&path, vec![0xff; bits.len()]).unwrap();
        let file = open(&victim.path).unwrap();
        let (pairs, faults): (Vec<_>, Vec<_>) = file.scan().unwrap().partition(Result::is_ok);
        assert_eq!(faults.len(), 1, "{name}");
        assert_eq!(pairs.len(), expected(name).len(), "{name}");
        for (key, value) in expected(name).iter().step_by(29) {
            assert_eq!(file.get(key).unwrap().as_deref(), Some(&value[..]), "{name}");
        }
    }
}

/// Numbers in headers that are larger than anything: each is refused or told, and nothing takes
/// memory for them.
#[test]
fn sizes_that_overflow_are_refused_or_told() {
    for (name, order, fields) in [
        ("krb5db2-v3-le-512-word", ByteOrder::Big, 0..62),
        ("bdb53-le-512-word", ByteOrder::Little, 0..56),
        ("gdbm-std-bin", ByteOrder::Little, 0..10),
        ("gdbm-be-numsync-word", ByteOrder::Big, 0..18),
        ("gdbm-i386-off32-word", ByteOrder::Little, 0..8),
    ] {
        let victim = Victim::new(name);
        for field in fields {
            for number in [0, 1, 3, 1 << 16, 1 << 17, i32::MAX as u32, 1 << 31, u32::MAX] {
                let mut bytes = victim.bytes.clone();
                bytes[4 * field..4 * field + 4].copy_from_slice(&order.bytes_of_u32(number));
                victim.write(&bytes);
                read_all(&victim.path);
            }
        }
    }
}
