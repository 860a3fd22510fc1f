//! Measures what a step along a chain takes on this machine, with nodes of each layout.
//!
//! ```text
//! heads: bucket --> node --> node --> ...    as many keys in every chain
//! slabs: nodes at the places of their layout, in memory that starts at a page
//! ```
//!
//! Where the next lookup is depends on what the last one found, so that lookups do not overlap.
//!
//! # Invariants
//!
//! - Layouts take turns, so that a change of the machine's speed affects all of them.
//! - A lookup reads the fields that its [`NodeLayout`] names, and no others.

use std::hint::black_box;
use std::time::Instant;

use serde::Serialize;

use super::NodeLayout;
use crate::chance::{Moments, welch};
use crate::random::Random;
use crate::study::Spread;

/// Runs that count; one more comes before them.
const RUNS: usize = 7;
/// Lookups of a run.
const LOOKUPS: usize = 5000;
/// Bytes of a page.
const PAGE_BYTES: u64 = 4096;
/// Words of 4 bytes in a page.
const PAGE_WORDS: usize = 1024;
/// No node.
const NONE: u32 = u32::MAX;
/// What fields hold that are equal in all nodes.
const EQUAL: u32 = 0x5eed;
/// Most bytes of nodes: their words are counted in 32 bits.
pub const MEMORY_BYTES_MAX: u64 = 4 << 30;

/// In which order the nodes of a slab go to the chains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeOrder {
    /// One after the other.
    Slab,
    /// At random, as after some time of use.
    Shuffled,
}

/// The time of lookups in chains of one layout.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WalkTime {
    /// The layout.
    pub layout: &'static str,
    /// In which order its nodes are chained.
    pub order: NodeOrder,
    /// Bytes of the nodes.
    pub memory_bytes: u64,
    /// Keys in all chains.
    pub key_count: u64,
    /// Keys in each chain.
    pub chain_keys: u64,
    /// Whether the keys that are looked up are there.
    pub is_present: bool,
    /// Nodes that a lookup visits on average.
    pub step_count: f64,
    /// Cache lines of 64 bytes that a lookup reads of them.
    pub line_count: f64,
    /// Time of a lookup in nanoseconds.
    pub lookup_ns: Spread,
    /// Welch's p of the difference from the first layout, measured in the same way.
    pub p: Option<f64>,
}

impl WalkTime {
    /// Returns the time of one step in nanoseconds.
    pub fn step_ns(&self) -> f64 {
        self.lookup_ns.median / self.step_count
    }

    /// Returns the time of one cache line in nanoseconds.
    pub fn line_ns(&self) -> f64 {
        self.lookup_ns.median / self.line_count
    }
}

#[derive(Clone, Debug)]
#[repr(align(4096))]
struct Page([u32; PAGE_WORDS]);

/// A table of chains of nodes in slabs.
#[derive(Debug)]
struct Walker {
    layout: NodeLayout,
    pages: Vec<Page>,
    heads: Vec<u32>,
    key_count: u64,
    chain_keys: u64,
    /// Words in a node of the link, of fields that are equal, of keys, and of what a match compares.
    link: usize,
    equal: Vec<usize>,
    keys: Vec<usize>,
    matched: Vec<usize>,
}

impl Walker {
    /// Fills `memory_bytes` with chains of `chain_keys` keys.
    fn new(layout: NodeLayout, memory_bytes: u64, chain_keys: u64, order: NodeOrder) -> Self {
        let memory_bytes = memory_bytes.min(MEMORY_BYTES_MAX);
        let colors: Vec<u64> = layout.starts().collect();
        let slab_nodes = layout.slab_nodes as usize;
        let of_color = |color: usize| &colors[color * slab_nodes..][..slab_nodes];
        let last = colors.iter().max().copied().unwrap_or(0) + u64::from(layout.node_bytes);
        let slab_bytes = last.next_multiple_of(PAGE_BYTES);
        let chain_nodes = chain_keys.div_ceil(u64::from(layout.node_keys));
        let slab_count = (memory_bytes / slab_bytes).max(chain_nodes.div_ceil(slab_nodes as u64));
        let mut nodes: Vec<u32> = (0..slab_count)
            .flat_map(|slab| {
                let color = (slab % u64::from(layout.color_count)) as usize;
                of_color(color).iter().map(move |start| ((slab * slab_bytes + start) / 4) as u32)
            })
            .collect();
        if order == NodeOrder::Shuffled {
            let mut random = Random::new(nodes.len() as u64);
            for at in (1..nodes.len()).rev() {
                nodes.swap(at, random.below(at as u64 + 1) as usize);
            }
        }
        let word = |offset: u32| (offset / 4) as usize;
        let is_key = |name: &str| layout.passed.last().is_some_and(|last| last.name == name);
        let compared = layout.passed.iter().filter(|field| field.name != "link");
        let (keys, equal) = if layout.node_keys > 1 {
            ((0..layout.node_keys as usize).map(|slot| 2 * slot).collect(), Vec::new())
        } else {
            let words = |wants_key: bool| {
                let fields = compared.clone().filter(move |field| is_key(field.name) == wants_key);
                fields.map(|field| word(field.offset)).collect::<Vec<usize>>()
            };
            (words(true), words(false))
        };
        let link = layout.passed.iter().find(|field| field.name == "link");
        let mut walker = Self {
            layout,
            pages: vec![Page([0; PAGE_WORDS]); (slab_count * slab_bytes / PAGE_BYTES) as usize],
            heads: Vec::new(),
            key_count: 0,
            chain_keys,
            link: link.map_or(0, |field| word(field.offset)),
            equal,
            keys,
            matched: layout.matched.iter().map(|field| word(field.offset)).collect(),
        };
        walker.fill(&nodes, chain_nodes as usize);
        walker
    }

