//! Opens stores that programs change by turns.

use std::io;

use splitpoint::{Cursor, Db, Durability, Error, ErrorKind, Options, Result, SharedFile};

/// Opens the store in a file that others may change by turns, and empties it if `truncates`.
///
/// Others may have the file mapped, so a store is emptied pair by pair; what is no store is cut while nobody
/// else is in a call.
///
/// # Errors
///
/// As [`Options::open_shared`].
pub fn open_by_turns(file: &SharedFile, options: &Options, truncates: bool) -> Result<Db> {
    if !truncates {
        return options.open_shared(file);
    }
    if !file.takes_turns() {
        cut(file)?;
        return options.open_shared(file);
    }
    let db = match options.open_shared(file) {
        Err(error) if error.kind() != ErrorKind::Locked => {
            replace_stranger(file, options)?;
            options.open_shared(file)
        }
        opened => opened,
    }?;
    let mut cursor = Cursor::at(0);
    while let Some(key) = cursor.next(&db)? {
        db.delete_with(key, Durability::Buffered)?;
    }
    Ok(db)
}

/// Makes an empty store of what is none, or one that cannot be opened.
fn replace_stranger(file: &SharedFile, options: &Options) -> Result<()> {
    let other = file.file().try_clone().map_err(|source| failed("open", file, source))?;
    let claim = SharedFile::for_writer(other, file.path())?;
    let db = options.open_shared(&claim).or_else(|_| {
        // Nobody else was faster.
        cut(&claim)?;
        options.open_shared(&claim)
    })?;
    db.close().map(drop)
}

fn cut(file: &SharedFile) -> Result<()> {
    file.file().set_len(0).map_err(|source| failed("truncate", file, source))
}

fn failed(action: &'static str, file: &SharedFile, source: io::Error) -> Error {
    Error::Io { action, path: file.path().to_path_buf(), source }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::path::Path;

    use super::*;

    fn open(path: &Path, truncates: bool) -> Db {
        let file = File::options().read(true).write(true).create(true).truncate(false).open(path);
        let file = SharedFile::by_turns(file.unwrap(), path).unwrap();
        open_by_turns(&file, &Options::new(), truncates).unwrap()
    }

    #[test]
    fn a_store_that_others_have_open_is_emptied_and_anything_else_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let db = open(&path, true);
        for i in 0..1000_u32 {
            db.put(i.to_le_bytes(), [7; 100]).unwrap();
        }
        let other = open(&path, true);
        assert!(
            db.is_empty() && other.is_empty() && db.get(5_u32.to_le_bytes()).unwrap().is_none()
        );
        db.put("key", "value").unwrap();
        assert_eq!(other.get("key").unwrap().unwrap(), "value");

        fs::write(&path, "no store at all").unwrap();
        let db = open(&path, true);
        db.put("key", "value").unwrap();
        db.close().unwrap();
        assert_eq!(open(&path, false).len(), 1);
    }
}
