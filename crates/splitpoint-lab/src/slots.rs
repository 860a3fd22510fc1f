//! Keys over the hash slots and nodes of a Redis Cluster.
//!
//! ```text
//! key --> its hash tag, or all of it --> CRC-16 --> 16,384 slots --> ranges of slots: nodes
//! ```
//!
//! Keys with the same tag share a slot, whatever the function. So the ideal distributes tags, each
//! with its keys, over the slots at random.
//!
//! # Source
//!
//! Redis Cluster specification, "Key distribution model" and "Hash tags"; `keyHashSlot` of
//! `cluster.h` and `clusterManagerCommandCreate` of `redis-cli.c`, by their descriptions.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;

use crate::Error;
use crate::number::counted;
use crate::random::Random;
use crate::study::{NodeLoad, Slots};

/// Hash slots of a cluster.
pub const SLOT_COUNT: u64 = 16_384;

/// The polynomial 0x1021, from 0, highest bit first.
const CRC: crc::Crc<u16> = crc::Crc::<u16>::new(&crc::CRC_16_XMODEM);
/// Most different tags to remember, unless [`SlotCounts::with_tags`] sets another bound.
const TAG_COUNT_MAX: usize = 1 << 22;
/// Heaviest tags and fullest slots that a report lists.
const SHOWN: usize = 8;
/// Most and fewest ideal hashes to simulate.
const ROUNDS: (u64, u64) = (199, 9999);
/// Steps that the simulation may take, about.
const STEPS: u64 = 20_000_000;
/// Share of the keys from which the advice mentions a tag.
const HEAVY_SHARE: f64 = 0.01;
/// Probability below which chance does not explain unevenness.
const UNEVEN_P: f64 = 0.001;

/// Returns the part of `key` that the cluster hashes: the text between its first `{` and the next
/// `}`, or all of it if that is empty or absent.
///
/// # Examples
///
/// ```
/// use splitpoint_lab::slots::hash_tag;
///
/// assert_eq!(hash_tag(b"{user1000}.following"), b"user1000");
/// assert_eq!(hash_tag(b"foo{}{bar}"), b"foo{}{bar}");
/// assert_eq!(hash_tag(b"foo{{bar}}zap"), b"{bar");
/// ```
pub fn hash_tag(key: &[u8]) -> &[u8] {
    tag_of(key).unwrap_or(key)
}

fn tag_of(key: &[u8]) -> Option<&[u8]> {
    let open = key.iter().position(|&byte| byte == b'{')?;
    let rest = &key[open + 1..];
    let close = rest.iter().position(|&byte| byte == b'}')?;
    (close > 0).then(|| &rest[..close])
}

/// Returns the slot of `key`, as `CLUSTER KEYSLOT` does.
///
/// # Examples
///
/// ```
/// assert_eq!(splitpoint_lab::slots::slot_of(b"foo"), 12182);
/// ```
pub fn slot_of(key: &[u8]) -> u64 {
    u64::from(CRC.checksum(hash_tag(key))) % SLOT_COUNT
}

/// Returns the slots of each node as `redis-cli --cluster create` shares them out: first slot and
/// the slot after the last.
///
/// # Errors
///
/// [`Error::NodeCount`] if there is no node, or there are more than slots.
pub fn ranges(node_count: u64) -> Result<Vec<(u64, u64)>, Error> {
    if !(1..=SLOT_COUNT).contains(&node_count) {
        return Err(Error::NodeCount { node_count });
    }
    // In 32 bits and summed up, with the rounding errors of the original.
    let step = SLOT_COUNT as f32 / node_count as f32;
    let (mut cursor, mut first) = (0.0_f32, 0);
    let range = |node| {
        let rounded = (cursor + step - 1.0).round().max(0.0) as u64;
        let last = if node + 1 == node_count { SLOT_COUNT - 1 } else { rounded.max(first) };
        let range = (first, last + 1);
        (first, cursor) = (last + 1, cursor + step);
        range
    };
    Ok((0..node_count).map(range).collect())
}

/// Counts of keys by slot and by tag, which add up over threads.
///
/// # Examples
///
/// ```
/// let mut counts = splitpoint_lab::slots::SlotCounts::new();
/// for key in ["{user7}.name", "{user7}.mail", "config"] {
///     counts.add(key.as_bytes());
/// }
/// let slots = counts.slots(3)?;
/// assert_eq!((slots.tagged_count, slots.used_slot_count), (2, 2));
/// # Ok::<(), splitpoint_lab::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct SlotCounts {
    key_counts: Vec<u64>,
    tagged_count: u64,
    tags: HashMap<Box<[u8]>, u64>,
    tag_count_max: usize,
    unlisted_count: u64,
}

