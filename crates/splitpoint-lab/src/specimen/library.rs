//! The string hashes of languages, linkers and textbooks.
//!
//! # Source
//!
//! Bernstein in comp.lang.c, 1991, and his cdb; PHP 8.2, `zend_string.h`; the Java language's
//! `String.hashCode` and `Arrays.hashCode`; the .NET Framework's `String.GetHashCode` for 32 bits;
//! Lua 5.4, `lstring.c`; the System V ABI, "Hash Table Section"; Hsieh, "Hash functions", 2004; crate
//! xxhash-rust. Written from the formulas where no crate is named.

use super::{Seeding, Specimen};

const AVOID_SUM: &str = "with keys that an attacker may choose: collisions are found by hand; on \
    short keys the high bits stay 0";

/// The functions of this family.
pub(super) const SPECIMENS: &[Specimen] = &[
    Specimen::new(
        "djb2",
        32,
        |key, _| u64::from(djb2(key)),
        "Bernstein, h*33 + c from 5381",
        AVOID_SUM,
    )
    .used_in(
        "the GNU hash section of ELF files; countless programs",
    ),
    Specimen::new(
        "djb2-xor",
        32,
        |key, _| u64::from(djb2_xor(key)),
        "Bernstein, h*33 XOR c from 5381",
        AVOID_SUM,
    )
    .used_in("cdb"),
    Specimen::new(
        "php",
        64,
        |key, _| php(key),
        "PHP, zend_inline_hash_func, DJBX33A: h*33 + c from 5381 in 64 bits, the top bit set; bytes \
         signed, as on x86",
        AVOID_SUM,
    )
    .used_in("the arrays and symbol tables of PHP 7 and 8; on Arm bytes above 127 hash differently"),
    Specimen::new(
        "java-string",
        32,
        |key, _| u64::from(java_string(key)),
        "Java, String.hashCode, h*31 + c from 0, of keys in Latin-1",
        AVOID_SUM,
    )
    .used_in("HashMap<String, ..> of Java, Kotlin and Scala"),
    Specimen::new(
        "java-arrays",
        32,
        |key, _| u64::from(java_arrays(key)),
        "Java, Arrays.hashCode of bytes, h*31 + c from 1, bytes signed",
        AVOID_SUM,
    )
    .used_in("ByteBuffer.wrap(key) and List<Byte> as keys in Java"),
    Specimen::new(
        "dotnet-string",
        32,
        |key, _| u64::from(dotnet_string(key)),
        "the .NET Framework's String.GetHashCode for 32 bits, of keys in Latin-1",
        "with keys that an attacker may choose: .NET has drawn a seed for each process since",
    )
    .used_in(".NET Framework; the later .NET shifts without the sign and gives other hashes"),
    Specimen::new(
        "lua",
        32,
        |key, seed| u64::from(lua(key, seed as u32)),
        "Lua 5.4, luaS_hash: from the last byte, h ^= (h << 5) + (h >> 2) + c",
        "with keys that an attacker may choose: the seed changes the start and nothing else",
    )
    .used_in(
        "the strings and tables of Lua 5.4, with a seed for each state; those of Lua 5.1 to 5.3, \
         which skips bytes of strings of 32 bytes and more; 5.1 has no seed",
    )
    .seeded(Seeding::Bits32),
    Specimen::new(
        "elf",
        28,
        |key, _| u64::from(elf(key)),
        "Weinberger's PJW as in the hash section of ELF files",
        "with tables over 2^28, or with keys that an attacker may choose",
    )
    .used_in("the .hash section of ELF files; the dragon book's symbol table"),
    Specimen::new(
        "superfasthash",
        32,
        |key, _| u64::from(superfasthash(key)),
        "Hsieh, SuperFastHash, 2004, from the length; bytes signed at the end, as on x86",
        "with keys that an attacker may choose; the last bits of a key are mixed too little",
    )
    .used_in("WebKit's and Blink's strings with another start; early Chromium"),
    Specimen::new(
        "xxh32",
        32,
        |key, seed| u64::from(xxhash_rust::xxh32::xxh32(key, seed as u32)),
        "Collet, XXH32; crate xxhash-rust",
        "on processors of 64 bits, where XXH3 is faster; nor with hostile keys",
    )
    .used_in("the checksum of LZ4 frames")
    .seeded(Seeding::Bits32),
];

/// Returns Bernstein's `h = 33*h + c`, from 5381.
pub fn djb2(key: &[u8]) -> u32 {
    key.iter().fold(5381, |hash, &byte| hash.wrapping_mul(33).wrapping_add(u32::from(byte)))
}

