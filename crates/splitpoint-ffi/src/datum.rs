//! `datum`: a key or a value as ndbm, dbm and gdbm pass it, by value.

use std::ffi::{c_char, c_void};
use std::ptr;
use std::slice;

/// A key or a value that travels by value: `{ char *dptr; int dsize; }`.
///
/// It goes in two registers. The upper half of the second is not defined by the C type, so it is
/// ignored on the way in and 0 on the way out: on little-endian machines a caller that was compiled
/// with POSIX's `{ void *dptr; size_t dsize; }` works as well.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Datum {
    dptr: *mut c_char,
    dsize: u64,
}

impl Datum {
    /// What a function returns that found nothing: a null pointer.
    pub const NONE: Self = Self { dptr: ptr::null_mut(), dsize: 0 };

    /// Returns a datum of `bytes` bytes at `start`, which has at most `i32::MAX`.
    pub fn new(start: *mut c_void, bytes: usize) -> Self {
        debug_assert!(i32::try_from(bytes).is_ok(), "the type of C has an int");
        Self { dptr: start.cast(), dsize: bytes as u64 }
    }

    /// Returns whether the pointer is null.
    pub fn is_none(self) -> bool {
        self.dptr.is_null()
    }

    /// Returns its bytes, or `None` if its size is negative or its pointer null with a size.
    ///
    /// # Safety
    ///
    /// The pointer leads to that many bytes, which nobody changes for as long as `'a`.
    pub unsafe fn bytes<'a>(self) -> Option<&'a [u8]> {
        let len = usize::try_from((self.dsize as u32).cast_signed()).ok()?;
        if len == 0 {
            return Some(&[]);
        }
        if self.dptr.is_null() {
            return None;
        }
        // SAFETY: the caller promised the bytes.
        Some(unsafe { slice::from_raw_parts(self.dptr.cast(), len) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes_of(dptr: *mut c_char, dsize: u64) -> Option<&'static [u8]> {
        let datum = Datum { dptr, dsize };
        // SAFETY: the tests pass pointers to constants, or no size.
        unsafe { datum.bytes() }
    }

    #[test]
    fn only_the_lower_half_of_the_size_counts() {
        let key = b"key".as_ptr().cast_mut().cast();
        assert_eq!(bytes_of(key, 3), Some(&b"key"[..]));
        assert_eq!(bytes_of(key, 0xdead_beef_0000_0003), Some(&b"key"[..]));
    }

    #[test]
    fn a_negative_size_and_bytes_at_null_are_refused() {
        let key = b"key".as_ptr().cast_mut().cast();
        assert_eq!(bytes_of(key, u64::from(u32::MAX)), None);
        assert_eq!(bytes_of(ptr::null_mut(), 1), None);
        assert_eq!(bytes_of(ptr::null_mut(), 0), Some(&[][..]));
    }
}
