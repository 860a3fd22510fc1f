//! `cargo xtask stage PREFIX`: builds the C libraries and installs them.
//!
//! ```text
//! a package --cargo--> one archive --+--> PREFIX/lib/libNAME.so.0    its names alone are visible
//!                                    +--> PREFIX/lib/libNAME.a       one object, the same names
//! ```
//!
//! What is installed is one table, [`LIBRARIES`]. The names that a library shows are in a file of its
//! package, `symbols.txt`, which decides in both forms.

use std::fs;
use std::path::{Path, PathBuf};

use crate::process::{command, run as run_program, target};
use crate::{Failure, console};

mod header;
mod link;
mod pkg_config;

/// A library of C that is installed.
struct Library {
    /// The package that it is built from; its files for C are there too: `symbols.txt`, `include/`,
    /// `man/`.
    package: &'static str,
    /// Features of the package, in addition to the default ones.
    features: &'static [&'static str],
    /// The file of the package that lists the names to export.
    exports: &'static str,
    /// The name for the linker, after `-l`; also that of `NAME.pc`, with hyphens.
    name: &'static str,
    /// What it is, for pkg-config.
    what: &'static str,
    /// Where it is installed.
    place: Place,
    header: Header,
    /// Other names for the linker, in `lib/splitpoint/link/`.
    link_names: &'static [&'static str],
}

/// Where a library is installed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// `lib/libNAME.so.0` and its links, `lib/libNAME.a`, `lib/pkgconfig/NAME.pc`.
    Library,
    /// `lib/splitpoint/drop-in/` under this file name, which is its SONAME too: in the place of
    /// another library when a program starts. Its archive is in `lib/splitpoint/link/`.
    DropIn(&'static str),
}

/// The header of a library, in `include/splitpoint/`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Header {
    /// Made from the sources of the package.
    Generated(&'static str),
    /// In `include/` of the package, with those of other packages that it includes.
    Written(&'static [&'static str]),
    /// It belongs to another row.
    None,
}

/// Every library that is installed, one row for each.
const LIBRARIES: &[Library] = &[
    Library {
        package: "splitpoint-c",
        name: "splitpoint",
        what: "a crash-safe hash table in one file or in memory",
        header: Header::Generated("splitpoint.h"),
        ..USUAL
    },
    Library {
        package: "splitpoint-hsearch",
        name: "splitpoint_hsearch",
        what: "hsearch(3) with tables that grow",
        header: Header::Written(&["search.h"]),
        ..USUAL
    },
    Library {
        package: "splitpoint-ndbm",
        name: "splitpoint_ndbm",
        what: "ndbm(3) on Splitpoint files",
        header: Header::Written(&["ndbm.h"]),
        link_names: &["ndbm"],
        ..USUAL
    },
    Library {
        package: "splitpoint-dbm",
        name: "splitpoint_dbm",
        what: "dbm(3) on Splitpoint files",
        header: Header::Written(&["dbm.h"]),
        link_names: &["dbm"],
        ..USUAL
    },
    Library {
        package: "splitpoint-dbm",
        features: &["gdbm-compat"],
        exports: "symbols-gdbm-compat.txt",
        name: "splitpoint_gdbm_compat",
        what: "the compatibility library of gdbm: ndbm(3) and dbm(3)",
        place: Place::DropIn("libgdbm_compat.so.4"),
        header: Header::Written(&["gdbm-ndbm.h", "../../splitpoint-ndbm/include/ndbm.h"]),
        link_names: &["gdbm_compat"],
    },
    Library {
        package: "splitpoint-gdbm",
        name: "splitpoint_gdbm",
        what: "a drop-in for GNU dbm",
        header: Header::Written(&["gdbm.h"]),
        link_names: &["gdbm"],
        ..USUAL
    },
    Library {
        package: "splitpoint-gdbm",
        name: "splitpoint_gdbm",
        place: Place::DropIn("libgdbm.so.6"),
        ..USUAL
    },
    Library {
        package: "splitpoint-db185",
        name: "splitpoint_db185",
        what: "dbopen(3) for hash tables on Splitpoint files",
        header: Header::Written(&["db.h"]),
        link_names: &["db1"],
        ..USUAL
    },
];

