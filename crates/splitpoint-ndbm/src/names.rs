//! The files of a database.

use std::path::{Path, PathBuf};

/// The paths that a name stands for.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    /// The store.
    pub(crate) pag: PathBuf,
    /// 16 bytes.
    pub(crate) dir: PathBuf,
    /// Where the ndbm of the BSDs has its database.
    pub(crate) db: PathBuf,
}

impl Names {
    pub(crate) fn of(name: &Path) -> Self {
        let [pag, dir, db] = [".pag", ".dir", ".db"].map(|ending| beside(name, ending));
        Self { pag, dir, db }
    }
}

/// Returns the path with something after it.
pub(crate) fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}
