//! Published studies of hash tables, number by number, beside what we get.
//!
//! # Invariants
//!
//! - A number of ours is computed or measured by the same functions that measure a user's keys and
//!   traces. Nothing is tuned to agree.
//! - What cannot be had is a finding too, with the reason.

use serde::Serialize;

use crate::golden::{Row, Slip};

mod dumazet;
mod lever;
mod mewburn;
pub mod seltzer_yigit;
mod torvalds;

pub use dumazet::dumazet;
pub use lever::{Runs, lever};
pub use mewburn::mewburn;
pub use torvalds::torvalds;

/// How our number compares with a published one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mark {
    /// The same number, to the digits that are printed.
    Exact,
    /// The same direction or order, not the same number.
    InShape,
    /// It did not hold here.
    DidNotHold,
    /// It cannot be reproduced, for the reason in the note.
    NotReproducible,
}

impl Mark {
    /// Returns words for it.
    pub fn words(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::InShape => "same shape",
            Self::DidNotHold => "did not hold here",
            Self::NotReproducible => "not reproducible",
        }
    }

    /// Marks a claim that is either as published or not.
    fn shape(holds: bool) -> Self {
        if holds { Self::InShape } else { Self::DidNotHold }
    }
}

/// A published number beside ours.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The part of the paper.
    pub part: &'static str,
    /// What the number is of.
    pub item: String,
    /// The number as published.
    pub published: String,
    /// What we get.
    pub ours: String,
    /// How ours compares with it.
    pub mark: Mark,
    /// Why, where the mark alone does not say.
    pub note: String,
}

impl Finding {
    fn new(
        part: &'static str,
        item: impl Into<String>,
        published: impl Into<String>,
        ours: impl Into<String>,
        mark: Mark,
    ) -> Self {
        let (item, published, ours) = (item.into(), published.into(), ours.into());
        Self { part, item, published, ours, mark, note: String::new() }
    }

    /// A number that is the same or not.
    fn exact(
        part: &'static str,
        item: impl Into<String>,
        published: impl Into<String>,
        ours: impl Into<String>,
    ) -> Self {
        let finding = Self::new(part, item, published, ours, Mark::Exact);
        let mark = if finding.published == finding.ours { Mark::Exact } else { Mark::DidNotHold };
        Self { mark, ..finding }
    }

    /// A number that cannot be had.
    fn missing(
        part: &'static str,
        item: impl Into<String>,
        published: impl Into<String>,
        why: impl Into<String>,
    ) -> Self {
        Self::new(part, item, published, "-", Mark::NotReproducible).note(why)
    }

    fn note(self, note: impl Into<String>) -> Self {
        Self { note: note.into(), ..self }
    }

    fn of_row(part: &'static str, row: Row) -> Self {
        Self::exact(part, row.what, row.published, row.computed)
    }
}

/// A paper, number by number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PaperReport {
    /// Version of the form: 1.
    pub schema: u32,
    /// The paper.
    pub paper: &'static str,
    /// What our numbers were measured on.
    pub subject: String,
    /// Its numbers.
    pub findings: Vec<Finding>,
    /// Its mistakes, with the arithmetic.
    pub slips: Vec<Slip>,
}

impl PaperReport {
    fn new(
        paper: &'static str,
        subject: impl Into<String>,
        findings: Vec<Finding>,
        slips: Vec<Slip>,
    ) -> Self {
        Self { schema: 1, paper, subject: subject.into(), findings, slips }
    }

    /// Returns how many findings have a mark.
    pub fn count(&self, mark: Mark) -> usize {
        self.findings.iter().filter(|it| it.mark == mark).count()
    }
}

/// Returns a number with so many decimals.
fn digits(number: f64, decimals: usize) -> String {
    format!("{number:.decimals$}")
}

/// Returns the change from one number to another in percent, with its sign.
fn change(from: f64, to: f64) -> String {
    format!("{:+.1} %", 100.0 * (to / from - 1.0))
}

/// Returns a probability as papers print it.
fn p(value: Option<f64>) -> String {
    value.map_or_else(|| "no test".to_owned(), crate::number::p_is)
}

#[cfg(test)]
mod tests;
