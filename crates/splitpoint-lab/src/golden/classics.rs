//! The figures and the addresses of the paper of 1991, and System V's digest of a word list.
//!
//! # Source
//!
//! Seltzer and Yigit, "A new hashing package for UNIX", USENIX Winter 1991.

use splitpoint_legacy::algorithm::addresses::PageMap;
use splitpoint_legacy::algorithm::{Figure, Parameters, StoreMode, Variant, dbm};

use super::{Row, Slip};
use crate::classics::digests;
use crate::paper::seltzer_yigit::{DataSet, WORD_COUNT};

const FIGURES: &str = "1991 figures";
const ADDRESSES: &str = "1991 addresses";
const WORDS: &str = "1991, bundled words";

/// What is drawn in Figure 1: the nodes of the trie.
const TRIE: [(&str, &str); 5] = [
    ("A", "bit 0, internal"),
    ("B", "bit 1, internal"),
    ("C", "bit 3, external, bucket L00 = page 0"),
    ("D", "bit 4, external, bucket L01 = page 2"),
    ("E", "bit 2, external, bucket L1 = page 1"),
];
/// What is drawn in Figure 2: the entries of the directory.
const DIRECTORY: [(&str, &str); 4] = [("00", "L00"), ("01", "L01"), ("10", "L1"), ("11", "L1")];
/// What the caption of Figure 3 says: the overflow pages at each split point.
const OVERFLOW_PAGES: [(&str, &str); 2] =
    [("split point 1", "2 overflow pages"), ("split point 2", "3 overflow pages")];

/// Buckets whose addresses are compared.
const BUCKETS: u64 = 1 << 16;
/// Overflow addresses that name a page: no position is 0.
const OVERFLOW_ADDRS: u64 = (1 << 16) - 32;

/// A file with seven overflow pages at each split point.
fn page_map() -> PageMap {
    let mut spares = [0; 32];
    for (count, spare) in (1..).zip(&mut spares) {
        *spare = 7 * count;
    }
    PageMap { header_pages: 2, spares }
}

pub(super) fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for (figure, separator, parts) in [
        (Figure::Trie, ": ", &TRIE[..]),
        (Figure::Directory, " -> ", &DIRECTORY),
        (Figure::OverflowPages, ": ", &OVERFLOW_PAGES),
    ] {
        let drawing = figure.draw().unwrap_or_default();
        for (part, published) in parts {
            let start = format!("  {part}{separator}");
            let computed = drawing.lines().find_map(|line| line.strip_prefix(&start));
            let what = format!("{}, {part}", figure.name());
            rows.push(Row::new(FIGURES, what, *published, computed.unwrap_or("not there")));
        }
    }
    rows.extend(addresses());
    rows
}

fn addresses() -> [Row; 3] {
    let map = page_map();
    let is_bucket = |bucket: &u64| {
        let bucket = *bucket as u32;
        map.bucket_to_page(bucket) == map.bucket_page(bucket)
    };
    let equal = (0..BUCKETS).filter(is_bucket).count() as u64;
    let is_overflow = |addr: &u16| map.overflow_page(*addr) == Some(map.overflow_to_page(*addr));
    let equal_addrs = (0..=u16::MAX).filter(is_overflow).count() as u64;
    // 1 + 2 + 4 + ... + 2^15 bits are before those of 16 bits of the hash.
    let before: u64 = (0..16).map(|bit| 1_u64 << bit).sum();
    [
        Row::new(ADDRESSES, "BUCKET_TO_PAGE, buckets as in the module", BUCKETS, equal),
        Row::new(ADDRESSES, "OADDR_TO_PAGE, mended, as there", OVERFLOW_ADDRS, equal_addrs),
        Row::new(ADDRESSES, "bits before those of mask ffff", before, dbm::bit_of(0, 0xffff)),
    ]
}

