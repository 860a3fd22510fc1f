//! Tables in files, in memory and in the format of db 1.85; old files; the exported names; the header.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::memcheck::found_by_valgrind;

fn own() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn library() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a file");
    test.parent().expect("it is in a folder").join("libsplitpoint_db185.so")
}

fn succeed(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let words = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    assert!(output.status.success(), "{command:?}: {}\n{}\n{}", output.status, words[0], words[1]);
    output
}

/// Says why a test tests nothing here.
fn skip(reason: &str) {
    println!("skipped: {reason}");
}

/// Compiles a program of `tests/c` into a folder, and returns it.
fn compile(name: &str, folder: &Path) -> PathBuf {
    compile_with(name, folder, &library())
}

fn compile_with(name: &str, folder: &Path, library: &Path) -> PathBuf {
    let program = folder.join(format!("{name}.bin"));
    let mut compiler = Command::new("cc");
    compiler.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-g", "-I"]);
    compiler.arg(own().join("include")).arg(own().join(format!("tests/c/{name}.c")));
    succeed(compiler.arg("-o").arg(&program).arg(library));
    program
}

/// Returns the original, as glibc had it, if it is installed (Debian: libdb1-compat).
fn original() -> Option<PathBuf> {
    ["/lib", "/usr/lib"]
        .map(|lib| Path::new(lib).join("libdb1.so.2"))
        .into_iter()
        .find(|it| it.exists())
}

fn run(program: &Path, args: &[&Path]) -> String {
    let mut command = Command::new("timeout");
    command.arg("60").arg(program).args(args).current_dir(program.parent().expect("a folder"));
    command.env("LD_LIBRARY_PATH", library().parent().expect("a folder"));
    command.env_remove("SPLITPOINT_NEW_FILES");
    String::from_utf8(succeed(&mut command).stdout).expect("the programs print text")
}

#[test]
fn tables_do_what_the_manual_says_in_every_form() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(run(&compile("tables", folder.path()), &[]), "done\n");
}

/// Under valgrind, which ends with 9 for an invalid access or a block that is lost. A table in memory that
/// grows reserves twice the memory of the machine, over which valgrind takes minutes: it is left out.
#[test]
fn the_calls_neither_leak_nor_touch_what_was_freed() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        return skip("valgrind is not installed");
    }
    let folder = tempfile::tempdir().unwrap();
    let programs =
        ["tables", "session", "list", "processes"].map(|name| compile(name, folder.path()));
    let sample = own().join("../splitpoint-legacy/tests/fixtures/db185-le-512-small.db");
    let sample = std::fs::read(sample).unwrap();
    for name in ["list.db", "old.db"] {
        std::fs::write(folder.path().join(name), &sample).unwrap();
    }
    for (program, args, format, leaks) in [
        (&programs[0], &["50", "files"][..], None, "full"),
        (&programs[1], &["store.db", "1"], None, "full"),
        (&programs[1], &["in-place.db", "1"], Some("db185"), "full"),
        (&programs[2], &["read", "list.db"], None, "full"),
        (&programs[2], &["write", "list.db"], None, "full"),
        // Its children end without closing, or are killed.
        (&programs[3], &["old.db"], None, "no"),
    ] {
        let mut command = Command::new("timeout");
        command.args(["--signal=KILL", "300", "valgrind", "-q", "--error-exitcode=9"]);
        command.args([&format!("--leak-check={leaks}"), "--errors-for-leak-kinds=definite"]);
        command.arg(program).args(args).current_dir(folder.path());
        command.env("LD_LIBRARY_PATH", library().parent().expect("a folder"));
        command.env_remove("SPLITPOINT_NEW_FILES");
        command.envs(format.map(|format| ("SPLITPOINT_NEW_FILES", format)));
        // A child that is killed has no status that tells.
        assert_eq!(found_by_valgrind(&succeed(&mut command).stderr), "");
    }
}

#[test]
fn processes_take_turns_and_lose_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let sample = own().join("../splitpoint-legacy/tests/fixtures/db185-le-512-small.db");
    let copy = folder.path().join("old.db");
    std::fs::write(&copy, std::fs::read(sample).unwrap()).unwrap();
    assert_eq!(run(&compile("processes", folder.path()), &[&copy]), "done\n");
}

