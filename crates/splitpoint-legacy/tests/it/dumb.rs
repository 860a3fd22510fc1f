//! Tables of Python's dbm.dumb, and what a killed program leaves of one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use splitpoint::{Table, TableExt as _};
use splitpoint_legacy::{Counted, Doubt, Format, StatedBy, identify, open, open_damaged};

use crate::support::{expected, fixtures, is_installed, pairs_of};

/// Copies a sample to `dir/table`, without its index.
fn copy_data(name: &str, dir: &Path) -> PathBuf {
    let table = dir.join("table");
    std::fs::copy(fixtures().join(format!("{name}.dat")), table.with_extension("dat"))
        .expect("the sample is there");
    table
}

fn index_of(name: &str) -> Vec<u8> {
    std::fs::read(fixtures().join(format!("{name}.dir"))).expect("the sample is there")
}

fn salvaged(table: &Path) -> BTreeMap<Vec<u8>, bool> {
    let mut saved = BTreeMap::new();
    let file = open_damaged(table).expect("the sample is there");
    file.salvage(|one, is_doubtful| {
        saved.insert(one.key.to_vec(), is_doubtful);
        Ok(())
    })
    .expect("the sample is there");
    saved
}

#[test]
fn a_table_is_found_by_each_of_its_files_and_by_their_stem() {
    let dir = tempfile::tempdir().unwrap();
    let table = copy_data("dumb-python3-changed", dir.path());
    for end in ["dir", "bak"] {
        std::fs::write(table.with_extension(end), index_of("dumb-python3-changed")).unwrap();
    }
    for path in [
        table.clone(),
        table.with_extension("dat"),
        table.with_extension("dir"),
        table.with_extension("bak"),
    ] {
        let file = open(&path).unwrap();
        assert!(pairs_of(&file) == expected("dumb-python3-changed"), "{}", path.display());
        assert_eq!(identify(&path).unwrap().unwrap().format, Format::Dumb);
    }
    // A file whose name ends like that, but whose content does not.
    let other = dir.path().join("other");
    std::fs::write(other.with_extension("dat"), b"data").unwrap();
    std::fs::write(other.with_extension("dir"), b"a directory\n").unwrap();
    assert!(identify(other.with_extension("dat")).unwrap().is_none());
    assert_eq!(identify(&other).unwrap_err().kind(), splitpoint::ErrorKind::NotFound);
}

#[test]
fn a_table_without_its_dir_is_read_by_its_bak_with_a_reservation() {
    let dir = tempfile::tempdir().unwrap();
    let table = copy_data("dumb-python3-quoted", dir.path());
    std::fs::write(table.with_extension("bak"), index_of("dumb-python3-quoted")).unwrap();
    let file = open(&table).unwrap();
    assert!(pairs_of(&file) == expected("dumb-python3-quoted"));
    assert_eq!(file.survey().unwrap().doubts, [Doubt::EarlierIndex]);
    assert_eq!(file.survey().unwrap().loss_count, 0);
}

/// As a power loss leaves a file that was just written anew.
#[test]
fn a_dir_of_zeros_is_one_of_the_files_and_the_bak_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let table = copy_data("dumb-python3-quoted", dir.path());
    std::fs::write(table.with_extension("bak"), index_of("dumb-python3-quoted")).unwrap();
    std::fs::write(table.with_extension("dir"), [0; 4096]).unwrap();
    for name in [&table, &table.with_extension("dat"), &table.with_extension("dir")] {
        let file = open(name).unwrap();
        assert!(pairs_of(&file) == expected("dumb-python3-quoted"));
        assert_eq!(file.survey().unwrap().doubts, [Doubt::EarlierIndex]);
        assert_eq!(file.identity().dir_path, Some(table.with_extension("dir")));
        let identity = file.identity().to_string();
        assert!(identity.contains("the .dir is not readable"), "{identity}");
    }
}

