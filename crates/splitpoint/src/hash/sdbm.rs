use super::CharSign;

/// Returns the hash of sdbm, in 32 bits: `h = c + multiplier * h` from 0.
///
/// The multiplier is 65,599 in Perl, Apache and most others, and 65,587 in Ruby. `sign` says how
/// the machine that wrote a file took a byte above 127: it changes bits 8 and up alone.
///
/// Kept to read old files; it names no function of a store. Never for keys an attacker may choose.
///
/// Complexity: one multiplication per key byte.
///
/// Source: Ozan Yigit, sdbm, 1990. The C program computes in `unsigned long`; a file uses less than
/// 32 of its low bits, which are the same.
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
