//! Bytes that a program passes by a pointer and a size.

use std::ffi::c_void;
use std::slice;

/// Returns the `len` bytes at `start`, or `None` if there cannot be that many: at null, or more than
/// an object may have.
///
/// # Safety
///
/// A pointer that is not null leads to that many bytes, which nobody changes for as long as `'a`.
pub unsafe fn bytes_at<'a>(start: *const c_void, len: usize) -> Option<&'a [u8]> {
    if len == 0 {
        return Some(&[]);
    }
    if start.is_null() || isize::try_from(len).is_err() {
        return None;
    }
    // SAFETY: the caller promised the bytes.
    Some(unsafe { slice::from_raw_parts(start.cast(), len) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(start: *const c_void, len: usize) -> Option<&'static [u8]> {
        // SAFETY: the tests pass pointers to constants, or sizes that are refused.
        unsafe { bytes_at(start, len) }
    }

    #[test]
    fn what_cannot_be_bytes_is_refused() {
        let key = b"key".as_ptr().cast();
        assert_eq!(at(key, 3), Some(&b"key"[..]));
        assert_eq!(at(std::ptr::null(), 0), Some(&b""[..]));
        assert_eq!(at(std::ptr::null(), 1), None);
        assert_eq!(at(key, usize::MAX), None);
    }
}
