//! Bytes that a handle lends to the program until the next call of the same kind.

use splitpoint_ffi::Datum;

use crate::database::Failure;

/// Bytes that a handle lends to a program. The buffer is used again; it shrinks after a large one.
#[derive(Debug, Default)]
pub struct Lent(Vec<u8>);

/// Bytes that a buffer keeps for what comes.
const KEPT_BYTES_MAX: usize = 64 << 10;

impl Lent {
    /// Copies `bytes`, and returns where they are now: never null, also if there are none.
    ///
    /// # Errors
    ///
    /// `EOVERFLOW` if there are more than an `int` counts.
    pub fn lend(&mut self, bytes: &[u8]) -> Result<Datum, Failure> {
        if i32::try_from(bytes.len()).is_err() {
            return Err(libc::EOVERFLOW);
        }
        if self.0.capacity() > KEPT_BYTES_MAX && bytes.len() <= KEPT_BYTES_MAX {
            self.0 = Vec::new();
        }
        self.0.clear();
        // So that the place of no bytes is one of malloc's, and not a number.
        self.0.reserve(bytes.len().max(1));
        self.0.extend_from_slice(bytes);
        Ok(Datum::new(self.0.as_mut_ptr().cast(), bytes.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_bytes_than_an_int_counts_are_refused() {
        let mut lent = Lent::default();
        // Pages that nobody touches take no memory.
        let value = vec![0; 1 << 31];
        assert_eq!(lent.lend(&value).map(drop), Err(libc::EOVERFLOW));
        assert!(lent.lend(&value[..3]).is_ok_and(|datum| !datum.is_none()));
        assert!(lent.lend(b"").is_ok_and(|datum| !datum.is_none()));
    }
}
