//! Figures 5a to 5c and the text after them: bucket sizes and fill factors.

use super::{
    Claim, ClaimVerdict, Found, NOT_RUN, Question, all, clock_name, is_less, is_tie, is_under,
    seconds, transfers,
};
use crate::number::grouped;
use crate::paper::seltzer_yigit::run::{Clock, Measurement, PaperFigure, System};

/// Gain beyond equation (1) that counts as none.
const GAIN_MAX: f64 = 0.05;

/// The runs of one bucket size by rising fill factor.
#[derive(Debug)]
struct Line<'a> {
    page_bytes: u32,
    points: Vec<&'a Measurement>,
    /// The first run that satisfies equation (1).
    threshold: Option<usize>,
}

impl<'a> Line<'a> {
    fn all(found: Found<'a>, pair_bytes_mean: f64) -> Vec<Self> {
        let mut points: Vec<&Measurement> =
            found.of(PaperFigure::BucketSizes, System::Hash).collect();
        points.sort_by_key(|it| (it.run.page_bytes, it.run.fill_factor));
        let of_size = points.chunk_by(|one, other| one.run.page_bytes == other.run.page_bytes);
        of_size
            .map(|points| {
                let page_bytes = points[0].run.page_bytes;
                let is_full = |it: &&Measurement| {
                    (pair_bytes_mean + 4.0) * f64::from(it.run.fill_factor) >= f64::from(page_bytes)
                };
                let threshold = points.iter().position(is_full);
                Self { page_bytes, points: points.to_vec(), threshold }
            })
            .collect()
    }

    /// Returns the run that first satisfies equation (1), if there are others before and behind it.
    fn inner_threshold(&self) -> Option<usize> {
        self.threshold.filter(|at| *at > 0 && at + 1 < self.points.len())
    }

    /// Returns what larger fill factors save, up to equation (1) and beyond it, as shares of the time at
    /// the smallest.
    fn gains(&self, time: impl Fn(&Measurement) -> f64) -> Option<[f64; 2]> {
        let at = self.inner_threshold()?;
        let times: Vec<f64> = self.points.iter().map(|it| time(it)).collect();
        let (first, least) = (times[0], times[at]);
        let beyond = times[at + 1..].iter().copied().fold(f64::MAX, f64::min);
        let share = |gain: f64| if first > 0.0 { gain / first } else { 0.0 };
        Some([share(first - least), share(least - beyond)])
    }
}

impl Line<'_> {
    /// Whether what is gained beyond equation (1) is little, and something is gained up to it; unknown if
    /// that may be chance.
    fn ends_at_equation(&self, at: usize, clock: Clock) -> Option<bool> {
        let [first, least] = [0, at].map(|index| self.points[index].time(clock));
        let beyond = self.points[at + 1..].iter().map(|it| it.time(clock));
        let best = beyond.min_by(|one, other| one.mean.total_cmp(&other.mean))?;
        let beyond = (least.mean - best.mean) / first.mean.max(f64::MIN_POSITIVE);
        let half = (least.half_interval + best.half_interval) / first.mean.max(f64::MIN_POSITIVE);
        let is_small = is_under((beyond, half), GAIN_MAX);
        all([is_small, is_less(least, first)])
    }
}

pub(super) fn bucket_sizes(found: Found<'_>, pair_bytes_mean: f64) -> Vec<Claim> {
    let lines = Line::all(found, pair_bytes_mean);
    let clocks = [("5a", Clock::System), ("5b", Clock::Elapsed)];
    let mut claims: Vec<Claim> =
        clocks.iter().map(|&(place, clock)| of_equation(place, clock, &lines)).collect();
    claims.push(of_transfers(&lines));
    claims.push(of_allocations(&lines));
    claims.push(best(&lines));
    claims.push(largest(found));
    claims
}

