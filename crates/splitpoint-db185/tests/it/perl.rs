//! The tests of Perl's `DB_File` for hash tables, with the module compiled with our header.

use std::path::Path;
use std::process::Command;

use crate::debian::fetch_perl_source;
use crate::tables::{library, own, skip, succeed};

/// The test that expects the order of the pairs of db 1.85's hash function.
const OF_THE_ORDER: &str = "not ok 117";

fn perl(source: &Path, folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command.args(["200", "perl"]).args(args).current_dir(source.join("cpan/DB_File"));
    command.env("LD_LIBRARY_PATH", folder).env_remove("SPLITPOINT_NEW_FILES");
    command
}

#[test]
fn the_tests_of_perl_pass() {
    let has_headers = Command::new("perl")
        .args(["-MConfig", "-MDevel::PPPort", "-e", "exit !-e \"$Config{archlibexp}/CORE/perl.h\""])
        .output();
    if !has_headers.is_ok_and(|output| output.status.success()) {
        return skip("perl has no headers, or no Devel::PPPort");
    }
    let [source, folder] = [(); 2].map(|()| tempfile::tempdir().expect("there is room"));
    let [source, folder] = [source.path(), folder.path()];
    if fetch_perl_source(source, "cpan/DB_File").is_none() {
        return skip("the source of perl cannot be fetched");
    }
    std::os::unix::fs::symlink(library(), folder.join("libdb1.so")).expect("a new name");
    let config = format!(
        "INCLUDE = {}\nLIB = {}\nDBNAME = -ldb1\nPREFIX = size_t\nHASH = u_int32_t\n",
        own().join("include").display(),
        folder.display()
    );
    std::fs::write(source.join("cpan/DB_File/config.in"), config).expect("there is room");
    let header = "Devel::PPPort::WriteFile('ppport.h')";
    succeed(&mut perl(source, folder, &["-MDevel::PPPort", "-e", header]));
    succeed(&mut perl(source, folder, &["Makefile.PL"]));
    succeed(Command::new("make").current_dir(source.join("cpan/DB_File")));

    let test = ["-Mblib", "-I../../lib", "-I../../t/lib", "t/db-hash.t"];
    let bound = perl(source, folder, &test).env("LD_DEBUG", "bindings").output().expect("it runs");
    let bound = String::from_utf8_lossy(&bound.stderr).into_owned();
    let ours = format!("to {}/libdb1.so [0]: normal symbol `dbopen'", folder.display());
    assert!(bound.contains(&ours), "dbopen is another library's");
    for (format, expected) in [("native", vec![OF_THE_ORDER]), ("db185", vec![])] {
        let mut command = perl(source, folder, &test);
        let output = succeed(command.env("SPLITPOINT_NEW_FILES", format));
        let lines = String::from_utf8_lossy(&output.stdout).into_owned();
        let passed = lines.lines().filter(|line| line.starts_with("ok ")).count();
        let failed: Vec<_> = lines.lines().filter(|line| line.starts_with("not ok")).collect();
        // The order may be the expected one by chance.
        assert!(failed.is_empty() || failed == expected, "{format}: {failed:?}");
        assert_eq!(passed + failed.len(), 166, "{format}: {lines}");
    }
}
