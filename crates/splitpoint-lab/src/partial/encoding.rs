//! Partial statistics as bytes, to pass between processes and machines.
//!
//! ```text
//! magic "SPLP", version u16 (2 with a limit of hashes, 1 without), length u16 and text of the setup,
//! keys u64, bytes of keys u64,
//! bits never clear u64, bits ever set u64, 64 counts of set bits u64,
//! only with a limit of hashes: the sample that keeps so few, as a power of two u64,
//! keys of each bucket as LEB128, hashes u64 and each of them rising,
//! only with a limit of hashes: hashes that come more than 8 times u64, and each of them rising with
//! the times beyond 8 u64,
//! rapidhash v3 of it all u64
//! ```
//!
//! All little-endian. Equal counts have equal bytes, in whatever order the keys were counted.

use std::collections::BTreeMap;

use super::{COPIES_MAX, PartialStats, SAMPLING_MAX, Setup, is_sampled};
use crate::bit_counts::BitCounts;
use crate::{Error, Specimen};

const MAGIC: [u8; 4] = *b"SPLP";
const VERSION: u16 = 1;
/// That of counts with a limit. Those of version 1 kept every copy of a hash.
const VERSION_LIMITED: u16 = 2;

fn version_of(is_limited: bool) -> u16 {
    if is_limited { VERSION_LIMITED } else { VERSION }
}

impl PartialStats {
    /// Returns the counts as bytes.
    ///
    /// # Panics
    ///
    /// Never, because the description of a setup is short.
    pub fn encode(&self) -> Vec<u8> {
        self.settled().encode_settled()
    }

