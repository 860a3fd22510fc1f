//! `libsplitpoint_ndbm`, from C.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Link, Program, repository, skip, succeed, succeed_in_silence};

const LIBRARY: &[&str] = &["splitpoint_ndbm"];

fn fixture(name: &str) -> PathBuf {
    repository().join("crates/splitpoint-legacy/tests/fixtures").join(name)
}

#[test]
fn the_interface_does_what_the_header_says() {
    for link in [Link::Shared, Link::Archive, Link::Static] {
        let dir = tempfile::tempdir().unwrap();
        Program::new("ndbm.c", LIBRARY, link).run(&[&dir.path().join("x")]);
        let mut files: Vec<_> =
            fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        files.sort();
        assert_eq!(files, ["x.dir", "x.pag"]);
        assert_eq!(fs::read(dir.path().join("x.dir")).unwrap().len(), 16);
        for file in files {
            let mode = fs::metadata(dir.path().join(file)).unwrap().mode();
            assert_eq!(mode & 0o777, 0o640);
        }
    }
}

#[test]
fn nothing_leaks_and_nothing_is_used_after_its_end() {
    let dir = tempfile::tempdir().unwrap();
    Program::new("ndbm.c", LIBRARY, Link::Shared).run_checked(&[&dir.path().join("x")]);
    let old = dir.path().join("old");
    copy_old("ndbm-le-onepage.pag", Some("ndbm-le-onepage.dir"), &old);
    Program::new("ndbm_old.c", LIBRARY, Link::Shared).run_checked(&[&old, Path::new("read")]);
}

#[test]
fn cuts_forks_locks_and_turns_touch_nothing_that_was_freed() {
    for (source, cases) in [
        ("ndbm_cut.c", &[&["x"][..]][..]),
        ("ndbm_fork.c", &[&["x"]]),
        ("ndbm_locks.c", &[&["x"]]),
        ("ndbm_posix.c", &[&["x"]]),
        (
            "ndbm_turns.c",
            &[&["turns", "x", "3", "40"], &["killed", "x"], &["walks", "x"], &["own", "x"]],
        ),
    ] {
        let program = Program::new(source, LIBRARY, Link::Shared);
        for case in cases {
            let dir = tempfile::tempdir().unwrap();
            let mut command = program.command_that_leaves_handles();
            assert_eq!(
                succeed_in_silence(command.args(*case).current_dir(dir.path())),
                "",
                "{source} {case:?}"
            );
        }
    }
    let killed = Program::new("ndbm_kill.c", LIBRARY, Link::Shared);
    let dir = tempfile::tempdir().unwrap();
    for (case, said) in [("fill", "killed\n"), ("check", "")] {
        let mut command = killed.command_that_leaves_handles();
        assert_eq!(succeed_in_silence(command.args(["x", case]).current_dir(dir.path())), said);
    }
    let program = Program::new("ndbm_db.c", LIBRARY, Link::Shared);
    for case in ["closed", "forked"] {
        let at = tempfile::tempdir().unwrap();
        fs::copy(fixture("db185-le-512-small.db"), at.path().join("x.db")).unwrap();
        let mut command = program.command_that_leaves_handles();
        assert_eq!(succeed_in_silence(command.arg(case).current_dir(at.path())), "", "{case}");
    }
}

#[test]
fn a_datum_of_posix_works_too() {
    let dir = tempfile::tempdir().unwrap();
    Program::new("ndbm_posix.c", LIBRARY, Link::Shared).run(&[&dir.path().join("x")]);
}

#[test]
fn the_locks_of_the_program_meet_none_of_the_library() {
    let dir = tempfile::tempdir().unwrap();
    Program::new("ndbm_locks.c", LIBRARY, Link::Shared).run(&[&dir.path().join("x")]);
}

#[test]
fn programs_that_write_one_database_by_turns_lose_nothing() {
    let program = Program::new("ndbm_turns.c", LIBRARY, Link::Shared);
    for case in [&["turns", "3", "400"][..], &["killed"], &["walks"], &["own"]] {
        let dir = tempfile::tempdir().unwrap();
        let name = dir.path().join("x");
        let mut command = program.command();
        command.arg(case[0]).arg(&name).args(&case[1..]);
        assert_eq!(succeed(&mut command), "", "{case:?}");
    }
}

#[test]
fn a_file_that_a_stranger_has_cut_is_an_error_and_no_signal() {
    let dir = tempfile::tempdir().unwrap();
    Program::new("ndbm_cut.c", LIBRARY, Link::Shared).run(&[&dir.path().join("x")]);
}

