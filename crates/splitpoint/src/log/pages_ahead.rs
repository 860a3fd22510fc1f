//! The pages that a table in memory comes to next.

use std::collections::VecDeque;

use crate::prefaulter::Ticket;
use crate::region::Region;
use crate::storage::HUGE_BYTES;

/// Bytes that are taken ahead at most, and the share of the table that they are.
const AHEAD_BYTES_MAX: u64 = 4 << 20;
const AHEAD_SHARE: u64 = 8;
/// Size of a table of which one huge page is that share. A smaller one would take up more than it uses, and
/// a process with ten thousand of them would have as many threads.
const AHEAD_FROM: u64 = AHEAD_SHARE * HUGE_BYTES;

/// Huge pages behind the end of a table in memory, whose faults a thread takes before the table gets there.
/// Where the host of a virtual machine has to find the memory, each takes milliseconds.
#[derive(Debug, Default)]
pub(super) struct PagesAhead {
    /// Where the view was when they were asked for.
    base: usize,
    /// Up to which offset they were.
    end: u64,
    /// Where pages end that the thread may still be taking, in order.
    asked: VecDeque<(u64, Ticket)>,
}

impl PagesAhead {
    /// Has the thread take the next ones.
    pub(super) fn take(&mut self, region: &Region) {
        let storage = region.storage();
        let (base, file_bytes) = (storage.view().base.addr(), storage.file_bytes());
        if !storage.is_volatile() || file_bytes < AHEAD_FROM {
            return;
        }
        if self.base != base {
            // What the table has outgrown gets no more records.
            *self = Self { base, ..Self::default() };
        }
        let share = file_bytes / AHEAD_SHARE / HUGE_BYTES * HUGE_BYTES;
        let ahead_bytes = share.min(AHEAD_BYTES_MAX);
        // A table that was cut may grow over the same pages again.
        let next = file_bytes.next_multiple_of(HUGE_BYTES);
        self.end = self.end.clamp(next, next + AHEAD_BYTES_MAX);
        while self.end < file_bytes + ahead_bytes {
            let Some(pages) = storage.pages_behind(self.end, HUGE_BYTES) else { return };
            self.end += HUGE_BYTES;
            let ticket = region.prefaulter().ask(Box::new(move || pages.fault_in()));
            self.asked.push_back((self.end, ticket));
        }
    }

    /// Returns up to which offset pages were asked for.
    #[cfg(test)]
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Returns when those that begin before `offset` are there.
    pub(super) fn finish(&mut self, offset: u64, region: &Region) {
        if self.base != region.storage().view().base.addr() {
            // The table has moved, and does not come to those pages.
            self.asked.clear();
        }
        while let Some(&(end, ticket)) = self.asked.front()
            && end - HUGE_BYTES < offset
        {
            self.asked.pop_front();
            region.prefaulter().finish(ticket);
        }
    }
}
