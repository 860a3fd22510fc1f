//! A hash function of the user's in a shared library.

use std::ffi::{CStr, CString, c_void};
use std::path::Path;
use std::ptr::NonNull;

use crate::library::path_for_c;

/// `uint64_t hash(const void *key, size_t bytes, uint64_t seed)`.
type Function = unsafe extern "C" fn(*const c_void, usize, u64) -> u64;

/// A hash function in a shared library, which stays loaded until the process ends.
#[derive(Clone, Copy, Debug)]
pub struct HashLibrary {
    function: Function,
}

impl HashLibrary {
    /// Loads a library and finds the function, which must be
    /// `uint64_t SYMBOL(const void *key, size_t bytes, uint64_t seed)`.
    ///
    /// # Errors
    ///
    /// The words of the dynamic linker if there is no such library or symbol.
    ///
    /// # Trust
    ///
    /// The library's constructors run, and nobody checks the type of the function. Call this in a
    /// process that may crash.
    pub fn open(file: &Path, symbol: &str) -> Result<Self, String> {
        // Without a slash, the linker would look for the file in the system's directories only.
        let here =
            if file.components().count() == 1 { Path::new(".").join(file) } else { file.into() };
        let path = path_for_c(&here)?;
        // SAFETY: the string ends in NUL. That constructors run is what loading a library means.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        let handle = NonNull::new(handle).ok_or_else(linker_error)?;
        let name = CString::new(symbol)
            .map_err(|_| "the symbol has a NUL byte, which names in C cannot have".to_owned())?;
        // SAFETY: the handle came from `dlopen` and is never closed; the string ends in NUL.
        let address = unsafe { libc::dlsym(handle.as_ptr(), name.as_ptr()) };
        let address = NonNull::new(address).ok_or_else(linker_error)?;
        // SAFETY: the caller vouches that the symbol is a function of this type.
        let function = unsafe { std::mem::transmute::<*mut c_void, Function>(address.as_ptr()) };
        Ok(Self { function })
    }

    /// Returns the hash of a key.
    #[inline]
    pub fn hash(self, key: &[u8], seed: u64) -> u64 {
        // SAFETY: the pointer and the length are those of a slice, and the function reads no more,
        // as its author promised by naming it.
        unsafe { (self.function)(key.as_ptr().cast(), key.len(), seed) }
    }
}

/// Returns what the dynamic linker says of its last error.
fn linker_error() -> String {
    // SAFETY: `dlerror` has no arguments; its text stays until the next call of this thread.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "the dynamic linker does not say why".to_owned();
    }
    // SAFETY: the text is not null, and it ends in NUL.
    let text = unsafe { CStr::from_ptr(text) };
    crate::library::text(text)
}