    /// Chains the nodes: key `k` is in chain `k % chains`.
    fn fill(&mut self, nodes: &[u32], chain_nodes: usize) {
        let chain_count = nodes.len() / chain_nodes;
        let node_keys = u64::from(self.layout.node_keys);
        self.heads = vec![NONE; chain_count];
        self.key_count = chain_count as u64 * self.chain_keys;
        for round in (0..chain_nodes).rev() {
            for chain in 0..chain_count {
                let node = nodes[round * chain_count + chain];
                let head = std::mem::replace(&mut self.heads[chain], node);
                *self.word_mut(node, self.link) = head;
                for at in self.equal.clone() {
                    *self.word_mut(node, at) = EQUAL;
                }
                let first = round as u64 * node_keys;
                let in_node = node_keys.min(self.chain_keys - first);
                for (slot, at) in self.keys.clone().into_iter().take(in_node as usize).enumerate() {
                    let key = (first + slot as u64) * chain_count as u64 + chain as u64;
                    *self.word_mut(node, at) = key as u32 + 1;
                    if node_keys == 1 {
                        for at in self.matched.clone() {
                            *self.word_mut(node, at) = key as u32 + 1;
                        }
                    }
                }
            }
        }
    }

    #[inline]
    fn word(&self, node: u32, offset: usize) -> u32 {
        let at = node as usize + offset;
        self.pages[at / PAGE_WORDS].0[at % PAGE_WORDS]
    }

    fn word_mut(&mut self, node: u32, offset: usize) -> &mut u32 {
        let at = node as usize + offset;
        &mut self.pages[at / PAGE_WORDS].0[at % PAGE_WORDS]
    }

    /// Looks `key` up in its chain, and returns how many nodes it visits and whether it is there.
    #[inline]
    fn find(&self, chain: usize, key: u32) -> (u32, bool) {
        let (mut node, mut visited) = (self.heads[chain], 0);
        while node != NONE {
            visited += 1;
            let next = self.word(node, self.link);
            let is_equal = self.equal.iter().all(|&at| self.word(node, at) == EQUAL);
            if is_equal
                && self.keys.iter().any(|&at| self.word(node, at) == key)
                && self.matched.iter().all(|&at| self.word(node, at) == key)
            {
                return (visited, true);
            }
            node = next;
        }
        (visited, false)
    }

    /// Looks up keys in a random order that depends on nothing but `seed`; returns the nodes visited.
    #[inline(never)]
    fn run(&self, is_present: bool, seed: u64) -> u64 {
        let mut random = Random::new(seed);
        let zero = black_box(0);
        let (mut visited, mut last) = (0_u64, 0_u32);
        for _ in 0..LOOKUPS {
            let drawn = random.below(self.key_count) + u64::from(last & zero);
            let chain = drawn % self.heads.len() as u64;
            // A key that no node has.
            let key = if is_present { drawn as u32 + 1 } else { 0x8000_0000 | drawn as u32 };
            let (steps, is_found) = self.find(chain as usize, key);
            debug_assert_eq!(is_found, is_present);
            last = steps;
            visited += u64::from(steps);
        }
        visited
    }

