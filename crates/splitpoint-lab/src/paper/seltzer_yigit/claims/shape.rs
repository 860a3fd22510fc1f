//! Figures 6 and 7: growing from one bucket, and the buffer pool.

use super::{
    Claim, Found, NOT_RUN, Question, all, is_ratio_under, is_under, ratio, seconds, transfers,
};
use crate::number::grouped;
use crate::paper::seltzer_yigit::run::{Measurement, PaperFigure, System};

/// The most that growing may cost to be "little".
const LITTLE: f64 = 1.15;
/// The most that user time may vary to be "virtually insensitive".
const INSENSITIVE: f64 = 1.25;

/// Figure 6.
pub(super) fn growth(found: Found<'_>) -> Vec<Claim> {
    let question = Question {
        figure: PaperFigure::Growth,
        place: "Figure 6",
        name: "growing costs little from fill 8 on",
        words: "once the fill factor is sufficiently high for the page size (8), growing the table dynamically \
                does little to degrade performance",
        check: "at fill factors of 8 and more, growing takes less than 15 % longer than a table of known \
                size",
    };
    let claims = [System::Hash, System::AlgorithmDynahash].map(|system| {
        let ratios = ratios(found, system);
        let high: Vec<_> = ratios.iter().filter(|(fill, ..)| *fill >= 8).collect();
        if high.is_empty() {
            return question.open(match system {
                System::Hash => NOT_RUN,
                _ => "dynahash was not run",
            });
        }
        let holds = all(high.iter().map(|(_, ratio, half)| is_under((*ratio, *half), LITTLE)));
        let ours: Vec<String> = ratios
            .iter()
            .map(|(fill, ratio, half)| format!("{fill}: {ratio:.2} +- {half:.2}"))
            .collect();
        let ours = format!("{}, grown / known: {}", system.name(), ours.join("; "));
        let question = match system {
            System::Hash => question,
            _ => Question { name: "growing dynahash costs little, too", ..question },
        };
        question.decide(holds, ours)
    });
    let mut claims = claims.to_vec();
    claims.push(low_fill(found));
    claims
}

/// Returns fill factor, ratio of the elapsed times, and half of its interval.
fn ratios(found: Found<'_>, system: System) -> Vec<(u32, f64, f64)> {
    let known = found.of(PaperFigure::Growth, system).filter(|it| it.run.is_size_known);
    let ratio_of = |known: &Measurement| {
        let fill = known.run.fill_factor;
        let is_grown = |run: &super::Run| run.fill_factor == fill && !run.is_size_known;
        let grown = found.get(PaperFigure::Growth, system, is_grown)?;
        let (ratio, half) = ratio(grown.elapsed, known.elapsed);
        Some((fill, ratio, half))
    };
    known.filter_map(ratio_of).collect()
}

fn low_fill(found: Found<'_>) -> Claim {
    let question = Question {
        figure: PaperFigure::Growth,
        place: "Figure 6",
        name: "growing costs more at a low fill",
        words: "when the size is not known, a slight performance degradation may be noticed",
        check: "at fill factor 4, growing costs more than at the highest fill factor",
    };
    let ratios = ratios(found, System::Hash);
    match (ratios.first(), ratios.last()) {
        (Some(&(4, low, half)), Some(&(fill, high, other))) if fill > 4 => {
            let ours = format!("{low:.2} +- {half:.2} at 4, {high:.2} +- {other:.2} at {fill}");
            let is_more = is_under((high - low, half.hypot(other)), 0.0);
            question.decide(is_more, ours)
        }
        _ => question.open(NOT_RUN),
    }
}

/// Figure 7.
pub(super) fn pool(found: Found<'_>) -> Vec<Claim> {
    let mut points: Vec<&Measurement> = found.of(PaperFigure::Pool, System::Hash).collect();
    points.sort_by_key(|it| it.run.cache_bytes);
    let place = "Figure 7";
    let none = Question {
        figure: PaperFigure::Pool,
        place,
        name: "no I/O with a pool of 1M",
        words: "with 1M of buffer space, the package performed no I/O for this data set",
        check: "no page is read or written with a pool of 1 MiB",
    };
    let fall = Question {
        figure: PaperFigure::Pool,
        place,
        name: "a larger pool saves time",
        words: "system time and elapsed time are inversely proportional to the size of the buffer pool",
        check: "a larger pool never reads and writes more pages, and elapsed time with 1 MiB is less than \
                half of that without a pool",
    };
    let flat = Question {
        figure: PaperFigure::Pool,
        place,
        name: "user time does not depend on the pool",
        words: "user time is virtually insensitive to the amount of buffer pool available",
        check: "the longest user time is less than 1.25 times the shortest",
    };
    let (Some(least), Some(most)) = (points.first(), points.last()) else {
        return [flat, fall, none].map(|it| it.open(NOT_RUN)).to_vec();
    };
    if least.run.cache_bytes != 0 || most.run.cache_bytes != 1 << 20 {
        return [flat, fall, none].map(|it| it.open(NOT_RUN)).to_vec();
    }
    let by_user =
        |one: &&&Measurement, other: &&&Measurement| one.user.mean.total_cmp(&other.user.mean);
    let low = points.iter().min_by(by_user).map_or(least.user, |it| it.user);
    let high = points.iter().max_by(by_user).map_or(least.user, |it| it.user);
    let is_falling = points.is_sorted_by(|one, other| transfers(one) >= transfers(other));
    let times = format!(
        "{} pages without a pool, {} with 1 MiB; elapsed {} and {}",
        grouped(transfers(least)),
        grouped(transfers(most)),
        seconds(least.elapsed.mean),
        seconds(most.elapsed.mean),
    );
    vec![
        flat.decide(is_ratio_under(high, low, INSENSITIVE), {
            format!("{} to {}", seconds(low.mean), seconds(high.mean))
        }),
        fall.decide(
            all([Some(is_falling), is_ratio_under(most.elapsed, least.elapsed, 0.5)]),
            times,
        ),
        none.answer(transfers(most) == 0, format!("{} pages", grouped(transfers(most)))),
    ]
}
