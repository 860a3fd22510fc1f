use super::CharSign;

/// Returns the 32-bit hash of sdbm: `h = c + multiplier * h`, beginning with 0.
///
/// The multiplier is 65,599 in Perl, Apache and most others, and 65,587 in Ruby. `sign` is how the
/// machine that wrote the file treats a byte above 127; it affects only bits 8 and up.
///
/// It serves to read old files; no store can use it. Its collisions are easy to find.
///
/// # Cost
///
/// One multiplication per key byte.
///
/// # Source
///
/// Ozan Yigit, sdbm, 1990. The C program computes in `unsigned long`, but a file uses fewer than 32
/// of the low bits, which are the same here.
///
/// # Examples
///
/// ```
/// use splitpoint::hash::{CharSign, sdbm};
///
/// assert_eq!(sdbm(b"ab", 65_599, CharSign::Unsigned), 97 * 65_599 + 98);
/// ```
pub fn sdbm(key: &[u8], multiplier: u32, sign: CharSign) -> u32 {
    key.iter()
        .fold(0, |hash: u32, &byte| hash.wrapping_mul(multiplier).wrapping_add(sign.widen(byte)))
}
