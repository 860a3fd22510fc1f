//! Lever's five histograms of 2000, from the rows alone.
//!
//! # Source
//!
//! Lever, "Linux kernel hash table behavior: analysis and improvements", 2000.

use std::collections::BTreeMap;

use splitpoint::stats::Ideal;

use super::Row;
use crate::occupancy::Occupancy;

/// A histogram as the kernel printed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Histogram {
    pub(crate) bucket_count: u64,
    pub(crate) object_count: u64,
    pub(crate) largest: u64,
    /// Size, buckets, items and cumulative percent of sizes 0 to 15.
    pub(crate) rows: Vec<[u64; 4]>,
    /// Buckets and items of larger sizes.
    pub(crate) larger: [u64; 2],
}

const TEXTS: [&str; 5] = [
    include_str!("../../data/lever-2000/histogram-1.txt"),
    include_str!("../../data/lever-2000/histogram-2.txt"),
    include_str!("../../data/lever-2000/histogram-3.txt"),
    include_str!("../../data/lever-2000/histogram-4.txt"),
    include_str!("../../data/lever-2000/histogram-5.txt"),
];

impl Histogram {
    /// Returns histogram `number`, from 1 to 5.
    pub(crate) fn of_paper(number: usize) -> Self {
        Self::parse(TEXTS[number - 1])
    }

    fn parse(text: &str) -> Self {
        let mut histogram =
            Self { bucket_count: 0, object_count: 0, largest: 0, rows: Vec::new(), larger: [0; 2] };
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let number = |at: usize| words[at].parse().expect("the data hold numbers");
            match words[..] {
                ["#", "buckets", _] => histogram.bucket_count = number(2),
                ["#", "objects", _] => histogram.object_count = number(2),
                ["#", "largest", _] => histogram.largest = number(2),
                ["#", ..] => {}
                [">15", ..] => histogram.larger = [number(1), number(2)],
                _ => histogram.rows.push([number(0), number(1), number(2), number(3)]),
            }
        }
        histogram
    }

    fn items(&self) -> u64 {
        self.rows.iter().map(|row| row[2]).sum::<u64>() + self.larger[1]
    }

    pub(crate) fn buckets(&self) -> u64 {
        self.rows.iter().map(|row| row[1]).sum::<u64>() + self.larger[0]
    }

    pub(crate) fn empty_buckets(&self) -> u64 {
        self.rows.iter().find(|row| row[0] == 0).map_or(0, |row| row[1])
    }

    /// Returns the number of rows whose items or percentage do not follow from the others.
    fn wrong_rows(&self) -> u64 {
        let mut items_so_far = 0;
        let mut wrong = 0;
        for &[size, buckets, items, percent] in &self.rows {
            items_so_far += items;
            let is_right =
                items == size * buckets && percent == 100 * items_so_far / self.object_count;
            wrong += u64::from(!is_right);
        }
        wrong
    }

    /// Returns the sizes of the buckets, if none is larger than the rows tell.
    fn occupancy(&self) -> Option<Occupancy> {
        let by_size: BTreeMap<u64, u64> = self.rows.iter().map(|row| (row[0], row[1])).collect();
        (self.larger == [0; 2]).then(|| Occupancy::uniform(by_size))
    }
}

const SOURCE: &str = "Lever 2000";

pub(super) fn rows() -> Vec<Row> {
    let row = |what: String, published: u64, computed| Row::new(SOURCE, what, published, computed);
    let mut rows = Vec::new();
    for (number, objects) in (1..).zip([37_256, 2644, 37_261, 2717, 9785]) {
        let histogram = Histogram::of_paper(number);
        let what = |what: &str| format!("Histogram {number}: {what}");
        rows.push(row(what("sum of the items"), objects, histogram.items()));
        rows.push(row(what("sum of the buckets"), histogram.bucket_count, histogram.buckets()));
        rows.push(row(what("rows that do not add up"), 0, histogram.wrong_rows()));
        if let Some(occupancy) = histogram.occupancy() {
            rows.push(row(what("largest bucket"), histogram.largest, occupancy.longest()));
        }
    }
    rows.extend(statistics());
    rows
}

/// What the paper did not compute: both statistics of Histogram 3, and the ideal of Histogram 5.
fn statistics() -> Vec<Row> {
    let third = Histogram::of_paper(3).occupancy().expect("all rows are there");
    let chi_square = third.chi_square().expect("16,384 buckets");
    let fit = third.fit().expect("many sizes");
    let fifth = Histogram::of_paper(5);
    let longest = Ideal::uniform(fifth.bucket_count, fifth.object_count).longest_mean();
    let reduced = format!("{:.3}", chi_square.value / chi_square.dof);
    vec![
        Row::new(SOURCE, "Histogram 3: chi-square per degree of freedom", "1.003", reduced),
        Row::new(SOURCE, "Histogram 3: its p", "0.40", format!("{:.2}", chi_square.p)),
        // By classes of 5 buckets or more it is 1e-75; with one class for all sizes over 6, 1e-67.
        Row::new(
            SOURCE,
            "Histogram 3: p of the sizes against Poisson is below 1e-60",
            "true",
            (fit.p < 1e-60).to_string(),
        ),
        Row::new(SOURCE, "Histogram 5: largest bucket", 54, fifth.largest),
        Row::new(
            SOURCE,
            "Histogram 5: largest bucket expected of an ideal hash",
            "56.8",
            format!("{longest:.1}"),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_that_does_not_add_up_is_seen() {
        let text = "# objects 10\n0 5 0 0\n1 4 4 40\n2 3 6 100\n>15 0 0 100\n";
        assert_eq!(Histogram::parse(text).wrong_rows(), 0);
        assert_eq!(Histogram::parse(&text.replace("4 4 40", "4 4 41")).wrong_rows(), 1);
        assert_eq!(Histogram::parse(&text.replace("2 3 6", "2 4 6")).wrong_rows(), 1);
    }
}
