//! Which lines of a window are in which of its index extents, here called pieces. Pure.
//!
//! A table doubles in eight steps, one piece each, so that it never needs much space at once. The
//! size of a piece and its offset in the window follow from its number.

use crate::format::GRANULE_BYTES;
use crate::index::line::LINE_BYTES;

/// Lines of the first pieces, which have one granule each.
const LINES_MIN: u64 = GRANULE_BYTES / LINE_BYTES;

/// Largest number of pieces of a window: the live header has a word for each.
pub(crate) const PIECE_COUNT_MAX: usize = 192;

/// A piece of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Number of its first line in the window.
    pub(crate) first_line: u64,
    /// Number of its lines.
    pub(crate) line_count: u64,
}

impl Piece {
    /// Returns its size in granules.
    pub(crate) fn granule_count(self) -> u64 {
        self.line_count / LINES_MIN
    }
}

/// Returns piece number `piece` of a window: an eighth of a doubling, and at least one granule.
pub(crate) fn piece_of(piece: usize) -> Piece {
    let piece = piece as u64;
    let Some(later) = piece.checked_sub(8) else {
        return Piece { first_line: piece * LINES_MIN, line_count: LINES_MIN };
    };
    let (generation, eighth) = (later / 8, later % 8);
    let line_count = LINES_MIN << generation;
    Piece { first_line: (8 + eighth) * line_count, line_count }
}

/// Returns the number of lines of the first `piece_count` pieces.
pub(crate) fn lines_of(piece_count: usize) -> u64 {
    piece_of(piece_count).first_line
}

/// Returns the number of pieces that it takes for `line_count` lines. An opening after a kill asks for each line that
/// it reads.
pub(crate) fn piece_count_for(line_count: u64) -> usize {
    let Some(last) = line_count.div_ceil(LINES_MIN).checked_sub(1) else { return 0 };
    // The piece with the last granule.
    let generation = u64::from((last / 8).checked_ilog2().unwrap_or(0));
    (8 * generation + (last >> generation)) as usize + 1
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn pieces_follow_each_other_in_eighths_of_a_doubling() {
        let mut line = 0;
        for number in 0..piece_count_for(1 << 32) {
            let piece = piece_of(number);
            assert_eq!(piece.first_line, line, "piece {number}");
            line += piece.line_count;
            assert!(piece.line_count <= (piece.first_line / 8).max(LINES_MIN));
        }
        assert_eq!(line, 1 << 32);
        assert!(piece_count_for(1 << 32) <= PIECE_COUNT_MAX);
        assert_eq!((piece_count_for(0), piece_count_for(1), piece_count_for(65)), (0, 1, 2));
    }

    #[test]
    fn a_number_of_lines_takes_the_pieces_up_to_its_last_line() {
        for number in 0..PIECE_COUNT_MAX {
            let Piece { first_line, line_count } = piece_of(number);
            assert_eq!(piece_count_for(first_line), number);
            for lines in [1, 2, line_count / 2 + 1, line_count] {
                assert_eq!(piece_count_for(first_line + lines), number + 1, "{lines} of {number}");
            }
        }
        assert!(piece_count_for(u64::MAX) > PIECE_COUNT_MAX, "no number fails");
    }
}
