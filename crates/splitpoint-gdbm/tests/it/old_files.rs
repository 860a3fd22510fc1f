//! Files that gdbm has written: read in place, refused to writers, or converted when that is asked for.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::{Program, Whose, original, skip};

/// Returns the samples that the original wrote, of every layout.
fn samples() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../splitpoint-legacy/tests/fixtures");
    let mut samples: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "gdbm"))
        .collect();
    samples.sort();
    assert!(!samples.is_empty());
    samples
}

#[test]
fn old_files_are_read_in_place_refused_to_writers_and_converted_on_request() {
    let program = Program::compile("old");
    for sample in samples() {
        let before = fs::read(&sample).unwrap();
        let count = splitpoint::Table::len(&splitpoint_legacy::open(&sample).unwrap()).unwrap();
        let copy = program.folder.path().join(sample.file_name().unwrap());
        fs::write(&copy, &before).unwrap();
        let run = |word: &str| program.run(Whose::Ours, &[Path::new(word), &copy]);
        assert_eq!(run("read"), format!("{count} keys\n"), "{sample:?}");
        assert_eq!(run("write"), "gdbm_errno 10, EROFS\n");
        assert!(fs::read(&copy).unwrap() == before, "{sample:?} was written");

        let converts = |word: &str| {
            let mut command = program.command(Whose::Ours);
            command.env("SPLITPOINT_OLD_FILES", "convert").arg(word).arg(&copy);
            crate::support::text(crate::support::succeed(&mut command))
        };
        // A writer that changes nothing converts nothing.
        assert_eq!(converts("look"), format!("{count} keys\n"));
        assert!(fs::read(&copy).unwrap() == before, "{sample:?} was converted by a look");
        assert_eq!(converts("write"), format!("{} keys\n", count + 1));
        let mut kept = copy.clone().into_os_string();
        kept.push(".before-splitpoint");
        assert!(fs::read(&kept).unwrap() == before, "{sample:?} was not kept");
        assert_eq!(run("read"), format!("{} keys\n", count + 1));
        let db = splitpoint::Db::open(&copy).unwrap();
        let old = splitpoint_legacy::open(&sample).unwrap();
        for entry in splitpoint::Table::scan(&old).unwrap() {
            let entry = entry.unwrap();
            assert_eq!(db.get(&*entry.key).unwrap().as_deref(), Some(&*entry.value));
        }
    }
}

/// The first four bytes of a store with the mark are those of a gdbm file, the next ones no block size.
#[test]
fn the_original_refuses_a_store_and_leaves_it_as_it_is() {
    if original().is_none() {
        return skip("the original is not installed");
    }
    let program = Program::compile("old");
    let path = program.folder.path().join("new.gdbm");
    let db = splitpoint::Options::new().gdbm_mark(true).open(&path).unwrap();
    db.put("key", "value").unwrap();
    db.close().unwrap();
    let before = fs::read(&path).unwrap();
    for word in ["read", "look", "write"] {
        let said = program.run(Whose::Original, &[Path::new(word), &path]);
        assert!(said.starts_with("gdbm_errno 33, "), "malformed header: {word}: {said}");
    }
    assert!(fs::read(&path).unwrap() == before);
}

/// What may come between the opening of an old file and the first change, each a word for `converts.c`.
pub(crate) const CONVERSIONS: [&str; 7] =
    ["goes elsewhere", "loses its name", "walks", "was killed", "was kept", "are two", "is closed"];

#[test]
fn what_comes_between_the_opening_and_the_first_change_does_no_harm() {
    let program = Program::compile("converts");
    let sample = samples().into_iter().find(|path| path.ends_with("gdbm-be-std-word.gdbm"));
    let sample = fs::read(sample.expect("it has 500 keys")).unwrap();
    for case in CONVERSIONS {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("old"), &sample).unwrap();
        let mut command = program.command(Whose::Ours);
        let output = crate::support::succeed(command.arg(case).current_dir(folder.path()));
        assert_eq!(crate::support::text(output), "done\n", "{case}");
    }
}
