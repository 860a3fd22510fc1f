//! `Files`: the files of one table.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The files of one table.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    /// The file with the records.
    pub(crate) data: PathBuf,
    /// The `.dir` beside a `.pag`.
    pub(crate) dir: Option<PathBuf>,
    /// The index of a table of Python's dbm.dumb, if this may be one.
    pub(crate) index: Option<Index>,
}

/// The lists of keys of a table of Python's dbm.dumb, as far as they exist.
#[derive(Clone, Debug)]
pub(crate) struct Index {
    pub(crate) dir: Option<PathBuf>,
    /// What the `.dir` was before it was written anew.
    pub(crate) bak: Option<PathBuf>,
    /// Whether the `.dir` is there but nothing in it is readable.
    pub(crate) is_dir_lost: bool,
}

/// Lists the files that the table at `path` may have beside or instead of that file, by their names
/// alone, the most likely first: a `.pag` with its `.dir`, or a `.dat` with its `.dir` or `.bak`, by
/// each name or by their common stem; ndbm's `.db`, or a `.pag` alone, by its stem.
pub(crate) fn candidates(path: &Path) -> Vec<Files> {
    let end = path.extension().and_then(|end| end.to_str()).unwrap_or_default();
    let is_file = path.is_file();
    let with = |extension: &str| {
        if is_file {
            return path.with_extension(extension);
        }
        let mut name = OsString::from(path);
        name.push(".");
        name.push(extension);
        PathBuf::from(name)
    };
    let pair = || Files::pair(with("pag"), with("dir"));
    let dumb = || Files::dumb(["dat", "dir", "bak"].map(with));
    let mut found = Vec::new();
    if !is_file || matches!(end, "pag" | "dir") {
        found.extend(pair());
    }
    if !is_file || matches!(end, "dat" | "dir" | "bak") {
        found.extend(dumb());
    }
    if !is_file {
        let alone = ["db", "pag"].map(with).into_iter().filter(|path| path.is_file());
        found.extend(alone.map(Files::alone));
    }
    found
}

impl Files {
    /// Returns whether `path` is one of these files.
    pub(crate) fn contain(&self, path: &Path) -> bool {
        let index = self.index.as_ref().map_or([&None, &None], |index| [&index.dir, &index.bak]);
        let [dir, bak] = index;
        self.data == path || [&self.dir, dir, bak].iter().any(|part| part.as_deref() == Some(path))
    }

    /// Returns one file as a table.
    pub(crate) fn alone(data: PathBuf) -> Self {
        Self { data, dir: None, index: None }
    }

    fn pair(data: PathBuf, dir: PathBuf) -> Option<Self> {
        let is_whole = data.is_file() && dir.is_file();
        is_whole.then_some(Self { data, dir: Some(dir), index: None })
    }

    /// Returns the files of a table of dbm.dumb, if there is one with its data and an index.
    fn dumb([data, dir, bak]: [PathBuf; 3]) -> Option<Self> {
        let [dir, bak] = [dir, bak].map(|path| path.is_file().then_some(path));
        let is_whole = data.is_file() && (dir.is_some() || bak.is_some());
        let index = Index { dir, bak, is_dir_lost: false };
        is_whole.then_some(Self { data, dir: None, index: Some(index) })
    }
}
