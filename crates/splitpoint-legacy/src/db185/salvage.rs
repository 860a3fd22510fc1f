//! Reconstructs the shape of a damaged file from its pages, if the header is wrong or outdated.
//!
//! ```text
//! pages --> page size and byte order: under which are the pages well-formed?
//!       --> the round of each bucket: where do pages have keys that belong there?
//!       --> a header, which is taken if more pages are at home under it than under the one found
//! ```
//!
//! The keys of a bucket identify it, because their hashes have its number in the lowest bits. So
//! one can find the first bucket of each doubling, and with it every bucket and every overflow
//! page, without the header. That needs the hash function of db 1.85; in a file with another
//! function a salvage finds only ordinary pairs.
//!
//! A salvage finds big pairs that nothing leads to by their first page. If that is lost, the other
//! pages look like keys, and it skips them.

use std::collections::{HashMap, HashSet};

use splitpoint::hash::HashFunction;
use splitpoint::{Error, Result};

use super::addresses::{OverflowAddr, POSITION_MASK, SPLIT_POINTS, Shape, clog2};
use super::extent::bitmap_pages;
use super::header::{FILL_FACTOR_UNDECIDED, Header, PAGE_BYTES_MAX};
use super::overflow::Overflow;
use super::page::{After, BigRole, Page};
use super::store::{hash_32, probe_hash};
use crate::ByteOrder;
use crate::Source;
use crate::reader::{Fault, Item, Unit, or_fault};

/// Pages to examine to find the page size.
const SAMPLE_PAGES: u64 = 512;

/// Thousandths of the pages that must be well-formed in a file without the magic number.
const UNMARKED_MIN: u64 = 500;

/// Buckets of a doubling to examine to find its start.
const SAMPLE_BUCKETS: u64 = 256;

/// A usable header, and the faults of the one in the file.
pub(super) struct Found {
    pub(super) header: Header,
    /// `None` if the function is unknown.
    pub(super) hash: Option<HashFunction>,
    pub(super) faults: Vec<Fault>,
    /// Whether overflow addresses are trustworthy.
    pub(super) has_addresses: bool,
}

/// Finds the layout of the file. Returns `None` if none of its pages belongs to db 1.85.
pub(super) fn examine(source: &Source) -> Result<Option<Found>> {
    let mut bytes = [0; Header::BYTES];
    source.read_at(0, &mut bytes)?;
    let mut least = 1;
    let (header, mut faults) = match Header::decode(&bytes, source.path()) {
        Ok(header) => (Some(header), Vec::new()),
        Err(Error::Corrupt { what, offset, expected, found }) => {
            (None, vec![Fault { what, offset, expected, found }])
        }
        Err(Error::Io { .. }) => unreachable!("decoding reads nothing"),
        Err(_) => {
            // Nothing else says that it is such a file.
            least = UNMARKED_MIN;
            let found = ByteOrder::Big.u64_at(&bytes, 0);
            (None, vec![Fault::new("magic number and version", 0, 0x0006_1561_0000_0002, found)])
        }
    };
    let Some((page_bytes, order)) = page_layout(source, header.as_ref(), least)? else {
        // With only empty pages, there is nothing but the header.
        let hash = Some(HashFunction::x33());
        return Ok(header.map(|header| Found { header, hash, faults, has_addresses: true }));
    };
    let pages = keyed_pages(source, page_bytes, order)?;
    let header = header.filter(|header| layout_of(header) == (page_bytes, order));
    let is_other_hash = header.as_ref().is_some_and(|header| {
        header.probe_hash != probe_hash(&HashFunction::x33()) && !pages.is_convincing(&header.shape)
    });
    let rebuilt = (!is_other_hash).then(|| pages.rebuild(page_bytes)).flatten();
    let rebuilt = rebuilt.filter(|shape| pages.is_convincing(shape));
    let has_addresses = header.is_some() || rebuilt.is_some();
    let header = match (header, rebuilt) {
        (Some(header), Some(shape)) => {
            let (at_home, rebuilt) = (pages.at_home(&header.shape), pages.at_home(&shape));
            // A few pages behind the last bucket may look like further ones by chance.
            let is_longer = same_rounds(&header.shape, &shape);
            let chance = if is_longer { at_home / 32 + 1 } else { 0 };
            if rebuilt > at_home + chance {
                faults.push(difference(&header.shape, &shape));
                header_of(shape, order)
            } else {
                header
            }
        }
        (Some(header), None) => header,
        (None, Some(shape)) => header_of(shape, order),
        (None, None) => {
            let shape = Shape::new(page_bytes, Header::pages(page_bytes), 1);
            header_of(shape, order)
        }
    };
    let hash = pages.is_convincing(&header.shape).then(HashFunction::x33);
    let hash = hash.filter(|_| !is_other_hash);
    Ok(Some(Found { header, hash, faults, has_addresses }))
}