/// Computes what the word list gives that the command carries: the values of System V's digest, and
/// equation (1) at a bucket size of 256 and a fill factor of 8, with the number of each word as its
/// value.
///
/// The paper's list is lost. The figures are those that this list has given since it is carried.
pub fn word_rows<'a>(words: impl IntoIterator<Item = &'a [u8]>) -> Vec<Row> {
    const DIGESTS: u64 = 1519;
    const DIGEST_KEYS_MAX: u64 = 173;
    const EQUATION: &str = "(12.93 + 4) * 8 = 135.4 < 256";
    const HITS: [(&str, &str); 4] = [
        ("hsearch", "36.82"),
        ("hsearch-brent", "32.98"),
        ("hsearch-chained", "25.12"),
        ("hsearch-rapidhash", "1.84"),
    ];
    let words: Vec<&[u8]> = words.into_iter().collect();
    let (digest_count, digest_keys_max) = digests(words.iter().copied());
    let value_bytes = (1..=words.len()).map(|number| number.to_string().len()).sum::<usize>();
    let pair_bytes = words.iter().map(|word| word.len()).sum::<usize>() + value_bytes;
    let average = pair_bytes as f64 / words.len().max(1) as f64;
    let room = (average + 4.0) * 8.0;
    let sign = if room >= 256.0 { ">=" } else { "<" };
    let equation = format!("({average:.2} + 4) * 8 = {room:.1} {sign} 256");
    let mut rows = vec![
        Row::new(WORDS, "values of System V's digest", DIGESTS, digest_count),
        Row::new(WORDS, "words of its most frequent value", DIGEST_KEYS_MAX, digest_keys_max),
        Row::new(WORDS, "equation (1) at (256, 8)", EQUATION, equation),
    ];
    let set = DataSet::dictionary("the words", &words.join(&b'\n'), 1);
    let keys: Vec<&[u8]> = set.iter().flat_map(|set| &set.pairs).map(|(key, _)| &key[..]).collect();
    rows.extend(HITS.map(|(name, published)| {
        let what = format!("{name}, probes of a hit, {WORD_COUNT} words in 2^15");
        Row::new(WORDS, what, published, hit(name, &keys))
    }));
    rows
}

/// Returns the mean probes of a hit in a table of hsearch that has all of `keys`.
fn hit(name: &str, keys: &[&[u8]]) -> String {
    let expected_records = Some(WORD_COUNT as u64);
    let parameters = Parameters { expected_records, ..Parameters::default() };
    let table = Variant::by_name(name).map(|variant| variant.create(&parameters));
    let Some(Ok(mut table)) = table else { return "no table".to_owned() };
    if keys.iter().any(|key| table.store(key, b"", StoreMode::Insert).is_err()) {
        return "a key was refused".to_owned();
    }
    let before = table.counts().probes;
    for key in keys {
        let _ = table.fetch(key);
    }
    format!("{:.2}", (table.counts().probes - before) as f64 / keys.len().max(1) as f64)
}

/// Returns the slips of the paper, apart from those in its measurements.
pub(super) fn slips() -> Vec<Slip> {
    let slip = |printed: &str, evidence: String| Slip {
        source: "Seltzer and Yigit 1991",
        printed: printed.to_owned(),
        evidence,
    };
    let map = page_map();
    let is_wrong = |addr: &u16| {
        map.overflow_page(*addr).is_some_and(|page| page != map.overflow_to_page_as_printed(*addr))
    };
    let wrong = (0..=u16::MAX).filter(is_wrong).count();
    vec![
        slip(
            "OADDR_TO_PAGE ends in + oaddr & 0x7ff;",
            format!(
                "C adds first, then masks: with seven overflow pages a split point {wrong} of \
                 {OVERFLOW_ADDRS} addresses lead to a wrong page, those of the pages beyond 2,047. \
                 The mask needs parentheses, and the semicolon does not belong to the macro"
            ),
        ),
        slip(
            "files may split 32 times yielding ... 32 * 2^11 overflow pages",
            format!(
                "5 bits are the split point and 11 the page there, counted from 1: 32 * {} = \
                 {OVERFLOW_ADDRS} addresses",
                (1 << 11) - 1
            ),
        ),
        slip(
            "reallocation occurs when the number of buckets exceeds 32K (256 * 256)",
            format!("256 * 256 = {}", 256 * 256),
        ),
        slip(
            "considering bit n, we obtain 2^(n+1) more addressable buckets",
            "2^n more: with bit 0 there are two buckets instead of one".to_owned(),
        ),
        slip(
            "users may specify their own hash function by defining USCR",
            "hcompare takes two strings: it is a comparison, and no option replaces the hash function"
                .to_owned(),
        ),
        slip(
            "hsearch with CHAINED: new entries are put at the beginning of a chain by default",
            "the source of System V appends them, and puts them in front only with START".to_owned(),
        ),
        slip(
            "gdbm: the directory is indexed by hash & mask",
            "by the top bits of the hash in GNU gdbm, whose files show it".to_owned(),
        ),
        slip(
            "dynahash: maximum bucket and maximum split point are set to nelem, rounded up",
            "to one less, since buckets are counted from 0, as the masks need it".to_owned(),
        ),
        slip(
            "Figure 4: O1/1 is an overflow page of B5",
            "in the package as released page 1/1 has the first bitmap; the first of a bucket is O1/2"
                .to_owned(),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_of_the_printed_macro_is_wrong_for_most_addresses() {
        let evidence = &slips()[0].evidence;
        assert!(evidence.contains(" of 65504 addresses"), "{evidence}");
        assert!(!evidence.contains(" 0 of "), "{evidence}");
    }

    #[test]
    fn a_list_that_changes_is_seen() {
        let rows = word_rows([&b"one"[..], b"two"]);
        assert!(rows.iter().all(|row| !row.is_equal));
    }
}