    fn encode_settled(&self) -> Vec<u8> {
        let (description, is_limited) = (self.setup.description(), self.setup.is_limited());
        let description_bytes = u16::try_from(description.len()).expect("names are short");
        let mut out = Vec::with_capacity(self.counters.len() + 8 * self.hashes.len() + 1024);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&version_of(is_limited).to_le_bytes());
        out.extend_from_slice(&description_bytes.to_le_bytes());
        out.extend_from_slice(description.as_bytes());
        let words = [self.key_count, self.key_bytes, self.bits.always_set(), self.bits.ever_set()];
        for word in words.into_iter().chain(self.bits.ones()) {
            out.extend_from_slice(&word.to_le_bytes());
        }
        if is_limited {
            out.extend_from_slice(&u64::from(self.setup.sampling).to_le_bytes());
        }
        for keys in self.chains() {
            push_leb128(&mut out, keys);
        }
        let hashes = self.sorted_hashes();
        out.extend_from_slice(&(hashes.len() as u64).to_le_bytes());
        for hash in hashes {
            out.extend_from_slice(&hash.to_le_bytes());
        }
        if is_limited {
            out.extend_from_slice(&(self.repeats.len() as u64).to_le_bytes());
            for word in self.repeats.iter().flat_map(|(&hash, &times)| [hash, times]) {
                out.extend_from_slice(&word.to_le_bytes());
            }
        }
        let checksum = checksum(&out);
        out.extend_from_slice(&checksum.to_le_bytes());
        out
    }

    /// Reads counts of this setup from untrusted bytes.
    ///
    /// # Errors
    ///
    /// - [`Error::Malformed`] if the bytes are damaged or of another version;
    /// - [`Error::Different`] if they are of another measurement.
    pub fn decode(bytes: &[u8], setup: Setup) -> Result<Self, Error> {
        let (description, mut reader) = described(bytes)?;
        if description != setup.description().as_bytes() {
            return Err(Error::Different { what: "setup" });
        }
        setup.expect_memory(0)?;
        let mut stats = Self::new(setup);
        stats.key_count = reader.word()?;
        stats.key_bytes = reader.word()?;
        let (always_set, ever_set) = (reader.word()?, reader.word()?);
        let mut ones = [0; 64];
        for count in &mut ones {
            *count = reader.word()?;
        }
        if ones.iter().any(|&count| count > stats.key_count) {
            return Err(reader.malformed("bits of more hashes than keys"));
        }
        stats.bits = BitCounts::of_sums(always_set, ever_set, &ones);
        if setup.is_limited() {
            stats.setup.sampling = u32::try_from(reader.word()?)
                .ok()
                .filter(|&sampling| sampling <= SAMPLING_MAX)
                .ok_or_else(|| reader.malformed("a sample that is none"))?;
        }
        let mut key_count = 0_u64;
        for bucket in 0..stats.counters.len() {
            let keys = reader.leb128()?;
            stats.counters[bucket] = keys as u32;
            if keys >> 32 > 0 {
                stats.carries.insert(bucket as u64, keys >> 32);
            }
            key_count = key_count.saturating_add(keys);
        }
        if key_count != stats.key_count {
            return Err(reader.malformed("buckets that do not add up"));
        }
        stats.hashes = reader.hashes(stats.key_count)?;
        if !stats.hashes.iter().all(|&hash| is_sampled(hash, stats.setup.sampling)) {
            return Err(reader.malformed("hashes that are not of the sample"));
        }
        if setup.is_limited() {
            stats.repeats = reader.repeats(&stats.hashes, stats.key_count)?;
            let has_too_few = stats.key_count <= setup.hash_limit as u64;
            if has_too_few && (stats.setup.sampling > 0 || !stats.repeats.is_empty()) {
                return Err(reader.malformed("hashes left out below the limit"));
            }
        }
        if reader.offset != reader.bytes.len() {
            return Err(reader.malformed("bytes after the end"));
        }
        stats.settle();
        Ok(stats)
    }

    /// Returns the setup of which untrusted bytes are the counts, to decode them with.
    ///
    /// # Errors
    ///
    /// - [`Error::Malformed`] if the bytes are damaged or of another version;
    /// - [`Error::UnknownHash`] and others if this version lacks the function or the reduction.
    ///
    /// # Examples
    ///
    /// ```
    /// use splitpoint_lab::{PartialStats, Reduction, Setup, Specimen};
    ///
    /// let setup = Setup::new(Specimen::by_name("fnv1a-32")?, 0, Reduction::LowMask, 256)?;
    /// let bytes = setup.count(["a", "b"].map(str::as_bytes)).encode();
    /// let counts = PartialStats::decode(&bytes, PartialStats::setup_of(&bytes)?)?;
    /// assert_eq!(counts.key_count(), 2);
    /// # Ok::<(), splitpoint_lab::Error>(())
    /// ```
    pub fn setup_of(bytes: &[u8]) -> Result<Setup, Error> {
        let (description, reader) = described(bytes)?;
        let unknown = || reader.malformed("a setup that is none");
        let text = std::str::from_utf8(description).map_err(|_| unknown())?;
        let words: Vec<&str> = text.split(' ').collect();
        let [name, seed, reduction, bucket_count, sample] = words[..] else {
            return Err(unknown());
        };
        let specimen = Specimen::by_name(name)?;
        let historic = specimen.historic_reduction().filter(|it| it.to_string() == reduction);
        let reduction = historic.map_or_else(|| reduction.parse(), Ok)?;
        let seed = u64::from_str_radix(seed, 16).map_err(|_| unknown())?;
        let bucket_count: u64 = bucket_count.parse().map_err(|_| unknown())?;
        // Each bucket takes a byte, so that damaged bytes do not ask for memory.
        if bucket_count > bytes.len() as u64 {
            return Err(unknown());
        }
        let setup = Setup::new(specimen, seed, reduction, bucket_count)?;
        Ok(match sample.strip_prefix("<=") {
            Some(limit) => setup.limit_hashes(limit.parse().map_err(|_| unknown())?),
            None => setup.sample_hashes(sample.parse().map_err(|_| unknown())?),
        })
    }
}

