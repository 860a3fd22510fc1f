//! Dumps go from the original's programs to ours and back, in both formats.

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::Command;

use crate::support::{Program, Whose, bind, has_program, original, skip, succeed, text};

/// Returns the pairs of a dump in text, in base64.
fn pairs(dump: &str) -> BTreeMap<String, String> {
    let mut data = Vec::new();
    for line in dump.lines() {
        if line.starts_with("#:len=") {
            data.push(format!("{line} "));
        } else if !line.starts_with('#') {
            data.last_mut().expect("a size comes before").push_str(line);
        }
    }
    assert!(data.len().is_multiple_of(2), "keys and values take turns");
    data.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect()
}

fn tool(whose: Whose, name: &str, folder: &Path, args: &[&str]) -> String {
    let mut command = Command::new(name);
    command.args(args).current_dir(folder);
    bind(&mut command, whose);
    text(succeed(&mut command))
}

#[test]
fn dumps_of_both_formats_load_in_both_directions() {
    if original().is_none() || !["gdbm_dump", "gdbm_load"].into_iter().all(has_program) {
        return skip("the original and its programs are not installed");
    }
    let program = Program::compile("dumps");
    let folder = program.folder.path();
    for (from, to) in [(Whose::Ours, Whose::Original), (Whose::Original, Whose::Ours)] {
        for format in ["ascii", "binary"] {
            program.run(from, &["source.db"]);
            let format = format!("--format={format}");
            let _ = std::fs::remove_file(folder.join("target.db"));
            tool(from, "gdbm_dump", folder, &[&format, "source.db", "dump"]);
            tool(to, "gdbm_load", folder, &["dump", "target.db"]);
            std::fs::remove_file(folder.join("dump")).unwrap();
            let source = pairs(&tool(from, "gdbm_dump", folder, &["source.db"]));
            let target = pairs(&tool(to, "gdbm_dump", folder, &["target.db"]));
            assert!(source == target && source.len() == 500, "{from:?} {format}");
            std::fs::remove_file(folder.join("source.db")).unwrap();
        }
    }
}

/// An empty value, which the loader of the original refuses, and dumps that are cut or changed.
#[test]
fn the_loader_takes_empty_values_and_names_the_line_of_an_error() {
    let program = Program::compile("dumps");
    let folder = program.folder.path();
    let good = "# GDBM dump\n#:version=1.1\n#:file=named.db\n#:format=standard\n# End of header\n\
                #:len=3\nb25l\n#:len=0\n#:count=1\n# End of data\n";
    let load = |dump: &str| {
        let _ = std::fs::remove_file(folder.join("named.db"));
        std::fs::write(folder.join("dump"), dump).unwrap();
        program.run(Whose::Ours, &["load", "dump"])
    };
    assert_eq!(load(good), "loaded 1 keys\n");
    assert_eq!(load(&good.replace("count=1", "count=2")), "gdbm_errno 18, line 9\n");
    assert_eq!(load(&good.replace("b25l", "b25")), "gdbm_errno 18, line 7\n");
    assert_eq!(load(&good.replace("len=3", "len=4")), "gdbm_errno 18, line 8\n");
    assert_eq!(load(&good.replace("len=3", "len=-3")), "gdbm_errno 18, line 6\n");
    assert_eq!(load(good.split("#:count").next().unwrap()), "gdbm_errno 25, line 9\n");
    assert_eq!(load(&good.replace("#:file=named.db\n", "")), "gdbm_errno 26, line 4\n");
    assert_eq!(load("no dump\n"), "gdbm_errno 18, line 1\n");
    assert_eq!(load(""), "gdbm_errno 25, line 1\n");
}

/// Dumps that other programs wrote or changed, and users who may not give files away: loaded as by the original. It
/// has no number for a dump of Berkeley DB that is wrong.
#[test]
fn a_load_takes_what_the_original_takes_and_gives_the_file_the_same_owner_and_mode() {
    let program = Program::compile("loads");
    let folder = program.folder.path();
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o777)).unwrap();
    // Only root becomes somebody else.
    let is_root = std::fs::metadata(folder).unwrap().uid() == 0;
    for user in if is_root { &["0", "65534"][..] } else { &["0"] } {
        let ours = program.run(Whose::Ours, &[user]);
        let wrong: Vec<_> = ours.lines().filter(|line| line.contains("DB, no ")).collect();
        assert!(wrong[0].contains("header: -1, gdbm_errno 25, 0 keys"), "{ours}");
        assert!(wrong[1].contains("digit: -1, gdbm_errno 18, 0 keys"), "{ours}");
        assert!(ours.contains("without a mode: 0, gdbm_errno 0, 1 keys, mode 600"), "{ours}");
        if original().is_none() {
            skip("the original is not installed");
            continue;
        }
        let original = program.run(Whose::Original, &[user]);
        for (expected, found) in original.lines().zip(ours.lines()) {
            // It reads a mode that is not there from what was in that memory before.
            let is_sure =
                !expected.contains("gdbm_errno -1") && !expected.contains("without a mode");
            assert!(expected == found || !is_sure, "expected {expected:?}, found {found:?}");
        }
        assert_eq!(original.lines().count(), ours.lines().count(), "{ours}");
    }
}
