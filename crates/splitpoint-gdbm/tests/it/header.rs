//! The header compiles alone, in every language that includes it.

use std::path::Path;
use std::process::Command;

use crate::support::succeed;

#[test]
fn the_header_compiles_alone_in_every_language() {
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    let folder = tempfile::tempdir().unwrap();
    let source = "#include <gdbm.h>\nint use(void);\nint use(void) { return gdbm_errno; }\n";
    for (compiler, standard, name) in
        [("cc", "-std=c89", "a.c"), ("cc", "-std=c11", "a.c"), ("c++", "-std=c++17", "a.cc")]
    {
        let file = folder.path().join(name);
        std::fs::write(&file, source).unwrap();
        let mut command = Command::new(compiler);
        // The count of keys is a long long, which C89 has as an extension.
        command.args([standard, "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-Wno-long-long"]);
        command.arg("-I").arg(&include).arg("-c").arg(&file).current_dir(folder.path());
        succeed(&mut command);
    }
}
