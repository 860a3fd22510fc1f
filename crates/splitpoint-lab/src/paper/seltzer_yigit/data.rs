//! The two data sets of the paper: a dictionary and a password file.
//!
//! Neither is in print. The words are taken from a list of today; the accounts are made up, in the form
//! that 4.3BSD gave them, or are those of a file of the user.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::random::Random;

/// Keys of the paper's dictionary.
pub const WORD_COUNT: usize = 24_474;
/// Accounts of the paper's password file; each makes two records.
pub const ACCOUNT_COUNT: usize = 300;

/// Bytes of a login name in 1991.
const LOGIN_BYTES: usize = 8;
/// Letters that the password field of crypt(3) has.
const SALT: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// Groups of the accounts.
const GROUPS: [u32; 8] = [10, 11, 12, 20, 25, 30, 40, 100];
/// Shells of the accounts.
const SHELLS: [&str; 4] = ["/bin/csh", "/bin/sh", "/bin/ksh", "/bin/tcsh"];
/// First names of the accounts.
const FIRST_NAMES: [&str; 16] = [
    "Alice", "Bob", "Carol", "Dan", "Ellen", "Frank", "Grace", "Henry", "Irene", "Jack", "Kate",
    "Lou", "Mary", "Ned", "Paul", "Rose",
];

/// A key and its value.
pub type Pair = (Vec<u8>, Vec<u8>);

/// Which of the two data sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DataName {
    /// Words, each with its number.
    Dictionary,
    /// Accounts, by login name and by number.
    Passwd,
}

impl DataName {
    /// Returns the paper's word for it.
    pub fn words(self) -> &'static str {
        match self {
            Self::Dictionary => "dictionary",
            Self::Passwd => "password file",
        }
    }
}

/// Pairs to store, and what is known of them.
#[derive(Clone, Debug)]
pub struct DataSet {
    /// Where they are from.
    pub facts: DataFacts,
    /// The pairs, in the order in which they are stored.
    pub pairs: Vec<Pair>,
}

/// What is known of a data set.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DataFacts {
    /// Which one.
    pub name: DataName,
    /// The file it was taken from, or how it was made.
    pub source: String,
    /// Whether it was made up.
    pub is_synthetic: bool,
    /// Records.
    pub pair_count: u64,
    /// Bytes of a key, on average.
    pub key_bytes_mean: f64,
    /// Bytes of a key and its value, on average: what equation (1) asks for.
    pub pair_bytes_mean: f64,
    /// The seed of what was drawn.
    pub seed: u64,
    /// SHA-256 of the pairs, each as key, tab, value, newline.
    pub sha256: String,
}

impl DataSet {
    fn new(
        name: DataName,
        source: String,
        is_synthetic: bool,
        seed: u64,
        pairs: Vec<Pair>,
    ) -> Self {
        let count = pairs.len().max(1) as f64;
        let key_bytes: usize = pairs.iter().map(|(key, _)| key.len()).sum();
        let value_bytes: usize = pairs.iter().map(|(_, value)| value.len()).sum();
        let mut digest = Sha256::new();
        for (key, value) in &pairs {
            for part in [key, &b"\t"[..], value, &b"\n"[..]] {
                digest.update(part);
            }
        }
        let mut sha256 = String::new();
        for byte in digest.finalize() {
            let _ = write!(sha256, "{byte:02x}");
        }
        let facts = DataFacts {
            name,
            source,
            is_synthetic,
            pair_count: pairs.len() as u64,
            key_bytes_mean: key_bytes as f64 / count,
            pair_bytes_mean: (key_bytes + value_bytes) as f64 / count,
            seed,
            sha256,
        };
        Self { facts, pairs }
    }

    /// Takes 24,474 words of `list`, one a line, in its order: of those that have only the letters a to z,
    /// every k-th from a start that `seed` draws. The value of a word is its number, from 1, in decimal.
    ///
    /// # Errors
    ///
    /// The number of such words, if they are too few.
    ///
    /// # Examples
    ///
    /// ```
    /// use splitpoint_lab::paper::seltzer_yigit::DataSet;
    ///
    /// assert_eq!(DataSet::dictionary("three words", b"a\nbc\nDon't\nabc\n", 1).unwrap_err(), 3);
    /// ```
    pub fn dictionary(source: &str, list: &[u8], seed: u64) -> Result<Self, usize> {
        let words = words(list);
        if words.len() < WORD_COUNT {
            return Err(words.len());
        }
        let start = Random::new(seed).unit();
        let apart = words.len() as f64 / WORD_COUNT as f64;
        let place =
            |number: usize| (((number as f64 + start) * apart) as usize).min(words.len() - 1);
        let pairs = (0..WORD_COUNT)
            .map(|number| (words[place(number)].to_vec(), (number + 1).to_string().into_bytes()))
            .collect();
        Ok(Self::new(DataName::Dictionary, source.to_owned(), false, seed, pairs))
    }

