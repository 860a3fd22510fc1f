//! `splitpoint run`: run a program with the drop-in libraries in the place of others.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::{Exit, Failure, Result};

/// Run a program with Splitpoint in the place of gdbm, ndbm, dbm, hsearch or db 1.85
///
/// Runs the program as without this command, except that the dynamic linker looks into the folder of
/// the drop-ins first (gdbm, ndbm, dbm), or loads a library before all others (hsearch, db185).
/// Without an option, it does so for every library that is installed. Nothing else is changed: the
/// libraries only read old files of gdbm, ndbm and dbm unless SPLITPOINT_OLD_FILES=convert is set, and
/// change files of db 1.85 in place.
///
/// This has no effect on a program that is linked statically, or runs with the rights of another user.
#[expect(clippy::doc_markdown, reason = "the help shows code marks as they are")]
#[expect(clippy::struct_excessive_bools, reason = "they are flags")]
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  splitpoint run -- man -k hash
  splitpoint run --hsearch -- free
  splitpoint run --prefix ~/splitpoint --ndbm -- perl -MNDBM_File -e 1")]
pub(crate) struct Args {
    /// In the place of libgdbm.so.6
    #[arg(long)]
    gdbm: bool,

    /// In the place of libgdbm_compat.so.4, for ndbm and dbm
    #[arg(long)]
    ndbm: bool,

    /// In the place of hsearch of the C library
    #[arg(long)]
    hsearch: bool,

    /// In the place of dbopen of libdb1 and the like
    #[arg(long)]
    db185: bool,

    /// Where the libraries are installed: what `cargo xtask stage` was given. By default, where this
    /// command is in bin/
    #[arg(long, value_name = "DIR")]
    prefix: Option<PathBuf>,

    /// The program, and its arguments
    #[arg(required = true, last = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// A way in which a program gets a library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// A file of the folder for the run time.
    Folder(&'static str),
    /// A library that is loaded first.
    Preload(&'static str),
}

impl Way {
    fn path(self, lib: &Path) -> PathBuf {
        match self {
            Self::Folder(file) => lib.join("splitpoint/drop-in").join(file),
            Self::Preload(file) => lib.join(file),
        }
    }
}

/// Replaces this process by the program.
pub(super) fn run(args: &Args) -> Result<()> {
    let lib = prefix(args)?.join("lib");
    let asked = [
        (args.gdbm, Way::Folder("libgdbm.so.6")),
        (args.ndbm, Way::Folder("libgdbm_compat.so.4")),
        (args.hsearch, Way::Preload("libsplitpoint_hsearch.so.0")),
        (args.db185, Way::Preload("libsplitpoint_db185.so.0")),
    ];
    let ways = chosen(asked, &lib)?;
    let (name, arguments) = args.program.split_first().expect("clap requires one");
    let mut program = Command::new(name);
    program.args(arguments);
    if ways.iter().any(|way| matches!(way, Way::Folder(_))) {
        let folder = lib.join("splitpoint/drop-in");
        program.env("LD_LIBRARY_PATH", before("LD_LIBRARY_PATH", &[folder])?);
    }
    let preloads: Vec<PathBuf> = ways
        .iter()
        .filter(|way| matches!(way, Way::Preload(_)))
        .map(|way| way.path(&lib))
        .collect();
    if !preloads.is_empty() {
        program.env("LD_PRELOAD", before("LD_PRELOAD", &preloads)?);
    }
    let error = program.exec();
    Err(Failure::new(Exit::CannotOpen, format!("cannot run `{}`: {error}", name.display())))
}

/// Returns the directory in which the libraries are installed.
fn prefix(args: &Args) -> Result<PathBuf> {
    if let Some(prefix) = &args.prefix {
        return std::path::absolute(prefix).map_err(|error| {
            Failure::new(Exit::CannotOpen, format!("cannot find `{}`: {error}", prefix.display()))
        });
    }
    let own = env::current_exe().and_then(|path| path.canonicalize());
    let directory = own.ok().and_then(|path| Some(path.parent()?.parent()?.to_path_buf()));
    directory.ok_or_else(|| missing("the directory of this command is unknown".to_owned()))
}

/// Returns what was asked for, all of which has to be installed; or everything that is installed.
fn chosen(asked: [(bool, Way); 4], lib: &Path) -> Result<Vec<Way>> {
    let is_any = asked.iter().any(|(is_asked, _)| *is_asked);
    let ways = asked.into_iter().filter(|(is_asked, _)| *is_asked || !is_any).map(|(_, way)| way);
    if !is_any {
        let installed: Vec<Way> = ways.filter(|way| way.path(lib).is_file()).collect();
        if installed.is_empty() {
            return Err(missing(format!("there is no drop-in library in `{}`", lib.display())));
        }
        return Ok(installed);
    }
    ways.map(|way| {
        let path = way.path(lib);
        let absent = || missing(format!("there is no `{}`", path.display()));
        path.is_file().then_some(way).ok_or_else(absent)
    })
    .collect()
}

fn missing(message: String) -> Failure {
    let hint = "install the libraries with `cargo xtask stage DIR`, and name DIR with --prefix";
    Failure::new(Exit::CannotOpen, message).hint(hint)
}

/// Returns the paths, and behind them what the variable has already.
fn before(variable: &str, paths: &[PathBuf]) -> Result<OsString> {
    let old = env::var_os(variable).unwrap_or_default();
    let mut joined = OsString::new();
    for path in paths {
        if path.as_os_str().as_encoded_bytes().iter().any(|byte| b":; ".contains(byte)) {
            let message = format!(
                "the dynamic linker takes no path with a space, a colon or a semicolon: `{}`",
                path.display()
            );
            return Err(Failure::new(Exit::CannotOpen, message));
        }
        append(&mut joined, path.as_os_str());
    }
    append(&mut joined, &old);
    Ok(joined)
}

fn append(list: &mut OsString, path: &OsStr) {
    if !list.is_empty() && !path.is_empty() {
        list.push(":");
    }
    list.push(path);
}