    /// Returns the cache lines of 64 bytes that a lookup of so many steps reads.
    fn line_count(&self, step_count: f64, is_present: bool) -> f64 {
        let step = self.layout.lines_per_step(64);
        let end = if is_present { self.layout.lines_per_match(64) - step } else { 0.0 };
        step_count * step + end
    }
}

/// Measures lookups in chains of `chain_keys` keys, with nodes of each layout in `memory_bytes`, of
/// keys that are there and of others, with nodes in the order of their slabs and shuffled.
///
/// # Panics
///
/// If `chain_keys` is 0.
///
/// # Cost
///
/// Memory for all layouts at once, and for each eight runs of 5000 lookups in each of four ways.
pub fn time(layouts: &[NodeLayout], memory_bytes: u64, chain_keys: u64) -> Vec<WalkTime> {
    assert!(chain_keys > 0, "a chain has a key");
    let mut times = Vec::new();
    for order in [NodeOrder::Slab, NodeOrder::Shuffled] {
        let walkers: Vec<Walker> = layouts
            .iter()
            .map(|&layout| Walker::new(layout, memory_bytes, chain_keys, order))
            .collect();
        for is_present in [true, false] {
            let mut runs = vec![(Vec::new(), 0_u64); walkers.len()];
            for seed in 0..=RUNS as u64 {
                for (walker, (ns, visited)) in walkers.iter().zip(&mut runs) {
                    let start = Instant::now();
                    *visited += black_box(walker.run(is_present, seed));
                    ns.push(start.elapsed().as_secs_f64() * 1e9 / LOOKUPS as f64);
                }
            }
            let first = Moments::of(&runs[0].0[1..]);
            let all = walkers.iter().zip(&runs).enumerate();
            times.extend(all.map(|(index, (walker, (ns, visited)))| {
                let step_count = *visited as f64 / (LOOKUPS * (RUNS + 1)) as f64;
                let test = welch(first, Moments::of(&ns[1..])).filter(|_| index > 0);
                WalkTime {
                    layout: walker.layout.name,
                    order,
                    memory_bytes: walker.pages.len() as u64 * PAGE_BYTES,
                    key_count: walker.key_count,
                    chain_keys,
                    is_present,
                    step_count,
                    line_count: walker.line_count(step_count, is_present),
                    lookup_ns: Spread::of(ns),
                    p: test.map(|test| test.p),
                }
            }));
        }
    }
    times
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::NODE_LAYOUTS;

    #[test]
    fn every_key_is_found_in_its_chain_and_no_other() {
        for layout in NODE_LAYOUTS {
            for order in [NodeOrder::Slab, NodeOrder::Shuffled] {
                for chain_keys in [1_u64, 3, 16] {
                    let walker = Walker::new(*layout, 100_000, chain_keys, order);
                    let chain_count = walker.heads.len() as u64;
                    assert_eq!(walker.key_count, chain_count * chain_keys, "{}", layout.name);
                    for key in 0..walker.key_count {
                        let chain = (key % chain_count) as usize;
                        let expected = key / chain_count / u64::from(layout.node_keys) + 1;
                        let found = walker.find(chain, key as u32 + 1);
                        assert_eq!(found, (expected as u32, true), "{} {key}", layout.name);
                    }
                    let nodes = chain_keys.div_ceil(u64::from(layout.node_keys)) as u32;
                    assert_eq!(walker.find(0, 0x8000_0000), (nodes, false), "{}", layout.name);
                }
            }
        }
    }

    #[test]
    fn a_time_says_how_far_lookups_went() {
        let layouts = ["dentry-2.6.13", "dentry-2.6.14", "splitpoint"];
        let layouts = layouts.map(|name| *NodeLayout::by_name(name).unwrap());
        let times = time(&layouts, 200_000, 16);
        assert_eq!(times.len(), 12);
        for it in &times {
            let is_bucket = it.layout == "splitpoint";
            let most = if is_bucket { 3.0 } else { 16.0 };
            let expected = match (it.is_present, is_bucket) {
                (false, _) => most,
                (true, false) => 8.5,
                (true, true) => (7.0 + 14.0 + 6.0) / 16.0,
            };
            assert!((it.step_count - expected).abs() < 0.1, "{it:?}");
            assert!(it.step_ns() > 0.0 && it.line_ns() > 0.0, "{it:?}");
            assert_eq!(it.p.is_none(), it.layout == "dentry-2.6.13");
        }
        let absent = |name: &str| times.iter().find(|it| it.layout == name && !it.is_present);
        let lines = absent("dentry-2.6.13").unwrap().line_count;
        assert!((lines - 32.0).abs() < 1e-9, "{lines}");
    }
}