impl Default for SlotCounts {
    fn default() -> Self {
        Self::new()
    }
}

impl SlotCounts {
    /// Returns the counts of no keys.
    pub fn new() -> Self {
        Self::with_tags(TAG_COUNT_MAX)
    }

    /// Returns the counts of no keys, which will remember at most `tag_count_max` different tags. A
    /// key with another tag counts as the only one with that tag.
    pub fn with_tags(tag_count_max: usize) -> Self {
        Self {
            key_counts: vec![0; SLOT_COUNT as usize],
            tagged_count: 0,
            tags: HashMap::new(),
            tag_count_max,
            unlisted_count: 0,
        }
    }

    /// Counts one key.
    pub fn add(&mut self, key: &[u8]) {
        self.key_counts[slot_of(key) as usize] += 1;
        let Some(tag) = tag_of(key) else { return };
        self.tagged_count += 1;
        self.add_tag(tag, 1);
    }

    fn add_tag(&mut self, tag: &[u8], keys: u64) {
        if let Some(count) = self.tags.get_mut(tag) {
            *count += keys;
        } else if self.tags.len() < self.tag_count_max {
            self.tags.insert(tag.into(), keys);
        } else {
            self.unlisted_count += keys;
        }
    }

    /// Adds the counts of other keys.
    pub fn merge(&mut self, other: &Self) {
        for (count, more) in self.key_counts.iter_mut().zip(&other.key_counts) {
            *count += more;
        }
        self.tagged_count += other.tagged_count;
        self.unlisted_count += other.unlisted_count;
        for (tag, &keys) in &other.tags {
            self.add_tag(tag, keys);
        }
    }

    /// Returns the number of keys.
    pub fn key_count(&self) -> u64 {
        self.key_counts.iter().sum()
    }

    /// Returns the load of `node_count` nodes, beside an ideal hash of the tags.
    ///
    /// # Errors
    ///
    /// [`Error::NodeCount`] if there is no node, or there are more than slots.
    ///
    /// # Cost
    ///
    /// At most a second, for 199 to 9999 simulated ideal hashes.
    pub fn slots(&self, node_count: u64) -> Result<Slots, Error> {
        let in_range = |&(first, end): &(u64, u64)| NodeLoad {
            first_slot: first,
            end_slot: end,
            key_count: self.key_counts[first as usize..end as usize].iter().sum(),
        };
        let nodes: Vec<NodeLoad> = ranges(node_count)?.iter().map(in_range).collect();
        let key_count = self.key_count();
        let own_count = key_count - self.tagged_count + self.unlisted_count;
        let distinct_tag_count = own_count + self.tags.len() as u64;
        let missed = (distinct_tag_count as f64 * (-1.0 / SLOT_COUNT as f64).ln_1p()).exp();
        let imbalance = imbalance_of(&nodes, nodes.iter().map(|node| node.key_count), key_count);
        let chance = self.chance(&nodes, own_count, imbalance);
        Ok(Slots {
            used_slot_count: self.key_counts.iter().filter(|&&keys| keys > 0).count() as u64,
            used_slot_ideal: SLOT_COUNT as f64 * (1.0 - missed),
            tagged_count: self.tagged_count,
            distinct_tag_count,
            heaviest_tags: self.heaviest_tags(),
            fullest_slots: self.fullest_slots(),
            imbalance,
            imbalance_ideal: chance.imbalance,
            p: chance.p,
            round_count: chance.round_count,
            unlisted_count: self.unlisted_count,
            nodes,
        })
    }

    fn heaviest_tags(&self) -> Vec<(String, u64)> {
        let mut tags: Vec<(&[u8], u64)> =
            self.tags.iter().map(|(tag, &keys)| (&**tag, keys)).collect();
        tags.sort_unstable_by(|one, other| other.1.cmp(&one.1).then(one.0.cmp(other.0)));
        tags.truncate(SHOWN);
        tags.iter().map(|&(tag, keys)| (readable(tag), keys)).collect()
    }

