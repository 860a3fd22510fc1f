//! Every header compiles by itself, in each dialect, without a warning.

use std::fs;
use std::process::Command;

use crate::support::{prefix, succeed};

#[test]
fn every_header_compiles_alone_as_c89_c11_and_cxx17() {
    let include = prefix().join("include/splitpoint");
    let dir = tempfile::tempdir().unwrap();
    let mut count = 0;
    for entry in fs::read_dir(&include).unwrap() {
        let header = entry.unwrap().file_name();
        // Twice: the second time it must be empty.
        let line = format!("#include <{}>\n", header.display());
        for (compiler, dialect) in [("cc", "c89"), ("cc", "c11"), ("c++", "c++17")] {
            let extension = if compiler == "cc" { "c" } else { "cc" };
            let source = dir.path().join("one").with_extension(extension);
            fs::write(&source, format!("{line}{line}int main(void) {{ return 0; }}\n")).unwrap();
            let mut compile = Command::new(compiler);
            compile.arg(format!("-std={dialect}")).arg("-I").arg(&include);
            compile.args(["-Wall", "-Wextra", "-Wpedantic", "-Wno-long-long", "-Werror"]);
            compile.arg("-fsyntax-only").arg(&source);
            succeed(&mut compile);
        }
        count += 1;
    }
    assert!(count >= 2, "{count} headers");
}
