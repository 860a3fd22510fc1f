//! Mistakes that the sweeps of `testing::crash_tests`, or loom, must find: a test can ask the engine
//! to make one. In any other build the hooks are constants, and nothing is left of them.
//!
//! # Not here
//!
//! A sync or a write that the engine forgets: the simulated machine leaves it out, see
//! `storage::sim::Omission`.

/// A mistake that could be made in the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// A handle that takes turns keeps its place although another one wants it.
    KeepsWantedPlace,
    /// A turn gives back all that it frees, while the others wait.
    CoolsAllInTurn,
    /// The pins of other handles are not looked at before space is used again.
    OverlooksPins,
    /// The counts in a place are erased although its owner lives.
    ErasesLivingPlaces,
    /// The counts in a place count although its owner is dead.
    SparesDeadPlaces,
    /// A reader takes a place that has an owner.
    TakesTakenPlace,
    /// A slot is stored before the record that it names.
    SlotBeforeRecord,
    /// A split leaves the slots that have moved in the old bucket as well.
    MoversStay,
    /// Recovery says that the tables are whole before it builds them.
    WholeBeforeBuilt,
    /// Recovery uses records whatever their checksum.
    AnyChecksum,
    /// Recovery goes on with the log one record behind the commit of the checkpoint.
    ReplaysTooLate,
    /// Opening trusts the tables of a killed writer although they do not agree with the log.
    TrustsOldTables,
    /// The first change of a new store reserves a segment while the superblock says "clean".
    ReservesWhileClean,
    /// The first sync of a new store leaves its superblocks out.
    SyncsWithoutSuperblocks,
    /// Opening trusts the index of a small store that was closed without its checksum.
    TrustsIndexUnread,
    /// Opening goes on with the log of such a store without a look at what is behind its end.
    TrustsLogUnread,
    /// A superblock is written over the only copy that is durable.
    LosesBothSuperblocks,
    /// A handle that has synced a superblock takes a newer one of another handle for durable.
    TakesNewestForDurable,
    /// Opening trusts tables by lines that it has read from whatever file has the descriptor now.
    BelievesStrangers,
    /// Opening takes the last handle that took turns for one that was closed in order.
    TrustsLastTurns,
    /// Compaction takes a segment for emptied before it has read all of it.
    EmptiesUnread,
    /// Compaction takes a segment for emptied, unread, of which no byte is counted as live.
    FreesByCount,
    /// Space is used again while a borrowed value may be there.
    ReusesPinned,
    /// A scan takes every record for the version of its key.
    TakesAllForVersions,
    /// Space is used again that a scan has yet to read.
    ReusesUnderScan,
    /// A record that is moved under a scan does not name the one that it was.
    MovesWithoutName,
    /// A delete under a snapshot leaves no grave.
    LeavesNoGrave,
    /// The moments of other processes are looked at before those are published that were being taken.
    LooksAtMomentsAtOnce,
    /// Space is used again one grace period after nobody in another process looks back to it.
    OneGraceForMoments,
    /// A round of looks at moments leaves it at what the rounds before it have found.
    KeepsLargestBelow,
    /// A snapshot beside a writer takes every dead big record that a later change seems to name for one that
    /// was there.
    NamesDeadBigsAgain,
    /// The round of looks frees what was emptied while it was under way.
    ForgetsRounds,
    /// Space is used again that a snapshot of another process has yet to read.
    ForgetsMoments,
    /// A snapshot of another process does not tell the writer that there are any.
    HidesMoments,
    /// A snapshot beside a writer takes the last commit for all that was deleted.
    ReadsCommitsOnly,
    /// A transaction commits whatever has become of what it has read.
    CommitsBlindly,
    /// The slots of a large transaction are stored before the log commits it.
    PublishesUncommitted,
    /// The big records of a batch that nothing commits count as live when the store is opened.
    KeepsAbandonedBigs,
    /// A reader shows the change in which a process was killed, as far as its slots are stored.
    ShowsUnfinished,
    /// A big record that was there before is taken for the one that the log names.
    TakesOlderBigs,
    /// A big record that was written for the same place in the log is taken for the one that was named.
    IgnoresSaltOfBigs,
    /// Records that were moved later to the place of others are taken for those that the log names.
    TakesOtherCopies,
    /// What names copies has no checksum over theirs: no mistake, but what earlier builds have written.
    NamesUnchecked,
    /// What names copies without a checksum over theirs ends the log.
    RefusesUnchecked,
    /// A large batch is made while changes before it are not durable.
    LeavesEarlierUnsafe,
    /// Changes pay for segments that are emptied and wait.
    PaysForWaiting,
    /// No checkpoint is made for what waits: it comes with the bytes of the log.
    LetsWaitingGrow,
    /// A grace period looks only at the pins of the parity that it has left.
    OneLookAtPins,
    /// The granules of an index piece are free while the live header still lists the piece.
    FreesPieceFirst,
    /// A table that has shrunk gives back the piece that its last bucket is in.
    GivesBackUsedPiece,
    /// A segment is emptied before the log says that its dead records are gone.
    RetiresUncommitted,
    /// A close compacts as much as it finds.
    PacksBeyondBudget,
    /// A close gives back the pages of what it frees one segment after the other, before it cuts the file.
    PunchesBeforeCut,
    /// An index piece is shown from a new place to which its lines were not copied.
    MovesPieceUncopied,
    /// Space is used again when one superblock names a checkpoint that does not need it.
    OneSuperblock,
    /// A checkpoint by turns goes on before what it waits for is durable.
    NamesUnsynced,
    /// A superblock names an image that another handle has freed meanwhile.
    NamesWhatWasFreed,
    /// Whoever opens the store frees the checkpoint that another handle has on its way.
    FreesPendingAtOpen,
    /// Maintenance does not begin to compact beside a checkpoint on its way.
    WaitsForPending,
    /// Space is used again before the log says durably that it is empty.
    ReusesUndurable,
    /// Space is used again that a replay of the log reads.
    ReusesReplayed,
    /// Slots lead to copies that the log does not name.
    MovesUnnamed,
    /// A sync leaves out the copies that the log names.
    SyncsWithoutCopies,
    /// Puts go on where the reserve is not whole.
    PutsTakeReserve,
    /// What was taken of the reserve is not held back again.
    RefillsNothing,
    /// A place for a checkpoint that has become too small for the next one is free for all.
    PlacesBecomeSegments,
    /// A sync by turns leaves out the LINK that leads to the segment of the first copies.
    SyncsWithoutLinks,
    /// A handle that takes turns syncs the last segment of the log alone.
    SyncsTailAlone,
    /// A call waits for a lock of the whole file that its own program has.
    MeetsOwnLock,
    /// All open files have one mark, so the number of one that leads to another counts as its own.
    SharesMarks,
    /// A reader goes on although its pin was refused.
    ReadsUnpinned,
    /// A cursor returns the keys that it has read ahead although the store has changed since.
    TrustsKeysAhead,
    /// What was found without a pin counts although another handle has had a turn meanwhile.
    TrustsGlances,
    /// A reader believes a segment table although a writer has moved it meanwhile.
    ReadsMovedTable,
    /// A snapshot takes the segments of the handle's last turn for those of now.
    TrustsKnownSegments,
    /// A list of segments counts although another handle has had a turn meanwhile.
    CountsListsAnyway,
    /// A look at the segments overlooks one that began since the first look and is dead again.
    OverlooksShortLived,
    /// Turns of one handle leave the same word.
    RepeatsTurnWord,
    /// A file is cut although others may look at its end without a pin.
    CutsUnderGlances,
    /// A sample of chains counts although its buckets were split or merged meanwhile.
    SamplesAcrossSplits,
    /// A close gives back all that is free, whether deletes may need it or not.
    GivesReserveBack,
    /// A claim has no lock while a descriptor of its file is closed.
    ClosesUnguarded,
    /// A child of a fork ends the close of its parent.
    EndsCloseOfParent,
    /// A child of a fork uses the list of claims of its parent.
    UsesListOfParent,
    /// Compaction finds nothing to do.
    NeverCompacts,
}