    fn fullest_slots(&self) -> Vec<(u64, u64)> {
        let mut slots: Vec<(u64, u64)> =
            (0..).zip(self.key_counts.iter().copied()).filter(|&(_, keys)| keys > 0).collect();
        slots.sort_unstable_by(|one, other| other.1.cmp(&one.1).then(one.0.cmp(&other.0)));
        slots.truncate(SHOWN);
        slots
    }

    /// Simulates ideal hashes of the tags with their keys.
    fn chance(&self, nodes: &[NodeLoad], own_count: u64, imbalance: f64) -> Chance {
        // The number of tags of each weight, because tags of one weight are thrown together.
        let mut tags_by_weight = BTreeMap::from([(1_u64, own_count)]);
        for &keys in self.tags.values() {
            *tags_by_weight.entry(keys).or_insert(0) += 1;
        }
        let node_count = nodes.len() as u64;
        let steps: u64 = tags_by_weight.values().map(|&tags| tags.min(node_count)).sum();
        let round_count = (STEPS / steps.max(1)).clamp(ROUNDS.0, ROUNDS.1);
        let mut random = Random::new(SLOT_COUNT);
        let (mut sum, mut as_uneven) = (0.0, 0);
        for _ in 0..round_count {
            let mut loads = vec![0; nodes.len()];
            for (&weight, &tags) in &tags_by_weight {
                throw(&mut random, nodes, tags, weight, &mut loads);
            }
            let key_count = loads.iter().sum();
            let ideal = imbalance_of(nodes, loads.into_iter(), key_count);
            sum += ideal;
            as_uneven += u64::from(ideal >= imbalance);
        }
        Chance {
            imbalance: sum / round_count as f64,
            p: (1 + as_uneven) as f64 / (1 + round_count) as f64,
            round_count,
        }
    }
}

/// The results of ideal hashes.
struct Chance {
    imbalance: f64,
    p: f64,
    round_count: u64,
}

/// Returns the keys of the fullest node in units of its fair share; 1 without keys.
///
/// Nodes have a slot more or less than others, so that their shares are not quite the same.
fn imbalance_of(nodes: &[NodeLoad], loads: impl Iterator<Item = u64>, key_count: u64) -> f64 {
    if key_count == 0 {
        return 1.0;
    }
    let of_node = |(node, keys): (&NodeLoad, u64)| {
        let share = (node.end_slot - node.first_slot) as f64 / SLOT_COUNT as f64;
        keys as f64 / (key_count as f64 * share)
    };
    nodes.iter().zip(loads).map(of_node).fold(0.0, f64::max)
}

/// Throws `tags` tags of `weight` keys on the nodes, each by its share of the slots.
fn throw(random: &mut Random, nodes: &[NodeLoad], tags: u64, weight: u64, loads: &mut [u64]) {
    if tags < nodes.len() as u64 {
        for _ in 0..tags {
            let slot = random.below(SLOT_COUNT);
            loads[nodes.partition_point(|node| node.end_slot <= slot)] += weight;
        }
        return;
    }
    let (mut tags_left, mut slots_left) = (tags, SLOT_COUNT);
    for (node, load) in nodes.iter().zip(loads) {
        let slots = node.end_slot - node.first_slot;
        let thrown = match slots_left - slots {
            0 => tags_left,
            _ => random.binomial(tags_left, slots as f64 / slots_left as f64),
        };
        *load += thrown * weight;
        (tags_left, slots_left) = (tags_left - thrown, slots_left - slots);
    }
}

fn readable(tag: &[u8]) -> String {
    match std::str::from_utf8(tag) {
        Ok(text) if !text.chars().any(char::is_control) => text.to_owned(),
        _ => tag.escape_ascii().to_string(),
    }
}

impl Slots {
    /// Returns the number of keys.
    pub fn key_count(&self) -> u64 {
        self.nodes.iter().map(|node| node.key_count).sum()
    }