/// A power loss may leave the first blocks alone unwritten, also where they are a hole.
#[test]
fn the_lines_behind_many_zeros_are_read_and_the_bak_completes_them() {
    let dir = tempfile::tempdir().unwrap();
    let table = copy_data("dumb-python3-changed", dir.path());
    let index = index_of("dumb-python3-changed");
    let lines = index[index.len() / 2..].split(|byte| *byte == b'\n').count() - 1;
    std::fs::write(table.with_extension("bak"), &index).unwrap();
    for zero_bytes in [1 << 20, 1_600_000, (1 << 20) - 100, (4 << 20) + 1] {
        let mut image = vec![0; zero_bytes];
        image.extend_from_slice(&index[index.len() / 2..]);
        std::fs::write(table.with_extension("dir"), image).unwrap();
        let file = open(&table).unwrap();
        let identity = file.identity().to_string();
        assert!(!identity.contains("not readable"), "{zero_bytes}: {identity}");
        let found = file.scan().unwrap().filter_map(Result::ok).count();
        // The line before the first newline is lost with the zeros.
        assert!(found > 5 && found < lines, "{zero_bytes}: {found} of {lines}");
        assert_eq!(file.survey().unwrap().fault().unwrap().what, "line of the .dir");
        assert!(salvaged(&table).keys().eq(expected("dumb-python3-changed").keys()));
    }
    let sparse = std::fs::File::create(table.with_extension("dir")).unwrap();
    sparse.set_len(1 << 40).unwrap();
    assert_eq!(open(&table).unwrap_err().kind(), splitpoint::ErrorKind::TooLarge);
}

#[test]
fn a_dir_that_was_cut_in_a_line_is_told_and_the_bak_completes_it() {
    let dir = tempfile::tempdir().unwrap();
    let table = copy_data("dumb-python3-changed", dir.path());
    let index = index_of("dumb-python3-changed");
    std::fs::write(table.with_extension("bak"), &index).unwrap();
    std::fs::write(table.with_extension("dir"), &index[..index.len() / 2]).unwrap();
    let file = open(&table).unwrap();
    let all = expected("dumb-python3-changed");
    let found: Vec<_> =
        file.scan().unwrap().filter_map(Result::ok).map(|one| one.key.to_vec()).collect();
    assert!(found.len() > 10 && found.len() < all.len());
    assert_eq!(file.survey().unwrap().fault().unwrap().what, "line of the .dir");
    let saved = salvaged(&table);
    assert!(saved.keys().eq(all.keys()));
    assert_eq!(saved.values().filter(|is_doubtful| !**is_doubtful).count(), found.len());
    // Nothing of the new .dir was written.
    std::fs::write(table.with_extension("dir"), b"").unwrap();
    let file = open(&table).unwrap();
    assert_eq!(file.len().unwrap(), 0);
    let key_count = all.len() as u64;
    assert_eq!(file.survey().unwrap().doubts, [Doubt::ShorterIndex { key_count }]);
    assert!(salvaged(&table).keys().eq(all.keys()));
}

#[test]
fn a_dat_that_was_cut_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let table = copy_data("dumb-python3-changed", dir.path());
    let data = std::fs::read(table.with_extension("dat")).unwrap();
    std::fs::write(table.with_extension("dat"), &data[..data.len() / 2]).unwrap();
    std::fs::write(table.with_extension("dir"), index_of("dumb-python3-changed")).unwrap();
    let file = open(&table).unwrap();
    let survey = file.survey().unwrap();
    let discrepancy = survey.discrepancies().next().unwrap();
    assert_eq!((discrepancy.counted, discrepancy.stated_by), (Counted::Bytes, StatedBy::Dir));
    assert_eq!(discrepancy.found, data.len() as u64 / 2);
    let all = expected("dumb-python3-changed");
    let found = file.scan().unwrap().filter_map(Result::ok);
    assert!(found.map(|one| assert_eq!(all[&one.key[..]], &one.value[..])).count() > 5);
}

/// The last line of a key counts, as in Python.
#[test]
fn of_several_lines_with_a_key_the_last_counts() {
    let dir = tempfile::tempdir().unwrap();
    let table = dir.path().join("table");
    std::fs::write(table.with_extension("dat"), b"one.two").unwrap();
    std::fs::write(table.with_extension("dir"), b"'k', (0, 3)\n'l', (0, 3)\n'k', (4, 3)\n")
        .unwrap();
    let file = open(&table).unwrap();
    assert_eq!(file.len().unwrap(), 2);
    assert_eq!(file.get(b"k").unwrap().as_deref(), Some(&b"two"[..]));
    assert_eq!(file.survey().unwrap().doubt_count, 0);
}

