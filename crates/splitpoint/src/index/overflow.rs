//! The pool of free overflow lines.

use super::line::LineNumber;

/// Lends overflow lines to chains and takes them back.
pub(crate) trait LinePool {
    /// Takes a line, empty; `None` if there is no more.
    fn take(&mut self) -> Option<LineNumber>;

    /// Frees a line that no chain has any more. Its content stays until it is taken again.
    fn give(&mut self, line: LineNumber);

    /// Returns how many lines can be taken.
    fn free_count(&self) -> u64;
}