    /// Makes up 300 accounts, whose surnames are words of `list`: two records each.
    ///
    /// The first has the login name as its key and the rest of the line as its value, the second the
    /// number of the account and the whole line.
    pub fn made_passwd(list: &[u8], seed: u64) -> Self {
        let lines = accounts(&words(list), seed);
        let lines: Vec<&[u8]> = lines.iter().map(String::as_bytes).collect();
        let source = format!("{ACCOUNT_COUNT} accounts made up from seed {seed}");
        Self::new(DataName::Passwd, source, true, seed, records(&lines))
    }

    /// Takes the accounts of a password file; lines that are none are skipped, and so is an account
    /// whose name or number came before.
    pub fn passwd(source: &str, file: &[u8]) -> Self {
        let lines: Vec<&[u8]> = file.split(|byte| *byte == b'\n').collect();
        Self::new(DataName::Passwd, source.to_owned(), false, 0, records(&lines))
    }

    /// Returns the pairs as bytes for [`decode`](Self::decode): each length in four bytes, low byte first.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for part in self.pairs.iter().flat_map(|(key, value)| [key, value]) {
            bytes.extend((part.len() as u32).to_le_bytes());
            bytes.extend(part);
        }
        bytes
    }

    /// Returns the pairs that [`encode`](Self::encode) wrote, or `None` if `bytes` are something else.
    pub fn decode(mut bytes: &[u8]) -> Option<Vec<Pair>> {
        let take = |bytes: &mut &[u8]| -> Option<Vec<u8>> {
            let (length, rest) = bytes.split_first_chunk()?;
            let part = rest.get(..u32::from_le_bytes(*length) as usize)?;
            *bytes = &rest[part.len()..];
            Some(part.to_vec())
        };
        let mut pairs = Vec::new();
        while !bytes.is_empty() {
            let key = take(&mut bytes)?;
            pairs.push((key, take(&mut bytes)?));
        }
        Some(pairs)
    }
}

/// Returns the distinct lines of only the letters a to z, in order.
fn words(list: &[u8]) -> Vec<&[u8]> {
    let mut seen = BTreeSet::new();
    let is_word = |word: &&[u8]| !word.is_empty() && word.iter().all(u8::is_ascii_lowercase);
    list.split(|byte| *byte == b'\n').filter(is_word).filter(|word| seen.insert(*word)).collect()
}

/// Makes up lines of a password file.
fn accounts(words: &[&[u8]], seed: u64) -> Vec<String> {
    let mut random = Random::new(seed ^ 0x7061_7373_7764);
    let mut names = BTreeSet::new();
    let mut lines = Vec::new();
    let mut number = 100;
    while lines.len() < ACCOUNT_COUNT {
        let mut one_of = |count: usize| random.below(count as u64) as usize;
        let first = FIRST_NAMES[one_of(FIRST_NAMES.len())];
        // Without words the names are numbers, which are as good as keys.
        let last = match words.get(one_of(words.len().max(1))) {
            Some(word) => String::from_utf8_lossy(word).into_owned(),
            None => format!("n{}", one_of(100_000)),
        };
        let mut login = format!("{}{last}", first[..1].to_ascii_lowercase());
        login.truncate(LOGIN_BYTES);
        if last.len() < 3 || !names.insert(login.clone()) {
            continue;
        }
        number += 1 + one_of(3);
        let password: String = (0..13).map(|_| char::from(SALT[one_of(SALT.len())])).collect();
        let group = GROUPS[one_of(GROUPS.len())];
        let (room, phone) = (100 + one_of(500), 1000 + one_of(9000));
        let shell = SHELLS[one_of(SHELLS.len())];
        let last = format!("{}{}", last[..1].to_ascii_uppercase(), &last[1..last.len().min(9)]);
        lines.push(format!(
            "{login}:{password}:{number}:{group}:{first} {last},{room},{phone}:/u/{login}:{shell}"
        ));
    }
    lines
}

