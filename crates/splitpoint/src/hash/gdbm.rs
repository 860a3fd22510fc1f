use super::CharSign;

/// Returns the hash of GNU gdbm, in 31 bits; a file's directory is indexed by the highest of them.
///
/// `sign` says how the machine that wrote the file took a byte above 127.
///
/// Kept to read old files; it names no function of a store. Keys whose bytes are swapped over a
/// distance of 24 collide, so never for keys an attacker may choose.
///
/// Complexity: one shift and addition per key byte.
///
/// Source: GNU gdbm, `hash.c`.
///
/// # Examples
///
/// ```
/// use splitpoint::hash::{CharSign, gdbm};
///
/// assert_eq!(gdbm(&[0xe9, 0xff], CharSign::Signed), 0x18b2_6f86);
/// assert_eq!(gdbm(&[0xe9, 0xff], CharSign::Unsigned), 0x28ce_3a86);
/// ```
pub fn gdbm(key: &[u8], sign: CharSign) -> u32 {
    const MASK: u32 = 0x7fff_ffff;
    let mut value = 0x238f_13af_u32.wrapping_mul(key.len() as u32);
    for (index, &byte) in key.iter().enumerate() {
        value = value.wrapping_add(sign.widen(byte) << (index * 5 % 24)) & MASK;
    }
    value.wrapping_mul(1_103_515_243).wrapping_add(12_345) & MASK
}
