//! The algorithms of the 1991 paper against the files of the originals.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use splitpoint::hash::CharSign;
use splitpoint::{Table, TableExt};
use splitpoint_legacy::algorithm::{Algorithm, Parameters, StoreMode, Variant, dbm, sdbm};
use splitpoint_legacy::{ByteOrder, open};

use crate::support::{expected, files_of, is_installed, left_out, pairs_of};

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// Returns the pairs of a sample in the order of its pages. That is the order of insertion within
/// each page, and across pages the order changes nothing: a page is split once its pairs exceed
/// it, whichever came last.
fn in_page_order(name: &str) -> Pairs {
    let file = open(&files_of(name)[0]).unwrap();
    let pair = |entry: splitpoint::Result<splitpoint::Entry>| {
        let entry = entry.unwrap();
        (entry.key.to_vec(), entry.value.to_vec())
    };
    file.scan().unwrap().map(pair).collect()
}

fn filled<T: Algorithm>(mut table: T, pairs: &Pairs) -> T {
    for (key, value) in pairs {
        table.store(key, value, StoreMode::Insert).unwrap();
    }
    table
}

fn sample_files(name: &str) -> Vec<Vec<u8>> {
    files_of(name).iter().map(|path| fs::read(path).unwrap()).collect()
}

#[test]
fn sdbm_files_are_those_of_perl_ruby_and_apache_byte_for_byte() {
    let perl = sdbm::Options::default();
    let big = sdbm::Options { byte_order: ByteOrder::Big, sign: CharSign::Unsigned, ..perl };
    let ruby = sdbm::Options { multiplier: 65_587, sign: CharSign::Unsigned, ..perl };
    for (name, options) in [
        ("sdbm-le-onepage", perl),
        ("sdbm-le-word", perl),
        ("sdbm-le-bin", perl),
        ("sdbm-le-maxpair", perl),
        ("sdbm-be-word", big),
        ("sdbm-be-bin", big),
        ("sdbm-ruby-word", ruby),
        ("sdbm-apr-word", perl),
    ] {
        let table = filled(sdbm::Sdbm::new(options), &in_page_order(name));
        let found: Vec<Vec<u8>> = table.files().into_iter().map(|(_, bytes)| bytes).collect();
        assert!(found == sample_files(name), "{name}");
    }
}

/// The unused bytes of a page of ndbm are what deleted pairs have left, which depends on the order
/// across pages, which no sample states.
#[test]
fn ndbm_files_are_those_of_bsd_except_for_unused_bytes() {
    let little = dbm::Options { bitmap_block_bytes: 1024, ..dbm::Options::ndbm() };
    let big = dbm::Options { byte_order: ByteOrder::Big, ..little };
    for (name, options) in [
        ("ndbm-le-onepage", little),
        ("ndbm-le-word", little),
        ("ndbm-le-bin", little),
        ("ndbm-be-word", big),
    ] {
        let table = filled(dbm::Dbm::new(options), &in_page_order(name));
        let files = table.files();
        let original = sample_files(name);
        assert!(files[1].1 == original[1], "{name}: the bitmap");
        assert_eq!(files[0].1.len(), original[0].len(), "{name}");
        for (ours, theirs) in files[0].1.chunks(1024).zip(original[0].chunks(1024)) {
            let [ours, theirs] = [ours, theirs].map(|page| used_bytes(page, options.byte_order));
            assert!(ours == theirs, "{name}");
        }
    }
}

/// Returns the offsets and the pairs of a page.
fn used_bytes(page: &[u8], order: ByteOrder) -> (&[u8], &[u8]) {
    let slot = |slot: usize| usize::from(order.u16([page[2 * slot], page[2 * slot + 1]]));
    let count = slot(0);
    let low = if count == 0 { page.len() } else { slot(count) };
    (&page[..2 * (count + 1)], &page[low..])
}

/// Stores, replaces and deletes the same in Perl's library and in the module.
#[test]
fn sdbm_follows_perl_through_replacements_and_deletes_byte_for_byte() {
    if !is_installed("perl", "perl") || !has_perl_module("SDBM_File") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut table = sdbm::Sdbm::new(sdbm::Options::default());
    let mut script = perl_script("SDBM_File", "SDBM_File", "O_RDWR|O_CREAT, 0644", dir.path());
    for number in 0..3000_u32 {
        let key = format!("key{}", number.wrapping_mul(0x9e37_79b9) % 1500);
        if number % 5 == 4 {
            let _ = writeln!(script, "delete $h{{'{key}'}};");
            table.delete(key.as_bytes()).unwrap();
        } else {
            let value = format!("{number}").repeat(1 + number as usize % 7);
            let _ = writeln!(script, "$h{{'{key}'}} = '{value}';");
            table.store(key.as_bytes(), value.as_bytes(), StoreMode::Replace).unwrap();
        }
    }
    run_perl(&script, dir.path());
    for (ending, bytes) in table.files() {
        let original = fs::read(dir.path().join(format!("table{ending}"))).unwrap();
        assert!(bytes == original, "{ending}");
    }
    assert!(table.counts().splits() > 20);
}