/// The same calls with the original, on a store, and on files of db 1.85: each goes on with the file of the
/// other too. What a call returns, every value, and what a walk reaches is the same.
#[test]
fn sessions_and_walks_go_as_with_the_original() {
    let Some(original) = original() else { return skip("libdb1 is not installed") };
    let folder = tempfile::tempdir().unwrap();
    let [for_original, for_ours] = ["original", "ours"].map(|name| folder.path().join(name));
    for place in [&for_original, &for_ours] {
        std::fs::create_dir(place).unwrap();
    }
    let theirs = compile_with("session", &for_original, &original);
    let ours = compile("session", &for_ours);
    let run = |program: &Path, format: &str, file: &str, seed: u32| {
        let mut command = Command::new("timeout");
        command.arg("60").arg(program).arg(file).arg(seed.to_string()).current_dir(folder.path());
        command.env("LD_LIBRARY_PATH", library().parent().expect("a folder"));
        command.env("SPLITPOINT_NEW_FILES", format);
        String::from_utf8(succeed(&mut command).stdout).expect("the programs print text")
    };
    let same = |found: &str, expected: &str, what: &str| {
        let differs = std::iter::zip(found.lines(), expected.lines()).position(|(a, b)| a != b);
        let around = |text: &str, at: usize| {
            text.lines().skip(at.saturating_sub(3)).take(6).collect::<Vec<_>>().join("\n")
        };
        if let Some(at) = differs {
            panic!(
                "{what}, line {at}\n{}\n-- the original:\n{}",
                around(found, at),
                around(expected, at)
            );
        }
        assert_eq!(found.lines().count(), expected.lines().count(), "{what}");
    };
    for seed in 1..=6 {
        let name = |kind: &str| format!("{seed}-{kind}.db");
        let expected = run(&theirs, "", &name("theirs"), seed);
        assert!(expected.lines().count() > 5000, "{expected}");
        same(&run(&ours, "", &name("store"), seed), &expected, &name("store"));
        same(&run(&ours, "db185", &name("ours"), seed), &expected, &name("ours"));
        // Each goes on with the file of the other.
        let next = seed + 100;
        let expected = run(&ours, "db185", &name("theirs"), next);
        same(&run(&theirs, "", &name("ours"), next), &expected, &name("file of the other"));
        same(&run(&ours, "", &name("store"), next), &expected, &name("store, again"));
    }
}

/// The sample was written by the original on a machine of the other byte order.
#[test]
fn an_old_file_is_read_in_place_and_changed_in_its_own_format() {
    let samples = own().join("../splitpoint-legacy/tests/fixtures");
    let folder = tempfile::tempdir().unwrap();
    let program = compile("list", folder.path());
    let mut sample_count = 0;
    for entry in std::fs::read_dir(samples).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let is_sample = name.starts_with("db185-") && path.extension().is_some_and(|it| it == "db");
        if !is_sample
            || ["unclean", "fnvhash", "userhash", "bug"].iter().any(|word| name.contains(word))
        {
            continue;
        }
        sample_count += 1;
        let before = std::fs::read(&path).unwrap();
        let copy = folder.path().join(&name);
        std::fs::write(&copy, &before).unwrap();
        let expected = splitpoint::Table::len(&splitpoint_legacy::open(&path).unwrap()).unwrap();
        let found = run(&program, &[Path::new("read"), &copy]);
        assert_eq!(found.trim(), expected.to_string(), "{name}");
        assert!(std::fs::read(&copy).unwrap() == before, "{name} was written");
        let found = run(&program, &[Path::new("write"), &copy]);
        assert_eq!(found.trim(), (expected + 100).to_string(), "{name}");
        let format = splitpoint_legacy::identify(&copy).unwrap().unwrap().format;
        assert_eq!(format, splitpoint_legacy::Format::Db185Hash);
    }
    assert!(sample_count > 0);
}

/// Files of 3 pages, with 2 records, that `db5.3_load` has made: pages of 4,096 bytes as by default, and of 512.
#[test]
fn an_old_file_that_is_smaller_than_any_store_is_read() {
    let samples = own().join("tests/fixtures");
    let folder = tempfile::tempdir().unwrap();
    let program = compile("list", folder.path());
    for (name, file_bytes) in [("aliases-4096.db", 12_288), ("aliases-512.db", 1536)] {
        let sample = samples.join(name);
        assert_eq!(sample.metadata().unwrap().len(), file_bytes);
        assert_eq!(run(&program, &[Path::new("read"), &sample]), "2\n", "{name}");
    }
}

#[test]
fn the_library_exports_three_names() {
    let listed = succeed(Command::new("nm").args(["-D", "--defined-only"]).arg(library()));
    let listed = String::from_utf8(listed.stdout).unwrap();
    let names: BTreeSet<&str> =
        listed.lines().filter_map(|line| line.split_whitespace().nth(2)).collect();
    let expected: BTreeSet<&str> = include_str!("../../symbols.txt").lines().collect();
    assert_eq!(names, expected);
}

#[test]
fn the_header_compiles_alone_in_every_language() {
    let folder = tempfile::tempdir().unwrap();
    let source = "#include <db.h>\nvoid *use(void);\nvoid *use(void) \
                  { return dbopen(0, O_RDWR, 0, DB_HASH, 0); }\n";
    for (compiler, standard, name) in
        [("cc", "-std=c89", "a.c"), ("cc", "-std=c11", "a.c"), ("c++", "-std=c++17", "a.cc")]
    {
        std::fs::write(folder.path().join(name), source).unwrap();
        let mut command = Command::new(compiler);
        command.args([standard, "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I"]);
        command.arg(own().join("include")).args(["-c", name]).current_dir(folder.path());
        succeed(&mut command);
    }
}