#[test]
fn a_killed_program_leaves_every_pair_whose_store_returned() {
    let program = Program::new("ndbm_kill.c", LIBRARY, Link::Shared);
    for round in 0..3 {
        let dir = tempfile::tempdir().unwrap();
        let name = dir.path().join("x");
        let said = program.run(&[&name, Path::new("fill")]);
        assert_eq!(said.trim(), "killed", "round {round}");
        program.run(&[&name, Path::new("check")]);
    }
}

#[test]
fn a_child_of_a_fork_goes_on_beside_its_parent_and_after_it() {
    let dir = tempfile::tempdir().unwrap();
    Program::new("ndbm_fork.c", LIBRARY, Link::Shared).run(&[&dir.path().join("x")]);
}

#[test]
fn a_program_may_have_names_of_its_own() {
    for link in [Link::Shared, Link::Archive, Link::Static] {
        let dir = tempfile::tempdir().unwrap();
        let libraries = ["splitpoint_ndbm", "splitpoint_hsearch"];
        // Two of our archives in one program, too.
        Program::new("own_names.c", &libraries, link).run(&[&dir.path().join("x")]);
    }
    let dir = tempfile::tempdir().unwrap();
    let program =
        Program::new("own_names.c", &["splitpoint_ndbm", "splitpoint_hsearch"], Link::Shared);
    program.run_checked(&[&dir.path().join("x")]);
}

/// Copies the files of an old database to `NAME.pag` and `NAME.dir`.
fn copy_old(pag: &str, dir: Option<&str>, name: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let copy = |source: &str, extension: &str| {
        let (path, bytes) = (name.with_extension(extension), fs::read(fixture(source)));
        let bytes = bytes.expect("the fixture is there");
        fs::write(&path, &bytes).expect("the directory may be written");
        (path, bytes)
    };
    [Some(copy(pag, "pag")), dir.map(|dir| copy(dir, "dir"))].into_iter().flatten().collect()
}

/// The old databases of the fixtures: the file with the pairs, the other one if there is one, and how many
/// pairs.
fn samples() -> Vec<(String, Option<String>, usize)> {
    let entries = fs::read_dir(fixture("")).expect("the fixtures are there");
    let names = entries.map(|entry| entry.expect("nothing fails").file_name());
    let names: Vec<_> = names.map(|name| name.into_string().expect("ASCII")).collect();
    let of_stem = |pag: &String| {
        let (stem, extension) = pag.rsplit_once('.')?;
        ["pag", "gdbm"].contains(&extension).then(|| {
            let pairs = fs::read_to_string(fixture(&format!("{stem}.expect.txt")));
            let dir = format!("{stem}.dir");
            let count = pairs.expect("each has a list").lines().count();
            (pag.clone(), names.contains(&dir).then_some(dir), count)
        })
    };
    names.iter().filter_map(of_stem).collect()
}

#[test]
fn old_databases_are_read_in_place_refused_for_writing_and_converted_if_asked() {
    let program = Program::new("ndbm_old.c", LIBRARY, Link::Shared);
    let samples = samples();
    assert!(samples.len() >= 20, "{samples:?}");
    for (pag, dir, count) in &samples {
        let at = tempfile::tempdir().unwrap();
        let name = at.path().join("x");
        let files = copy_old(pag, dir.as_deref(), &name);
        let run = |mode: &str, policy: &str| {
            let mut command = program.command();
            command.arg(&name).arg(mode).env("SPLITPOINT_OLD_FILES", policy);
            succeed(&mut command)
        };
        assert_eq!(run("read", "refuse"), format!("{count}\n"), "{pag}");
        assert_eq!(run("write", "refuse"), "EROFS\n");
        assert_eq!(run("write", ""), "EROFS\n");
        assert_eq!(run("read", "convert"), format!("{count}\n"));
        for (path, bytes) in &files {
            assert_eq!(&fs::read(path).unwrap(), bytes, "{}", path.display());
        }
        assert_eq!(run("write", "convert"), format!("{}\n", count + 1));
        assert_eq!(run("read", "refuse"), format!("{}\n", count + 1));
        for (path, bytes) in &files {
            let mut kept = path.clone().into_os_string();
            // What the compatibility library of gdbm has written there is written here too.
            if !bytes.starts_with(b"GDBM") {
                kept.push(".before-splitpoint");
            }
            assert_eq!(&fs::read(kept).unwrap(), bytes, "the old file is kept");
        }
        assert_eq!(fs::read(name.with_extension("dir")).unwrap().len(), 16);
    }
}

