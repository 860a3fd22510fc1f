//! Opens stores that programs change by turns.

use std::io;

use splitpoint::{Cursor, Db, Durability, Error, ErrorKind, Options, Result, SharedFile};

/// Opens the store in a file that others may change by turns, and empties it if `truncates`.
///
/// Others may have the file mapped, also where a claim keeps them out for now, so a store is emptied pair by
/// pair; what is no store is cut while nobody else is in a call.
///
/// # Errors
///
/// As [`Options::open_shared`]: a store that cannot be opened because it has another hash function or is of
/// another version stays as it is. Whoever wants a new one removes the file.
pub fn open_by_turns(file: &SharedFile, options: &Options, truncates: bool) -> Result<Db> {
    if !truncates {
        return options.open_shared(file);
    }
    let db = match options.open_shared(file) {
        Err(error) if is_lost(&error) => {
            if file.takes_turns() {
                replace_stranger(file, options)?;
            } else {
                cut(file)?;
            }
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

/// Returns whether a file is no store, or none that any handle can use.
fn is_lost(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::NotAStore | ErrorKind::Corrupt)
}

/// Makes an empty store of what is none.
fn replace_stranger(file: &SharedFile, options: &Options) -> Result<()> {
    let other = file.file().try_clone().map_err(|source| failed("open", file, source))?;
    let claim = SharedFile::for_writer(other, file.path())?;
    let db = match options.open_shared(&claim) {
        Err(error) if is_lost(&error) => {
            // Nobody else was faster.
            cut(&claim)?;
            options.open_shared(&claim)
        }
        opened => opened,
    };
    db?.close().map(drop)
}

/// Cuts what is no store, or none any more. A handle that was opened before the damage, and locks nothing
/// between its calls, has mapped what goes, as after any program that cuts the file: see
/// [`CutWatch`](crate::CutWatch). Its glances make no difference, and nothing in the file tells of the handle.
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

    use splitpoint::hash::HashFunction;

    use super::*;

    fn open(path: &Path, truncates: bool) -> Db {
        let file = File::options().read(true).write(true).create(true).truncate(false).open(path);
        let file = SharedFile::by_turns(file.unwrap(), path).unwrap();
        open_by_turns(&file, &Options::new(), truncates).unwrap()
    }

    #[test]
    fn a_store_with_other_handles_is_not_cut_by_a_claim_or_for_another_hash() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let db = open(&path, true);
        db.put("key", "value").unwrap();
        // Between its calls others may claim the file.
        let file = || File::options().read(true).write(true).open(&path).unwrap();
        let claim = SharedFile::for_writer(file(), &path).unwrap();
        let alone = open_by_turns(&claim, &Options::new(), true).unwrap();
        assert!(alone.is_empty());
        alone.put("new", "value").unwrap();
        alone.close().unwrap();
        drop(claim);
        assert_eq!(db.get("new").unwrap().unwrap(), "value");
        db.put("key", "again").unwrap();

        let hash = HashFunction::by_name("siphash-1-3").unwrap();
        let shared = SharedFile::by_turns(file(), &path).unwrap();
        let opened = open_by_turns(&shared, &Options::new().hash(hash), true);
        assert_eq!(opened.unwrap_err().kind(), ErrorKind::HashMismatch);
        assert_eq!((db.len(), db.get("key").unwrap().unwrap().to_vec()), (2, b"again".to_vec()));
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
