//! Numbered pages of one size, of which some name the next one of their chain: what the files of
//! Kerberos and of Berkeley DB have in common.

use splitpoint::Result;

use crate::Source;
use crate::old_file::or_fault;
use crate::reader::{Budget, Fault};

/// The pages of a file.
#[derive(Debug)]
pub(crate) struct Pages {
    pub(crate) source: Source,
    pub(crate) page_bytes: usize,
}

impl Pages {
    pub(crate) fn count(&self) -> u64 {
        self.source.file_bytes().div_ceil(self.page_bytes as u64)
    }

    pub(crate) fn offset_of(&self, page: u64) -> u64 {
        page.saturating_mul(self.page_bytes as u64)
    }

    /// Returns a page; one beyond the end of the file is all 0.
    pub(crate) fn read(&self, number: u64, budget: &Budget) -> Result<Vec<u8>> {
        budget.take(self.page_bytes as u64)?;
        let mut page = vec![0; self.page_bytes];
        self.source.read_at(self.offset_of(number), &mut page)?;
        Ok(page)
    }

    /// Visits a chain from page `first` on. `visit` gets each page with its number, and returns the
    /// number of the next.
    ///
    /// # Errors
    ///
    /// A [`Fault`] if the chain has more pages than the file, so that it is a loop; those of `visit`.
    pub(crate) fn walk(
        &self,
        first: u64,
        budget: &Budget,
        mut visit: impl FnMut(u64, &[u8]) -> Result<Option<u64>>,
    ) -> Result<()> {
        let mut next = Some(first);
        for _ in 0..=self.count() {
            let Some(number) = next else { return Ok(()) };
            next = visit(number, &self.read(number, budget)?)?;
        }
        let (at, most) = (self.offset_of(first), self.count());
        Err(Fault::new("pages of a chain", at, most, most + 1).into())
    }

    /// Visits every page from `first` on that is not in a hole of the file, until there is nothing
    /// left to read.
    pub(crate) fn each(
        &self,
        first: u64,
        budget: &Budget,
        mut visit: impl FnMut(u64, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut number = first;
        while number < self.count() && !budget.is_spent() {
            let Ok(page) = or_fault(self.read(number, budget))? else { break };
            visit(number, &page)?;
            let data = self.source.next_data(self.offset_of(number + 1));
            number = (data / self.page_bytes as u64).max(number + 1);
        }
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
    fn a_loop_is_left() {
        let pages = Pages { source: Source::of_bytes(vec![0; 1000]), page_bytes: 100 };
        let budget = Budget::new(&pages.source);
        let mut turns = 0;
        let walked = pages.walk(3, &budget, |number, _| {
            turns += 1;
            Ok(Some(number ^ 1))
        });
        assert!(walked.is_err());
        assert_eq!(turns, 11);
    }
}
