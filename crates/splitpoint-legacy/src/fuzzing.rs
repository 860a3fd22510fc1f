//! The code of the fuzz targets for the read-only formats. It is not an API and changes without
//! notice.
//!
//! A table in one file is that file. One in two is an input of this form:
//!
//! ```text
//! | shape, 1 byte | bytes of .dir, 2 bytes, lowest first | .dir | .pag |
//! ```
//!
//! A length above [`DIR_BYTES_MAX`] means that there is no `.dir`. Each function returns the number
//! of pairs that a scan returned.

use std::collections::{HashMap, HashSet};

use splitpoint::{Table, TableExt};

use crate::ByteOrder;
use crate::Source;
use crate::dumb::DumbFile;
use crate::files::Files;
use crate::identify::by_magic;
use crate::identity::{Format, Identity};
use crate::old_file::OldFile;
use crate::open::by_format;
use crate::pages::{BLOCK_BYTES, Kind, PagedFile, Shape};

/// Longest `.dir` that an input has.
pub const DIR_BYTES_MAX: usize = 0x7fff;

/// Bits of the byte of the shape.
mod shape {
    pub(super) const SIZE: u8 = 0x07;
    pub(super) const BIG_ENDIAN: u8 = 0x08;
    pub(super) const KIND: u8 = 0x30;
    pub(super) const KIND_SHIFT: u32 = 4;
    pub(super) const NO_HASH: u8 = 0x40;
}

/// A pair of files of dbm or ndbm, whatever it looks like.
pub fn dbm(input: &[u8]) -> usize {
    blocks(input, &[Kind::Dbm])
}

/// A pair of files of sdbm, of either multiplier and with either sign of `char`.
pub fn sdbm(input: &[u8]) -> usize {
    blocks(input, &Kind::ALL[1..])
}

/// A gdbm file.
pub fn gdbm(input: &[u8]) -> usize {
    by_magic_number(input, &[Format::Gdbm])
}

/// A file of krb5's libdb2.
pub fn krb5(input: &[u8]) -> usize {
    by_magic_number(input, &[Format::Krb5Hash])
}

/// A hash file or a btree of Berkeley DB.
pub fn bdb(input: &[u8]) -> usize {
    by_magic_number(input, &[Format::BdbHash, Format::BdbBtree])
}

/// A cdb file.
pub fn cdb(input: &[u8]) -> usize {
    by_magic_number(input, &[Format::Cdb])
}

/// A table of dbm.dumb: an input as of two files, with the `.dir` also as `.bak` if its shape is odd.
pub fn dumb(input: &[u8]) -> usize {
    let Some(Pair { shape, dir, pag: data }) = pair(input) else { return 0 };
    let file_bytes = data.len() + 2 * dir.map_or(0, <[u8]>::len);
    let bak = dir.filter(|_| shape % 2 == 1).unwrap_or_default();
    let source = Source::of_bytes(data.to_vec());
    let identity = Identity::new(Format::Dumb, source.path());
    let file = DumbFile::of_index(source, identity, dir, bak);
    read_all(&OldFile::new(Box::new(file)), file_bytes)
}

/// A file of any format, or of none: an input as of two files, whose first byte means nothing.
pub fn identify(input: &[u8]) -> usize {
    let Some(Pair { dir, pag: data, .. }) = pair(input) else { return 0 };
    let path = || ":memory:".into();
    let files = Files { data: path(), dir: dir.map(|_| path()), index: None };
    let source = Source::of_bytes(data.to_vec());
    let file_bytes = data.len() + dir.map_or(0, <[u8]>::len);
    let known = by_magic(&source, &files).expect("memory can be read");
    let reader = if let Some(identity) = known {
        let _ = identity.to_string();
        by_format(source, identity, false).ok()
    } else {
        let dir = dir.map(<[u8]>::to_vec);
        let found = PagedFile::recognize_bits(source, dir, &files);
        found.expect("memory can be read").map(|file| Box::new(file) as _)
    };
    reader.map_or(0, |reader| read_all(&OldFile::new(reader), file_bytes))
}

/// What an input of a pair of files holds.
struct Pair<'a> {
    shape: u8,
    dir: Option<&'a [u8]>,
    pag: &'a [u8],
}

fn pair(input: &[u8]) -> Option<Pair<'_>> {
    let (&[shape, low, high], rest) = input.split_first_chunk()?;
    let dir_bytes = usize::from(u16::from_le_bytes([low, high]));
    if dir_bytes > DIR_BYTES_MAX {
        return Some(Pair { shape, dir: None, pag: rest });
    }
    let (dir, pag) = rest.split_at_checked(dir_bytes)?;
    Some(Pair { shape, dir: Some(dir), pag })
}

