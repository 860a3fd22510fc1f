//! Figures 8a and 8b: the package beside ndbm and hsearch.

use super::{Claim, Found, Question, all, clock_name, is_less, is_ratio_under, is_tie};
use crate::paper::seltzer_yigit::published::{PUBLISHED, improvement};
use crate::paper::seltzer_yigit::run::{Clock, Measurement, PaperFigure, PaperTest, System};

/// Why nothing can be said without the old system.
const NO_NDBM: &str = "no ndbm is on this machine: install libgdbm-compat4t64 or libgdbm-compat4, or \
                       libdb5.3";
const NO_HSEARCH: &str = "no hsearch is on this machine";

/// The package and the old system in one test.
#[derive(Clone, Copy, Debug)]
struct Pair<'a> {
    new: &'a Measurement,
    old: &'a Measurement,
}

impl<'a> Pair<'a> {
    /// Finds the package and the system that it is compared with, or why there is none.
    fn find(found: Found<'a>, figure: PaperFigure, test: PaperTest) -> Result<Self, &'static str> {
        match test {
            PaperTest::CreateRead => Self::with(found, figure, test, System::Hsearch, NO_HSEARCH),
            _ => Self::with(found, figure, test, System::Ndbm, NO_NDBM),
        }
    }

    fn with(
        found: Found<'a>,
        figure: PaperFigure,
        test: PaperTest,
        old: System,
        why: &'static str,
    ) -> Result<Self, &'static str> {
        let new = found.test(figure, System::Hash, test).ok_or(super::NOT_RUN)?;
        let old = found.test(figure, old, test).ok_or(why)?;
        Ok(Self { new, old })
    }

    fn improvement(self, clock: Clock) -> Option<f64> {
        improvement(self.old.time(clock).mean, self.new.time(clock).mean)
    }

    /// Whether the new one takes less time; unknown if that may be chance.
    fn is_better(self, clock: Clock) -> Option<bool> {
        is_less(self.new.time(clock), self.old.time(clock))
    }

    fn is_worse(self, clock: Clock) -> Option<bool> {
        is_less(self.old.time(clock), self.new.time(clock))
    }

    /// Whether elapsed time improves by more than `percent`.
    fn improves_by(self, percent: f64) -> Option<bool> {
        is_ratio_under(self.new.elapsed, self.old.elapsed, 1.0 - percent / 100.0)
    }

    fn words(self, clock: Clock) -> String {
        let improvement = self.improvement(clock);
        let improvement = improvement.map_or_else(|| "-".to_owned(), |it| format!("{it:+.0} %"));
        let tie = if is_tie(self.new.time(clock), self.old.time(clock)) { ", a tie" } else { "" };
        format!("{} {improvement}{tie}", clock_name(clock))
    }

    fn all_words(self) -> String {
        Clock::ALL.map(|clock| self.words(clock)).join("; ")
    }
}

/// Decides one question about one test.
fn ask<'a>(
    question: Question,
    found: Found<'a>,
    test: PaperTest,
    decide: impl Fn(Pair<'a>) -> (Option<bool>, String),
) -> Claim {
    match Pair::find(found, question.figure, test) {
        Err(why) => question.open(why),
        Ok(pair) => {
            let (holds, ours) = decide(pair);
            question.decide(holds, ours)
        }
    }
}

pub(super) fn dictionary(found: Found<'_>) -> Vec<Claim> {
    let figure = PaperFigure::Dictionary;
    let place = "Figure 8a";
    let claim = |name, words, check, test, decide: fn(Pair<'_>) -> (Option<bool>, String)| {
        ask(Question { figure, place, name, words, check }, found, test, decide)
    };
    let mut claims = vec![
        claim(
            "CREATE: less user time, bound by the disk",
            "CREATE has superior user time, but is dominated by the cost of writing the file",
            "less user time than ndbm, and elapsed time is over twice user time",
            PaperTest::Create,
            |pair| {
                let share = pair.new.elapsed.mean / pair.new.user.mean;
                let ours = format!("{}; elapsed is {share:.1} times user", pair.all_words());
                let is_free = is_ratio_under(pair.new.elapsed, pair.new.user, 2.0);
                (all([pair.is_better(Clock::User), is_free.map(|is_free| !is_free)]), ours)
            },
        ),
        claim(
            "READ is faster by over 80 %",
            "READ benefits from the caching of buckets, by over 80 %",
            "elapsed time improves by over 80 %",
            PaperTest::Read,
            |pair| (pair.improves_by(80.0), pair.all_words()),
        ),
        claim(
            "VERIFY is faster by over 80 %",
            "VERIFY benefits from the caching of buckets, by over 80 %",
            "elapsed time improves by over 80 %",
            PaperTest::Verify,
            |pair| (pair.improves_by(80.0), pair.all_words()),
        ),
        claim(
            "SEQUENTIAL: ndbm takes less user time",
            "SEQUENTIAL without data: ndbm does not return the values, so its user time is lower",
            "more user time than ndbm",
            PaperTest::Sequential,
            |pair| (pair.is_worse(Clock::User), pair.all_words()),
        ),
        claim(
            "SEQUENTIAL with data: all times better",
            "SEQUENTIAL with data: the new package excels in all three timings",
            "less user, system and elapsed time than ndbm",
            PaperTest::SequentialWithData,
            |pair| (all(Clock::ALL.map(|clock| pair.is_better(clock))), pair.all_words()),
        ),
        claim(
            "in memory, faster by over 50 %",
            "in memory, elapsed time improves by over 50 % on hsearch",
            "elapsed time improves by over 50 %",
            PaperTest::CreateRead,
            |pair| (pair.improves_by(50.0), pair.all_words()),
        ),
        claim(
            "in memory, more system time",
            "in memory, the new package pays a small penalty in system time, because it limits its memory",
            "more system time than hsearch",
            PaperTest::CreateRead,
            |pair| (pair.is_worse(Clock::System), pair.all_words()),
        ),
    ];
    claims.push(system_v(found));
    claims.push(nearly_all(found, figure, place));
    claims.push(relatives(found));
    claims.push(intervals(found));
    claims
}

