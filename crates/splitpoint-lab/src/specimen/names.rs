//! Names: every function is found by the names that people use for it.
//!
//! A name matches whatever its case, hyphens, underscores and dots: `FNV1A_32` is `fnv1a-32`. The
//! names that other programs, papers and manuals use stand in [`ALIASES`], and nowhere else.

use super::Specimen;
use crate::Error;

/// Another name, and the functions that people mean by it. Several functions make it ambiguous.
pub(super) const ALIASES: &[(&str, &[&str])] = &[
    // Databases.
    ("dynahash", &["db-hash1"]),
    ("ejb", &["db-hash1"]),
    ("hash1", &["db-hash1", "db-hash1-1993"]),
    ("phong-vo", &["db-hash2"]),
    ("x65599", &["sdbm"]),
    ("sdbm-65599", &["sdbm"]),
    ("db-hash3", &["sdbm"]),
    ("x65587", &["sdbm-65587"]),
    ("x33", &["db-hash4"]),
    ("djb33", &["db-hash4"]),
    ("times33", &["db-hash4"]),
    ("torek", &["db-hash4"]),
    ("db185", &["db-hash4"]),
    ("ndbm", &["dbm"]),
    ("hsearch", &["glibc-hsearch", "sysv-hsearch"]),
    // Fowler, Noll and Vo.
    ("fnv", &["fnv1-32", "fnv1-64", "fnv1a-32", "fnv1a-64"]),
    ("fnv-32", &["fnv1-32", "fnv1a-32"]),
    ("fnv-64", &["fnv1-64", "fnv1a-64"]),
    ("fnv1", &["fnv1-32", "fnv1-64"]),
    ("fnv1a", &["fnv1a-32", "fnv1a-64"]),
    ("fnv32a", &["fnv1a-32"]),
    ("fnv64a", &["fnv1a-64"]),
    // Kernels.
    ("r5", &["linux-r5-name"]),
    ("hash-32", &["linux-hash32"]),
    ("hash-64", &["linux-hash64"]),
    ("full-name-hash", &["linux-4.8-name"]),
    // Jenkins.
    ("jhash", &["linux-jhash"]),
    ("lookup3", &["linux-jhash"]),
    ("hashlittle", &["linux-jhash"]),
    ("oat", &["one-at-a-time"]),
    ("oaat", &["one-at-a-time"]),
    ("joaat", &["one-at-a-time"]),
    ("jenkins", &["linux-jhash", "lookup2", "one-at-a-time"]),
    ("jenkins96", &["lookup2"]),
    ("iterative-hash", &["lookup2"]),
    ("rjenkins", &["lookup2"]),
    ("hash-any", &["postgres"]),
    ("hashtext", &["postgres"]),
    ("postgresql", &["postgres"]),
    // Servers.
    ("mariadb", &["mysql"]),
    ("partition-by-key", &["mysql"]),
    ("my-hash-sort-bin", &["mysql"]),
    ("rfc3074", &["pearson"]),
    ("pearson-8", &["pearson"]),
    ("kea", &["pearson"]),
    ("dhcp", &["pearson"]),
    // Libraries.
    ("crc", &["crc16", "crc32", "crc32c"]),
    ("crc16-xmodem", &["crc16"]),
    ("xmodem", &["crc16"]),
    ("redis-cluster", &["crc16"]),
    ("crc32-ieee", &["crc32"]),
    ("crc32-castagnoli", &["crc32c"]),
    ("md5", &["md5-64"]),
    ("sha1", &["sha1-64"]),
    ("crc32b", &["crc32"]),
    ("zlib", &["adler32", "crc32"]),
    ("castagnoli", &["crc32c"]),
    ("adler", &["adler32"]),
    ("djb", &["db-hash4", "djb2", "djb2-xor"]),
    ("bernstein", &["djb2", "djb2-xor"]),
    ("gnu-hash", &["djb2"]),
    ("x33-5381", &["djb2"]),
    ("zend", &["php"]),
    ("zend-hash", &["php"]),
    ("zend-inline-hash-func", &["php"]),
    ("djbx33a", &["djb2", "php"]),
    ("djb2a", &["djb2-xor"]),
    ("cdb", &["djb2-xor"]),
    ("x31", &["java-string"]),
    ("times31", &["java-string"]),
    ("java", &["java-string"]),
    ("hashcode", &["java-string"]),
    ("arrays-hashcode", &["java-arrays"]),
    ("dotnet", &["dotnet-string"]),
    ("net", &["dotnet-string"]),
    ("csharp", &["dotnet-string"]),
    ("luas-hash", &["lua"]),
    ("hsieh", &["superfasthash"]),
    ("sfh", &["superfasthash"]),
    ("pjw", &["elf"]),
    ("elf-hash", &["elf"]),
    ("sysv-hash", &["elf"]),
    ("murmur", MURMUR),
    ("murmurhash", MURMUR),
    ("murmur2", &["murmur2-32", "murmur2-64a"]),
    ("murmurhash2", &["murmur2-32", "murmur2-64a"]),
    ("murmurhash64a", &["murmur2-64a"]),
    ("murmur64a", &["murmur2-64a"]),
    ("murmur3", &["murmur3-32"]),
    ("murmurhash3", &["murmur3-32"]),
    ("murmur3a", &["murmur3-32"]),
    ("murmur3-x86-32", &["murmur3-32"]),
    ("murmurhash3-x86-32", &["murmur3-32"]),
    ("murmur3c", &["murmur3-x86-128"]),
    ("murmur3f", &["murmur3-x64-128"]),
    ("murmur3-128", &["murmur3-x64-128", "murmur3-x86-128"]),
    ("murmurhash3-x86-128", &["murmur3-x86-128"]),
    ("murmurhash3-x64-128", &["murmur3-x64-128"]),
    ("kafka", &["murmur2-kafka"]),
    ("cassandra", &["murmur3-x64-128"]),
    ("guava", &["farmhash-64", "murmur3-32", "murmur3-x64-128"]),
    ("city", &["cityhash-64"]),
    ("city64", &["cityhash-64"]),
    ("cityhash", &["cityhash-64"]),
    ("farm", &["farmhash-64"]),
    ("farm64", &["farmhash-64"]),
    ("farmhash", &["farmhash-64"]),
    ("farm-fingerprint", &["farmhash-64"]),
    ("fingerprint64", &["farmhash-64"]),
    ("bigquery", &["farmhash-64"]),
    // Today.
    ("rapidhash", &["rapidhash-v3"]),
    ("xxh", &["xxh3-64", "xxh32", "xxh64"]),
    ("xxhash", &["xxh3-64", "xxh32", "xxh64"]),
    ("xxhash32", &["xxh32"]),
    ("xxhash64", &["xxh64"]),
    ("xxh3", &["xxh3-64"]),
    ("xxhash3", &["xxh3-64"]),
    ("wyhash", &["wyhash-final3"]),
    ("foldhash", &["foldhash-fast", "foldhash-quality"]),
    #[cfg(all(target_feature = "aes", target_feature = "sse2"))]
    ("gxhash", &["gxhash64"]),
    ("siphash", &["siphash-1-3", "siphash-2-4"]),
    ("highwayhash", &["highwayhash-64"]),
    ("highway", &["highwayhash-64"]),
    ("fxhash", &["rustc-hash"]),
    ("fx", &["rustc-hash"]),
    ("identity", &["identity-32", "identity-64"]),
];