/// Returns PHP's `h = 33*h + c` of signed bytes, from 5381, with the top bit set: 0 means that a string
/// has not been hashed.
pub fn php(key: &[u8]) -> u64 {
    let sum = key.iter().fold(5381, |hash: u64, &byte| {
        hash.wrapping_mul(33).wrapping_add_signed(i64::from(byte.cast_signed()))
    });
    sum | 1 << 63
}

/// Returns Bernstein's `h = 33*h XOR c`, from 5381.
pub fn djb2_xor(key: &[u8]) -> u32 {
    key.iter().fold(5381, |hash, &byte| hash.wrapping_mul(33) ^ u32::from(byte))
}

/// Returns Java's `h = 31*h + c`, from 0.
pub fn java_string(key: &[u8]) -> u32 {
    key.iter().fold(0, |hash, &byte| hash.wrapping_mul(31).wrapping_add(u32::from(byte)))
}

/// Returns Java's `h = 31*h + c` from 1, of signed bytes.
pub fn java_arrays(key: &[u8]) -> u32 {
    key.iter().fold(1, |hash: u32, &byte| {
        hash.wrapping_mul(31).wrapping_add_signed(i32::from(byte.cast_signed()))
    })
}

/// Returns .NET's: two sums of `h*33 + (h >> 27)`, XOR two characters, which take turns.
pub fn dotnet_string(key: &[u8]) -> u32 {
    const START: i32 = (5381 << 16) + 5381;
    let mut sums = [START, START];
    for (at, pair) in key.chunks(2).enumerate() {
        let second = pair.get(1).copied().unwrap_or(0);
        let pair = i32::from(pair[0]) | i32::from(second) << 16;
        let sum = &mut sums[at % 2];
        // The shift keeps the sign.
        *sum = (*sum << 5).wrapping_add(*sum).wrapping_add(*sum >> 27) ^ pair;
    }
    sums[0].wrapping_add(sums[1].wrapping_mul(1_566_083_941)).cast_unsigned()
}

/// Returns Lua's `h XOR= 32*h + h/4 + c`, from the seed XOR the length, of the bytes from the last to
/// the first.
pub fn lua(key: &[u8], seed: u32) -> u32 {
    key.iter().rev().fold(seed ^ key.len() as u32, |hash, &byte| {
        hash ^ (hash << 5).wrapping_add(hash >> 2).wrapping_add(u32::from(byte))
    })
}

/// Returns the hash of a symbol's name in ELF files: 4 bits a byte, the top 4 folded back in.
pub fn elf(key: &[u8]) -> u32 {
    key.iter().fold(0, |hash: u32, &byte| {
        let sum = (hash << 4).wrapping_add(u32::from(byte));
        let top = sum & 0xf000_0000;
        (sum ^ top >> 24) & !top
    })
}