    /// Returns the conclusion and the advice, in sentences.
    pub fn advice(&self) -> Vec<String> {
        let mut advice = vec![self.judgment()];
        let key_count = self.key_count();
        let share = |keys: u64| keys as f64 / key_count.max(1) as f64;
        if let Some((tag, keys)) = self.heaviest_tags.first()
            && share(*keys) >= HEAVY_SHARE
        {
            let mut sentence = format!(
                "one tag, {{{tag}}}, holds {:.1} % of the keys, which no cluster can divide: ",
                100.0 * share(*keys)
            );
            sentence.push_str("add what varies inside the braces, as in {tag:1}, {tag:2}");
            advice.push(sentence);
        }
        let empty = self.nodes.iter().filter(|node| node.key_count == 0).count();
        if empty > 0 {
            let mut sentence = format!(
                "{empty} of {} nodes {} no key",
                self.nodes.len(),
                if empty == 1 { "holds" } else { "hold" }
            );
            let tag_count = self.distinct_tag_count;
            if tag_count < 3 * self.nodes.len() as u64 {
                let _ = write!(
                    sentence,
                    ": {} {} too few for so many nodes",
                    counted(tag_count, "different tag"),
                    if tag_count == 1 { "is" } else { "are" }
                );
            }
            advice.push(sentence);
        }
        if self.unlisted_count > 0 {
            advice.push(format!(
                "there were too many tags to remember: {} {} own",
                counted(self.unlisted_count, "key"),
                if self.unlisted_count == 1 {
                    "counts as having one of its"
                } else {
                    "count as having one of their"
                }
            ));
        }
        advice
    }