/// Returns whether the engine makes this mistake now: never, but in a test that asks for it.
#[cfg(not(test))]
#[inline(always)]
pub(crate) fn is_made(_: Mutant) -> bool {
    false
}
/// Returns what a thread that is started now is to run.
#[cfg(not(test))]
#[inline(always)]
pub(crate) fn inherited(run: impl FnOnce() + Send) -> impl FnOnce() + Send {
    run
}
#[cfg(test)]
pub(crate) use switch::{inherited, is_made, with};

#[cfg(test)]
mod switch {
    use std::cell::Cell;

    use super::Mutant;

    thread_local! {
        static MADE: Cell<Option<Mutant>> = const { Cell::new(None) };
    }

    pub(crate) fn is_made(mutant: Mutant) -> bool {
        MADE.get() == Some(mutant)
    }

    /// Returns `run` for a thread of an engine that makes the mistakes of this one.
    pub(crate) fn inherited(run: impl FnOnce() + Send) -> impl FnOnce() + Send {
        let made = MADE.get();
        move || {
            MADE.set(made);
            run();
        }
    }

    /// Runs `what` on this thread with an engine that makes a mistake, one at a time.
    pub(crate) fn with<T>(mutant: Mutant, what: impl FnOnce() -> T) -> T {
        let before = MADE.replace(Some(mutant));
        let _end = End;
        assert_eq!(before, None, "two mistakes do not nest");
        what()
    }

    /// Ends the mistake, also behind a panic.
    struct End;

    impl Drop for End {
        fn drop(&mut self) {
            MADE.set(None);
        }
    }

    #[test]
    fn a_mistake_ends_with_a_panic_and_has_no_other_within() {
        let nested = || with(Mutant::MoversStay, || with(Mutant::AnyChecksum, || ()));
        assert!(std::panic::catch_unwind(nested).is_err());
        assert!(!is_made(Mutant::MoversStay) && !is_made(Mutant::AnyChecksum));
    }
}