fn of_equation(place: &'static str, clock: Clock, lines: &[Line<'_>]) -> Claim {
    let question = Question {
        figure: PaperFigure::BucketSizes,
        place,
        name: "gains end at equation (1)",
        words: "for all bucket sizes, the greatest gains are made by increasing the fill factor until equation \
                (1) is satisfied",
        check: "at each size there is a gain up to the equation, and what is gained beyond it is under 5 % of the \
                time at fill factor 1",
    };
    let with_gains = lines.iter().filter_map(|line| {
        let gains = line.gains(|it| it.time(clock).mean)?;
        Some((line, gains))
    });
    let gains: Vec<_> = with_gains.collect();
    if gains.is_empty() {
        return question.open(NOT_RUN);
    }
    if clock == Clock::System && is_too_short(lines) {
        return question.open(
            "system time is a few clock ticks of the kernel here: the pages that were read and \
             written, below, say the same exactly",
        );
    }
    let inner = lines.iter().filter_map(|line| Some((line, line.inner_threshold()?)));
    let holds = all(inner.map(|(line, at)| line.ends_at_equation(at, clock)));
    let ours: Vec<String> = gains
        .iter()
        .map(|(line, [to, beyond])| {
            format!(
                "{}: {:.0} % to it, {:.0} % beyond",
                line.page_bytes,
                100.0 * to,
                100.0 * beyond
            )
        })
        .collect();
    let unmet: Vec<String> = lines
        .iter()
        .filter(|line| line.threshold.is_none())
        .map(|line| line.page_bytes.to_string())
        .collect();
    let claim = question.decide(holds, format!("{}; {}", clock_name(clock), ours.join("; ")));
    if unmet.is_empty() || !claim.note.is_empty() {
        return claim;
    }
    claim.note(format!("no fill factor up to 128 satisfies the equation at {}", unmet.join(", ")))
}