/// What most rows share.
const USUAL: Library = Library {
    package: "",
    features: &[],
    exports: "symbols.txt",
    name: "",
    what: "",
    place: Place::Library,
    header: Header::None,
    link_names: &[],
};

/// Number in the SONAME of the libraries of this project. It changes when a program that was linked
/// with an earlier version would not run any more.
const ABI: u32 = 0;

impl Library {
    /// The name that a program which is linked with it asks for when it starts.
    fn soname(&self) -> String {
        match self.place {
            Place::Library => format!("lib{}.so.{ABI}", self.name),
            Place::DropIn(file) => file.to_owned(),
        }
    }

    fn directory(&self, root: &Path) -> PathBuf {
        root.join("crates").join(self.package)
    }

    /// The names that are visible in it, in order.
    fn exports(&self, root: &Path) -> Result<Vec<String>, Failure> {
        let path = self.directory(root).join(self.exports);
        let text = fs::read_to_string(&path).map_err(|cause| cannot("read", &path, &cause))?;
        Ok(text.lines().map(str::to_owned).collect())
    }
}

/// The directories of a prefix.
struct Prefix {
    include: PathBuf,
    lib: PathBuf,
    drop_in: PathBuf,
    link: PathBuf,
    pkg_config: PathBuf,
    man: PathBuf,
}

impl Prefix {
    fn create(prefix: &Path) -> Result<Self, Failure> {
        let lib = prefix.join("lib");
        let directories = Self {
            include: prefix.join("include/splitpoint"),
            drop_in: lib.join("splitpoint/drop-in"),
            link: lib.join("splitpoint/link"),
            pkg_config: lib.join("pkgconfig"),
            man: prefix.join("share/man"),
            lib,
        };
        let Self { include, lib, drop_in, link, pkg_config, man } = &directories;
        for path in [include, lib, drop_in, link, pkg_config, man] {
            fs::create_dir_all(path).map_err(|cause| cannot("create", path, &cause))?;
        }
        Ok(directories)
    }
}

/// The profile of the libraries that people install.
pub(crate) const RELEASE: &str = "release";
/// That of libraries that are only tested: the same, but nothing is optimized across crates.
pub(crate) const UNDER_TEST: &str = "stage-test";

/// Builds every library with a profile, or those with `word` in their names, and installs them under `prefix`.
pub(crate) fn run(
    root: &Path,
    prefix: &Path,
    word: Option<&str>,
    profile: &str,
) -> Result<(), Failure> {
    let prefix = std::path::absolute(prefix).map_err(|cause| cannot("find", prefix, &cause))?;
    let directories = Prefix::create(&prefix)?;
    let chosen = LIBRARIES.iter().filter(|it| word.is_none_or(|word| it.soname().contains(word)));
    let mut count = 0;
    for library in chosen {
        install(root, library, &prefix, &directories, profile)?;
        count += 1;
    }
    if count == 0 {
        let names: Vec<String> = LIBRARIES.iter().map(Library::soname).collect();
        return Err(format!(
            "no library has this word in its name; there are: {}",
            names.join(", ")
        ));
    }
    console::say(&format!("{count} libraries are in `{}`", prefix.display()));
    Ok(())
}

fn install(
    root: &Path,
    library: &Library,
    prefix: &Path,
    to: &Prefix,
    profile: &str,
) -> Result<(), Failure> {
    console::say(&format!("== {}", library.soname()));
    let archive = build(root, library, profile)?;
    let exports = library.exports(root)?;
    let soname = library.soname();
    let scratch = target(root).join("stage").join(library.soname());
    fs::create_dir_all(&scratch).map_err(|cause| cannot("create", &scratch, &cause))?;
    let input = link::Input { root, archive: &archive, exports: &exports, scratch: &scratch };
    match library.place {
        Place::DropIn(_) => {
            input.shared(&soname, &to.drop_in.join(&soname))?;
            for name in library.link_names {
                symlink(&format!("../drop-in/{soname}"), &to.link.join(format!("lib{name}.so")))?;
                input.archive(&to.link.join(format!("lib{name}.a")))?;
            }
        }
        Place::Library => {
            let so = format!("lib{}.so", library.name);
            let a = format!("lib{}.a", library.name);
            input.shared(&soname, &to.lib.join(&soname))?;
            symlink(&soname, &to.lib.join(&so))?;
            input.archive(&to.lib.join(&a))?;
            for name in library.link_names {
                symlink(&format!("../../{so}"), &to.link.join(format!("lib{name}.so")))?;
                symlink(&format!("../../{a}"), &to.link.join(format!("lib{name}.a")))?;
            }
            pkg_config::write(library, prefix, &to.pkg_config)?;
        }
    }
    let directory = library.directory(root);
    match library.header {
        Header::Generated(name) => header::generate(&directory, &to.include.join(name))?,
        Header::Written(paths) => {
            for path in paths {
                let source = directory.join("include").join(path);
                copy(&source, &to.include.join(source.file_name().unwrap_or_default()))?;
            }
        }
        Header::None => {}
    }
    install_manual(&directory.join("man"), &to.man)
}