fn layout_of(header: &Header) -> (u32, ByteOrder) {
    (header.shape.page_bytes, header.byte_order)
}

/// Returns whether the buckets of `shorter` are in the same places in `longer`.
fn same_rounds(shorter: &Shape, longer: &Shape) -> bool {
    let rounds = clog2(u64::from(shorter.max_bucket) + 1) as usize;
    shorter.spares[..rounds] == longer.spares[..rounds]
}

/// Returns the first field in which two shapes differ.
fn difference(found: &Shape, expected: &Shape) -> Fault {
    let spares = found.spares.iter().zip(&expected.spares).take(expected.split_point as usize);
    let mut spares = spares.enumerate().filter(|(_, (found, expected))| found != expected);
    match spares.next() {
        Some((at, (&found, &expected))) if found != 0 => {
            let offset = 68 + 4 * at as u64;
            Fault::new("count of overflow pages", offset, expected.into(), found.into())
        }
        _ => {
            let (expected, found) = (expected.max_bucket.into(), found.max_bucket.into());
            Fault::new("highest bucket", 40, expected, found)
        }
    }
}

fn header_of(shape: Shape, byte_order: ByteOrder) -> Header {
    Header {
        byte_order,
        last_freed: 0,
        fill_factor: FILL_FACTOR_UNDECIDED,
        record_count: 0,
        probe_hash: probe_hash(&HashFunction::x33()),
        is_interrupted: false,
        shape,
    }
}

/// Finds page size and byte order: those of the header, unless more than twice as many pages are well-formed
/// with others. Without a header the smallest pages of which nearly as many are well-formed as with any other
/// size: in a small file, most of what is well-formed is also with pages of twice the size.
fn page_layout(
    source: &Source,
    header: Option<&Header>,
    least: u64,
) -> Result<Option<(u32, ByteOrder)>> {
    let said = header.map(layout_of);
    let mut rated = Vec::new();
    for page_bits in 4..=PAGE_BYTES_MAX.ilog2() {
        for order in ByteOrder::ALL {
            let layout = (1 << page_bits, order);
            let shape = header.filter(|_| said == Some(layout)).map(|header| &header.shape);
            rated.push((layout, well_formed_share(source, layout, shape)?));
        }
    }
    let best = rated.iter().map(|(_, share)| *share).max().unwrap_or_default();
    if best < least {
        return Ok(None);
    }
    let is_said = |(layout, share): &&_| said == Some(*layout) && *share >= best / 2;
    let is_good = |(_, share): &&(_, u64)| *share >= best - best / 5;
    let found = rated.iter().find(is_said).or_else(|| rated.iter().find(is_good));
    Ok(found.map(|(layout, _)| *layout))
}

/// Returns how many thousandths of the pages with anything on them are well-formed. The bitmaps of `shape` do
/// not count.
fn well_formed_share(
    source: &Source,
    (page_bytes, order): (u32, ByteOrder),
    shape: Option<&Shape>,
) -> Result<u64> {
    let bitmaps: Vec<_> = shape.into_iter().flat_map(bitmap_pages).collect();
    let first = u64::from(Header::pages(page_bytes));
    let count = source.file_bytes().div_ceil(page_bytes.into()).saturating_sub(first);
    let mut bytes = vec![0; page_bytes as usize];
    let (mut used, mut well_formed) = (0_u64, 0_u64);
    let step = count.div_ceil(SAMPLE_PAGES).max(1) as usize;
    for number in (first..first + count).step_by(step) {
        if bitmaps.iter().any(|(_, page)| *page == Some(number)) {
            continue;
        }
        let offset = number * u64::from(page_bytes);
        source.read_at(offset, &mut bytes)?;
        if bytes.iter().any(|&byte| byte != 0) {
            used += 1;
            let page = Page::validate(&bytes, order, offset);
            well_formed += u64::from(page.is_ok_and(Page::is_well_formed));
        }
    }
    Ok((well_formed * 1000).checked_div(used).unwrap_or_default())
}

