//! What happens meanwhile: a test can have another handle change the file at a point of a call, as another
//! process might right there. In any other build the points are empty calls, and nothing is left of them.

/// A point of a call at which another process may change the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Point {
    /// A reader has found where the segment table is, and has not read it.
    TableFound,
    /// The segments were looked at once; the commit is not loaded.
    SegmentsLookedAt,
    /// The commit is loaded; the segments were not looked at again.
    CommitLoaded,
    /// An opening after a kill has verified the end of the log, and has not looked at the index.
    LogVerified,
    /// The first change of a new store has reserved a segment for the log, which no superblock names yet.
    LogReserved,
    /// A handle has made a list of segments from its own table, and does not remember it yet.
    ListMade,
    /// A handle has the list of its own last turn; the commit is not loaded.
    ListKnown,
    /// A sync by turns has loaded the commit, and has not read the log.
    SyncBegun,
    /// A handle by turns waits for the place of the writer, and has not tried to take it again.
    PlaceWanted,
    /// A handle by turns is about to flush what it made in a turn, and has none.
    BeforeFlush,
    /// It has flushed that, and does not remember it yet.
    BehindFlush,
}

/// Lets happen what a test has asked for.
#[cfg(not(all(test, not(loom))))]
#[inline(always)]
pub(crate) fn at(_: Point) {}
#[cfg(all(test, not(loom)))]
pub(crate) use switch::{at, with};

#[cfg(all(test, not(loom)))]
mod switch {
    use std::cell::RefCell;

    use super::Point;

    type Change = Box<dyn FnMut(Point)>;

    thread_local! {
        static CHANGE: RefCell<Option<Change>> = const { RefCell::new(None) };
    }

    pub(crate) fn at(point: Point) {
        // What the change itself calls is not interrupted.
        let Some(mut change) = CHANGE.take() else { return };
        change(point);
        CHANGE.set(Some(change));
    }

    /// Runs `what` on this thread, and `change` at each point that it comes to.
    pub(crate) fn with<T>(change: impl FnMut(Point) + 'static, what: impl FnOnce() -> T) -> T {
        CHANGE.set(Some(Box::new(change)));
        let _end = End;
        what()
    }

    /// Ends the changes, also behind a panic.
    struct End;

    impl Drop for End {
        fn drop(&mut self) {
            // A handle that the change has is closed by its drop, and comes to points too.
            drop(CHANGE.take());
        }
    }
}
