//! Memory that a program frees with free(3).

use std::ffi::c_void;
use std::ptr;

/// Returns a copy of `bytes` in memory of malloc(3), or null if there is none.
///
/// The copy of no bytes is not null, so that an empty value is none that is missing.
pub fn malloc_copy(bytes: &[u8]) -> *mut c_void {
    // SAFETY: any size may be asked for.
    let copy = unsafe { libc::malloc(bytes.len().max(1)) };
    if !copy.is_null() {
        // SAFETY: the new memory has room for all bytes, and nobody else has it.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), copy.cast(), bytes.len()) };
    }
    copy
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_has_the_bytes_and_an_empty_one_is_not_null() {
        for bytes in [&b""[..], b"value"] {
            let copy = malloc_copy(bytes);
            assert!(!copy.is_null());
            // SAFETY: the copy has as many bytes.
            let copied = unsafe { std::slice::from_raw_parts(copy.cast::<u8>(), bytes.len()) };
            assert_eq!(copied, bytes);
            // SAFETY: it comes from malloc, and is freed once.
            unsafe { libc::free(copy) };
        }
    }
}