/// The hash of the first key of each page with ordinary pairs, and what links lead to.
struct KeyedPages {
    header_pages: u32,
    page_count: u64,
    hashes: HashMap<u64, u32>,
    /// Highest position that a link names, by split point.
    positions: [u32; SPLIT_POINTS],
}

fn keyed_pages(source: &Source, page_bytes: u32, order: ByteOrder) -> Result<KeyedPages> {
    let hash = HashFunction::x33();
    let mut pages = KeyedPages {
        header_pages: Header::pages(page_bytes),
        page_count: source.file_bytes().div_ceil(page_bytes.into()),
        hashes: HashMap::new(),
        positions: [0; SPLIT_POINTS],
    };
    let mut bytes = vec![0; page_bytes as usize];
    for number in u64::from(pages.header_pages)..pages.page_count {
        let offset = number * u64::from(page_bytes);
        source.read_at(offset, &mut bytes)?;
        let Ok(page) = Page::validate(&bytes, order, offset) else { continue };
        if page.is_empty() || !page.is_well_formed() {
            continue;
        }
        if let Some(next) = page.next() {
            let highest = &mut pages.positions[next.split_point() as usize];
            *highest = (*highest).max(next.position());
        }
        if let Some(Ok((_, key, _))) = page.pairs().next() {
            pages.hashes.insert(number, hash_32(&hash, key));
        }
    }
    Ok(pages)
}

impl KeyedPages {
    fn hash_at(&self, page: u64) -> Option<u32> {
        self.hashes.get(&page).copied()
    }

    /// Counts the pages that are where their first key belongs under `shape`.
    fn at_home(&self, shape: &Shape) -> u64 {
        let buckets = (0..=shape.max_bucket).map(|bucket| (bucket, shape.bucket_page(bucket)));
        let there = buckets.take_while(|(_, page)| *page < self.page_count);
        let is_at_home = |(bucket, page): &(u32, u64)| {
            self.hash_at(*page).is_some_and(|hash| shape.bucket_of(hash) == *bucket)
        };
        there.filter(is_at_home).count() as u64
    }

    /// Counts the buckets that have keys under `shape`.
    fn keyed(&self, shape: &Shape) -> u64 {
        let buckets = (0..=shape.max_bucket).map(|bucket| shape.bucket_page(bucket));
        let there = buckets.take_while(|page| *page < self.page_count);
        there.filter(|page| self.hash_at(*page).is_some()).count() as u64
    }

    /// Returns whether most of the buckets under `shape` have keys that belong there.
    fn is_convincing(&self, shape: &Shape) -> bool {
        2 * self.at_home(shape) >= self.keyed(shape)
    }

    /// Finds the places of the buckets by the keys on their pages: it takes the number of finished
    /// doublings with which most pages are at home. `None` if no page is at home with any.
    fn rebuild(&self, page_bytes: u32) -> Option<Shape> {
        let levels = 0..=clog2(self.page_count).min(SPLIT_POINTS as u32 - 2);
        let shapes = levels.filter_map(|level| self.rebuild_at(page_bytes, level));
        let rated = shapes.map(|shape| (self.at_home(&shape), shape));
        let best = rated.fold(None, |best: Option<(u64, Shape)>, next| match best {
            Some(best) if best.0 >= next.0 => Some(best),
            _ => Some(next),
        });
        best.map(|(_, shape)| shape)
    }

    /// Finds the places of the buckets, if the table has doubled `level` times from one bucket.
    /// Then the hashes of the keys in a bucket agree in `level` bits, or in one more after a split
    /// in the current doubling.
    fn rebuild_at(&self, page_bytes: u32, level: u32) -> Option<Shape> {
        let mut shape = Shape::new(page_bytes, self.header_pages, 1);
        shape.spares = [0; SPLIT_POINTS];
        let mut rounds = 0;
        for round in 0..=level {
            let before = if round == 0 { 0 } else { shape.spares[round as usize - 1] };
            let mask = (1 << level.max(round + 1)) - 1;
            let Some(spares) = self.start_of_round(round, before, mask) else { break };
            shape.spares[round as usize] = spares;
            rounds = round as usize + 1;
        }
        if rounds == 0 || rounds < level as usize {
            return None;
        }
        self.finish(&mut shape, rounds);
        Some(shape)
    }

