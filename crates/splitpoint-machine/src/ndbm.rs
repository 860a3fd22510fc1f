//! The machine's ndbm: `dbm_open` and its kin.
//!
//! No machine of today has that of 1991. GNU dbm and Berkeley DB have libraries with the same calls, over
//! their own files.

use std::ffi::{c_char, c_int, c_void};
use std::path::Path;
use std::ptr::NonNull;

use crate::Absent;
use crate::library::{Datum, Library, function, last_error, path_for_c};

/// Libraries with the calls, and how their names begin there.
const NAMES: [(&str, &str); 8] = [
    ("libgdbm_compat.so.4", "dbm"),
    ("libgdbm_compat.so.3", "dbm"),
    ("libdb-5.3.so", "__db_ndbm"),
    ("libdb-6.2.so", "__db_ndbm"),
    ("libdb-4.8.so", "__db_ndbm"),
    ("libndbm.so", "dbm"),
    ("libgdbm_compat.dylib", "dbm"),
    ("libSystem.B.dylib", "dbm"),
];
const PACKAGE: &str = "libgdbm-compat4 or libdb5.3 (Debian), gdbm-libs or libdb (Fedora)";

type Open = unsafe extern "C" fn(*mut c_char, c_int, c_int) -> *mut c_void;
type Close = unsafe extern "C" fn(*mut c_void);
type Store = unsafe extern "C" fn(*mut c_void, Datum, Datum, c_int) -> c_int;
type Fetch = unsafe extern "C" fn(*mut c_void, Datum) -> Datum;
type Next = unsafe extern "C" fn(*mut c_void) -> Datum;

/// `DBM_REPLACE`.
const REPLACE: c_int = 1;

/// The functions of one library.
#[derive(Clone, Copy, Debug)]
struct Calls {
    name: &'static str,
    open: Open,
    close: Close,
    store: Store,
    fetch: Fetch,
    first: Next,
    next: Next,
}

impl Calls {
    fn load() -> Result<Self, Absent> {
        let (library, prefix) = Library::open(&NAMES, "_open", PACKAGE)?;
        let absent = || Absent { tried: vec![library.name], package: PACKAGE };
        let symbol = |name: &str| format!("{prefix}_{name}");
        Ok(Self {
            name: library.name,
            open: function!(library, symbol("open"), Open).ok_or_else(absent)?,
            close: function!(library, symbol("close"), Close).ok_or_else(absent)?,
            store: function!(library, symbol("store"), Store).ok_or_else(absent)?,
            fetch: function!(library, symbol("fetch"), Fetch).ok_or_else(absent)?,
            first: function!(library, symbol("firstkey"), Next).ok_or_else(absent)?,
            next: function!(library, symbol("nextkey"), Next).ok_or_else(absent)?,
        })
    }
}

/// An open table of the machine's ndbm.
#[derive(Debug)]
pub struct Ndbm {
    calls: Calls,
    table: NonNull<c_void>,
}

impl Ndbm {
    /// Returns the file of the library, if there is one.
    ///
    /// # Errors
    ///
    /// [`Absent`] if there is none.
    pub fn library() -> Result<&'static str, Absent> {
        Calls::load().map(|calls| calls.name)
    }

    /// Opens or creates the table whose files begin with `path`.
    ///
    /// # Errors
    ///
    /// What keeps it from that, in words.
    pub fn open(path: &Path) -> Result<Self, String> {
        let calls = Calls::load().map_err(|absent| absent.to_string())?;
        let path = path_for_c(path)?;
        let flags = libc::O_RDWR | libc::O_CREAT;
        // SAFETY: the path ends in NUL, and the library does not change it.
        let table = unsafe { (calls.open)(path.as_ptr().cast_mut(), flags, 0o600) };
        let table = NonNull::new(table).ok_or_else(|| last_error("dbm_open"))?;
        Ok(Self { calls, table })
    }

    /// Stores a pair, in place of the one with the same key.
    ///
    /// # Errors
    ///
    /// That the library refuses it, such as a pair that does not fit its page.
    pub fn store(&mut self, key: &[u8], value: &[u8]) -> Result<(), String> {
        let (Some(key), Some(value)) = (Datum::of(key), Datum::of(value)) else {
            return Err("the pair is over 2 GiB".to_owned());
        };
        // SAFETY: the table is open, and both borrow from slices that outlive the call.
        let result = unsafe { (self.calls.store)(self.table.as_ptr(), key, value, REPLACE) };
        if result == 0 { Ok(()) } else { Err(last_error("dbm_store")) }
    }

    /// Returns the value of `key`, whose bytes are the library's until the next call.
    pub fn fetch(&mut self, key: &[u8]) -> Option<&[u8]> {
        let key = Datum::of(key)?;
        // SAFETY: the table is open, and the datum borrows from a slice that outlives the call.
        let value = unsafe { (self.calls.fetch)(self.table.as_ptr(), key) };
        // SAFETY: it came from the library, which keeps it until the next call; that needs the
        // table, which the result borrows.
        unsafe { value.as_bytes() }
    }

    /// Returns the first key, whose bytes are the library's until the next call.
    pub fn first_key(&mut self) -> Option<&[u8]> {
        // SAFETY: the table is open.
        let key = unsafe { (self.calls.first)(self.table.as_ptr()) };
        // SAFETY: as in `fetch`.
        unsafe { key.as_bytes() }
    }

    /// Returns the key after the last one returned, whose bytes are the library's until the next call.
    pub fn next_key(&mut self) -> Option<&[u8]> {
        // SAFETY: the table is open.
        let key = unsafe { (self.calls.next)(self.table.as_ptr()) };
        // SAFETY: as in `fetch`.
        unsafe { key.as_bytes() }
    }
}

impl Drop for Ndbm {
    fn drop(&mut self) {
        // SAFETY: the table is open and never used again.
        unsafe { (self.calls.close)(self.table.as_ptr()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_come_back_from_the_machine_s_ndbm_if_it_has_one() {
        if let Err(absent) = Ndbm::library() {
            assert!(absent.to_string().contains("libgdbm-compat4"), "{absent}");
            eprintln!("skipped: {absent}");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("table");
        let mut table = Ndbm::open(&path).unwrap();
        for number in 0..1000_u32 {
            table.store(number.to_string().as_bytes(), b"value").unwrap();
        }
        table.store(b"7", b"other").unwrap();
        drop(table);
        let mut table = Ndbm::open(&path).unwrap();
        assert_eq!(table.fetch(b"7"), Some(&b"other"[..]));
        assert_eq!(table.fetch(b"999"), Some(&b"value"[..]));
        assert_eq!(table.fetch(b"1000"), None);
        let mut count = usize::from(table.first_key().is_some());
        while table.next_key().is_some() {
            count += 1;
        }
        assert_eq!(count, 1000);
        let error = Ndbm::open(&dir.path().join("absent/table")).unwrap_err();
        assert!(error.starts_with("dbm_open failed: "), "{error}");
    }
}
