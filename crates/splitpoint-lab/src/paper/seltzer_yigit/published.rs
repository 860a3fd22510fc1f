//! The numbers of Figures 8a and 8b, as printed.

use super::run::{Clock, PaperFigure, PaperTest};

/// One test of Figure 8a or 8b: user, system and elapsed time in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PublishedRow {
    /// Figure 8a or 8b.
    pub figure: PaperFigure,
    /// The test.
    pub test: PaperTest,
    /// The times of the new package.
    pub new: [f64; 3],
    /// The times of ndbm; in memory, of hsearch.
    pub old: [f64; 3],
    /// The improvement in percent as printed.
    pub percent: [i32; 3],
}

const fn row(
    figure: PaperFigure,
    test: PaperTest,
    new: [f64; 3],
    old: [f64; 3],
    percent: [i32; 3],
) -> PublishedRow {
    PublishedRow { figure, test, new, old, percent }
}

use PaperFigure::{Dictionary, Passwd};
use PaperTest::{Create, CreateRead, Read, Sequential, SequentialWithData, Verify};

/// All twelve tests.
pub const PUBLISHED: [PublishedRow; 12] = [
    row(Dictionary, Create, [6.4, 32.5, 90.4], [12.2, 34.7, 99.6], [48, 6, 9]),
    row(Dictionary, Read, [3.4, 1.2, 4.0], [6.1, 15.3, 21.2], [44, 92, 81]),
    row(Dictionary, Verify, [3.5, 1.2, 4.0], [6.3, 15.3, 21.2], [44, 92, 81]),
    row(Dictionary, Sequential, [2.7, 0.7, 3.0], [1.9, 3.9, 5.0], [-42, 82, 40]),
    row(Dictionary, SequentialWithData, [2.7, 0.7, 3.0], [8.2, 4.3, 12.0], [67, 84, 75]),
    row(Dictionary, CreateRead, [6.6, 1.1, 7.8], [17.2, 0.3, 17.0], [62, -266, 54]),
    row(Passwd, Create, [0.2, 0.1, 0.0], [0.4, 1.0, 3.2], [50, 90, 100]),
    row(Passwd, Read, [0.1, 0.1, 0.0], [0.1, 0.4, 0.0], [0, 75, 0]),
    row(Passwd, Verify, [0.1, 0.1, 0.0], [0.2, 0.3, 0.0], [50, 67, 0]),
    row(Passwd, Sequential, [0.1, 0.1, 0.0], [0.0, 0.1, 0.0], [-100, 0, 0]),
    row(Passwd, SequentialWithData, [0.1, 0.1, 0.0], [0.1, 0.1, 0.0], [0, 0, 0]),
    row(Passwd, CreateRead, [0.3, 0.0, 0.0], [0.4, 0.0, 0.0], [25, 0, 0]),
];

impl PublishedRow {
    /// Returns the improvement of one time as it follows from the two printed ones: the difference in
    /// percent of the old one; `None` if that is 0.
    pub fn computed(&self, clock: Clock) -> Option<f64> {
        let [new, old] = [self.new, self.old].map(|times| times[clock as usize]);
        improvement(old, new)
    }
}

/// Returns `100 * (old - new) / old`, the paper's improvement; `None` if `old` is 0.
///
/// # Examples
///
/// ```
/// use splitpoint_lab::paper::seltzer_yigit::improvement;
///
/// assert_eq!(improvement(99.6, 90.4).map(f64::round), Some(9.0));
/// assert_eq!(improvement(0.0, 0.1), None);
/// ```
pub fn improvement(old: f64, new: f64) -> Option<f64> {
    (old > 0.0).then(|| 100.0 * (old - new) / old)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each but two: one is cut instead of rounded, one divides by zero.
    #[test]
    fn the_printed_percentages_follow_from_the_printed_times() {
        let mut odd = Vec::new();
        for row in PUBLISHED {
            for clock in Clock::ALL {
                let printed = row.percent[clock as usize];
                let computed = row.computed(clock).map(|it| it.round() as i32);
                let is_nothing = computed.is_none() && printed == 0;
                if !is_nothing && computed != Some(printed) {
                    odd.push((row.figure, row.test, clock, printed, computed));
                }
            }
        }
        let memory = (Dictionary, CreateRead, Clock::System, -266, Some(-267));
        assert_eq!(odd, [memory, (Passwd, Sequential, Clock::User, -100, None)]);
    }
}