    fn judgment(&self) -> String {
        let Self { imbalance, imbalance_ideal, p, .. } = *self;
        let average = self.key_count() as f64 / self.distinct_tag_count.max(1) as f64;
        let far = imbalance_ideal > 1.1;
        if self.nodes.len() == 1 {
            "one node has all keys: nothing to balance".to_owned()
        } else if p < UNEVEN_P {
            format!(
                "less even than chance explains: the fullest node holds x{imbalance:.3} of its \
                 share, of ideal hashes x{imbalance_ideal:.3}; the keys or tags differ in a way \
                 that CRC-16 keeps"
            )
        } else if far && average > 1.5 {
            format!(
                "as even as an ideal hash would have it, and that is not even: with {average:.0} \
                 keys a tag the fullest node holds x{imbalance:.3}; use smaller tags"
            )
        } else if far {
            format!(
                "as even as an ideal hash would have it: so few keys over so many nodes give \
                 x{imbalance:.3} by chance"
            )
        } else {
            format!(
                "fits: the fullest node holds x{imbalance:.3} of its share, of ideal hashes \
                 x{imbalance_ideal:.3}"
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The check value of the specification, and slots that `CLUSTER KEYSLOT` gives.
    #[test]
    fn slots_are_those_of_redis() {
        assert_eq!(CRC.checksum(b"123456789"), 0x31c3);
        for (key, slot) in [("foo", 12_182), ("bar", 5061), ("hello", 866), ("", 0)] {
            assert_eq!(slot_of(key.as_bytes()), slot, "{key}");
        }
        assert_eq!(slot_of(b"{user1000}.following"), slot_of(b"{user1000}.followers"));
        assert_eq!(slot_of(b"{user1000}.following"), slot_of(b"user1000"));
    }

    #[test]
    fn the_hash_tag_is_between_the_first_brace_and_the_next_closing_one() {
        for (key, tag) in [
            ("foo{}{bar}", None),
            ("foo{{bar}}zap", Some("{bar")),
            ("foo{bar}{zap}", Some("bar")),
            ("}foo{bar", None),
            ("a}b{c}d", Some("c")),
            ("{", None),
            ("{}", None),
            ("{x}", Some("x")),
            ("", None),
        ] {
            assert_eq!(tag_of(key.as_bytes()), tag.map(str::as_bytes), "{key}");
            let hashed = tag.unwrap_or(key);
            assert_eq!(hash_tag(key.as_bytes()), hashed.as_bytes(), "{key}");
        }
    }

    #[test]
    fn three_nodes_have_the_ranges_that_redis_cli_prints() {
        assert_eq!(ranges(3).unwrap(), [(0, 5461), (5461, 10_923), (10_923, 16_384)]);
        assert_eq!(ranges(1).unwrap(), [(0, 16_384)]);
        for node_count in (1..300).chain([1000, 4097, 16_383, 16_384]) {
            let ranges = ranges(node_count).unwrap();
            assert_eq!(ranges.len() as u64, node_count);
            assert_eq!((ranges[0].0, ranges[ranges.len() - 1].1), (0, SLOT_COUNT));
            assert!(ranges.windows(2).all(|pair| pair[0].1 == pair[1].0), "{node_count}");
            assert!(ranges.iter().all(|range| range.0 < range.1), "{node_count}");
        }
        for node_count in [0, 16_385, u64::MAX] {
            assert_eq!(ranges(node_count), Err(Error::NodeCount { node_count }));
        }
    }

    fn counts(keys: impl IntoIterator<Item = String>) -> SlotCounts {
        let mut counts = SlotCounts::new();
        keys.into_iter().for_each(|key| counts.add(key.as_bytes()));
        counts
    }

    #[test]
    fn a_partition_of_the_keys_gives_what_one_pass_gives() {
        let key = |n: u32| format!("{{user{}}}.{n}", n % 700);
        let whole = counts((0..5000).map(key));
        let mut parts = counts((0..1234).map(key));
        parts.merge(&counts((1234..5000).map(key)));
        parts.merge(&SlotCounts::new());
        assert_eq!(parts.slots(6).unwrap(), whole.slots(6).unwrap());
        assert_eq!(whole.key_count(), 5000);
    }

    #[test]
    fn a_heavy_tag_is_named_and_is_not_the_hash_s_fault() {
        let key =
            |n: u32| if n.is_multiple_of(4) { format!("{{hot}}{n}") } else { format!("key:{n}") };
        let slots = counts((0..40_000).map(key)).slots(6).unwrap();
        assert_eq!(slots.heaviest_tags, [("hot".to_owned(), 10_000)]);
        assert_eq!(slots.fullest_slots[0].0, slot_of(b"hot"));
        assert!(slots.imbalance > 2.0 && slots.imbalance_ideal > 2.0, "{slots:?}");
        assert!(slots.p > UNEVEN_P, "{slots:?}");
        assert!(slots.advice().iter().any(|line| line.contains("{hot}, holds 25.0 %")));
    }

    /// Keys that are chosen to lie on one node cannot be chance.
    #[test]
    fn keys_of_one_node_are_called_uneven() {
        let on_first =
            (0..20_000).map(|n| format!("k{n}")).filter(|key| slot_of(key.as_bytes()) < 5461);
        let slots = counts(on_first).slots(3).unwrap();
        assert!((slots.imbalance - 3.0).abs() < 0.01, "{slots:?}");
        assert!(slots.p < UNEVEN_P, "{slots:?}");
        assert!(slots.advice()[0].starts_with("less even than chance"), "{:?}", slots.advice());
        assert!(slots.advice().iter().any(|line| line == "2 of 3 nodes hold no key"));
        let on_two =
            (0..20_000).map(|n| format!("k{n}")).filter(|key| slot_of(key.as_bytes()) < 10_922);
        let slots = counts(on_two).slots(3).unwrap();
        assert!(slots.advice().iter().any(|line| line == "1 of 3 nodes holds no key"));
        let one = Slots { unlisted_count: 1, ..counts(["k".to_owned()]).slots(2).unwrap() };
        let advice = one.advice();
        let few = "1 of 2 nodes holds no key: 1 different tag is too few for so many nodes";
        assert!(advice.iter().any(|line| line == few), "{advice:?}");
        let many = "there were too many tags to remember: 1 key counts as having one of its own";
        assert!(advice.iter().any(|line| line == many), "{advice:?}");
    }

    /// Random tags of equal weight: the p values of 100 sets are spread over 0 to 1.
    #[test]
    fn p_is_uniform_for_random_keys() {
        let mut random = Random::new(99);
        let mut below_half = 0;
        for _ in 0..100 {
            let slots = counts((0..2000).map(|_| format!("{:x}", random.next()))).slots(8).unwrap();
            assert!(slots.p > 1e-4 && slots.p <= 1.0);
            below_half += u32::from(slots.p < 0.5);
        }
        assert!((30..=70).contains(&below_half), "{below_half} of 100 are below a half");
    }

    #[test]
    fn tags_beyond_the_bound_count_as_their_own() {
        let mut counts = SlotCounts::with_tags(2);
        for key in ["{a}1", "{b}1", "{c}1", "{a}2", "{c}2", "plain"] {
            counts.add(key.as_bytes());
        }
        let slots = counts.slots(1).unwrap();
        assert_eq!((slots.unlisted_count, slots.tagged_count, slots.distinct_tag_count), (2, 5, 5));
        assert_eq!(slots.advice().len(), 3, "{:?}", slots.advice());
    }

    #[test]
    fn no_keys_have_no_imbalance() {
        let slots = SlotCounts::new().slots(3).unwrap();
        assert_eq!((slots.imbalance, slots.p, slots.used_slot_count), (1.0, 1.0, 0));
        assert!(slots.used_slot_ideal.abs() < 1e-9);
    }
}
