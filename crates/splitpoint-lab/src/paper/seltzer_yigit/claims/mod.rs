//! The claims of the text, each with what is measured for it and whether it held.
//!
//! # Invariants
//!
//! - A claim of which a run is missing, or whose times are too short to be told from noise, is not
//!   decided; the reason is said.

mod comparison;
mod grid;
mod shape;

use serde::Serialize;

use super::run::{Clock, Counts, MeanTime, Measurement, PaperFigure, PaperTest, Run, System};

/// What became of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ClaimVerdict {
    /// It is so here.
    Held,
    /// It is not so here.
    DidNotHold,
    /// The runs here cannot decide it.
    CannotTell,
}

impl ClaimVerdict {
    /// Returns words for it.
    pub fn words(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::DidNotHold => "did not hold",
            Self::CannotTell => "cannot be told here",
        }
    }
}

/// A claim of the paper, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Claim {
    /// The figure whose runs decide it.
    pub figure: PaperFigure,
    /// The figure or the place in the text.
    pub place: &'static str,
    /// The claim in a few words.
    pub name: &'static str,
    /// What the paper says.
    pub words: &'static str,
    /// What it takes for the claim to hold here.
    pub check: &'static str,
    /// What was found.
    pub ours: String,
    /// What became of it.
    pub verdict: ClaimVerdict,
    /// Why the runs cannot decide it, or a remark.
    pub note: String,
}

/// A claim that is not decided yet.
#[derive(Clone, Copy, Debug)]
struct Question {
    figure: PaperFigure,
    place: &'static str,
    name: &'static str,
    words: &'static str,
    check: &'static str,
}

impl Question {
    fn answer(self, holds: bool, ours: impl Into<String>) -> Claim {
        let verdict = if holds { ClaimVerdict::Held } else { ClaimVerdict::DidNotHold };
        self.claim(verdict, ours, "")
    }

    /// Decides it, unless the intervals of the times leave it open.
    fn decide(self, holds: Option<bool>, ours: impl Into<String>) -> Claim {
        match holds {
            Some(holds) => self.answer(holds, ours),
            None => self.claim(ClaimVerdict::CannotTell, ours, TOO_WIDE),
        }
    }

    /// Leaves it undecided, for a reason.
    fn open(self, why: impl Into<String>) -> Claim {
        self.claim(ClaimVerdict::CannotTell, "-", why)
    }

    fn claim(
        self,
        verdict: ClaimVerdict,
        ours: impl Into<String>,
        note: impl Into<String>,
    ) -> Claim {
        let Self { figure, place, name, words, check } = self;
        Claim { figure, place, name, words, check, ours: ours.into(), verdict, note: note.into() }
    }
}

impl Claim {
    fn note(self, note: impl Into<String>) -> Self {
        Self { note: note.into(), ..self }
    }
}

/// Why a figure has no claims decided.
const NOT_RUN: &str = "the figure was not run, or not all of it";
/// Why times do not decide a claim.
const TOO_WIDE: &str =
    "the 95 % intervals leave it open: make more runs, or on a machine with nothing else to do";

/// Returns all claims, of the figures that were asked for.
///
/// `pair_bytes_mean` is that of the dictionary, for equation (1).
pub(super) fn claims(
    all: &[Measurement],
    figures: &[PaperFigure],
    pair_bytes_mean: f64,
) -> Vec<Claim> {
    let found = Found(all);
    let mut claims = Vec::new();
    for figure in PaperFigure::ALL.into_iter().filter(|figure| figures.contains(figure)) {
        claims.extend(match figure {
            PaperFigure::BucketSizes => grid::bucket_sizes(found, pair_bytes_mean),
            PaperFigure::Reread => grid::reread(found),
            PaperFigure::Growth => shape::growth(found),
            PaperFigure::Pool => shape::pool(found),
            PaperFigure::Dictionary => comparison::dictionary(found),
            PaperFigure::Passwd => comparison::passwd(found),
        });
    }
    claims
}

/// The measurements, to look in.
#[derive(Clone, Copy, Debug)]
struct Found<'a>(&'a [Measurement]);

impl<'a> Found<'a> {
    /// Returns what was measured for a figure and a system, in order.
    fn of(self, figure: PaperFigure, system: System) -> impl Iterator<Item = &'a Measurement> {
        let is_wanted = move |it: &&Measurement| {
            it.run.figure == figure && it.run.system == system && it.is_measured()
        };
        self.0.iter().filter(is_wanted)
    }

    fn get(
        self,
        figure: PaperFigure,
        system: System,
        is_wanted: impl Fn(&Run) -> bool,
    ) -> Option<&'a Measurement> {
        self.of(figure, system).find(|it| is_wanted(&it.run))
    }

    fn test(self, figure: PaperFigure, system: System, test: PaperTest) -> Option<&'a Measurement> {
        self.get(figure, system, |run| run.test == test)
    }
}

/// Returns the pages that a run read and wrote, 0 if it does not count them.
fn transfers(it: &Measurement) -> u64 {
    it.counts.as_ref().and_then(Counts::page_transfers).unwrap_or(0)
}

/// Returns seconds with a unit and three digits.
fn seconds(seconds: f64) -> String {
    match seconds {
        s if s >= 1.0 => format!("{s:.2} s"),
        s if s >= 0.0995 => format!("{:.0} ms", s * 1e3),
        s if s >= 0.00995 => format!("{:.1} ms", s * 1e3),
        s => format!("{:.2} ms", s * 1e3),
    }
}

/// Returns whether two means differ by less than their intervals explain.
fn is_tie(one: MeanTime, other: MeanTime) -> bool {
    (one.mean - other.mean).abs() <= one.half_interval + other.half_interval
}

/// Returns whether one mean is less than another; `None` if that may be chance.
fn is_less(one: MeanTime, other: MeanTime) -> Option<bool> {
    (!is_tie(one, other)).then_some(one.mean < other.mean)
}

/// Returns whether one mean is less than `limit` times another; `None` if that may be chance.
fn is_ratio_under(one: MeanTime, other: MeanTime, limit: f64) -> Option<bool> {
    let MeanTime { mean, deviation, half_interval } = other;
    let [mean, deviation, half_interval] = [mean, deviation, half_interval].map(|it| it * limit);
    is_less(one, MeanTime { mean, deviation, half_interval })
}

/// Returns whether a number is under a limit; `None` if its interval has the limit in it.
fn is_under((number, half): (f64, f64), limit: f64) -> Option<bool> {
    ((number - limit).abs() > half).then_some(number < limit)
}

/// Returns whether all hold: no if one does not, unknown if one is unknown.
fn all(parts: impl IntoIterator<Item = Option<bool>>) -> Option<bool> {
    let mut holds = Some(true);
    for part in parts {
        match part {
            Some(false) => return Some(false),
            None => holds = None,
            Some(true) => {}
        }
    }
    holds
}

/// Returns the ratio of two means, with the half of its interval.
fn ratio(one: MeanTime, other: MeanTime) -> (f64, f64) {
    let ratio = one.mean / other.mean;
    let relative = |it: MeanTime| it.half_interval / it.mean.max(f64::MIN_POSITIVE);
    (ratio, ratio * relative(one).hypot(relative(other)))
}

/// Returns the name of a clock in a sentence.
fn clock_name(clock: Clock) -> &'static str {
    match clock {
        Clock::User => "user time",
        Clock::System => "system time",
        Clock::Elapsed => "elapsed time",
    }
}

#[cfg(test)]
mod tests;