/// What people may mean by murmur, without its number.
const MURMUR: &[&str] =
    &["murmur2-32", "murmur2-64a", "murmur3-32", "murmur3-x64-128", "murmur3-x86-128"];

/// Returns the function that `name` means.
pub(super) fn find(name: &str) -> Result<&'static Specimen, Error> {
    if let Some(specimen) = called(name) {
        return Ok(specimen);
    }
    let wanted = plain(name);
    match ALIASES.iter().find(|(alias, _)| plain(alias) == wanted) {
        Some((_, [only])) => called(only).ok_or_else(|| unknown(name)),
        Some((_, candidates)) => Err(Error::AmbiguousHash { name: name.to_owned(), candidates }),
        None => Err(unknown(name)),
    }
}

/// Returns the function with exactly this name, whatever its case and punctuation.
fn called(name: &str) -> Option<&'static Specimen> {
    let wanted = plain(name);
    Specimen::all().find(|specimen| plain(specimen.name()) == wanted)
}

fn unknown(name: &str) -> Error {
    let own = Specimen::all().map(|specimen| (specimen.name(), specimen.name()));
    let others = ALIASES.iter().flat_map(|&(alias, names)| names.iter().map(move |n| (alias, *n)));
    let known: Vec<(&str, &'static str)> = own.chain(others).collect();
    let nearest = nearest(name, known.iter().map(|&(known, _)| known));
    let (wanted, found) = (plain(name), plain(nearest));
    let is_near = !wanted.is_empty() && found.starts_with(&wanted)
        || 2 * edit_distance(wanted.as_bytes(), found.as_bytes()) <= wanted.len();
    let meant = known.iter().find(|&&(known, _)| is_near && known == nearest);
    Error::UnknownHash { name: name.to_owned(), nearest: meant.map_or("", |&(_, name)| name) }
}

/// Returns the known name that takes the fewest edits to become `wanted`. A name that begins with
/// `wanted` comes before all others.
///
/// Only letters and digits count, because people remember nothing else of a name.
pub(crate) fn nearest<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> &'a str {
    let wanted = plain(wanted);
    let cost = |name: &str| {
        let name = plain(name);
        let is_start = !wanted.is_empty() && name.starts_with(&wanted);
        (!is_start, edit_distance(wanted.as_bytes(), name.as_bytes()))
    };
    names.min_by_key(|name| cost(name)).unwrap_or_default()
}

