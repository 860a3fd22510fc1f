//! From the archive of a package to a library that shows only its own names.
//!
//! Rust's own forms of libraries show more, or cannot be put beside each other: an archive brings the
//! standard library, so that two in one program define it twice.

use std::fs;
use std::path::Path;

use super::cannot;
use crate::Failure;
use crate::process::{command, output};

/// What is linked.
pub(super) struct Input<'a> {
    pub(super) root: &'a Path,
    /// The package with all that it uses.
    pub(super) archive: &'a Path,
    /// The names to show.
    pub(super) exports: &'a [String],
    /// A directory for what is made on the way.
    pub(super) scratch: &'a Path,
}

/// What the standard library of Rust uses; `rustc --print native-static-libs` has the same.
pub(super) const SYSTEM_LIBRARIES: &[&str] = &["-lgcc_s", "-lpthread", "-lm", "-ldl", "-lc"];

impl Input<'_> {
    /// Makes a shared library.
    pub(super) fn shared(&self, soname: &str, library: &Path) -> Result<(), Failure> {
        let script = self.scratch.join("exports.map");
        let names = self.exports.join("; ");
        write(&script, &format!("{{ global: {names}; local: *; }};\n"))?;
        // Beside the old one, and then in its place: a program that runs keeps what it has.
        let new = self.scratch.join("library.so");
        let mut cc = command(self.root, "cc", &["-shared", "-o"]);
        cc.arg(&new).arg(format!("-Wl,-soname,{soname}"));
        cc.arg(format!("-Wl,--version-script,{}", script.display()));
        // A name that the program defines too changes nothing in here.
        cc.args([
            "-Wl,-Bsymbolic",
            "-Wl,--gc-sections",
            "-Wl,-z,relro",
            "-Wl,-z,now",
            "-Wl,-z,defs",
            // A program may close it while handles are open, whose threads run in it.
            "-Wl,-z,nodelete",
        ]);
        cc.arg("-Wl,--strip-debug").args(self.undefined("-Wl,-u,"));
        cc.arg(self.archive).args(SYSTEM_LIBRARIES);
        output(&mut cc)?;
        move_to(&new, library)
    }

    /// Makes an archive of one object, in which all other names are local and its own are weak: a
    /// program may define them too, and then has its own.
    pub(super) fn archive(&self, library: &Path) -> Result<(), Failure> {
        let object = self.scratch.join("library.o");
        let mut ld = command(self.root, "ld", &["-r", "--gc-sections", "--strip-debug"]);
        ld.arg("--force-group-allocation").arg("-o").arg(&object);
        ld.args(self.undefined("--undefined=")).arg(self.archive);
        output(&mut ld)?;
        let names = self.scratch.join("exports.list");
        write(&names, &format!("{}\n", self.exports.join("\n")))?;
        // The compiler's own representation lies beside the code; merged, it can be read no more.
        let mut objcopy = command(self.root, "objcopy", &["-R", ".llvmbc", "-R", ".llvmcmd"]);
        objcopy.arg(format!("--keep-global-symbols={}", names.display()));
        objcopy.arg(format!("--weaken-symbols={}", names.display())).arg(&object);
        output(&mut objcopy)?;
        let new = self.scratch.join("library.a");
        // `ar` would add to an old one.
        let _ = fs::remove_file(&new);
        output(command(self.root, "ar", &["rcs"]).arg(&new).arg(&object))?;
        move_to(&new, library)
    }

    /// Options that ask for each name, so that the linker takes what defines it.
    fn undefined(&self, option: &str) -> impl Iterator<Item = String> {
        self.exports.iter().map(move |name| format!("{option}{name}"))
    }
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    fs::write(path, text).map_err(|cause| cannot("write", path, &cause))
}

/// Moves a file, to another file system too.
fn move_to(source: &Path, target: &Path) -> Result<(), Failure> {
    let mut temporary = target.as_os_str().to_owned();
    temporary.push(".new");
    let temporary = Path::new(&temporary);
    fs::copy(source, temporary).map_err(|cause| cannot("write", temporary, &cause))?;
    fs::rename(temporary, target).map_err(|cause| cannot("write", target, &cause))
}