/// Checks the frame of encoded counts, and returns the description of their setup and a reader of
/// what follows.
fn described(bytes: &[u8]) -> Result<(&[u8], Reader<'_>), Error> {
    let content = bytes.len().saturating_sub(8);
    let mut reader = Reader { bytes: &bytes[..content], offset: 0 };
    if reader.take::<4>()? != MAGIC {
        return Err(Error::Malformed { what: "another magic number", offset: 0 });
    }
    let version = u16::from_le_bytes(reader.take()?);
    if ![VERSION, VERSION_LIMITED].contains(&version) {
        return Err(Error::Malformed { what: "a version other than 1 and 2", offset: 4 });
    }
    if checksum(&bytes[..content]).to_le_bytes() != bytes[content..] {
        return Err(reader.malformed("a wrong checksum"));
    }
    let description_bytes = u16::from_le_bytes(reader.take()?);
    let description = reader.take_slice(usize::from(description_bytes))?;
    if version != version_of(description.windows(3).any(|part| part == b" <=")) {
        let what = "a version that does not fit its setup; version 1 with a limit of hashes is of an \
                    earlier build: count the keys again";
        return Err(Error::Malformed { what, offset: 4 });
    }
    Ok((description, reader))
}

fn checksum(bytes: &[u8]) -> u64 {
    rapidhash::v3::rapidhash_v3(bytes)
}

