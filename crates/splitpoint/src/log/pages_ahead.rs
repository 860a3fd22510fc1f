//! Prefaults the pages that a table in memory will reach next.

use std::collections::VecDeque;

use crate::prefaulter::Ticket;
use crate::region::Region;
use crate::storage::HUGE_BYTES;

/// Largest number of bytes that are prefaulted, and their share of the table.
const AHEAD_BYTES_MAX: u64 = 4 << 20;
const AHEAD_SHARE: u64 = 8;
/// Size of a table from which that share is at least one huge page. A smaller table would occupy
/// more memory than it uses, and a process with ten thousand of them would have as many threads.
const AHEAD_FROM: u64 = AHEAD_SHARE * HUGE_BYTES;

/// Huge pages after the end of a table in memory, which a thread faults in before the table reaches
/// them. In a virtual machine whose host has to find the memory, each fault takes milliseconds.
#[derive(Debug, Default)]
pub(super) struct PagesAhead {
    /// Address of the view when the pages were requested.
    base: usize,
    /// Offset up to which pages were requested.
    end: u64,
    /// Ends of the pages that the thread may still be faulting in, in order.
    asked: VecDeque<(u64, Ticket)>,
}

impl PagesAhead {
    /// Has the thread fault in the next pages.
    pub(super) fn take(&mut self, region: &Region) {
        let storage = region.storage();
        let (base, file_bytes) = (storage.view().base.addr(), storage.file_bytes());
        if !storage.is_volatile() || file_bytes < AHEAD_FROM {
            return;
        }
        if self.base != base {
            // The view has moved; the old pages get no more records.
            *self = Self { base, ..Self::default() };
        }
        let share = file_bytes / AHEAD_SHARE / HUGE_BYTES * HUGE_BYTES;
        let ahead_bytes = share.min(AHEAD_BYTES_MAX);
        // A table that has shrunk may grow over the same pages again.
        let next = file_bytes.next_multiple_of(HUGE_BYTES);
        self.end = self.end.clamp(next, next + AHEAD_BYTES_MAX);
        while self.end < file_bytes + ahead_bytes {
            let Some(pages) = storage.pages_behind(self.end, HUGE_BYTES) else { return };
            self.end += HUGE_BYTES;
            let ticket = region.prefaulter().ask(Box::new(move || pages.fault_in()));
            self.asked.push_back((self.end, ticket));
        }
    }

    /// Returns the offset up to which pages were requested.
    #[cfg(test)]
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Waits until the requested pages that begin before `offset` are faulted in.
    pub(super) fn finish(&mut self, offset: u64, region: &Region) {
        if self.base != region.storage().view().base.addr() {
            // The view has moved, so the old pages no longer matter.
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