/// Whether system time is mostly under a tenth of elapsed time or a tick.
fn is_too_short(lines: &[Line<'_>]) -> bool {
    let points: Vec<&Measurement> = lines.iter().flat_map(|line| &line.points).copied().collect();
    let short = points.iter().filter(|it| it.system.mean < it.system.half_interval * 2.0).count();
    2 * short > points.len()
}

/// The same claim for what system time is spent on, which can be counted.
fn of_transfers(lines: &[Line<'_>]) -> Claim {
    let question = Question {
        figure: PaperFigure::BucketSizes,
        place: "5a, 5b",
        name: "pages moved fall up to equation (1)",
        words: "the same, for the pages that are read and written",
        check: "at each size that does not fit the pool from the start, fewer pages at the equation than at \
                fill factor 1, and none that is saved beyond it is over 5 % of those",
    };
    let gains = |line: &Line<'_>| {
        let first = transfers(line.points.first()?);
        let [to, beyond] = line.gains(|it| transfers(it) as f64)?;
        let at = transfers(line.points[line.threshold?]);
        (first > 0).then_some((line.page_bytes, first, at, to, beyond))
    };
    let gains: Vec<_> = lines.iter().filter_map(gains).collect();
    if gains.is_empty() {
        return question.open(NOT_RUN);
    }
    let holds = gains.iter().all(|(.., to, beyond)| *to > 0.0 && *beyond < GAIN_MAX);
    let ours: Vec<String> = gains
        .iter()
        .map(|(size, first, at, ..)| format!("{size}: {} to {}", grouped(*first), grouped(*at)))
        .collect();
    question.answer(holds, ours.join("; "))
}

fn of_allocations(lines: &[Line<'_>]) -> Claim {
    let question = Question {
        figure: PaperFigure::BucketSizes,
        place: "5c",
        name: "smaller pages are more pages",
        words: "smaller pages imply more pages, and so more calls of malloc(3)",
        check: "at the least fill factor that satisfies equation (1), a smaller size allocates more \
                pages",
    };
    let pages = |line: &Line<'_>| {
        let at = line.points[line.threshold?];
        Some((line.page_bytes, at.run.fill_factor, at.counts?.page_allocations?))
    };
    let pages: Vec<(u32, u32, u64)> = lines.iter().filter_map(pages).collect();
    if pages.len() < 2 {
        return question.open(NOT_RUN);
    }
    let ours: Vec<String> = pages
        .iter()
        .map(|(size, fill, count)| format!("{size}/{fill}: {} pages", grouped(*count)))
        .collect();
    question.answer(pages.is_sorted_by(|one, other| one.2 > other.2), ours.join("; "))
}

fn best(lines: &[Line<'_>]) -> Claim {
    let question = Question {
        figure: PaperFigure::BucketSizes,
        place: "text after 5c",
        name: "256 bytes and 8 keys are best",
        words: "the tradeoff works out most favorably when the page size is 256 and the fill factor is 8",
        check: "no other size and fill factor has a user time that is lower by more than the intervals \
                explain",
    };
    let points: Vec<&Measurement> = lines.iter().flat_map(|line| &line.points).copied().collect();
    let claimed = points.iter().find(|it| (it.run.page_bytes, it.run.fill_factor) == (256, 8));
    let best = points.iter().min_by(|one, other| one.user.mean.total_cmp(&other.user.mean));
    let (Some(claimed), Some(best)) = (claimed, best) else { return question.open(NOT_RUN) };
    let by_elapsed =
        points.iter().min_by(|one, other| one.elapsed.mean.total_cmp(&other.elapsed.mean));
    let place = |it: &Measurement| format!("{}/{}", it.run.page_bytes, it.run.fill_factor);
    let ours = format!(
        "least user time {} at {}, {} at 256/8; least elapsed time at {}",
        seconds(best.user.mean),
        place(best),
        seconds(claimed.user.mean),
        by_elapsed.map_or_else(String::new, |it| place(it)),
    );
    question.answer(is_tie(best.user, claimed.user), ours)
}

fn largest(found: Found<'_>) -> Claim {
    let question = Question {
        figure: PaperFigure::BucketSizes,
        place: "text before 5a",
        name: "page sizes up to 1M",
        words: "the graphs show page sizes from 128 bytes to 1M",
        check: "the package makes tables with pages of 1 MiB",
    };
    let refused = found.0.iter().find(|it| {
        it.run.figure == PaperFigure::BucketSizes
            && it.run.page_bytes > 32_768
            && it.refusal.is_some()
    });
    match refused {
        Some(it) => {
            let why = it.refusal.clone().unwrap_or_default();
            question.answer(false, format!("refused: {why}"))
        }
        None => question.open(NOT_RUN),
    }
}

/// The text after Figure 5c: a file that is read again from the disk.
pub(super) fn reread(found: Found<'_>) -> Vec<Claim> {
    let question = Question {
        figure: PaperFigure::Reread,
        place: "text after 5c",
        name: "1K/32 rereads faster than 256/8",
        words: "rereading the file from disk was slightly faster with a larger bucket size and fill factor, 1K and \
                32, than with 256 and 8",
        check: "elapsed time at 1024/32 is less than at 256/8, by more than the intervals explain",
    };
    let best = Question {
        name: "pages of about 1K are best on disk",
        words: "performance for disk based tables is best when the page size is approximately 1K",
        check: "the least elapsed time is at a page of 512 to 2048 bytes",
        ..question
    };
    let points: Vec<&Measurement> = found.of(PaperFigure::Reread, System::Hash).collect();
    let at = |page: u32| points.iter().find(|it| it.run.page_bytes == page);
    let (Some(small), Some(large)) = (at(256), at(1024)) else {
        return vec![question.open(NOT_RUN), best.open(NOT_RUN)];
    };
    let device = |it: &Measurement| it.counts.and_then(|counts| counts.device_bytes).unwrap_or(0);
    let warm = "the files were in memory all the same: this file system keeps their pages";
    let is_cold = device(small) > 0 && device(large) > 0;
    let times = format!(
        "{} at 256/8, {} at 1024/32",
        seconds(small.elapsed.mean),
        seconds(large.elapsed.mean)
    );
    let least = points.iter().min_by(|one, other| one.elapsed.mean.total_cmp(&other.elapsed.mean));
    let Some(least) = least else { return vec![question.open(NOT_RUN), best.open(NOT_RUN)] };
    let is_near = (512..=2048).contains(&least.run.page_bytes);
    let is_best = (is_near || !is_tie(least.elapsed, large.elapsed)).then_some(is_near);
    let ours = format!("least elapsed time at {}", least.run.page_bytes);
    let claims =
        [question.decide(is_less(large.elapsed, small.elapsed), times), best.decide(is_best, ours)];
    let cold = claims.map(|claim| {
        if is_cold {
            let bytes = format!(
                "{} KiB and {} KiB came from the device",
                device(small) >> 10,
                device(large) >> 10
            );
            return if claim.note.is_empty() { claim.note(bytes) } else { claim };
        }
        Claim { verdict: ClaimVerdict::CannotTell, ..claim }.note(warm)
    });
    cold.to_vec()
}