    /// Returns how many overflow pages there are before the buckets `2^round` to
    /// `2^(round + 1) - 1`: with how many most of these have keys that belong there by `mask`.
    fn start_of_round(&self, round: u32, before: u32, mask: u32) -> Option<u32> {
        let first = 1_u64 << round;
        let mut best: Option<(i64, u32)> = None;
        for spares in before + self.positions[round as usize]..=before + POSITION_MASK {
            let page = first + u64::from(self.header_pages) + u64::from(spares);
            if page >= self.page_count {
                break;
            }
            let mut points = 0;
            for at in 0..first.min(SAMPLE_BUCKETS) {
                if let Some(hash) = self.hash_at(page + at) {
                    points += if u64::from(hash & mask) == first + at { 1 } else { -1 };
                }
            }
            if best.is_none_or(|(most, _)| points > most) {
                best = Some((points, spares));
            }
        }
        best.filter(|(points, _)| *points > 0).map(|(_, spares)| spares)
    }

    /// Sets what follows from the rounds: the highest bucket, the masks and the last split point.
    fn finish(&self, shape: &mut Shape, rounds: usize) {
        let first = 1_u32 << (rounds - 1);
        let mask = 2 * first - 1;
        let is_at_home = |bucket: &u32| {
            let page = u64::from(*bucket) + u64::from(self.header_pages);
            let page = page + u64::from(shape.spares[rounds - 1]);
            self.hash_at(page).is_some_and(|hash| hash & mask == *bucket)
        };
        let highest = (first..=mask).rev().find(is_at_home).unwrap_or(first);
        shape.max_bucket = highest;
        shape.low_mask = first - 1;
        shape.high_mask = mask;
        shape.split_point = rounds as u32;
        let behind = u64::from(mask) + u64::from(self.header_pages);
        let behind = behind + u64::from(shape.spares[rounds - 1]) + 1;
        let here = self.page_count.saturating_sub(behind).min(POSITION_MASK.into()) as u32;
        for split_point in rounds..SPLIT_POINTS {
            shape.spares[split_point] = shape.spares[rounds - 1] + here.max(self.positions[rounds]);
        }
    }
}

/// Calls `visit` with every page of pairs, whether or not anything leads to it, except those that
/// `free` reports as free; and with every big pair whose first page is in the file, if the overflow
/// addresses lead anywhere.
pub(super) fn loose_units(
    source: &Source,
    shape: &Shape,
    order: ByteOrder,
    has_addresses: bool,
    free: Option<&Overflow>,
    visit: &mut dyn FnMut(Unit) -> Result<()>,
) -> Result<()> {
    let mut pages = Pages::new(source, shape, order);
    let links = pages.links()?;
    for number in u64::from(shape.header_pages)..pages.count {
        let is_free = |free: &Overflow| {
            let index = shape.overflow_index_of_page(number);
            index.is_some_and(|index| !free.is_needed(index))
        };
        if free.is_some_and(is_free) {
            continue;
        }
        let mut unit = Unit::default();
        let Some((page, present)) = pages.read(number)? else { continue };
        match page.big_role() {
            None => unit.items = items_of(page, present),
            Some(role) if has_addresses && links.is_start(number, role) => {
                let pair = or_fault(pages.big_pair(number))?;
                unit.items.extend(pair.ok().map(Item::here));
            }
            Some(_) => {}
        }
        if !unit.items.is_empty() {
            visit(unit)?;
        }
    }
    Ok(())
}

/// Returns what page `number` holds by itself. A page of a big pair counts as one of a chain.
pub(super) fn loose_page(
    source: &Source,
    shape: &Shape,
    order: ByteOrder,
    number: u64,
) -> Result<Unit> {
    let mut pages = Pages::new(source, shape, order);
    let mut unit = Unit::default();
    match pages.read(number)?.filter(|(page, _)| page.is_well_formed()) {
        Some((page, _)) if page.is_big() => unit.overflow_pages = 1,
        Some((page, present)) => unit.items = items_of(page, present),
        None => {}
    }
    Ok(unit)
}

