//! Every header compiles by itself and with the others, in each dialect, without a warning.

use std::fs;
use std::process::Command;

use crate::support::{prefix, succeed};

/// Compiles a file of C in each dialect.
#[track_caller]
fn check(text: &str) {
    let dir = tempfile::tempdir().expect("there is room");
    for (compiler, dialect) in [("cc", "c89"), ("cc", "c11"), ("c++", "c++17")] {
        let extension = if compiler == "cc" { "c" } else { "cc" };
        let source = dir.path().join("source").with_extension(extension);
        fs::write(&source, format!("{text}int main(void) {{ return 0; }}\n")).expect("a new file");
        let mut compile = Command::new(compiler);
        compile.arg(format!("-std={dialect}")).arg("-I").arg(prefix().join("include/splitpoint"));
        compile.args(["-Wall", "-Wextra", "-Wpedantic", "-Wno-long-long", "-Werror"]);
        succeed(compile.arg("-fsyntax-only").arg(&source));
    }
}

#[test]
fn every_header_compiles_alone_and_with_the_others_as_c89_c11_and_cxx17() {
    let mut lines = Vec::new();
    for entry in fs::read_dir(prefix().join("include/splitpoint")).unwrap() {
        lines.push(format!("#include <{}>\n", entry.unwrap().file_name().display()));
    }
    assert!(lines.len() >= 6, "{lines:?}");
    lines.sort();
    for line in &lines {
        // Twice: the second time it must be empty.
        check(&format!("{line}{line}"));
    }
    check(&lines.concat());
    lines.reverse();
    check(&lines.concat());
}
