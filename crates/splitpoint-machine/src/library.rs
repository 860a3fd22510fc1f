//! Libraries that are loaded while the program runs.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::NonNull;

use crate::Absent;

/// A loaded library, which stays loaded until the process ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Library {
    handle: NonNull<c_void>,
    /// Its file.
    pub(crate) name: &'static str,
}

impl Library {
    /// Loads the first of `names` that is there and has `symbol`, a name without the prefix that goes with
    /// the library.
    pub(crate) fn open(
        names: &[(&'static str, &'static str)],
        symbol: &str,
        package: &'static str,
    ) -> Result<(Self, &'static str), Absent> {
        for &(name, prefix) in names {
            let Ok(file) = CString::new(name) else { continue };
            // SAFETY: the string ends in NUL. Loading runs the library's constructors, which is
            // what loading a library of the machine means; see the crate's section on trust.
            let handle = unsafe { libc::dlopen(file.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
            let Some(handle) = NonNull::new(handle) else { continue };
            let library = Self { handle, name };
            if library.find(&format!("{prefix}{symbol}")).is_some() {
                return Ok((library, prefix));
            }
        }
        let tried = names.iter().map(|(name, _)| *name).collect();
        Err(Absent { tried, package })
    }

    /// Returns the address of a symbol.
    pub(crate) fn find(self, symbol: &str) -> Option<NonNull<c_void>> {
        let symbol = CString::new(symbol).ok()?;
        // SAFETY: the handle came from `dlopen` and was never closed; the string ends in NUL.
        NonNull::new(unsafe { libc::dlsym(self.handle.as_ptr(), symbol.as_ptr()) })
    }
}

/// Casts the address of a symbol to the type of its function.
///
/// It is a macro, because the type of a function cannot be a parameter.
macro_rules! function {
    ($library:expr, $symbol:expr, $kind:ty) => {{
        let symbol: &str = &$symbol;
        $library.find(symbol).map(|address| {
            // SAFETY: the symbol is a function, and this is the type that the library's header
            // gives it.
            unsafe { std::mem::transmute::<*mut std::ffi::c_void, $kind>(address.as_ptr()) }
        })
    }};
}
pub(crate) use function;

/// A key or a value of ndbm and gdbm: `datum`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Datum {
    pub(crate) start: *mut c_char,
    pub(crate) bytes: c_int,
}

impl Datum {
    /// Returns one that borrows `bytes`, which must outlive the call that it is for; `None` if they are
    /// too many.
    pub(crate) fn of(bytes: &[u8]) -> Option<Self> {
        let count = c_int::try_from(bytes.len()).ok()?;
        Some(Self { start: bytes.as_ptr().cast_mut().cast(), bytes: count })
    }

    /// Returns its bytes, or `None` if it is the null datum.
    ///
    /// # Safety
    ///
    /// The datum came from the library, and nothing has changed or freed its memory since.
    pub(crate) unsafe fn as_bytes<'a>(self) -> Option<&'a [u8]> {
        if self.start.is_null() {
            return None;
        }
        let count = usize::try_from(self.bytes).ok()?;
        // SAFETY: the caller vouches for the memory, and the library for its length.
        Some(unsafe { std::slice::from_raw_parts(self.start.cast(), count) })
    }
}

/// Returns the words for the last error of the C library.
pub(crate) fn last_error(what: &str) -> String {
    format!("{what} failed: {}", std::io::Error::last_os_error())
}

/// Returns a path for C, or an error in words.
pub(crate) fn path_for_c(path: &std::path::Path) -> Result<CString, String> {
    use std::os::unix::ffi::OsStrExt as _;
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| format!("`{}` has a NUL byte, which C cannot have in a path", path.display()))
}

/// Returns the text of a string of C, for messages.
pub(crate) fn text(words: &CStr) -> String {
    words.to_string_lossy().into_owned()
}