/// What Python writes on this machine, with `shelve` and every byte in a key.
#[test]
fn what_python_writes_today_is_read() {
    if !is_installed("python3", "python3") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let program = "import dbm.dumb, sys
with dbm.dumb.open(sys.argv[1], 'n') as table:
    for n in range(5000):
        table[bytes([n % 256, n // 256]) + b'\"\\'\\\\'[:n % 4]] = b'v' * (n % 1200)
    for n in range(0, 5000, 7):
        table[bytes([n % 256, n // 256]) + b'\"\\'\\\\'[:n % 4]] = b'w' * (n % 2400)
";
    let table = dir.path().join("table.v1");
    let status = Command::new("python3").args(["-c", program]).arg(&table).status().unwrap();
    assert!(status.success());
    let mut all = BTreeMap::new();
    for n in 0..5000_usize {
        let key = [&[(n % 256) as u8, (n / 256) as u8], &b"\"'\\"[..(n % 4).min(3)]].concat();
        let value = if n % 7 == 0 { vec![b'w'; n % 2400] } else { vec![b'v'; n % 1200] };
        all.insert(key, value);
    }
    assert!(pairs_of(&open(&table).unwrap()) == all);
}

/// A `.dir` that was cut after a line, as by a program that was killed while it wrote it.
#[test]
fn keys_that_only_the_bak_has_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let table = copy_data("dumb-python3-changed", dir.path());
    let index = index_of("dumb-python3-changed");
    let all = expected("dumb-python3-changed");
    std::fs::write(table.with_extension("bak"), &index).unwrap();
    let lines: Vec<&[u8]> = index.split_inclusive(|byte| *byte == b'\n').collect();
    for left in [0, 1, 10, lines.len() - 1] {
        std::fs::write(table.with_extension("dir"), lines[..left].concat()).unwrap();
        let file = open(&table).unwrap();
        let key_count = all.len() as u64 - file.len().unwrap();
        assert!(key_count > 0);
        assert_eq!(file.survey().unwrap().doubts, [Doubt::ShorterIndex { key_count }]);
        assert!(salvaged(&table).keys().eq(all.keys()));
    }
    std::fs::write(table.with_extension("dir"), &index).unwrap();
    assert_eq!(open(&table).unwrap().survey().unwrap().doubts, []);
}

/// The file that is named is opened, not a table of another format beside it.
#[test]
fn a_file_is_no_part_of_a_table_because_of_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let copy = |sample: &str, name: &str| {
        std::fs::copy(fixtures().join(sample), path(name)).unwrap();
    };
    let format = |name: &str| identify(path(name)).unwrap().map(|found| found.format);
    copy("gdbm-be-std-word.gdbm", "mail.dat");
    copy("cdb-tinycdb-word.cdb", "mail.bak");
    assert_eq!(format("mail.bak"), Some(Format::Cdb));
    assert_eq!(format("mail.dat"), Some(Format::Gdbm));
    // By its stem, a table of ndbm beside files that are no table.
    copy("gdbm-be-std-word.gdbm", "y.db");
    std::fs::write(path("y.dat"), b"data").unwrap();
    std::fs::write(path("y.bak"), b"\"name\",\"number\"\n").unwrap();
    assert_eq!(format("y"), Some(Format::Gdbm));
    assert_eq!(format("y.dat"), None);
    // A table of quoted values beside a file with a mark.
    copy("gdbm-be-std-word.gdbm", "x.dat");
    std::fs::write(path("x.bak"), b"\"name\",\"number\"\n").unwrap();
    assert_eq!(format("x.dat"), Some(Format::Gdbm));
    assert_eq!(open(path("x.dat")).unwrap().len().unwrap(), 500);
    // Two files that have only the names of a pair.
    copy("cdb-tinycdb-word.cdb", "p.pag");
    copy("gdbm-be-std-word.gdbm", "p.dir");
    assert_eq!((format("p.pag"), format("p.dir")), (Some(Format::Cdb), Some(Format::Gdbm)));
    // The table in whose place a file with a mark is.
    copy("dumb-python3-quoted.dir", "s.dir");
    copy("cdb-tinycdb-word.cdb", "s.dat");
    assert_eq!(format("s.dat"), Some(Format::Cdb));
}