/// Who runs a privileged program does not decide that it converts files.
#[test]
fn a_setuid_program_converts_nothing_whatever_its_environment_says() {
    let at = tempfile::tempdir().unwrap();
    let set_mode = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    let (name, program) = (at.path().join("x"), at.path().join("program"));
    // The privileged program alone may write them.
    for (path, _) in copy_old("ndbm-le-onepage.pag", Some("ndbm-le-onepage.dir"), &name) {
        set_mode(&path, 0o600);
    }
    fs::copy(Program::new("ndbm_old.c", LIBRARY, Link::Static).path(), &program).unwrap();
    set_mode(at.path(), 0o755);
    set_mode(&program, 0o4755);
    if fs::metadata(&program).unwrap().uid() != 0 {
        return skip("only root has another user run a program of root");
    }
    let mut command = Command::new(&program);
    command.arg(&name).arg("write").env("SPLITPOINT_OLD_FILES", "convert");
    match succeed(command.uid(65534).gid(65534)).as_str() {
        "Permission denied\n" => skip("the temporary directory has no setuid programs"),
        found => assert_eq!(found, "EROFS\n"),
    }
}

#[test]
fn a_file_of_the_bsds_is_written_by_its_owner_alone_and_by_its_own_number() {
    let program = Program::new("ndbm_db.c", LIBRARY, Link::Shared);
    for case in ["closed", "forked"] {
        let at = tempfile::tempdir().unwrap();
        fs::copy(fixture("db185-le-512-small.db"), at.path().join("x.db")).unwrap();
        assert_eq!(succeed(program.command().arg(case).current_dir(at.path())), "", "{case}");
    }
}

#[test]
fn what_comes_between_the_opening_and_the_first_change_does_no_harm() {
    let program = Program::new("ndbm_convert.c", LIBRARY, Link::Shared);
    for case in ["goes elsewhere", "loses its name", "walks", "was killed", "are two", "is closed"]
    {
        let at = tempfile::tempdir().unwrap();
        let name = at.path().join("old");
        copy_old("ndbm-le-onepage.pag", Some("ndbm-le-onepage.dir"), &name);
        let mut command = program.command_that_leaves_handles();
        command.arg(case).current_dir(at.path()).env("SPLITPOINT_OLD_FILES", "convert");
        assert_eq!(succeed_in_silence(&mut command), "", "{case}");
    }
}

#[test]
fn what_is_no_database_is_refused_and_left_as_it_is() {
    let program = Program::new("ndbm_old.c", LIBRARY, Link::Shared);
    let at = tempfile::tempdir().unwrap();
    let name = at.path().join("x");
    let text = b"This is a text, and no database.\n".repeat(100);
    fs::write(name.with_extension("pag"), &text).unwrap();
    for mode in ["read", "write"] {
        assert_eq!(succeed(program.command().arg(&name).arg(mode)), "EINVAL\n");
    }
    assert_eq!(fs::read(name.with_extension("pag")).unwrap(), text);
    assert!(!name.with_extension("dir").exists());
    // An empty `NAME.db` is absent.
    let other = at.path().join("y");
    fs::write(other.with_extension("db"), "").unwrap();
    assert_eq!(succeed(program.command().arg(&other).arg("write")), "ENOENT\n");
    assert_eq!(fs::read_dir(at.path()).unwrap().count(), 2);
}

#[test]
fn a_directory_without_permission_to_write_serves_readers() {
    let program = Program::new("ndbm_old.c", LIBRARY, Link::Shared);
    let at = tempfile::tempdir().unwrap();
    let name = at.path().join("x");
    copy_old("ndbm-le-onepage.pag", Some("ndbm-le-onepage.dir"), &name);
    fs::remove_file(name.with_extension("dir")).unwrap();
    fs::set_permissions(at.path(), fs::Permissions::from_mode(0o555)).unwrap();
    assert_eq!(succeed(program.command().arg(&name).arg("read")), "10\n");
    fs::set_permissions(at.path(), fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_folder_that_may_not_be_written_serves_writers_of_the_database() {
    let folder = tempfile::tempdir().unwrap();
    Program::new("ndbm_folder.c", LIBRARY, Link::Shared).run(&[folder.path()]);
}