/// Returns the ordinary pairs of a page that are in its first `present` bytes.
fn items_of(page: Page<'_>, present: usize) -> Vec<Item> {
    let mut start = page.bytes().len();
    let pairs = page.pairs().map_while(Result::ok).filter(|(_, key, value)| {
        let end = start;
        start -= key.len() + value.len();
        end <= present
    });
    pairs.map(|(_, key, value)| Item::here((key.to_vec(), value.to_vec()))).collect()
}

/// Where links lead to.
#[derive(Debug, Default)]
struct Links {
    /// Pages on which a big pair goes on.
    continuations: HashSet<u64>,
    /// Pages on which something begins.
    beginnings: HashSet<u64>,
}

impl Links {
    fn is_start(&self, number: u64, role: BigRole) -> bool {
        if self.continuations.contains(&number) {
            return false;
        }
        match role {
            BigRole::Key | BigRole::KeyEnd { .. } => true,
            // More likely a part of a value whose beginning is lost.
            BigRole::KeyEndOrValue => self.beginnings.contains(&number),
            BigRole::ValueEnd => false,
        }
    }
}

/// The pages of a file, read one by one.
struct Pages<'a> {
    source: &'a Source,
    shape: &'a Shape,
    order: ByteOrder,
    count: u64,
    /// Pages of big pairs that may still be read: in a sound file each is read once.
    left: u64,
    bytes: Vec<u8>,
}

impl<'a> Pages<'a> {
    fn new(source: &'a Source, shape: &'a Shape, order: ByteOrder) -> Self {
        let count = source.file_bytes().div_ceil(shape.page_bytes.into());
        let bytes = vec![0; shape.page_bytes as usize];
        Self { source, shape, order, count, left: 3 * count, bytes }
    }

    /// Reads a page; `None` if it is none. Also returns how many bytes of it are in the file.
    fn read(&mut self, number: u64) -> Result<Option<(Page<'_>, usize)>> {
        let offset = number * u64::from(self.shape.page_bytes);
        let present = self.source.read_at(offset, &mut self.bytes)?;
        let page = Page::validate(&self.bytes, self.order, offset).ok();
        Ok(page.map(|page| (page, present)))
    }

    fn page_of(&self, addr: OverflowAddr) -> Option<u64> {
        self.shape.overflow_page(addr).filter(|number| *number < self.count)
    }

    fn links(&mut self) -> Result<Links> {
        let mut links = Links::default();
        for number in u64::from(self.shape.header_pages)..self.count {
            let Some((page, _)) = self.read(number)? else { continue };
            let (role, next) = (page.big_role(), page.next());
            let Some(next) = next.and_then(|next| self.page_of(next)) else { continue };
            let goes_on = match role {
                Some(BigRole::Key | BigRole::KeyEndOrValue) => true,
                Some(BigRole::KeyEnd { goes_on }) => goes_on,
                Some(BigRole::ValueEnd) | None => false,
            };
            let set = if goes_on { &mut links.continuations } else { &mut links.beginnings };
            set.insert(next);
        }
        Ok(links)
    }

    /// Reads the big pair that begins on page `first`.
    fn big_pair(&mut self, first: u64) -> Result<(Vec<u8>, Vec<u8>)> {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        let (mut number, mut due) = (first, After::Key);
        loop {
            let offset = number * u64::from(self.shape.page_bytes);
            let broken = |what| Fault::new(what, offset, 0, number);
            if self.left == 0 {
                return Err(broken("pages of big pairs, read again and again").into());
            }
            self.left -= 1;
            let Some((page, present)) = self.read(number)? else {
                return Err(broken("page of a big pair").into());
            };
            if present < page.bytes().len() {
                return Err(broken("end of a big pair").into());
            }
            let part = page.part(due)?;
            key.extend_from_slice(&page.bytes()[part.key]);
            value.extend_from_slice(&page.bytes()[part.value]);
            let next = match (part.after, part.next) {
                (After::Nothing, _) => return Ok((key, value)),
                (after, Some(next)) => {
                    due = after;
                    self.page_of(next)
                }
                (_, None) => None,
            };
            number = next.ok_or_else(|| broken("overflow address"))?;
        }
    }
}
