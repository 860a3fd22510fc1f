//! `libsplitpoint`, from C.

use std::fs::{self, File};
use std::process::Stdio;

use crate::support::{Link, Program, prefix, repository, succeed};

const LIBRARY: &[&str] = &["splitpoint"];

#[test]
fn the_interface_does_what_the_header_says() {
    for link in [Link::Shared, Link::Archive, Link::Static] {
        let program = Program::new("native.c", LIBRARY, link);
        let dir = tempfile::tempdir().unwrap();
        program.run(&[dir.path()]);
    }
}

#[test]
fn nothing_leaks_and_nothing_is_used_after_its_end() {
    let dir = tempfile::tempdir().unwrap();
    Program::new("native.c", LIBRARY, Link::Shared).run_checked(&[dir.path()]);
}

#[test]
fn null_in_any_place_is_an_error_and_no_crash() {
    Program::new("nulls.c", LIBRARY, Link::Shared).run_checked(&[]);
}

#[test]
fn a_batch_without_memory_is_an_error_and_changes_nothing() {
    assert_eq!(Program::new("no_memory.c", LIBRARY, Link::Shared).run(&[]), "done\n");
}

#[test]
fn an_old_database_is_read_in_place_and_never_written() {
    let old = repository().join("crates/splitpoint-legacy/tests/fixtures/gdbm-be-std-word.gdbm");
    let before = fs::read(&old).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("old.gdbm");
    fs::write(&copy, &before).unwrap();
    let said = Program::new("old.c", LIBRARY, Link::Shared).run(&[&copy]);
    assert_eq!(said, "500 keys\n");
    assert_eq!(fs::read(&copy).unwrap(), before);
}

#[test]
fn the_example_of_the_documentation_works() {
    let source = repository().join("docs/examples/words.c");
    assert!(fs::read_to_string(&source).unwrap().lines().count() <= 40, "it is to be short");
    let program = Program::of_file(&source, LIBRARY, Link::Shared);
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("words.spt");
    let count = |text: &str| {
        let input = dir.path().join("input");
        fs::write(&input, text).unwrap();
        let input = fs::File::open(input).unwrap();
        succeed(program.command().arg(&store).stdin(input))
    };
    count("the quick fox and the dog\n");
    let said = count("the end\n");
    let mut lines: Vec<&str> = said.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["and 1", "dog 1", "end 1", "fox 1", "quick 1", "the 3"]);
}

#[test]
fn the_message_about_a_damaged_file_names_it() {
    let source = repository().join("docs/examples/words.c");
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("cut.spt");
    let program = Program::of_file(&source, LIBRARY, Link::Shared);
    succeed(program.command().arg(&store).stdin(File::open(&source).unwrap()));
    File::options().write(true).open(&store).unwrap().set_len(100).unwrap();
    let output = program.command().arg(&store).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    let expected = format!("cannot open the store: `{}`: corrupt file size at", store.display());
    assert!(said.starts_with(&expected), "{said}");
}

#[test]
fn the_message_about_a_damaged_record_names_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("flipped.spt");
    let program =
        Program::of_file(&repository().join("docs/examples/words.c"), LIBRARY, Link::Shared);
    let input = dir.path().join("input");
    fs::write(&input, "first unmistakable\n").unwrap();
    succeed(program.command().arg(&store).stdin(File::open(&input).unwrap()));
    let mut bytes = fs::read(&store).unwrap();
    let key = b"unmistakable";
    let at = bytes.windows(key.len()).position(|window| window == key).expect("the record");
    // Its header.
    bytes[at - 16..at].fill(0xff);
    fs::write(&store, bytes).unwrap();
    let mut command = program.command();
    let output = command.arg(&store).stdin(File::open(&input).unwrap()).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains(&format!("`{}`: corrupt record", store.display())), "{said}");
}

#[test]
fn pkg_config_finds_the_library() {
    let file = prefix().join("lib/pkgconfig/splitpoint.pc");
    let text = fs::read_to_string(file).unwrap();
    assert!(text.contains("Cflags: -I${includedir}/splitpoint\n"), "{text}");
    assert!(text.contains("Libs: -L${libdir} -lsplitpoint\n"), "{text}");
    // `cc -static` has no `-lgcc_s`, and adds the unwinder itself.
    assert!(text.contains("Libs.private: -lpthread -lm -ldl\n"), "{text}");
}
