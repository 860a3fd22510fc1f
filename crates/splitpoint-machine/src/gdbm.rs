//! The machine's GNU dbm.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::Path;
use std::ptr::{self, NonNull};

use crate::Absent;
use crate::library::{Datum, Library, function, last_error, path_for_c, text};

const NAMES: [(&str, &str); 4] =
    [("libgdbm.so.6", ""), ("libgdbm.so.5", ""), ("libgdbm.so.4", ""), ("libgdbm.6.dylib", "")];
const PACKAGE: &str = "libgdbm6 (Debian), gdbm-libs (Fedora)";

type Open = unsafe extern "C" fn(*const c_char, c_int, c_int, c_int, *const c_void) -> *mut c_void;
type Close = unsafe extern "C" fn(*mut c_void);
type Store = unsafe extern "C" fn(*mut c_void, Datum, Datum, c_int) -> c_int;
type Fetch = unsafe extern "C" fn(*mut c_void, Datum) -> Datum;
type First = unsafe extern "C" fn(*mut c_void) -> Datum;

/// `GDBM_WRCREAT` and `GDBM_REPLACE`.
const WRITE_OR_CREATE: c_int = 2;
const REPLACE: c_int = 1;

/// The functions of the library.
#[derive(Clone, Copy, Debug)]
struct Calls {
    library: Library,
    open: Open,
    close: Close,
    store: Store,
    fetch: Fetch,
    first: First,
    next: Fetch,
}

impl Calls {
    fn load() -> Result<Self, Absent> {
        let (library, _) = Library::open(&NAMES, "gdbm_open", PACKAGE)?;
        let absent = || Absent { tried: vec![library.name], package: PACKAGE };
        Ok(Self {
            library,
            open: function!(library, "gdbm_open", Open).ok_or_else(absent)?,
            close: function!(library, "gdbm_close", Close).ok_or_else(absent)?,
            store: function!(library, "gdbm_store", Store).ok_or_else(absent)?,
            fetch: function!(library, "gdbm_fetch", Fetch).ok_or_else(absent)?,
            first: function!(library, "gdbm_firstkey", First).ok_or_else(absent)?,
            next: function!(library, "gdbm_nextkey", Fetch).ok_or_else(absent)?,
        })
    }
}

/// Bytes that the library allocated with `malloc`, for its caller to free.
#[derive(Debug)]
struct Taken(Datum);

impl Taken {
    fn as_bytes(&self) -> Option<&[u8]> {
        // SAFETY: the datum came from the library, and is freed when this is dropped.
        unsafe { self.0.as_bytes() }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        // SAFETY: the library allocates what it returns with `malloc`, or returns null.
        unsafe { libc::free(self.0.start.cast()) };
    }
}

/// An open table of GNU dbm.
#[derive(Debug)]
pub struct Gdbm {
    calls: Calls,
    table: NonNull<c_void>,
    key: Option<Taken>,
}

impl Gdbm {
    /// Returns the version of the library, if there is one.
    ///
    /// # Errors
    ///
    /// [`Absent`] if there is none.
    pub fn library() -> Result<String, Absent> {
        let library = Calls::load()?.library;
        let Some(version) = library.find("gdbm_version") else {
            return Ok(library.name.to_owned());
        };
        // SAFETY: the symbol is a pointer to a string of C, constant, which it keeps.
        let words: *const c_char = unsafe { *version.as_ptr().cast() };
        if words.is_null() {
            return Ok(library.name.to_owned());
        }
        // SAFETY: the string ends in NUL.
        let words = unsafe { CStr::from_ptr(words) };
        Ok(format!("{}: {}", library.name, text(words)))
    }

    /// Opens or creates the table in the file at `path`.
    ///
    /// # Errors
    ///
    /// What keeps it from that, in words.
    pub fn open(path: &Path) -> Result<Self, String> {
        let calls = Calls::load().map_err(|absent| absent.to_string())?;
        let path = path_for_c(path)?;
        // SAFETY: the path ends in NUL; no function to be called on errors is allowed, which ends
        // the process with a message.
        let table = unsafe { (calls.open)(path.as_ptr(), 0, WRITE_OR_CREATE, 0o600, ptr::null()) };
        let table = NonNull::new(table).ok_or_else(|| last_error("gdbm_open"))?;
        Ok(Self { calls, table, key: None })
    }

    /// Stores a pair, in place of the one with the same key.
    ///
    /// # Errors
    ///
    /// That the library refuses it.
    pub fn store(&mut self, key: &[u8], value: &[u8]) -> Result<(), String> {
        let (Some(key), Some(value)) = (Datum::of(key), Datum::of(value)) else {
            return Err("the pair is over 2 GiB".to_owned());
        };
        // SAFETY: the table is open, and both borrow from slices that outlive the call.
        let result = unsafe { (self.calls.store)(self.table.as_ptr(), key, value, REPLACE) };
        if result == 0 { Ok(()) } else { Err(last_error("gdbm_store")) }
    }

    /// Calls `use_value` with the value of `key`, and returns what that returns, if there is one.
    pub fn fetch<T>(&mut self, key: &[u8], use_value: impl FnOnce(&[u8]) -> T) -> Option<T> {
        let key = Datum::of(key)?;
        // SAFETY: the table is open, and the datum borrows from a slice that outlives the call.
        let value = Taken(unsafe { (self.calls.fetch)(self.table.as_ptr(), key) });
        value.as_bytes().map(use_value)
    }

    /// Returns the first key.
    pub fn first_key(&mut self) -> Option<&[u8]> {
        // SAFETY: the table is open.
        let key = unsafe { (self.calls.first)(self.table.as_ptr()) };
        self.key = Some(Taken(key));
        self.key.as_ref()?.as_bytes()
    }

    /// Returns the key after the last one returned.
    pub fn next_key(&mut self) -> Option<&[u8]> {
        let last = self.key.take()?;
        last.as_bytes()?;
        // SAFETY: the table is open, and the last key is freed after the call.
        let key = unsafe { (self.calls.next)(self.table.as_ptr(), last.0) };
        self.key = Some(Taken(key));
        self.key.as_ref()?.as_bytes()
    }
}

impl Drop for Gdbm {
    fn drop(&mut self) {
        // SAFETY: the table is open and never used again. Newer versions return a number, which a
        // caller may ignore.
        unsafe { (self.calls.close)(self.table.as_ptr()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_come_back_from_the_machine_s_gdbm_if_it_has_one() {
        let library = match Gdbm::library() {
            Ok(library) => library,
            Err(absent) => {
                eprintln!("skipped: {absent}");
                return;
            }
        };
        assert!(library.starts_with("libgdbm"), "{library}");
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("table");
        let mut table = Gdbm::open(&path).unwrap();
        for number in 0..1000_u32 {
            table.store(number.to_string().as_bytes(), b"value").unwrap();
        }
        drop(table);
        let mut table = Gdbm::open(&path).unwrap();
        assert_eq!(table.fetch(b"999", <[u8]>::to_vec).as_deref(), Some(&b"value"[..]));
        assert_eq!(table.fetch(b"1000", <[u8]>::len), None);
        assert_eq!(table.next_key(), None);
        let mut count = usize::from(table.first_key().is_some());
        while table.next_key().is_some() {
            count += 1;
        }
        assert_eq!((count, table.next_key()), (1000, None));
    }
}
