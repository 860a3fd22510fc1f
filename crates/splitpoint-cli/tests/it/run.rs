//! `splitpoint run`.

use crate::sandbox::Sandbox;

/// A sandbox with a prefix in which some libraries are installed, as empty files.
fn with_libraries(libraries: &[&str]) -> Sandbox {
    let sandbox = Sandbox::new();
    for library in libraries {
        let path = sandbox.path("prefix/lib").join(library);
        std::fs::create_dir_all(path.parent().expect("in a folder")).expect("a folder");
        std::fs::write(path, "").expect("written");
    }
    sandbox
}

const COMPAT: &str = "splitpoint/drop-in/libgdbm_compat.so.4";

#[test]
fn the_program_gets_the_folder_of_the_drop_ins_and_its_arguments() {
    let sandbox = with_libraries(&[COMPAT, "libsplitpoint_hsearch.so.0"]);
    let lib = sandbox.path("prefix/lib");
    let (folder, lib) = (lib.join("splitpoint/drop-in"), lib.display());
    // The empty library cannot be loaded, and the linker says so; the shell runs in any case.
    let script = "echo \"${LD_LIBRARY_PATH:-none} ${LD_PRELOAD:-none} $0 $1\"";
    for (options, expected) in [
        (&["--ndbm"][..], format!("{}:/old none a -b\n", folder.display())),
        (&["--hsearch"], format!("/old {lib}/libsplitpoint_hsearch.so.0 a -b\n")),
        (&[], format!("{}:/old {lib}/libsplitpoint_hsearch.so.0 a -b\n", folder.display())),
    ] {
        let args =
            [&["run", "--prefix", "prefix"], options, &["--", "sh", "-c", script, "a", "-b"]];
        let mut program = sandbox.program(&args.concat());
        program.env("LD_LIBRARY_PATH", "/old").env_remove("LD_PRELOAD");
        let output = program.output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{options:?}");
    }
}

#[test]
fn the_exit_code_is_that_of_the_program() {
    let sandbox = with_libraries(&[COMPAT]);
    sandbox.run(&["run", "--prefix", "prefix", "--", "sh", "-c", "exit 7"]).check(7, "", "");
}

#[test]
fn a_missing_library_and_a_missing_program_are_named() {
    let sandbox = with_libraries(&[COMPAT]);
    let missing = sandbox.path("prefix/lib/splitpoint/drop-in/libgdbm.so.6");
    let hint =
        "hint: install the libraries with `cargo xtask stage DIR`, and name DIR with --prefix\n";
    let expected = format!("splitpoint: error: there is no `{}`\n{hint}", missing.display());
    let run = sandbox.run(&["run", "--prefix", "prefix", "--gdbm", "--", "true"]);
    run.check(3, "", &expected);
    let run = sandbox.run(&["run", "--prefix", "prefix", "--", "no-such-program"]);
    let expected =
        "splitpoint: error: cannot run `no-such-program`: No such file or directory (os error 2)\n";
    run.check(3, "", expected);
}
