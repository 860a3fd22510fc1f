//! Chains: a list of entries at each home.

use std::cmp::Ordering;
use std::fmt::Write as _;

use super::{Entries, Order, Wanted};
use crate::algorithm::Counts;

/// No entry.
const NONE: u32 = u32::MAX;

/// Lines of a drawing.
const LINES_MAX: usize = 64;

/// The lists of a table.
#[derive(Debug)]
pub(super) struct Chains {
    order: Order,
    heads: Vec<u32>,
    /// The entry behind each.
    next: Vec<u32>,
}

/// Where a search in a chain ended.
#[derive(Clone, Copy)]
struct Place {
    /// The entry before, or none.
    before: u32,
    /// The entry there, or none.
    at: u32,
    is_found: bool,
}

impl Chains {
    pub(super) fn new(bits: u32, order: Order) -> Self {
        Self { order, heads: vec![NONE; 1 << bits], next: Vec::new() }
    }

    /// Looks for a key in its chain. A sorted chain ends where the key would be.
    fn search(&self, wanted: &Wanted<'_>, entries: &Entries, counts: &mut Counts) -> Place {
        let (mut before, mut at) = (NONE, self.heads[wanted.home as usize]);
        while at != NONE {
            counts.probes += 1;
            counts.comparisons += 1;
            let entry = &entries.all[at as usize];
            if self.order == Order::Start {
                if wanted.is(entry) {
                    return Place { before, at, is_found: true };
                }
            } else {
                let past = if self.order == Order::Up { Ordering::Greater } else { Ordering::Less };
                match wanted.compare(entry) {
                    Ordering::Equal => return Place { before, at, is_found: true },
                    order if order == past => break,
                    _ => {}
                }
            }
            (before, at) = (at, self.next[at as usize]);
        }
        Place { before, at, is_found: false }
    }

    pub(super) fn find(
        &self,
        wanted: &Wanted<'_>,
        entries: &Entries,
        counts: &mut Counts,
    ) -> Option<u32> {
        let place = self.search(wanted, entries, counts);
        place.is_found.then_some(place.at)
    }

    /// Stores an entry unless its key is there, whose number is then returned.
    pub(super) fn store(
        &mut self,
        wanted: &Wanted<'_>,
        value: &[u8],
        entries: &mut Entries,
        counts: &mut Counts,
    ) -> Option<u32> {
        let place = self.search(wanted, entries, counts);
        if place.is_found {
            return Some(place.at);
        }
        let number = entries.add(wanted.digest, wanted.key, value);
        self.next.resize(entries.all.len(), NONE);
        let before = if self.order == Order::Start { NONE } else { place.before };
        let link = self.link_mut(wanted.home, before);
        let behind = std::mem::replace(link, number);
        self.next[number as usize] = behind;
        None
    }

    fn link_mut(&mut self, home: u32, before: u32) -> &mut u32 {
        if before == NONE {
            &mut self.heads[home as usize]
        } else {
            &mut self.next[before as usize]
        }
    }

    /// Unlinks the entry of a key, and returns its number.
    pub(super) fn remove(
        &mut self,
        wanted: &Wanted<'_>,
        entries: &Entries,
        counts: &mut Counts,
    ) -> Option<u32> {
        let place = self.search(wanted, entries, counts);
        if !place.is_found {
            return None;
        }
        *self.link_mut(wanted.home, place.before) = self.next[place.at as usize];
        Some(place.at)
    }

    fn chain(&self, head: u32) -> impl Iterator<Item = u32> {
        let next = |at: &u32| Some(self.next[*at as usize]).filter(|next| *next != NONE);
        std::iter::successors(Some(head).filter(|head| *head != NONE), next)
    }

    /// Returns the entries in the order of their chains.
    pub(super) fn numbers(&self) -> Vec<u32> {
        self.heads.iter().flat_map(|&head| self.chain(head)).collect()
    }

    pub(super) fn show(&self, entries: &Entries) -> String {
        let mut out = String::new();
        let used = (0..).zip(&self.heads).filter(|(_, head)| **head != NONE);
        let count = used.clone().count();
        for (home, &head) in used.take(LINES_MAX) {
            let _ = write!(out, "  chain {home}:");
            for number in self.chain(head) {
                let _ = write!(out, " {}", entries.all[number as usize].key.escape_ascii());
            }
            out.push('\n');
        }
        crate::algorithm::cut(out, count, LINES_MAX)
    }
}