/// Returns the letters and digits of a name, in lower case.
fn plain(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}

/// Returns the number of insertions, deletions and replacements of bytes from one to the other.
///
/// Source: Wagner and Fischer, 1974, with one row.
fn edit_distance(from: &[u8], to: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (line, byte) in from.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = line + 1;
        for (column, other) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(byte != other);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_and_aliases_differ_in_letters_and_digits() {
        let mut seen = BTreeSet::new();
        let aliases = ALIASES.iter().map(|&(alias, _)| alias);
        for name in Specimen::all().map(Specimen::name).chain(aliases) {
            assert!(seen.insert(plain(name)), "`{name}` is another name without punctuation");
        }
    }

    #[test]
    fn every_alias_finds_its_function_or_lists_its_candidates() {
        for &(alias, names) in ALIASES {
            assert!(!names.is_empty(), "{alias}");
            for name in names {
                assert!(Specimen::all().any(|s| s.name() == *name), "`{alias}` means `{name}`");
            }
            match (find(&alias.to_uppercase()), names) {
                (Ok(found), [only]) => assert_eq!(found.name(), *only, "{alias}"),
                (Err(Error::AmbiguousHash { candidates, .. }), [_, _, ..]) => {
                    assert_eq!(candidates, names, "{alias}");
                }
                (other, _) => panic!("`{alias}` gave {other:?}"),
            }
        }
    }

    #[test]
    fn case_hyphens_and_underscores_do_not_count() {
        for (name, expected) in [
            ("FNV1A_32", "fnv1a-32"),
            ("fnv1a32", "fnv1a-32"),
            ("Linux 3.10 Name", "linux-3.10-name"),
            ("SipHash-1-3", "siphash-1-3"),
            ("XXHash64", "xxh64"),
            ("murmurhash3", "murmur3-32"),
            ("MurmurHash3_x86_32", "murmur3-32"),
            ("X65599", "sdbm"),
            ("CRC-32", "crc32"),
            ("DJB2", "djb2"),
        ] {
            assert_eq!(find(name).unwrap().name(), expected, "{name}");
        }
    }

    #[test]
    fn an_ambiguous_name_is_refused_with_its_candidates() {
        assert_eq!(
            find("FNV-1a").unwrap_err().to_string(),
            "`FNV-1a` may be `fnv1a-32` or `fnv1a-64`"
        );
        assert_eq!(
            find("xxhash").unwrap_err().to_string(),
            "`xxhash` may be `xxh3-64`, `xxh32` or `xxh64`"
        );
    }

    #[test]
    fn unknown_names_suggest_the_nearest() {
        for (name, expected) in [
            ("sipphash", "siphash-1-3"),
            ("djb-hash4", "db-hash4"),
            ("komi", "komihash"),
            ("murmurhash33", "murmur3-32"),
            ("nope", ""),
        ] {
            match find(name) {
                Err(Error::UnknownHash { nearest, .. }) => assert_eq!(nearest, expected, "{name}"),
                other => panic!("{name} gave {other:?}"),
            }
        }
    }

    #[test]
    fn edit_distances_are_those_of_the_textbooks() {
        for (from, to, distance) in [
            ("", "", 0),
            ("", "abc", 3),
            ("kitten", "sitting", 3),
            ("abc", "abc", 0),
            ("ab", "ba", 2),
        ] {
            assert_eq!(edit_distance(from.as_bytes(), to.as_bytes()), distance, "{from} {to}");
        }
    }
}
