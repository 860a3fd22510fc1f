//! CRC-32C of records and blocks.
//!
//! For long inputs, the crate `crc32c` computes it three times as fast as a sequence of CRC
//! instructions. Most records are short, and for those the overhead of its calls dominates: the
//! code here takes 134 instructions for a put of 15 + 100 bytes instead of 435 (callgrind).

#[cfg(target_arch = "x86_64")]
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes from which on the crate takes less time.
#[cfg(target_arch = "x86_64")]
const LONG_BYTES: usize = 768;

/// Returns the CRC-32C of `bytes`.
#[inline]
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    crc32c_append(0, bytes)
}

/// Returns the CRC-32C of some bytes, whose own is `crc`, and of `bytes` behind them.
#[inline]
pub(crate) fn crc32c_append(crc: u32, bytes: &[u8]) -> u32 {
    crc32c_append_words(crc, bytes, [])
}

/// Returns the CRC-32C of two pieces, one behind the other, and of zeros up to a multiple of 8 bytes.
#[inline]
pub(crate) fn crc32c_padded(first: &[u8], second: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if first.len() < LONG_BYTES && second.len() < LONG_BYTES && IS_FAST.load(Ordering::Relaxed) {
        // SAFETY: the processor has what the function is compiled for: see `IS_FAST`.
        return unsafe { x86_64::padded(first, second) };
    }
    padded_anywhere(first, second)
}

/// Returns the CRC-32C of some bytes, whose own is `crc`, of `bytes` behind them, and of the
/// little-endian bytes of `words` behind those.
#[inline]
pub(crate) fn crc32c_append_words<const WORDS: usize>(
    crc: u32,
    bytes: &[u8],
    words: [u64; WORDS],
) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if bytes.len() < LONG_BYTES && IS_FAST.load(Ordering::Relaxed) {
        // SAFETY: the processor has what the function is compiled for: see `IS_FAST`.
        return unsafe { x86_64::append(crc, bytes, words) };
    }
    append_anywhere(crc, bytes, words)
}

#[inline(never)]
fn padded_anywhere(first: &[u8], second: &[u8]) -> u32 {
    let bytes = first.len() + second.len();
    let padding = &[0; 8][..bytes.next_multiple_of(8) - bytes];
    [first, second, padding].into_iter().fold(0, |crc, piece| append_anywhere(crc, piece, []))
}

#[inline(never)]
fn append_anywhere<const WORDS: usize>(crc: u32, bytes: &[u8], words: [u64; WORDS]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if !IS_FAST.load(Ordering::Relaxed) && is_x86_feature_detected!("sse4.2") {
        IS_FAST.store(true, Ordering::Relaxed);
    }
    let crc = crc32c::crc32c_append(crc, bytes);
    words.iter().fold(crc, |crc, word| crc32c::crc32c_append(crc, &word.to_le_bytes()))
}

/// Whether the processor is known to have the instructions of SSE 4.2, from the first checksum on.
#[cfg(target_arch = "x86_64")]
static IS_FAST: AtomicBool = AtomicBool::new(false);

