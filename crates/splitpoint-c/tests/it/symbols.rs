//! What the libraries show to programs: nothing but the names of the checked-in lists.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::{Link, Program, prefix, repository, succeed, succeed_in_silence};

/// Each library, with the list of its names.
const LIBRARIES: &[(&str, &str)] = &[
    ("lib/libsplitpoint.so.0", "splitpoint-c/symbols.txt"),
    ("lib/libsplitpoint_hsearch.so.0", "splitpoint-hsearch/symbols.txt"),
    ("lib/libsplitpoint_ndbm.so.0", "splitpoint-ndbm/symbols.txt"),
    ("lib/libsplitpoint_dbm.so.0", "splitpoint-dbm/symbols.txt"),
    ("lib/splitpoint/drop-in/libgdbm_compat.so.4", "splitpoint-dbm/symbols-gdbm-compat.txt"),
    ("lib/libsplitpoint_gdbm.so.0", "splitpoint-gdbm/symbols.txt"),
    ("lib/splitpoint/drop-in/libgdbm.so.6", "splitpoint-gdbm/symbols.txt"),
    ("lib/libsplitpoint_db185.so.0", "splitpoint-db185/symbols.txt"),
];

#[test]
fn a_library_shows_the_names_of_its_list_and_nothing_else() {
    for (library, list) in LIBRARIES {
        let list = repository().join("crates").join(list);
        let expected = fs::read_to_string(&list).unwrap();
        let library = prefix().join(library);
        assert_eq!(names(&["-D", "--defined-only"], &library), expected, "{}", library.display());
        let archive = library.with_extension("").with_extension("a");
        if archive.is_file() {
            let found = names(&["--defined-only", "--extern-only"], &archive);
            assert_eq!(found, expected, "{}", archive.display());
        }
    }
}

#[test]
fn a_library_says_the_name_under_which_programs_ask_for_it() {
    for (library, _) in LIBRARIES {
        let library = prefix().join(library);
        let dynamic = succeed(Command::new("readelf").arg("-d").arg(&library));
        let name = library.file_name().unwrap().to_string_lossy();
        assert!(dynamic.contains(&format!("Library soname: [{name}]")), "{dynamic}");
        // A program may unload it while threads of a handle run in it.
        assert!(dynamic.contains("NODELETE"), "{dynamic}");
    }
}

#[test]
fn all_libraries_go_into_one_program_in_which_each_is_itself() {
    let libraries = ["", "_hsearch", "_ndbm", "_dbm", "_gdbm", "_db185"];
    let libraries = libraries.map(|name| format!("splitpoint{name}"));
    for link in [Link::Shared, Link::Archive, Link::Static] {
        let dir = tempfile::tempdir().unwrap();
        let names = libraries.each_ref().map(String::as_str);
        let program = Program::new("all_archives.c", &names, link);
        program.run(&[dir.path()]);
        if let Link::Shared = link {
            program.run_checked(&[tempfile::tempdir().unwrap().path()]);
        }
    }
}

#[test]
fn a_program_may_load_two_libraries_and_close_them_under_open_handles() {
    let dir = tempfile::tempdir().unwrap();
    let lib = prefix().join("lib");
    let [ndbm, gdbm] = ["ndbm", "gdbm"].map(|name| lib.join(format!("libsplitpoint_{name}.so.0")));
    let program = Program::new("loaded.c", &[], Link::Shared);
    program.run(&[&ndbm, &gdbm, dir.path()]);
    let dir = tempfile::tempdir().unwrap();
    let mut command = program.command_that_leaves_handles();
    succeed_in_silence(command.args([&ndbm, &gdbm, dir.path()]));
}

/// Each way to end, by each library: what was stored is there, no thread runs in a library that was unloaded, and
/// nothing waits for a thread that has gone. A plug-in that has the archive in it is such a library too.
#[test]
fn a_program_may_end_or_unload_a_library_without_closing_its_database() {
    let program = Program::new("forgotten.c", &[], Link::Shared);
    let lib = prefix().join("lib");
    let dir = tempfile::tempdir().unwrap();
    let plugin = dir.path().join("plugin.so");
    let mut cc = Command::new("cc");
    cc.arg("-shared").arg("-o").arg(&plugin);
    let names = ["gdbm_open", "gdbm_store", "gdbm_fetch", "gdbm_close"];
    cc.args(names.map(|name| format!("-Wl,-u,{name}"))).arg(lib.join("libsplitpoint_gdbm.a"));
    succeed(cc.args(["-lgcc_s", "-lpthread", "-lm", "-ldl"]));
    let libraries = [
        ("gdbm", lib.join("libsplitpoint_gdbm.so.0")),
        ("gdbm", plugin),
        ("ndbm", lib.join("libsplitpoint_ndbm.so.0")),
        ("db185", lib.join("libsplitpoint_db185.so.0")),
        ("native", lib.join("libsplitpoint.so.0")),
    ];
    let ends = [
        "return",
        "atexit",
        "_exit",
        "quick_exit",
        "thread",
        "dlclose",
        "fork exit",
        "fork _exit",
        "fork dlclose",
    ];
    for (number, (kind, library)) in libraries.iter().enumerate() {
        for end in ends {
            let store = dir.path().join(format!("{number} {end}"));
            for what in ["end", "look"] {
                let mut command = program.command();
                succeed_in_silence(command.arg(library).args([kind, what, end]).arg(&store));
            }
            remove_store(&store);
        }
        let store = dir.path().join(format!("{number} checked"));
        for end in ["return", "dlclose", "fork exit"] {
            let mut command = program.command_that_leaves_handles();
            succeed_in_silence(command.arg(library).args([kind, "end", end]).arg(&store));
        }
        remove_store(&store);
    }
}

/// Removes the file of a store, of ndbm two: each store has 20 MB.
fn remove_store(store: &Path) {
    let removed = ["", ".pag", ".dir"].map(|suffix| {
        let mut name = store.as_os_str().to_owned();
        name.push(suffix);
        fs::remove_file(name).is_ok()
    });
    assert!(removed.contains(&true), "{}", store.display());
}

/// The names of a library, sorted, each in a line.
fn names(options: &[&str], library: &Path) -> String {
    let table = succeed(Command::new("nm").args(options).arg(library));
    let mut names: Vec<&str> = table
        .lines()
        .filter(|line| line.split(' ').count() == 3)
        .filter_map(|line| line.rsplit(' ').next())
        .collect();
    names.sort_unstable();
    names.iter().flat_map(|name| [name, "\n"]).collect()
}