fn blocks(input: &[u8], kinds: &[Kind]) -> usize {
    let Some(Pair { shape: bits, dir, pag }) = pair(input) else { return 0 };
    let block_bytes = BLOCK_BYTES[usize::from(bits & shape::SIZE) % BLOCK_BYTES.len()];
    let is_big = bits & shape::BIG_ENDIAN != 0;
    let order = if is_big { ByteOrder::Big } else { ByteOrder::Little };
    let kind = usize::from((bits & shape::KIND) >> shape::KIND_SHIFT) % kinds.len();
    let kind = if bits & shape::NO_HASH != 0 { Kind::Unknown } else { kinds[kind] };
    let file_bytes = pag.len() + dir.map_or(0, <[u8]>::len);
    let (pag, dir) = (Source::of_bytes(pag.to_vec()), dir.map(<[u8]>::to_vec));
    let file = PagedFile::forced(pag, dir, Shape { block_bytes, order }, kind);
    read_all(&OldFile::new(Box::new(file)), file_bytes)
}

/// Opens the input as a file, normally and for a salvage, and reads all of it in every way.
fn by_magic_number(input: &[u8], formats: &[Format]) -> usize {
    let files = Files { data: ":memory:".into(), dir: None, index: None };
    for is_salvage in [false, true] {
        let source = Source::of_bytes(input.to_vec());
        let known = by_magic(&source, &files).expect("memory can be read");
        let Some(identity) = known.filter(|identity| formats.contains(&identity.format)) else {
            return 0;
        };
        if let Ok(reader) = by_format(source, identity, is_salvage) {
            return read_all(&OldFile::new(reader), input.len());
        }
    }
    0
}

/// Scans, looks up, checks and salvages. Returns the number of pairs that the scan returned.
///
/// # Panics
///
/// If a walk returns a key twice or takes longer than the file's size allows, or if a lookup misses
/// or changes a pair of the scan.
fn read_all(file: &OldFile, file_bytes: usize) -> usize {
    // What a walk may look at, and an item of no less than four bytes for each result.
    let bytes_max = 3 * file_bytes + (1 << 20);
    let mut scanned: HashMap<Vec<u8>, Vec<u8>> = HashMap::new();
    let (mut pair_bytes, mut fault_count, mut turns) = (0, 0_u64, 0);
    for entry in file.scan().expect("a new handle is usable") {
        turns += 1;
        assert!(turns <= bytes_max / 4, "a scan that does not end");
        match entry {
            Ok(entry) => {
                pair_bytes += entry.key.len() + entry.value.len();
                assert!(pair_bytes <= bytes_max, "a scan returns more than the file has");
                let earlier = scanned.insert(entry.key.to_vec(), entry.value.to_vec());
                assert!(earlier.is_none(), "a scan gives a key twice");
            }
            Err(error) => {
                let _ = error.to_string();
                fault_count += 1;
            }
        }
    }
    // A scan, which looks over the file first if a key is out of place, and once more for those.
    assert!(file.read_bytes() <= 5 * bytes_max as u64, "a scan reads again and again");
    look_up(file, &scanned);
    let mut value_bytes = 0;
    for entry in file.values().filter_map(Result::ok) {
        let Ok(value) = entry.value else { continue };
        value_bytes += entry.key.len() + value.len();
        let is_scanned = scanned.contains_key(&entry.key[..]);
        assert!(is_scanned || entry.number > 1, "a value of a key that the scan lacks");
        assert!(value_bytes <= 8 * bytes_max, "values that do not end");
    }
    let survey = file.survey().expect("memory can be read");
    assert!(survey.pair_count >= scanned.len() as u64, "a check misses pairs");
    let is_told = survey.loss_count > 0 || survey.pair_count > scanned.len() as u64;
    assert!(fault_count == 0 || is_told, "a check misses what the scan stumbled over");
    for doubt in &survey.doubts {
        let _ = doubt.to_string();
    }
    let _ = (file.len(), file.stats(), file.parameters());
    salvage(file, &scanned, bytes_max);
    scanned.len()
}

/// Checks that a lookup finds each key of the scan with the same value, unless there is an error,
/// and does not find an absent key.
fn look_up(file: &OldFile, scanned: &HashMap<Vec<u8>, Vec<u8>>) {
    const LOOKUPS: usize = 16;
    let step = scanned.len() / LOOKUPS + 1;
    for (key, value) in scanned.iter().step_by(step) {
        if let Ok(found) = file.get(key) {
            assert!(found.as_deref() == Some(value), "a lookup differs from the scan");
        }
        let absent = [&key[..], b"\xff not there"].concat();
        if !scanned.contains_key(&absent)
            && let Ok(found) = file.get(&absent)
        {
            assert!(found.is_none(), "a lookup finds what the scan does not give");
        }
    }
    let _ = (file.get(b""), file.get(b"key"));
}