/// Returns two records for each account.
fn records(lines: &[&[u8]]) -> Vec<Pair> {
    let mut seen = BTreeSet::new();
    let mut pairs = Vec::new();
    for line in lines {
        let fields: Vec<&[u8]> = line.split(|byte| *byte == b':').collect();
        let [name, _, number, _, ..] = fields.as_slice() else { continue };
        let is_number = !number.is_empty() && number.iter().all(u8::is_ascii_digit);
        if name.is_empty() || name.starts_with(b"#") || !is_number || name == number {
            continue;
        }
        if !seen.insert(name.to_vec()) || !seen.insert(number.to_vec()) {
            continue;
        }
        pairs.push((name.to_vec(), line[name.len() + 1..].to_vec()));
        pairs.push((number.to_vec(), line.to_vec()));
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `aaaa`, `aaab` and so on.
    fn list(count: usize) -> Vec<u8> {
        let letter = |number: usize| char::from(b'a' + (number % 26) as u8);
        let word = |n: usize| [letter(n / 17_576), letter(n / 676), letter(n / 26), letter(n)];
        (0..count).flat_map(|n| word(n).into_iter().chain(['\n'])).collect::<String>().into_bytes()
    }

    #[test]
    fn the_dictionary_has_the_paper_s_number_of_words_in_the_order_of_the_list() {
        let set = DataSet::dictionary("made", &list(60_000), 1).unwrap();
        assert_eq!(set.pairs.len(), WORD_COUNT);
        assert!(set.pairs.is_sorted_by(|one, other| one.0 < other.0));
        assert_eq!(set.pairs[0].1, b"1");
        assert_eq!(set.pairs[WORD_COUNT - 1].1, b"24474");
        let again = DataSet::dictionary("made", &list(60_000), 1).unwrap();
        assert_eq!(set.facts, again.facts);
        let other = DataSet::dictionary("made", &list(60_000), 2).unwrap();
        assert_ne!(set.facts.sha256, other.facts.sha256);
        // As many as there are: all of them.
        let all = DataSet::dictionary("made", &list(WORD_COUNT), 9).unwrap();
        assert_eq!(all.pairs[WORD_COUNT - 1].0, list(WORD_COUNT)[5 * (WORD_COUNT - 1)..][..4]);
    }

    #[test]
    fn a_short_list_is_refused_with_its_count_and_words_with_other_letters_do_not_count() {
        let error = DataSet::dictionary("x", b"one\nTwo\nthr3e\none\n\nfour", 1).unwrap_err();
        assert_eq!(error, 2);
    }

    #[test]
    fn accounts_have_the_form_of_4_3bsd_and_two_records_each() {
        let set = DataSet::made_passwd(&list(60_000), 1);
        assert_eq!(set.pairs.len(), 2 * ACCOUNT_COUNT);
        for pairs in set.pairs.chunks(2) {
            let [(login, rest), (number, line)] = pairs else { panic!("two records") };
            assert_eq!(*line, [login, &b":"[..], rest].concat());
            let line = String::from_utf8(line.clone()).unwrap();
            let fields: Vec<&str> = line.split(':').collect();
            assert_eq!((fields.len(), fields[1].len()), (7, 13), "{line}");
            assert_eq!(fields[2].as_bytes(), number);
            assert!(login.len() <= LOGIN_BYTES && (50..=85).contains(&line.len()), "{line}");
        }
        let keys: BTreeSet<_> = set.pairs.iter().map(|(key, _)| key).collect();
        assert_eq!(keys.len(), set.pairs.len());
        let none = DataSet::made_passwd(b"", 1);
        assert_eq!(none.pairs.len(), 2 * ACCOUNT_COUNT);
    }

    #[test]
    fn a_password_file_is_read_without_what_is_no_account() {
        let file = b"# comment\nroot:x:0:0:root:/root:/bin/sh\n+::::::\n\nroot:x:5:5:again::\nb:x:0:0:::\n";
        let set = DataSet::passwd("file", file);
        assert_eq!(set.pairs.len(), 2);
        assert_eq!(set.pairs[0], (b"root".to_vec(), b"x:0:0:root:/root:/bin/sh".to_vec()));
        assert_eq!(set.pairs[1].0, b"0");
    }

    #[test]
    fn pairs_survive_their_encoding_and_cut_bytes_are_refused() {
        let set = DataSet::made_passwd(b"", 3);
        let bytes = set.encode();
        assert_eq!(DataSet::decode(&bytes), Some(set.pairs));
        assert_eq!(DataSet::decode(&bytes[..bytes.len() - 1]), None);
        assert_eq!(DataSet::decode(b""), Some(Vec::new()));
    }
}
