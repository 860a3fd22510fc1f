//! Numbered pages of one size, some of them in chains, as the files of Kerberos and of Berkeley DB
//! have them.

use splitpoint::Result;

use crate::Source;
use crate::reader::{Budget, Fault, Unit, or_fault};

/// The pages of a file.
#[derive(Debug)]
pub(crate) struct Pages {
    pub(crate) source: Source,
    pub(crate) page_bytes: usize,
}

impl Pages {
    /// Returns the number of pages; the last may be cut short.
    pub(crate) fn count(&self) -> u64 {
        self.source.file_bytes().div_ceil(self.page_bytes as u64)
    }

    /// Returns the number of complete pages.
    pub(crate) fn whole_count(&self) -> u64 {
        self.source.file_bytes() / self.page_bytes as u64
    }

    pub(crate) fn offset_of(&self, page: u64) -> u64 {
        page.saturating_mul(self.page_bytes as u64)
    }

    /// Returns a substitute for the unit that begins on page `number`, if the file ends before
    /// the end of that page.
    pub(crate) fn absent(&self, number: u64) -> Option<Unit> {
        let (offset, bytes) = (self.offset_of(number), self.page_bytes as u64);
        let is_absent = number >= self.whole_count();
        is_absent.then(|| Unit::absent(offset, bytes, self.source.file_bytes()))
    }

    /// Returns a page, which must be in the file completely.
    pub(crate) fn read(&self, number: u64, budget: &Budget) -> Result<Vec<u8>> {
        if let Some(fault) = self.absent(number).and_then(|unit| unit.absence) {
            return Err(fault.into());
        }
        self.read_part(number, budget).map(|(page, _)| page)
    }

    /// Returns a page and the number of its bytes in the file; the others are 0.
    fn read_part(&self, number: u64, budget: &Budget) -> Result<(Vec<u8>, usize)> {
        budget.take(self.page_bytes as u64)?;
        let mut page = vec![0; self.page_bytes];
        let present = self.source.read_at(self.offset_of(number), &mut page)?;
        Ok((page, present))
    }

    /// Visits a chain from page `first` on. `visit` gets each page with its number, and returns the
    /// number of the next.
    ///
    /// # Errors
    ///
    /// A [`Fault`] if the chain is a loop or leads beyond the end of the file; those of `visit`.
    pub(crate) fn walk(
        &self,
        first: u64,
        budget: &Budget,
        mut visit: impl FnMut(u64, &[u8]) -> Result<Option<u64>>,
    ) -> Result<()> {
        let (mut next, mut visited) = (Some(first), Visited::default());
        while let Some(number) = next {
            visited.visit(number, self.offset_of(number))?;
            next = visit(number, &self.read(number, budget)?)?;
        }
        Ok(())
    }

    /// Visits every page from `first` to the end that is not in a hole of the file. `visit` gets
    /// its number, and the number of its bytes in the file.
    pub(crate) fn each(
        &self,
        first: u64,
        budget: &Budget,
        mut visit: impl FnMut(u64, &[u8], usize) -> Result<()>,
    ) -> Result<()> {
        let mut number = first;
        while number < self.count() && !budget.is_spent() {
            let Ok((page, present)) = or_fault(self.read_part(number, budget))? else { break };
            visit(number, &page, present)?;
            number = self.after_hole(number + 1);
        }
        Ok(())
    }

    /// Returns the first page from `number` on that is not in a hole of the file.
    pub(crate) fn after_hole(&self, number: u64) -> u64 {
        let data = self.source.next_data(self.offset_of(number));
        (data / self.page_bytes as u64).max(number)
    }
}

/// Finds out whether a chain of pages is a loop.
///
/// Keeps one page of the chain, and replaces it after 1, 2, 4, 8 ... pages. A loop comes back to the
/// page that is kept, after at most three times as many pages as the chain has.
///
/// # Source
///
/// R. P. Brent, "An improved Monte Carlo factorization algorithm", BIT 20 (1980), section 2.
#[derive(Debug, Default)]
pub(crate) struct Visited {
    kept: Option<u64>,
    /// Pages since the one that is kept, and how many before it is replaced.
    since: u64,
    most: u64,
}

impl Visited {
    /// Takes note of the next page of the chain, at `offset`.
    ///
    /// # Errors
    ///
    /// A [`Fault`] if the chain has come to this page before.
    pub(crate) fn visit(&mut self, page: u64, offset: u64) -> Result<(), Fault> {
        if self.kept == Some(page) {
            return Err(Fault::new("chain of pages, a loop", offset, 1, 2));
        }
        if self.since == self.most {
            (self.kept, self.since, self.most) = (Some(page), 0, (2 * self.most).max(1));
        }
        self.since += 1;
        Ok(())
    }
}

/// Returns the smallest `i` for which `2^i` is `number` or more.
pub(crate) fn ceil_log2(number: u64) -> u32 {
    number.next_power_of_two().ilog2()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_logarithm_is_rounded_up() {
        let logs = [1, 2, 3, 4, 5, 8, 9, 1 << 32].map(ceil_log2);
        assert_eq!(logs, [0, 1, 2, 2, 3, 3, 4, 32]);
    }

    #[test]
    fn a_page_that_is_not_whole_is_not_read() {
        let pages = Pages { source: Source::of_bytes(vec![1; 250]), page_bytes: 100 };
        let budget = Budget::new(&pages.source);
        assert_eq!((pages.count(), pages.whole_count()), (3, 2));
        assert!(pages.read(1, &budget).is_ok() && pages.absent(1).is_none());
        let expected = Fault::new("end of the file", 200, 300, 250);
        assert_eq!(or_fault(pages.read(2, &budget)).unwrap(), Err(expected));
        let mut presents = Vec::new();
        let seen = pages.each(0, &budget, |_, _, present| {
            presents.push(present);
            Ok(())
        });
        seen.unwrap();
        assert_eq!(presents, [100, 100, 50]);
    }

    #[test]
    fn a_loop_is_left() {
        let pages = Pages { source: Source::of_bytes(vec![0; 1000]), page_bytes: 100 };
        let budget = Budget::new(&pages.source);
        let mut turns = 0;
        let walked = pages.walk(3, &budget, |number, _| {
            turns += 1;
            Ok(Some(number ^ 1))
        });
        assert!(walked.is_err());
        assert_eq!(turns, 3);
    }

    #[test]
    fn every_loop_is_found_and_no_other_chain_is_one() {
        for (before, around) in [(0, 1), (0, 7), (5, 1), (9, 3), (2, 100), (1000, 2)] {
            let mut visited = Visited::default();
            let page_of =
                |step| if step < before { step } else { before + (step - before) % around };
            let found = (0..10_000).find(|&step| visited.visit(page_of(step), 0).is_err()).unwrap();
            assert!(found >= before + around, "{before} {around}: {found}");
            assert!(found <= 3 * (before + around), "{before} {around}: {found}");
        }
        let mut visited = Visited::default();
        assert!((0..10_000).all(|page| visited.visit(page, 0).is_ok()));
    }
}