/// Compiles a package with all that it uses into one archive, and returns its path.
fn build(root: &Path, library: &Library, profile: &str) -> Result<PathBuf, Failure> {
    let line = ["rustc", "--lib", "--crate-type", "staticlib", "--profile"];
    let mut command = command(root, "cargo", &line);
    command.arg(profile).arg("--package").arg(library.package);
    if !library.features.is_empty() {
        command.arg("--features").arg(library.features.join(","));
    }
    run_program(&mut command)?;
    let file = format!("lib{}.a", library.package.replace('-', "_"));
    Ok(target(root).join(profile).join(file))
}

/// Copies the pages of a package, each to the section that its name ends with.
fn install_manual(source: &Path, man: &Path) -> Result<(), Failure> {
    // A package without pages has no such directory.
    let Ok(entries) = fs::read_dir(source) else { return Ok(()) };
    for entry in entries {
        let page = entry.map_err(|cause| cannot("read", source, &cause))?.path();
        let section = page.extension().unwrap_or_default().to_string_lossy().into_owned();
        let directory = man.join(format!("man{section}"));
        fs::create_dir_all(&directory).map_err(|cause| cannot("create", &directory, &cause))?;
        copy(&page, &directory.join(page.file_name().unwrap_or_default()))?;
    }
    Ok(())
}

fn copy(source: &Path, target: &Path) -> Result<(), Failure> {
    fs::copy(source, target).map(drop).map_err(|cause| cannot("copy", source, &cause))
}

/// Makes `link` lead to `target`, whatever it was before.
fn symlink(target: &str, link: &Path) -> Result<(), Failure> {
    if link.symlink_metadata().is_ok() {
        fs::remove_file(link).map_err(|cause| cannot("replace", link, &cause))?;
    }
    std::os::unix::fs::symlink(target, link).map_err(|cause| cannot("link", link, &cause))
}

fn cannot(action: &str, path: &Path, cause: &std::io::Error) -> Failure {
    format!("cannot {action} `{}`: {cause}", path.display())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn root() -> &'static Path {
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the repository")
    }

    #[test]
    fn no_two_libraries_are_installed_under_one_name() {
        let sonames: BTreeSet<String> = LIBRARIES.iter().map(Library::soname).collect();
        assert_eq!(sonames.len(), LIBRARIES.len());
        let links: Vec<_> = LIBRARIES.iter().flat_map(|it| it.link_names).collect();
        assert_eq!(links.iter().collect::<BTreeSet<_>>().len(), links.len());
    }

    #[test]
    fn a_header_comes_with_those_that_it_includes() {
        for library in LIBRARIES {
            let Header::Written(paths) = library.header else { continue };
            let paths = paths.iter().map(|it| library.directory(root()).join("include").join(it));
            let paths: Vec<PathBuf> = paths.collect();
            for path in &paths {
                let text = fs::read_to_string(path).expect("the header is there");
                let ours = text.lines().filter_map(|line| line.strip_prefix("#include \""));
                for name in ours.map(|rest| rest.trim_end_matches('"')) {
                    assert!(
                        paths.iter().any(|it| it.ends_with(name)),
                        "{}: {name}",
                        path.display()
                    );
                }
            }
        }
    }

    #[test]
    fn the_names_to_export_are_sorted_and_there_once() {
        for library in LIBRARIES {
            let names = library.exports(root()).expect("the file is there");
            assert!(names.is_sorted() && !names.is_empty(), "{}", library.soname());
            assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
        }
    }
}
