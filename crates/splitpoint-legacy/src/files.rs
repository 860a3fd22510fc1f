//! `Files`: the files of one table.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The files of one table.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    /// The file with the records.
    pub(crate) data: PathBuf,
    /// The `.dir` beside it.
    pub(crate) dir: Option<PathBuf>,
}

/// Finds the files of the table at `path`: one file; or a `.pag` with its `.dir`, by either name or
/// by their common stem; or ndbm's `.db`, by its stem.
pub(crate) fn files_of(path: &Path) -> Files {
    let with = |extension: &str| {
        let mut name = OsString::from(path);
        name.push(extension);
        PathBuf::from(name)
    };
    let alone = Files { data: path.to_path_buf(), dir: None };
    if path.is_file() {
        let pair =
            Files { data: path.with_extension("pag"), dir: Some(path.with_extension("dir")) };
        let is_of_pair = path.extension().is_some_and(|end| end == "pag" || end == "dir");
        return if is_of_pair && pair.is_whole() { pair } else { alone };
    }
    let pair = Files { data: with(".pag"), dir: Some(with(".dir")) };
    let db = with(".db");
    if pair.is_whole() {
        pair
    } else if db.is_file() {
        Files { data: db, dir: None }
    } else if pair.data.is_file() {
        Files { data: pair.data, dir: None }
    } else {
        alone
    }
}

impl Files {
    fn is_whole(&self) -> bool {
        self.data.is_file() && self.dir.as_ref().is_some_and(|dir| dir.is_file())
    }
}