pub(super) fn passwd(found: Found<'_>) -> Vec<Claim> {
    let figure = PaperFigure::Passwd;
    let place = "Figure 8b";
    let create = Question {
        figure,
        place,
        name: "CREATE: less user and system time",
        words: "for the small database, differences in both user and system time contribute to the superior \
                CREATE",
        check: "less user and less system time than ndbm",
    };
    vec![
        ask(create, found, PaperTest::Create, |pair| {
            (all([Clock::User, Clock::System].map(|clock| pair.is_better(clock))), pair.all_words())
        }),
        nearly_all(found, figure, place),
    ]
}

/// The test in memory beside the algorithm that System V had.
fn system_v(found: Found<'_>) -> Claim {
    let question = Question {
        figure: PaperFigure::Dictionary,
        place: "Figure 8a",
        name: "the same beside System V's algorithm",
        words: "in memory, elapsed time improves by over 50 % on hsearch",
        check: "elapsed time improves by over 50 % on algorithm:hsearch, System V's as it is compiled by \
                default",
    };
    let why = "algorithm:hsearch was not run";
    let pair = Pair::with(
        found,
        PaperFigure::Dictionary,
        PaperTest::CreateRead,
        System::AlgorithmHsearch,
        why,
    );
    match pair {
        Err(why) => question.open(why),
        Ok(pair) => question.decide(pair.improves_by(50.0), pair.all_words()),
    }
}

/// Counts the times that improve.
fn nearly_all(found: Found<'_>, figure: PaperFigure, place: &'static str) -> Claim {
    let question = Question {
        figure,
        place,
        name: "better in nearly all cases",
        words: "in nearly all cases, the new routines perform better than the old",
        check: "of the printed improvements that are not 0, four in five have the same sign",
    };
    let (mut same, mut total, mut ties) = (0, 0, 0);
    let mut other = Vec::new();
    for row in PUBLISHED.iter().filter(|row| row.figure == figure) {
        let Ok(pair) = Pair::find(found, figure, row.test) else { continue };
        for clock in Clock::ALL {
            let printed = row.percent[clock as usize];
            match pair.is_better(clock) {
                _ if printed == 0 => {}
                None => ties += 1,
                Some(is_better) => {
                    total += 1;
                    if (printed > 0) == is_better {
                        same += 1;
                    } else {
                        other.push(format!("{} {}", row.test.name(), clock.name()));
                    }
                }
            }
        }
    }
    if total + ties == 0 {
        return question.open(NO_NDBM);
    }
    let not = if other.is_empty() { String::new() } else { format!("; not {}", other.join(", ")) };
    let ours = format!("{same} of {total}, and {ties} ties{not}");
    // The ties could all be of the same sign, or none.
    let holds = [same, same + ties].map(|same| 5 * same >= 4 * (total + ties));
    question.decide((holds[0] == holds[1]).then_some(holds[0]), ours)
}

/// "Based on the designs of sdbm and gdbm, they are expected to perform similarly to ndbm."
fn relatives(found: Found<'_>) -> Claim {
    let question = Question {
        figure: PaperFigure::Dictionary,
        place: "Relative performance",
        name: "sdbm and gdbm are like ndbm",
        words: "based on their designs, sdbm and gdbm are expected to perform similarly to ndbm",
        check: "the algorithms, in memory pages, take between half and twice the user time of dbm's to CREATE and \
                to READ",
    };
    let user = |system: System, test: PaperTest| {
        found.test(PaperFigure::Dictionary, system, test).map(|it| it.user.mean)
    };
    let mut ours = Vec::new();
    let mut holds = true;
    for (system, name) in [(System::AlgorithmSdbm, "sdbm"), (System::AlgorithmGdbm, "gdbm")] {
        for test in [PaperTest::Create, PaperTest::Read] {
            let (Some(dbm), Some(time)) = (user(System::AlgorithmNdbm, test), user(system, test))
            else {
                return question.open("the algorithms were not run");
            };
            let ratio = time / dbm;
            holds &= (0.5..=2.0).contains(&ratio);
            ours.push(format!("{name} {}: {ratio:.2}", test.name()));
        }
    }
    question.answer(holds, ours.join("; "))
}

/// "Approximately 1 % of the average yielding 95 % confidence intervals of approximately 2 %."
fn intervals(found: Found<'_>) -> Claim {
    let question = Question {
        figure: PaperFigure::Dictionary,
        place: "Relative performance",
        name: "intervals of 2 %",
        words: "the 95 % intervals of the five runs are approximately 2 %",
        check: "the median interval of the elapsed times of Figure 8a is 2 % or less",
    };
    let mut halves: Vec<f64> = found
        .0
        .iter()
        .filter(|it| it.run.figure == PaperFigure::Dictionary && it.samples.len() > 1)
        .map(|it| 100.0 * it.elapsed.half_interval / it.elapsed.mean.max(f64::MIN_POSITIVE))
        .collect();
    halves.sort_by(f64::total_cmp);
    match halves.get(halves.len() / 2) {
        None => question.open(super::NOT_RUN),
        Some(median) => question
            .answer(*median <= 2.0, {
                format!("{median:.1} %, the largest {:.1} %", halves[halves.len() - 1])
            })
        .note("the interval of a mean: Student's quantile times the deviation over the root of the runs"),
    }
}