/// Checks that a salvage returns each value once, and everything that the scan returned.
fn salvage(file: &OldFile, scanned: &HashMap<Vec<u8>, Vec<u8>>, bytes_max: usize) {
    let (mut saved, mut keys) = (HashSet::new(), HashSet::new());
    let mut saved_bytes = 0;
    let read_bytes = file.read_bytes();
    let outcome = file.salvage(|one, is_doubtful| {
        let Ok(value) = one.value else { return Ok(()) };
        let key = one.key.to_vec();
        saved_bytes += key.len() + value.len();
        // All values, and what is loose.
        assert!(saved_bytes <= 9 * bytes_max, "a salvage that does not end");
        let is_first = saved.insert((key.clone(), one.number));
        assert!(is_first || one.number > 1, "a salvage gives a key twice");
        if !is_doubtful && one.number == 1 {
            assert!(scanned.get(&key).is_some_and(|found| **found == *value), "not of the scan");
        }
        keys.insert(key);
        Ok(())
    });
    outcome.expect("memory can be read");
    let read_bytes = file.read_bytes() - read_bytes;
    assert!(read_bytes <= 4 * bytes_max as u64, "a salvage reads again and again");
    assert!(scanned.keys().all(|key| keys.contains(key)), "a salvage misses a pair");
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    type Target = fn(&[u8]) -> usize;

    const TARGETS: [(&str, Target); 8] = [
        ("bdb", bdb),
        ("cdb", cdb),
        ("dbm", dbm),
        ("dumb", dumb),
        ("gdbm", gdbm),
        ("identify", identify),
        ("krb5", krb5),
        ("sdbm", sdbm),
    ];

    /// Inputs of which nothing is read: what they are is named only.
    const NAMED_ONLY: [&str; 2] = ["btree", "db185"];

    /// Returns name and content of each input of a corpus.
    fn corpus(target: &str) -> Vec<(String, Vec<u8>)> {
        let corpora = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
        let inputs = std::fs::read_dir(corpora.join(target)).unwrap().map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            (name, std::fs::read(&path).unwrap())
        });
        inputs.collect()
    }

    #[test]
    fn every_input_of_the_corpora_passes() {
        for (target, run) in TARGETS {
            let inputs = corpus(target);
            assert!(inputs.len() >= 2, "{target}");
            for (name, input) in inputs {
                let pair_count = run(&input);
                let is_damaged = NAMED_ONLY.contains(&&*name) || name.starts_with("found-");
                assert!(pair_count > 0 || is_damaged, "{target}/{name}: nothing was read");
            }
        }
    }

    fn is_slow() -> bool {
        std::env::var_os("SPLITPOINT_SLOW").is_some_and(|value| value == "1")
    }

    /// The inputs that are damaged at every byte: those that are small, and for each target one, or
    /// all.
    fn victims(target: &str, run: Target) -> Vec<Vec<u8>> {
        const SMALL_BYTES: usize = 4200;
        let mut inputs: Vec<Vec<u8>> = corpus(target)
            .into_iter()
            .filter(|(name, input)| !name.starts_with("found-") && run(input) > 0)
            .map(|(_, input)| input)
            .collect();
        inputs.sort_by_key(Vec::len);
        let small_count = inputs.iter().filter(|input| input.len() <= SMALL_BYTES).count();
        inputs.truncate(if is_slow() { usize::MAX } else { small_count.max(1) });
        inputs
    }

    #[test]
    fn files_cut_at_every_length_end_in_an_error_or_a_part() {
        for (target, run) in TARGETS {
            for input in victims(target, run) {
                for len in 0..input.len() {
                    run(&input[..len]);
                }
            }
        }
    }

    #[test]
    fn files_with_a_byte_flipped_end_in_an_error_or_a_part() {
        const MASKS: [u8; 9] = [0xff, 0x80, 1, 2, 4, 8, 16, 32, 64];
        for (target, run) in TARGETS {
            for mut input in victims(target, run) {
                for at in 0..input.len() {
                    let masks = if is_slow() { &MASKS[..] } else { &MASKS[at % 3..=at % 3] };
                    for mask in masks {
                        input[at] ^= mask;
                        run(&input);
                        input[at] ^= mask;
                    }
                }
            }
        }
    }
}
