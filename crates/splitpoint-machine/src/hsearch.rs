//! The hash table of the machine's C library: `hcreate_r` and `hsearch_r`.

use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr;

use crate::Absent;
use crate::library::{Library, function, last_error};

/// The C library of this process, by the names that it has.
const NAMES: [(&str, &str); 3] =
    [("libc.so.6", ""), ("libc.musl-x86_64.so.1", ""), ("libc.musl-aarch64.so.1", "")];
const PACKAGE: &str = "glibc or musl";

/// `ENTRY`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Entry {
    key: *mut c_char,
    data: *mut c_void,
}

/// `struct hsearch_data`, which is 16 bytes where we know it, with room for larger ones.
#[repr(C, align(16))]
#[derive(Debug)]
struct Table([u8; 64]);

type Create = unsafe extern "C" fn(usize, *mut Table) -> c_int;
type Search = unsafe extern "C" fn(Entry, c_int, *mut *mut Entry, *mut Table) -> c_int;
type Destroy = unsafe extern "C" fn(*mut Table);

/// `FIND` and `ENTER`.
const FIND: c_int = 0;
const ENTER: c_int = 1;

/// The functions of the library.
#[derive(Clone, Copy, Debug)]
struct Calls {
    name: &'static str,
    create: Create,
    search: Search,
    destroy: Destroy,
}

impl Calls {
    fn load() -> Result<Self, Absent> {
        let (library, _) = Library::open(&NAMES, "hsearch_r", PACKAGE)?;
        let absent = || Absent { tried: vec![library.name], package: PACKAGE };
        Ok(Self {
            name: library.name,
            create: function!(library, "hcreate_r", Create).ok_or_else(absent)?,
            search: function!(library, "hsearch_r", Search).ok_or_else(absent)?,
            destroy: function!(library, "hdestroy_r", Destroy).ok_or_else(absent)?,
        })
    }
}

/// A table of the C library. It has a fixed size, and its user owns the keys and values.
#[derive(Debug)]
pub struct Hsearch {
    calls: Calls,
    table: Box<Table>,
    /// What the table points to: a key and a value, in turn.
    owned: Vec<CString>,
}

impl Hsearch {
    /// Returns the file of the C library, if it has the functions.
    ///
    /// # Errors
    ///
    /// [`Absent`] if it has not.
    pub fn library() -> Result<&'static str, Absent> {
        Calls::load().map(|calls| calls.name)
    }

    /// Creates a table for at most `records`.
    ///
    /// # Errors
    ///
    /// What keeps it from that, in words.
    pub fn create(records: usize) -> Result<Self, String> {
        let calls = Calls::load().map_err(|absent| absent.to_string())?;
        let mut table = Box::new(Table([0; 64]));
        // SAFETY: the table is zeroed, as the function asks, and at least as large as its own type.
        let result = unsafe { (calls.create)(records, &raw mut *table) };
        if result == 0 {
            return Err(last_error("hcreate_r"));
        }
        Ok(Self { calls, table, owned: Vec::new() })
    }

    fn search(&mut self, key: *mut c_char, data: *mut c_void, action: c_int) -> Option<Entry> {
        let mut found: *mut Entry = ptr::null_mut();
        let entry = Entry { key, data };
        // SAFETY: the table was created, the key is a string of C, and `found` is a place for the
        // answer.
        let result =
            unsafe { (self.calls.search)(entry, action, &raw mut found, &raw mut *self.table) };
        if result == 0 || found.is_null() {
            return None;
        }
        // SAFETY: the library has set it to an entry of the table, which nothing changes meanwhile.
        Some(unsafe { *found })
    }

    /// Stores a pair; a key that is there keeps its value, as the library's rules say.
    ///
    /// # Errors
    ///
    /// That the table is full, or that the pair has a NUL byte, which ends a string of C.
    pub fn store(&mut self, key: &[u8], value: &[u8]) -> Result<(), String> {
        let c_string =
            |bytes: &[u8]| CString::new(bytes).map_err(|_| "it has a NUL byte".to_owned());
        let (key, value) = (c_string(key)?, c_string(value)?);
        let (key_start, value_start) = (key.as_ptr().cast_mut(), value.as_ptr().cast_mut());
        // The table points to them, so they live as long as it does.
        self.owned.extend([key, value]);
        let stored = self.search(key_start, value_start.cast(), ENTER);
        stored.map(|_| ()).ok_or_else(|| last_error("hsearch_r"))
    }

    /// Returns the value of `key`.
    pub fn fetch(&mut self, key: &[u8]) -> Option<&[u8]> {
        let key = CString::new(key).ok()?;
        let found = self.search(key.as_ptr().cast_mut(), ptr::null_mut(), FIND)?;
        // SAFETY: `store` entered the start of a string of C that `owned` keeps.
        Some(unsafe { std::ffi::CStr::from_ptr(found.data.cast()) }.to_bytes())
    }
}

impl Drop for Hsearch {
    fn drop(&mut self) {
        // SAFETY: the table was created and is never used again. The library does not free keys.
        unsafe { (self.calls.destroy)(&raw mut *self.table) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_the_c_library_has_a_fixed_size() {
        if let Err(absent) = Hsearch::library() {
            eprintln!("skipped: {absent}");
            return;
        }
        let mut table = Hsearch::create(100).unwrap();
        let mut stored = 0;
        let full = loop {
            match table.store(format!("key {stored}").as_bytes(), b"value") {
                Ok(()) => stored += 1,
                Err(error) => break error,
            }
        };
        assert!(stored >= 100 && full.starts_with("hsearch_r failed: "), "{stored} {full}");
        assert_eq!(table.fetch(b"key 7"), Some(&b"value"[..]));
        assert_eq!(table.fetch(b"absent"), None);
        assert_eq!(table.store(b"a\0b", b"").unwrap_err(), "it has a NUL byte");
    }
}
