//! Verifies a table without changing it.

use std::collections::HashSet;

use splitpoint::Result;

use super::addresses::OverflowAddr;
use super::overflow::Bits;
use super::store::{At, Steps, Store};

/// Most damages that a report lists; it counts all.
const DAMAGES_MAX: usize = 100;

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckReport {
    /// Keys found.
    pub record_count: u64,
    /// Pages of buckets and their overflow pages.
    pub page_count: u64,
    /// Overflow pages that are marked as in use although no bucket has them. They are lost until
    /// the table is rewritten, but harmless.
    pub leaked_page_count: u64,
    /// Damages.
    pub damage_count: u64,
    /// The first of them, in words.
    pub damages: Vec<String>,
}

impl CheckReport {
    /// Returns whether nothing is damaged.
    pub fn is_clean(&self) -> bool {
        self.damage_count == 0
    }

    fn damage(&mut self, what: String) {
        self.damage_count += 1;
        if self.damages.len() < DAMAGES_MAX {
            self.damages.push(what);
        }
    }
}

impl Store {
    /// Checks every page, every address and every bit.
    pub(super) fn check(&mut self) -> Result<CheckReport> {
        self.check_usable()?;
        let mut report = CheckReport::default();
        let mut used = Bits::default();
        let mut seen = Some(Bits::default());
        let mut pair_steps = self.steps_of_all();
        for bucket in 0..self.bucket_end() {
            let bucket = bucket as u32;
            let mut steps = Steps { seen: seen.take(), ..self.steps() };
            if let Err(error) = self.check_pages(bucket, &mut steps, &mut used, &mut report) {
                report.damage(format!("bucket {bucket}: {error}"));
            }
            seen = steps.seen;
            pair_steps.left = self.steps().left;
            self.check_pairs(bucket, &mut pair_steps, &mut report);
        }
        self.check_bits(&used, &mut report);
        if let Some(error) = self.missing() {
            report.damage(error.to_string());
        }
        let counted = self.record_count.filter(|count| *count != report.record_count);
        if let Some(count) = counted {
            report.damage(format!("{} keys, and {count} were counted", report.record_count));
        }
        Ok(report)
    }

    fn check_pages(
        &mut self,
        bucket: u32,
        steps: &mut Steps,
        used: &mut Bits,
        report: &mut CheckReport,
    ) -> Result<()> {
        let mut at = At::Bucket;
        loop {
            self.step(steps, bucket, at)?;
            report.page_count += 1;
            let page = self.page(bucket, at)?;
            page.flaw()?;
            let Some(next) = page.next() else { return Ok(()) };
            match self.shape.overflow_index(next) {
                Some(index) => drop(used.insert(index)),
                None => report.damage(format!("bucket {bucket}: page {next:?} is not allocated")),
            }
            at = At::Overflow(next);
        }
    }

    fn check_pairs(&mut self, bucket: u32, steps: &mut Steps, report: &mut CheckReport) {
        let (pairs, result) = self.pairs_before_damage(bucket, steps);
        if let Err(error) = result {
            report.damage(format!("bucket {bucket}: {error}"));
        }
        report.record_count += pairs.len() as u64;
        let mut keys = HashSet::new();
        for (key, _) in &pairs {
            if self.bucket_of(key).is_some_and(|right| right != bucket) {
                report.damage(format!(
                    "bucket {bucket}: a key of {} bytes belongs to another",
                    key.len()
                ));
            }
            if !keys.insert(key) {
                report.damage(format!(
                    "bucket {bucket}: a key of {} bytes is there twice",
                    key.len()
                ));
            }
        }
    }

    fn check_bits(&mut self, used: &Bits, report: &mut CheckReport) {
        let mut bitmaps = Bits::default();
        for addr in &self.shape.bitmaps[..self.shape.bitmap_count() as usize] {
            match self.shape.overflow_index(OverflowAddr(*addr)) {
                Some(index) if !used.contains(index) => drop(bitmaps.insert(index)),
                _ => report.damage(format!("a bitmap is at overflow address {addr:#06x}")),
            }
        }
        for index in 0..self.shape.overflow_count() {
            let is_used = used.contains(index) || bitmaps.contains(index);
            match (is_used, self.overflow.is_needed(index)) {
                (true, false) => report.damage(format!("overflow page {index} is in use and free")),
                (false, true) => report.leaked_page_count += 1,
                _ => {}
            }
        }
    }
}