fn has_perl_module(name: &str) -> bool {
    let found = Command::new("perl").arg(format!("-M{name}")).args(["-e", "1"]).output().unwrap();
    if !found.status.success() {
        left_out(&format!("perl has no {name}; Debian has it in package perl"));
    }
    found.status.success()
}

fn perl_script(module: &str, class: &str, arguments: &str, dir: &Path) -> String {
    let path = dir.join("table").display().to_string();
    format!(
        "use strict; use Fcntl; use {module};\nmy %h;\n\
         tie(%h, '{class}', '{path}', {arguments}) or die \"tie: $!\";\n"
    )
}

fn run_perl(script: &str, dir: &Path) -> Vec<u8> {
    let path = dir.join("script.pl");
    fs::write(&path, format!("{script}\nuntie %h;\n")).unwrap();
    let output = Command::new("perl").arg(&path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Returns a table of gdbm with records of all sizes, some replaced and some deleted.
fn gdbm_table(block_bytes: usize) -> Box<dyn Algorithm> {
    let parameters = Parameters { page_bytes: Some(block_bytes), ..Parameters::default() };
    let mut table = Variant::Gdbm.create(&parameters).unwrap();
    for number in 0..2000_u32 {
        let key = format!("key{}", number % 1700);
        let value = number.to_string().repeat(1 + number as usize % 200);
        table.store(key.as_bytes(), value.as_bytes(), StoreMode::Replace).unwrap();
        if number % 7 == 6 {
            table.delete(format!("key{}", number / 2).as_bytes()).unwrap();
        }
    }
    table
}

fn pairs_of_table(table: &mut dyn Algorithm) -> std::collections::BTreeMap<Vec<u8>, Vec<u8>> {
    let mut pairs = std::collections::BTreeMap::new();
    let mut visit = |key: &[u8], value: &[u8]| {
        pairs.insert(key.to_vec(), value.to_vec());
        std::ops::ControlFlow::Continue(())
    };
    table.walk(&mut visit).unwrap();
    pairs
}

/// gdbm finds every key in the module's file, stores one more, and the result is read again.
#[test]
fn gdbm_opens_changes_and_keeps_what_the_module_wrote() {
    if !is_installed("perl", "perl") || !has_perl_module("GDBM_File") {
        return;
    }
    for block_bytes in [512, 4096] {
        let dir = tempfile::tempdir().unwrap();
        let mut table = gdbm_table(block_bytes);
        let path = dir.path().join("table");
        fs::write(&path, &table.files()[0].1).unwrap();
        let mut expected = pairs_of_table(&mut *table);
        let mut script = perl_script("GDBM_File", "GDBM_File", "&GDBM_WRITER, 0644", dir.path());
        for (key, value) in &expected {
            let [key, value] = [key, value].map(|text| String::from_utf8(text.clone()).unwrap());
            let _ = writeln!(
                script,
                "defined $h{{'{key}'}} && $h{{'{key}'}} eq '{value}' or die '{key}';"
            );
        }
        script.push_str("print scalar(keys %h);\n$h{'one more'} = 'x' x 5000;\n");
        let printed = run_perl(&script, dir.path());
        assert_eq!(String::from_utf8(printed).unwrap(), expected.len().to_string());
        expected.insert(b"one more".to_vec(), vec![b'x'; 5000]);
        assert!(pairs_of(&open(&path).unwrap()) == expected, "{block_bytes}");
    }
}

#[test]
fn the_reader_of_old_files_reads_what_the_modules_write() {
    for name in ["dbm", "ndbm", "sdbm", "gdbm"] {
        let mut table = if name == "gdbm" {
            gdbm_table(1024)
        } else {
            let mut table = Variant::by_name(name).unwrap().create(&Parameters::default()).unwrap();
            for (key, value) in expected("sdbm-le-word") {
                table.store(&key, &value, StoreMode::Insert).unwrap();
            }
            table
        };
        let dir = tempfile::tempdir().unwrap();
        let files = table.files();
        for (ending, bytes) in &files {
            fs::write(dir.path().join(format!("table{ending}")), bytes).unwrap();
        }
        let file = open(&dir.path().join(format!("table{}", files[0].0))).unwrap();
        let pairs = pairs_of_table(&mut *table);
        assert!(pairs_of(&file) == pairs, "{name}");
        for key in pairs.keys() {
            assert!(file.get(key).unwrap().is_some(), "{name}: lookup");
        }
        let survey = file.survey().unwrap();
        assert_eq!((survey.doubt_count, survey.discrepancies().count()), (0, 0), "{name}");
    }
}