/// Returns Hsieh's `SuperFastHash`, from the length.
pub fn superfasthash(key: &[u8]) -> u32 {
    let half = |bytes: &[u8]| u32::from(bytes[0]) | u32::from(bytes[1]) << 8;
    let signed = |byte: u8| i32::from(byte.cast_signed()).cast_unsigned();
    if key.is_empty() {
        return 0;
    }
    let (words, tail) = key.as_chunks::<4>();
    let mut hash = key.len() as u32;
    for word in words {
        hash = hash.wrapping_add(half(&word[..2]));
        hash = hash << 16 ^ half(&word[2..]) << 11 ^ hash;
        hash = hash.wrapping_add(hash >> 11);
    }
    hash = match tail {
        [_, _, last] => {
            let sum = hash.wrapping_add(half(tail));
            let sum = sum ^ sum << 16 ^ signed(*last) << 18;
            sum.wrapping_add(sum >> 11)
        }
        [_, _] => {
            let sum = hash.wrapping_add(half(tail));
            let sum = sum ^ sum << 11;
            sum.wrapping_add(sum >> 17)
        }
        [last] => {
            let sum = hash.wrapping_add(signed(*last));
            let sum = sum ^ sum << 10;
            sum.wrapping_add(sum >> 1)
        }
        _ => hash,
    };
    for (left, right) in [(3, 5), (4, 17), (25, 6)] {
        hash ^= hash << left;
        hash = hash.wrapping_add(hash >> right);
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::super::tests::verification_code;
    use super::*;

    /// The symbols' hashes are those that linkers write; Java's are those of its own library.
    #[test]
    fn sums_over_the_bytes_match_published_values() {
        assert_eq!([djb2(b""), djb2(b"printf"), djb2(b"exit")], [5381, 0x156b_2bb8, 0x7c96_7e3f]);
        assert_eq!([djb2_xor(b""), djb2_xor(b"abc")], [5381, 0x0b87_3285]);
        assert_eq!([java_string(b""), java_string(b"hello")], [0, 99_162_322]);
        assert_eq!([java_arrays(b""), java_arrays(&[1, 2, 3])], [1, 30_817]);
        assert_eq!([java_arrays(b"abc"), java_arrays(&[0xff, 0x80, 5])], [0x0001_ecc1, 0x6123]);
        assert_eq!([elf(b"printf"), elf(b"syscall")], [0x0779_05a6, 0x0b09_985c]);
    }

    /// The output of the example in the manual of `String.GetHashCode`.
    #[test]
    fn dotnet_strings_hash_as_the_manual_shows() {
        for (key, hash) in [
            ("", 0x2d28_16fe),
            ("a", 0xcdca_b7bf),
            ("ab", 0xcde8_b7bf),
            ("abc", 0x2001_d81a),
            ("abd", 0xc2a9_4cb5),
            ("abe", 0x6550_c150),
            ("abcdef", 0x1762_906d),
            ("abcdeg", 0x1763_906d),
            ("abcdeh", 0x175c_906d),
            ("abcdei", 0x175d_906d),
        ] {
            assert_eq!(dotnet_string(key.as_bytes()), hash, "{key}");
        }
    }

    /// What `zend_inline_hash_func` of Debian's php8.2-dev, 8.2.36, returns, compiled for x86-64.
    #[test]
    fn strings_of_php_hash_as_in_its_header() {
        for (key, hash) in [
            (&b""[..], 0x8000_0000_0000_1505),
            (b"a", 0x8000_0000_0002_b606),
            (b"abc", 0x8000_0000_0b88_5c8b),
            (b"foobar", 0x8000_0652_fde4_60be),
            (b"a999999", 0x8000_d0b0_b7ae_5ebc),
            (b"libsesquipedalianism.so.3.141", 0xe7ff_b127_f83b_1972),
            (b"The quick brown fox jumps over the lazy dog", 0xb6d2_3eef_34cc_38de),
            (b"\xe9\xff", 0x8000_0000_0059_674d),
            (b"\xe9\xff\x80\x81\x82\x83\x84\x85\x86", 0x8377_23c5_e020_4ba2),
        ] {
            assert_eq!(php(key), hash, "{}", key.escape_ascii());
        }
    }

    /// What `luaS_hash` of Debian's liblua5.4.a, 5.4.4, returns.
    #[test]
    fn strings_of_lua_hash_as_in_its_library() {
        for (key, hash, hash_of_seed) in [
            (&b""[..], 0, 0x1234_5678),
            (b"a", 0x0000_0080, 0x5923_b366),
            (b"abc", 0x0003_08e7, 0xef1f_440f),
            (b"foobar", 0x996a_2481, 0xfea6_ed99),
            (b"a999999", 0xff1f_257a, 0x7aaf_3b08),
            (b"libsesquipedalianism.so.3.141", 0x8e4d_cd23, 0xf922_62f6),
            (b"The quick brown fox jumps over the lazy dog", 0x65ed_82c4, 0x941d_9c50),
        ] {
            assert_eq!(lua(key, 0), hash, "{}", key.escape_ascii());
            assert_eq!(lua(key, 0x1234_5678), hash_of_seed, "{}", key.escape_ascii());
        }
        assert_eq!(lua(b"\xe9\xff", 0), 0x29e5);
    }

    /// Values of the tests of two other implementations, from the length; signed bytes among them.
    #[test]
    fn superfasthash_matches_published_values() {
        let bytes: Vec<u8> = (0..=255).collect();
        for (length, hash) in
            [(256, 3_840_866_583), (255, 325_350_515), (254, 2_920_741_773), (253, 3_586_628_615)]
        {
            assert_eq!(superfasthash(&bytes[..length]), hash, "{length} bytes");
        }
        let found = ["foob", "fooba", "foobar"].map(|key| superfasthash(key.as_bytes()));
        assert_eq!(found, [0x58c9_cbd5, 0xf9d8_71c8, 0xa6bc_dca9]);
    }

    #[test]
    fn verification_codes_are_the_published_ones() {
        let xxh32 = Specimen::by_name("xxh32").unwrap();
        let of = |key: &[u8], seed| u128::from(xxh32.hash(key, seed));
        assert_eq!(verification_code(of, 4), 0xba88_b743);
    }
}