fn push_leb128(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Reads forward; every read is checked.
struct Reader<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> Reader<'a> {
    fn malformed(&self, what: &'static str) -> Error {
        Error::Malformed { what, offset: self.offset as u64 }
    }

    fn take_slice(&mut self, length: usize) -> Result<&'a [u8], Error> {
        let end = self.offset.checked_add(length).filter(|&end| end <= self.bytes.len());
        let end = end.ok_or_else(|| self.malformed("an early end"))?;
        let slice = &self.bytes[self.offset..end];
        self.offset = end;
        Ok(slice)
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let slice = self.take_slice(N)?;
        Ok(*slice.first_chunk().expect("as long as asked for"))
    }

    fn word(&mut self) -> Result<u64, Error> {
        Ok(u64::from_le_bytes(self.take()?))
    }

    fn leb128(&mut self) -> Result<u64, Error> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let [byte] = self.take::<1>()?;
            let part = u64::from(byte & 0x7f);
            if shift == 63 && part > 1 {
                break;
            }
            value |= part << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(self.malformed("a number over 64 bits"))
    }

    /// Reads hashes in rising order, at most as many as keys.
    fn hashes(&mut self, key_count: u64) -> Result<Vec<u64>, Error> {
        let hash_count = self.word()?;
        let rest = (self.bytes.len() - self.offset) as u64 / 8;
        if hash_count > key_count || hash_count > rest {
            return Err(self.malformed("too many hashes"));
        }
        let hashes = (0..hash_count).map(|_| self.word()).collect::<Result<Vec<u64>, Error>>()?;
        if !hashes.is_sorted() {
            return Err(self.malformed("hashes out of order"));
        }
        Ok(hashes)
    }

    /// Reads how often hashes come beyond the copies of them in `hashes`.
    fn repeats(&mut self, hashes: &[u64], key_count: u64) -> Result<BTreeMap<u64, u64>, Error> {
        let (mut repeats, mut rest) = (BTreeMap::new(), key_count - hashes.len() as u64);
        for _ in 0..self.word()? {
            let (hash, times) = (self.word()?, self.word()?);
            let at = hashes.partition_point(|&other| other < hash);
            let has_copies = hashes.get(at + COPIES_MAX - 1) == Some(&hash);
            let is_next = repeats.last_key_value().is_none_or(|(&last, _)| last < hash);
            if times == 0 || times > rest || !has_copies || !is_next {
                return Err(self.malformed("repeated hashes that cannot be"));
            }
            rest -= times;
            repeats.insert(hash, times);
        }
        Ok(repeats)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Reduction;

    fn counted() -> PartialStats {
        let specimen = Specimen::by_name("xxh3-64").expect("is there");
        let setup = Setup::new(specimen, 7, Reduction::Split, 100).expect("any size");
        let keys: Vec<String> = (0..1000).map(|n| format!("key{n}")).collect();
        setup.count(keys.iter().map(String::as_bytes))
    }

    #[test]
    fn counts_come_back_from_their_bytes() {
        let mut stats = counted();
        stats.add_to_bucket(5, u32::MAX);
        stats.key_count += u64::from(u32::MAX);
        let bytes = stats.encode();
        let again = PartialStats::decode(&bytes, *stats.setup()).unwrap();
        assert_eq!(again.encode(), bytes);
        assert_eq!(again.chains().max(), stats.chains().max());
        assert!(again.chains().max() > Some(u64::from(u32::MAX)));
    }

    #[test]
    fn a_sample_with_a_limit_comes_back_from_its_bytes() {
        let keys: Vec<String> = (0..1000).map(|n| format!("key{n}")).collect();
        let setup = counted().setup().limit_hashes(100);
        let stats = setup.count(keys.iter().map(String::as_bytes));
        assert!(stats.setup().sampling() > 0);
        let bytes = stats.encode();
        let setup = PartialStats::setup_of(&bytes).unwrap();
        let again = PartialStats::decode(&bytes, setup).unwrap();
        assert_eq!(again.encode(), bytes);
        assert_eq!(again.setup().sampling(), stats.setup().sampling());
    }

    #[test]
    fn repeated_hashes_come_back_from_their_bytes_and_wrong_ones_are_refused() {
        let setup = counted().setup().limit_hashes(20);
        let bytes = setup.count([b"one".as_slice(); 90]).encode();
        let again = PartialStats::decode(&bytes, setup).unwrap();
        assert_eq!(again.encode(), bytes);
        assert_eq!(again.repeats.values().collect::<Vec<_>>(), [&82]);
        let end = bytes.len() - 8;
        let resealed = |at: usize, byte: u8| {
            let mut content = bytes[..end].to_vec();
            content[at] = byte;
            let sum = checksum(&content).to_le_bytes();
            content.extend_from_slice(&sum);
            PartialStats::decode(&content, setup).map(|_| ())
        };
        // Once more, never, as another hash.
        for (at, byte) in [(end - 8, 83), (end - 8, 0), (end - 16, !bytes[end - 16])] {
            let what = "repeated hashes that cannot be";
            let refused = resealed(at, byte);
            assert!(matches!(refused, Err(Error::Malformed { what: it, .. }) if it == what));
        }
    }

    /// Seals `bytes`, whose checksum is wrong, and returns the fault for which they are refused.
    fn fault_of(mut bytes: Vec<u8>, setup: Setup) -> &'static str {
        bytes.truncate(bytes.len() - 8);
        let sum = checksum(&bytes).to_le_bytes();
        bytes.extend_from_slice(&sum);
        match PartialStats::decode(&bytes, setup) {
            Err(Error::Malformed { what, .. }) => what,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn counts_below_their_limit_have_every_hash() {
        let setup = counted().setup().limit_hashes(90);
        let few = setup.limit_hashes(20).count([b"one".as_slice(); 90]).encode();
        let as_of_many = |limit: &[u8]| {
            let mut bytes = few.clone();
            let at = bytes.windows(4).position(|part| part == b"<=20").unwrap();
            bytes[at + 2..at + 4].copy_from_slice(limit);
            bytes
        };
        assert_eq!(fault_of(as_of_many(b"90"), setup), "hashes left out below the limit");
        // The sample follows the text and 68 words.
        let mut sampled = setup.count([b"one".as_slice(); 9]).encode();
        sampled[8 + setup.description().len() + 68 * 8] = 1;
        let found = fault_of(sampled, setup);
        assert!(
            ["hashes left out below the limit", "hashes that are not of the sample"]
                .contains(&found)
        );
    }

    #[test]
    fn counts_with_a_limit_have_a_version_of_their_own() {
        for (setup, version) in [(*counted().setup(), 1), (counted().setup().limit_hashes(20), 2)] {
            let bytes = setup.count([b"one".as_slice()]).encode();
            assert_eq!(bytes[4..6], [version, 0]);
            let mut other = bytes.clone();
            other[4] = 3 - version;
            assert!(fault_of(other, setup).starts_with("a version that does not fit its setup"));
        }
    }

    #[test]
    fn the_setup_comes_back_from_the_bytes() {
        let golden = Specimen::all().filter_map(|specimen| {
            let reduction = specimen.historic_reduction()?;
            Setup::new(specimen, 7, reduction, 256).ok().map(|setup| setup.sample_hashes(3))
        });
        let own = *counted().setup();
        let setups: Vec<Setup> = golden.chain([own, own.limit_hashes(40)]).collect();
        assert!(setups.len() > 3);
        for setup in setups {
            let bytes = PartialStats::new(setup).encode();
            let again = PartialStats::setup_of(&bytes).unwrap();
            assert_eq!(again.description(), setup.description());
            assert!(PartialStats::setup_of(&bytes[..bytes.len() - 1]).is_err());
        }
    }

    #[test]
    fn every_shortened_or_flipped_byte_is_refused() {
        let stats = counted();
        let bytes = stats.encode();
        for length in 0..bytes.len() {
            assert!(PartialStats::decode(&bytes[..length], *stats.setup()).is_err(), "{length}");
        }
        for at in (0..bytes.len()).step_by(7) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x10;
            assert!(PartialStats::decode(&damaged, *stats.setup()).is_err(), "byte {at}");
        }
    }

    /// The checksum is right, so the fault is in the bytes that it covers.
    #[test]
    fn contents_that_cannot_be_are_refused() {
        let stats = counted();
        let bytes = stats.encode();
        let resealed = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut content = bytes[..bytes.len() - 8].to_vec();
            change(&mut content);
            let sum = checksum(&content).to_le_bytes();
            content.extend_from_slice(&sum);
            PartialStats::decode(&content, *stats.setup()).map(|_| ())
        };
        assert_eq!(resealed(&|_| ()), Ok(()));
        let what = |result: Result<(), Error>| match result {
            Err(Error::Malformed { what, .. }) => what,
            other => panic!("{other:?}"),
        };
        assert_eq!(what(resealed(&|content| content.push(0))), "bytes after the end");
        assert_eq!(what(resealed(&|content| content[4] = 9)), "a version other than 1 and 2");
        let bits_at = 8 + stats.setup().description().len() + 4 * 8;
        let bits = |content: &mut Vec<u8>| content[bits_at + 7] = 1;
        assert_eq!(what(resealed(&bits)), "bits of more hashes than keys");
        let keys_at = 8 + stats.setup().description().len();
        assert_eq!(what(resealed(&|content| content[keys_at] ^= 1)), "buckets that do not add up");
        let hashes_at = bytes.len() - 8 - 1000 * 8;
        let many = |content: &mut Vec<u8>| content[hashes_at - 6] = 1;
        assert_eq!(what(resealed(&many)), "too many hashes");
        let high = |content: &mut Vec<u8>| content[hashes_at..hashes_at + 8].fill(0xff);
        assert_eq!(what(resealed(&high)), "hashes out of order");
    }

    #[test]
    fn counts_of_another_setup_are_refused() {
        let stats = counted();
        let other = Setup::new(stats.setup().specimen(), 8, Reduction::Split, 100).unwrap();
        let result = PartialStats::decode(&stats.encode(), other);
        assert!(matches!(result, Err(Error::Different { .. })), "{result:?}");
    }
}
