use super::CharSign;

/// Returns the 31-bit hash of GNU gdbm, whose highest bits index the directory of a file.
///
/// `sign` is how the machine that wrote the file treats a byte above 127.
///
/// It serves to read old files; no store can use it. Two keys collide if one has the bytes of the
/// other, with some swapped over a distance of 24.
///
/// # Cost
///
/// One shift and addition per key byte.
///
/// # Source
///
/// GNU gdbm, `hash.c`.
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
