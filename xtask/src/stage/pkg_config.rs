//! The files for pkg-config.

use std::fs;
use std::path::Path;

use super::link::SYSTEM_LIBRARIES;
use super::{Library, cannot};
use crate::Failure;

/// Writes `NAME.pc` of a library that is installed under `prefix`.
pub(super) fn write(library: &Library, prefix: &Path, directory: &Path) -> Result<(), Failure> {
    let path = directory.join(format!("{}.pc", library.name.replace('_', "-")));
    fs::write(&path, text(library, prefix)).map_err(|cause| cannot("write", &path, &cause))
}

/// What `cc` adds itself, with `-static` in another form.
const OF_THE_COMPILER: &[&str] = &["-lgcc_s", "-lc"];

fn text(library: &Library, prefix: &Path) -> String {
    let Library { name, what, .. } = library;
    format!(
        "prefix={}\nincludedir=${{prefix}}/include\nlibdir=${{prefix}}/lib\n\n\
         Name: {}\nDescription: {what}\nVersion: {}\n\
         Cflags: -I${{includedir}}/splitpoint\nLibs: -L${{libdir}} -l{name}\nLibs.private: {}\n",
        prefix.display(),
        name.replace('_', "-"),
        env!("CARGO_PKG_VERSION"),
        SYSTEM_LIBRARIES
            .iter()
            .filter(|name| !OF_THE_COMPILER.contains(name))
            .copied()
            .collect::<Vec<_>>()
            .join(" "),
    )
}