/// By the instructions of SSE 4.2.
#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u16, _mm_crc32_u32, _mm_crc32_u64};

    #[target_feature(enable = "sse4.2")]
    pub(super) fn padded(first: &[u8], second: &[u8]) -> u32 {
        let crc = append_bytes(u32::MAX, first);
        let padding_bytes = (first.len() + second.len()).wrapping_neg() % 8;
        let Some(&last) = second.last_chunk() else {
            return !append_bytes(append_bytes(crc, second), &[0; 8][..padding_bytes]);
        };
        let (words, rest) = second.as_chunks();
        let mut crc = append_many(crc, words);
        // What is behind the last whole word, 7 bytes at most, and as much padding.
        let mut word = u64::from_le_bytes(last).unbounded_shr(64 - 8 * rest.len() as u32);
        let mut bytes_left = rest.len() + padding_bytes;
        if bytes_left >= 8 {
            crc = _mm_crc32_u64(crc.into(), word) as u32;
            (word, bytes_left) = (0, bytes_left - 8);
        }
        !append_part(crc, word, bytes_left)
    }

    #[target_feature(enable = "sse4.2")]
    pub(super) fn append<const WORDS: usize>(crc: u32, bytes: &[u8], words: [u64; WORDS]) -> u32 {
        let crc = u64::from(append_bytes(!crc, bytes));
        !(words.into_iter().fold(crc, |crc, word| _mm_crc32_u64(crc, word)) as u32)
    }

    /// Goes on with a checksum, which the instructions take and return inverted.
    #[inline]
    #[target_feature(enable = "sse4.2")]
    fn append_bytes(crc: u32, bytes: &[u8]) -> u32 {
        let (words, mut rest) = bytes.as_chunks();
        let step = |crc, &word: &[u8; 8]| _mm_crc32_u64(crc, u64::from_le_bytes(word));
        let mut crc = words.iter().fold(crc.into(), step) as u32;
        if let Some((&four, behind)) = rest.split_first_chunk() {
            crc = _mm_crc32_u32(crc, u32::from_le_bytes(four));
            rest = behind;
        }
        if let Some((&two, behind)) = rest.split_first_chunk() {
            crc = _mm_crc32_u16(crc, u16::from_le_bytes(two));
            rest = behind;
        }
        match rest {
            &[last] => _mm_crc32_u8(crc, last),
            _ => crc,
        }
    }

    /// The same for any number of words.
    #[inline]
    #[target_feature(enable = "sse4.2")]
    fn append_many(crc: u32, words: &[[u8; 8]]) -> u32 {
        let step = |crc, &word: &[u8; 8]| _mm_crc32_u64(crc, u64::from_le_bytes(word));
        let (quads, rest) = words.as_chunks::<4>();
        let crc = quads.iter().flatten().fold(crc.into(), step);
        rest.iter().fold(crc, step) as u32
    }

    /// The same for the lowest `bytes` bytes of a word, fewer than 8.
    #[inline]
    #[target_feature(enable = "sse4.2")]
    fn append_part(mut crc: u32, mut word: u64, bytes: usize) -> u32 {
        if bytes & 4 != 0 {
            crc = _mm_crc32_u32(crc, word as u32);
            word >>= 32;
        }
        if bytes & 2 != 0 {
            crc = _mm_crc32_u16(crc, word as u16);
            word >>= 16;
        }
        if bytes & 1 != 0 { _mm_crc32_u8(crc, word as u8) } else { crc }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_published_one() {
        // RFC 3720, B.4; the second call takes the short way.
        for _ in 0..2 {
            assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
            assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
            assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        }
        #[cfg(target_arch = "x86_64")]
        assert_eq!(IS_FAST.load(Ordering::Relaxed), is_x86_feature_detected!("sse4.2"));
    }

    #[test]
    fn pieces_of_every_length_are_as_their_bytes_in_one() {
        // No two neighbors are equal.
        let all: Vec<u8> = (0..2000_usize).map(|i| (i * i + 7 * i) as u8).collect();
        let lengths = (0..70).chain([100, 255, 767, 768, 1024, 1537]);
        for length in lengths {
            for (start, other) in [(0, 0), (1, 3), (2, 5), (5, 8), (8, 15), (3, 800)] {
                let (first, second) = (&all[start..start + length], &all[7..7 + other]);
                let mut joined = [first, second].concat();
                joined.resize(joined.len().next_multiple_of(8), 0);
                let expected = crc32c::crc32c(&joined);
                assert_eq!(crc32c_padded(first, second), expected, "{length} {other}");
                assert_eq!(padded_anywhere(first, second), expected, "{length} {other}");

                let words = [0x0123_4567_89ab_cdef, length as u64];
                let joined = [first, &words[0].to_le_bytes(), &words[1].to_le_bytes()].concat();
                let expected = crc32c::crc32c_append(9, &joined);
                assert_eq!(crc32c_append_words(9, first, words), expected, "{length}");
                assert_eq!(append_anywhere(9, first, words), expected, "{length}");
                assert_eq!(crc32c_append(9, &joined), expected, "{length}");
            }
        }
    }
}
