//! What a writer does: its turn, changes, compaction, syncs, checkpoints.

use crate::{
    Action, Canary, Checkpoint, Grace, Making, Model, Period, Place, SEGMENTS, Slot, State, Step,
    TURNS_IN_ROW, Use, Waiting, Word, Writer,
};

impl Model {
    /// Lists what writer `w` may do next.
    pub(crate) fn writer_actions(&self, state: &State, w: u8, actions: &mut Vec<Action>) {
        let writer = &state.writers[usize::from(w)];
        if !writer.is_alive {
            return;
        }
        let is_free = state.place.is_none() || self.is_made(Canary::PlaceTakenWithoutLock);
        match writer.step {
            Step::Idle if writer.turns_left > 0 => actions.push(Action::WantTurn(w)),
            Step::GivesWay if state.gives_way_no_more(w) => actions.push(Action::GoOn(w)),
            Step::Tries | Step::Waits if is_free => actions.push(Action::TakePlace(w)),
            Step::Tries => actions.push(Action::SayWanted(w)),
            Step::Waits if !state.file.is_wanted => actions.push(Action::SayWanted(w)),
            Step::Idle | Step::GivesWay | Step::Waits => {}
            Step::Placed => actions.push(Action::BeginTurn(w)),
            Step::Found(_) => actions.push(Action::TakeOver(w)),
            Step::Turn => self.turn_actions(state, w, actions),
            Step::Appended => actions.push(Action::StoreSlot(w)),
            Step::Stored(_) => actions.push(Action::Commit(w)),
            Step::Ended => {
                actions.push(Action::GiveUpPlace(w));
                if self.may_keep(state, writer) {
                    actions.push(Action::KeepPlace(w));
                }
            }
            Step::Kept => self.kept_actions(state, w, actions),
            Step::GaveUp => actions.push(Action::SayEnded(w)),
        }
        // A sync needs no turn.
        if writer.syncing.is_some() {
            actions.push(Action::EndSync(w));
        } else if matches!(writer.step, Step::Idle | Step::Turn)
            && state.ghost.syncs_left > 0
            && state.file.durable < state.file.committed
        {
            actions.push(Action::BeginSync(w));
        }
        let is_between = matches!(writer.step, Step::Idle | Step::Kept);
        if self.is_by_turns() && is_between && writer.making.is_unsynced() {
            actions.push(Action::SyncCheckpoint(w));
        }
        if state.ghost.deaths_left > 0 {
            actions.push(Action::KillWriter(w));
        }
    }

    /// `Store::keeps_place`: not if another wants the place, and the turns in a row are over.
    fn may_keep(&self, state: &State, writer: &Writer) -> bool {
        let is_due = state.file.is_wanted && writer.in_row >= TURNS_IN_ROW;
        !is_due || self.is_made(Canary::WantedPlaceKept)
    }

    /// Lists what a writer may do that keeps the place between its turns. Its keeper gives it up when no
    /// change is made, at any time; if another wants it, at once after the turns in a row.
    fn kept_actions(&self, state: &State, w: u8, actions: &mut Vec<Action>) {
        let writer = &state.writers[usize::from(w)];
        if writer.turns_left > 0 {
            actions.push(Action::WantTurn(w));
        }
        if !state.file.is_wanted || !self.is_made(Canary::WantedPlaceKept) {
            actions.push(Action::GiveUpPlace(w));
        }
    }

    /// Lists what a writer may do in its turn, when nothing is half made.
    fn turn_actions(&self, state: &State, w: u8, actions: &mut Vec<Action>) {
        let State { file, ghost, .. } = state;
        let writer = &state.writers[usize::from(w)];
        match writer.making {
            // The checkpoint of another handle is left alone for a while, or given up.
            Making::None if ghost.checkpoints_left > 0 => {
                let is_pending = file.pending().is_some();
                let begin = if is_pending { Action::FreePending } else { Action::WriteCheckpoint };
                actions.push(begin(w));
                if self.is_by_turns() && !is_pending {
                    actions.push(Action::CheckpointInTurn(w));
                }
            }
            Making::None => {}
            Making::Written(_) if self.is_made(Canary::NamedBeforeDurable) => {
                actions.push(Action::NameCheckpoint(w));
            }
            Making::Written(_) | Making::Naming(..) if self.is_by_turns() && !writer.is_in_turn => {
            }
            Making::Written(_) | Making::Naming(..) => actions.push(Action::SyncCheckpoint(w)),
            Making::Durable(_) | Making::Named(..) => actions.push(Action::NameCheckpoint(w)),
        }
        let is_room = file.place_of_next().is_some();
        if ghost.puts_left > 0 && is_room && !writer.is_in_turn {
            actions.push(Action::Append(w));
        }
        if ghost.moves_left > 0 && is_room && !writer.is_in_turn {
            actions.push(Action::Move(w));
        }
        let mut segments = 0..SEGMENTS as u8;
        if let Some(segment) = segments.find(|&segment| self.is_empty(state, segment)) {
            actions.push(Action::Retire(w, segment));
        }
        if self.may_poll(state, w) {
            actions.push(Action::Poll(w));
        }
        if writer.waiting.first().is_some_and(|&first| self.is_reusable(state, writer, first)) {
            actions.push(Action::TakeReusable(w));
        }
        let is_looking = matches!(writer.period, Period::Stragglers(1..) | Period::Flipped(1..));
        if self.is_by_turns() && !writer.is_in_turn && !is_looking {
            let is_early = self.is_made(Canary::PlaceGivenUpBeforeWord);
            actions.push(if is_early { Action::GiveUpPlace(w) } else { Action::SayEnded(w) });
        }
    }

    /// Returns whether a segment has no live record.
    fn is_empty(&self, state: &State, segment: u8) -> bool {
        let (file, at) = (&state.file, usize::from(segment));
        let is_dead = if self.is_made(Canary::FreedByCount) {
            file.live[at] == 0
        } else {
            file.slot.segment != segment
        };
        file.uses[at] == Use::Log && is_dead
    }

    /// `Emptied::is_reusable`.
    fn is_reusable(&self, state: &State, writer: &Writer, first: Waiting) -> bool {
        let is_durable =
            first.lsn <= state.file.durable || self.is_made(Canary::FreedBeforeDurable);
        let is_replayed_by_none = first.checkpoint < writer.replay_checkpoint
            || self.is_made(Canary::FreedInReplayRange)
            || self.is_made(Canary::FreedBeforeDurable);
        let is_behind_horizon = first.stamp <= writer.past || self.is_made(Canary::HorizonIgnored);
        is_durable && is_replayed_by_none && first.grace == Grace::Over && is_behind_horizon
    }

    /// Returns whether a step of a grace period changes anything: not while a pin holds it up.
    fn may_poll(&self, state: &State, w: u8) -> bool {
        let writer = &state.writers[usize::from(w)];
        match writer.period {
            Period::Rest => writer.is_awaited || state.sees_horizon_go(writer),
            Period::Stragglers(at @ 0) | Period::Flipped(at @ 0) => self.is_clear(state, at),
            // Looks from the first place on again.
            Period::Stragglers(_) | Period::Flipped(_) => true,
        }
    }

    /// `OtherReaders::is_clear`, of one place: nobody counts there, or has died.
    fn is_clear(&self, state: &State, at: u8) -> bool {
        let parity = usize::from(state.file.parity ^ 1);
        state.file.pins[usize::from(at)][parity] == 0 || self.is_erased(state, at)
    }

    /// `OtherReaders::has_owner`.
    fn is_erased(&self, state: &State, at: u8) -> bool {
        !state.readers[usize::from(at)].is_alive || self.is_made(Canary::PlaceErasedWithoutLock)
    }

    pub(crate) fn writer_acts(&self, state: &mut State, action: Action) {
        match action {
            Action::WantTurn(w) => self.want_turn(state, w),
            Action::GoOn(w) => state.go_on(w),
            Action::TakePlace(w) => state.take_place(w),
            Action::SayWanted(w) => {
                state.file.is_wanted = true;
                state.writers[usize::from(w)].step = Step::Waits;
            }
            Action::BeginTurn(w) => self.begin_turn(state, w),
            Action::TakeOver(w) => self.take_over(state, w),
            Action::Append(w) => {
                state.ghost.puts_left -= 1;
                let version = state.file.slot.version + 1;
                state.append(w, version);
            }
            Action::Move(w) => {
                state.ghost.moves_left -= 1;
                let version = state.file.slot.version;
                state.append(w, version);
            }
            Action::StoreSlot(w) => state.store_slot(w),
            Action::Commit(w) => {
                if self.is_made(Canary::TurnWordAfterFirstStore) {
                    state.file.word = Word::Begun(w, state.writers[usize::from(w)].number);
                }
                state.commit(w);
            }
            Action::Retire(w, segment) => state.retire(w, segment),
            Action::Poll(w) => self.poll(state, w),
            Action::TakeReusable(w) => {
                let first = state.writers[usize::from(w)].waiting.remove(0);
                state.file.uses[usize::from(first.segment)] = Use::Free;
            }
            Action::BeginSync(w) => {
                state.ghost.syncs_left -= 1;
                let segments = state.file.unsynced(self.is_made(Canary::SyncsTailAlone));
                state.writers[usize::from(w)].syncing = Some((state.file.committed, segments));
            }
            Action::EndSync(w) => state.end_sync(w),
            Action::WriteCheckpoint(w) => state.write_checkpoint(w),
            Action::CheckpointInTurn(w) => {
                state.write_checkpoint(w);
                state.writers[usize::from(w)].is_in_turn = true;
            }
            Action::SyncCheckpoint(w) => self.sync_checkpoint(state, w),
            Action::NameCheckpoint(w) => self.name_checkpoint(state, w),
            Action::FreePending(_) => self.free_pending(state),
            Action::SayEnded(w) => state.say_ended(w),
            Action::GiveUpPlace(w) => {
                state.place = None;
                let writer = &mut state.writers[usize::from(w)];
                let has_ended = matches!(writer.step, Step::Ended | Step::Kept);
                writer.step = if has_ended { Step::Idle } else { Step::GaveUp };
            }
            Action::KeepPlace(w) => state.writers[usize::from(w)].step = Step::Kept,
            Action::KillWriter(w) => state.kill_writer(w),
            action => unreachable!("{action:?} is none of a writer"),
        }
    }

    fn want_turn(&self, state: &mut State, w: u8) {
        let writer = &mut state.writers[usize::from(w)];
        writer.in_row = (writer.in_row + 1).min(TURNS_IN_ROW);
        if writer.step == Step::Kept {
            writer.step = Step::Placed;
            return;
        }
        let gives_way = state.file.is_wanted
            && writer.in_row >= TURNS_IN_ROW
            && state.file.word == writer.word
            && !self.is_made(Canary::WaitWordIgnored);
        writer.step = if gives_way { Step::GivesWay } else { Step::Tries };
    }

    fn begin_turn(&self, state: &mut State, w: u8) {
        let writer = &mut state.writers[usize::from(w)];
        let found = state.file.word;
        let is_own = found == writer.word && found != Word::None;
        writer.number += u8::from(!is_own);
        if !self.is_made(Canary::TurnWordAfterFirstStore) {
            // What is killed from now on has not ended its turn.
            state.file.word = Word::Begun(w, writer.number);
        }
        writer.turns_left -= 1;
        writer.overtaken = 0;
        writer.step = if is_own { Step::Turn } else { Step::Found(found) };
        let other = &mut state.writers[usize::from(w ^ 1)];
        if other.is_alive && other.step == Step::Waits {
            other.overtaken += 1;
        }
    }

    fn take_over(&self, state: &mut State, w: u8) {
        let State { file, ghost, writers, .. } = state;
        let writer = &mut writers[usize::from(w)];
        let Step::Found(found) = writer.step else { unreachable!("it was found") };
        let was_killed = !matches!(found, Word::Ended(..));
        if was_killed && !self.is_made(Canary::KilledTurnTakenForEnded) {
            // `warm_restart`: what is complete in the log becomes visible.
            for lsn in file.committed..file.log_end {
                file.slot = file.log[usize::from(lsn)];
            }
            file.committed = file.log_end;
            ghost.visible = ghost.visible.max(file.slot.version);
        }
        writer.in_row = 1;
        if was_killed {
            // `Checkpointing::go_on`: one that was killed leaves no checkpoint on its way.
            writer.making = Making::None;
            writer.replay_checkpoint = 0;
        }
        writer.step = Step::Turn;
        // Nobody knows when they died.
        writer.waiting.clear();
        for segment in 0..SEGMENTS as u8 {
            if file.uses[usize::from(segment)] == Use::Emptied {
                writer.await_reuse(segment, file.committed, ghost.stamp);
            }
        }
        if was_killed && !self.is_made(Canary::KilledTurnTakenForEnded) {
            self.free_pending(state);
        }
    }

    /// `Periods::advance`.
    fn poll(&self, state: &mut State, w: u8) {
        let is_past = state.sees_horizon_go(&state.writers[usize::from(w)]);
        let (Period::Stragglers(at) | Period::Flipped(at)) = state.writers[usize::from(w)].period
        else {
            let stamp = state.past_stamp();
            let writer = &mut state.writers[usize::from(w)];
            if is_past {
                // `Compaction::note_past`
                (writer.past_next, writer.is_awaited) = (Some((stamp, Grace::Next)), true);
                return;
            }
            writer.is_awaited = false;
            writer.each_grace(Grace::Next, Grace::Running);
            writer.period = Period::Stragglers(0);
            if self.is_made(Canary::GracePeriodWithOneLook) {
                state.file.parity ^= 1;
                writer.period = Period::Flipped(0);
            }
            return;
        };
        let is_clear = self.is_clear(state, at);
        if self.is_erased(state, at) {
            state.file.pins[usize::from(at)] = [0; 2];
        }
        let writer = &mut state.writers[usize::from(w)];
        let is_last = at + 1 >= self.bounds.readers;
        writer.period = match writer.period {
            Period::Stragglers(_) if is_clear && is_last => {
                state.file.parity ^= 1;
                Period::Flipped(0)
            }
            Period::Stragglers(_) => Period::Stragglers(if is_clear { at + 1 } else { 0 }),
            Period::Flipped(_) if is_clear && is_last => {
                writer.each_grace(Grace::Running, Grace::Over);
                if let Some((stamp, Grace::Over)) = writer.past_next {
                    (writer.past, writer.past_next) = (stamp, None);
                }
                Period::Rest
            }
            Period::Flipped(_) => Period::Flipped(if is_clear { at + 1 } else { 0 }),
            Period::Rest => unreachable!("it was looked at"),
        };
    }

    /// `Store::sync_ending`.
    fn sync_checkpoint(&self, state: &mut State, w: u8) {
        let at = usize::from(w);
        match state.writers[at].making {
            Making::Written(checkpoint) => {
                let segments = state.file.unsynced(self.is_made(Canary::SyncsTailAlone));
                state.sync(state.file.committed, segments);
                for place in state.file.places.iter_mut().flatten() {
                    place.is_durable |= place.checkpoint == checkpoint;
                }
                state.writers[at].making = Making::Durable(checkpoint);
            }
            Making::Naming(checkpoint, count) => {
                // Another handle may have written the other one meanwhile.
                let State { file, disk, .. } = state;
                for (synced, &cached) in disk.superblocks.iter_mut().zip(&file.superblocks) {
                    if cached == checkpoint {
                        *synced = cached;
                    }
                }
                state.writers[at].making = Making::Named(checkpoint, count);
            }
            other => unreachable!("{other:?} waits for no sync"),
        }
    }

    /// `Store::go_on_ending`.
    fn name_checkpoint(&self, state: &mut State, w: u8) {
        let State { file, disk, writers, .. } = state;
        let writer = &mut writers[usize::from(w)];
        let (checkpoint, count) = match writer.making {
            Making::Written(checkpoint) | Making::Durable(checkpoint) => (checkpoint, 0),
            Making::Named(checkpoint, count) => (checkpoint, count),
            other => unreachable!("{other:?} is not durable"),
        };
        // `Store::is_pending`
        let is_newest = match count {
            0 => file.named().lsn < checkpoint.lsn || !self.is_by_turns(),
            _ => file.named() == checkpoint,
        };
        let has_place = file.places.iter().flatten().any(|place| place.checkpoint == checkpoint);
        let is_pending = is_newest && has_place;
        if !is_pending && !self.is_made(Canary::FreedImageNamed) {
            (writer.making, writer.is_in_turn) = (Making::None, false);
            return;
        }
        if count < 2 {
            file.newest ^= 1;
            file.superblocks[usize::from(file.newest)] = checkpoint;
            writer.making = Making::Naming(checkpoint, count + 1);
            if count == 0 && self.is_made(Canary::FreedBeforeSecondSuperblock) {
                writer.replay_checkpoint = writer.begun;
            }
        }
        if !self.is_by_turns() {
            disk.superblocks = file.superblocks;
            writer.making = Making::Named(checkpoint, count + 1);
        }
        if count == 2 || !self.is_by_turns() && count == 1 {
            (writer.making, writer.is_in_turn) = (Making::None, false);
            writer.replay_checkpoint = writer.begun;
            state.release_all_but_named();
        }
    }

    /// `Store::free_pending`, and `Opening::settle_checkpoints` after a death.
    fn free_pending(&self, state: &mut State) {
        let State { file, disk, .. } = state;
        let Some(pending) = file.pending() else { return };
        // The newest superblock may be in the cache alone, so that the other one names what is freed.
        if pending.checkpoint.lsn <= file.named().lsn
            && !self.is_made(Canary::PlaceFreedBeforeNamedDurably)
        {
            file.superblocks = [file.named(); 2];
            disk.superblocks = file.superblocks;
        }
        state.release_all_but_named();
    }
}

impl State {
    /// Returns whether a handle that gives way goes on: the other has had its turn, or nobody waits that
    /// lives. One that waits and lives takes its turn long before `GIVE_WAY_MAX`.
    fn gives_way_no_more(&self, w: u8) -> bool {
        let other = &self.writers[usize::from(w ^ 1)];
        self.file.word != self.writers[usize::from(w)].word
            || !(other.is_alive && other.step == Step::Waits)
    }

    fn go_on(&mut self, w: u8) {
        let writer = &mut self.writers[usize::from(w)];
        if self.file.word == writer.word {
            self.file.is_wanted = false;
        }
        writer.step = Step::Tries;
    }

    fn take_place(&mut self, w: u8) {
        self.place = Some(w);
        let writer = &mut self.writers[usize::from(w)];
        if writer.step == Step::Waits {
            self.file.is_wanted = false;
        }
        writer.step = Step::Placed;
    }

    fn append(&mut self, w: u8, version: u8) {
        let Self { file, ghost, writers, .. } = self;
        let segment = file.place_of_next().expect("it was looked at");
        let record = ghost.next_record;
        ghost.next_record += 1;
        let at = usize::from(segment);
        (file.content[at], file.uses[at], file.live[at]) = (record, Use::Log, 0);
        file.log[usize::from(file.committed)] = Slot { segment, record, version };
        file.log_end = file.committed + 1;
        ghost.complete = ghost.complete.max(version);
        writers[usize::from(w)].step = Step::Appended;
    }

    fn store_slot(&mut self, w: u8) {
        let Self { file, ghost, writers, .. } = self;
        let old = file.slot.segment;
        file.slot = file.log[usize::from(file.log_end - 1)];
        ghost.visible = ghost.visible.max(file.slot.version);
        writers[usize::from(w)].step = Step::Stored(old);
    }

    fn commit(&mut self, w: u8) {
        let Self { file, writers, .. } = self;
        let writer = &mut writers[usize::from(w)];
        let Step::Stored(old) = writer.step else { unreachable!("it was stored") };
        file.live[usize::from(file.slot.segment)] += 1;
        let live = &mut file.live[usize::from(old)];
        *live = live.saturating_sub(1);
        file.committed = file.log_end;
        writer.step = Step::Turn;
    }

    /// `Store::image_in_turn`.
    fn write_checkpoint(&mut self, w: u8) {
        let Self { file, ghost, writers, .. } = self;
        ghost.checkpoints_left -= 1;
        let (lsn, slot, image) = (file.committed, file.slot, ghost.next_image);
        ghost.next_image += 1;
        let checkpoint = Checkpoint { lsn, slot, image };
        let place = file.places.iter_mut().find(|place| place.is_none());
        *place.expect("nothing is pending") = Some(Place { checkpoint, is_durable: false });
        let writer = &mut writers[usize::from(w)];
        writer.begun += 1;
        writer.making = Making::Written(checkpoint);
    }

    /// `release_all_but`.
    fn release_all_but_named(&mut self) {
        let named = self.file.named();
        for place in &mut self.file.places {
            place.take_if(|place| place.checkpoint != named);
        }
    }

    fn retire(&mut self, w: u8, segment: u8) {
        let Self { file, ghost, writers, .. } = self;
        file.uses[usize::from(segment)] = Use::Emptied;
        writers[usize::from(w)].await_reuse(segment, file.committed, ghost.stamp);
    }

    fn sync(&mut self, lsn: u8, segments: [bool; SEGMENTS]) {
        let Self { file, disk, ghost, .. } = self;
        for segment in (0..SEGMENTS).filter(|&segment| segments[segment]) {
            disk.content[segment] = file.content[segment];
        }
        file.durable = file.durable.max(lsn);
        ghost.promised = ghost.promised.max(file.log[usize::from(lsn - 1)].version);
    }

    fn end_sync(&mut self, w: u8) {
        let syncing = self.writers[usize::from(w)].syncing.take();
        let (lsn, segments) = syncing.expect("it was begun");
        self.sync(lsn, segments);
    }

    fn say_ended(&mut self, w: u8) {
        let writer = &mut self.writers[usize::from(w)];
        writer.word = Word::Ended(w, writer.number);
        self.file.word = writer.word;
        writer.step = if writer.step == Step::GaveUp { Step::Idle } else { Step::Ended };
    }

    fn kill_writer(&mut self, w: u8) {
        self.ghost.deaths_left -= 1;
        self.writers[usize::from(w)] = Writer::default();
        // The kernel drops its lock.
        if self.place == Some(w) {
            self.place = None;
        }
    }

    /// `Horizons::past`.
    fn past_stamp(&self) -> u8 {
        let is_open = self.readers.iter().any(|reader| reader.snapshot.is_some());
        self.ghost.stamp - u8::from(is_open)
    }

    /// Returns whether a horizon has gone of which the compaction does not know.
    fn sees_horizon_go(&self, writer: &Writer) -> bool {
        writer.past_next.is_none() && self.past_stamp() > writer.past
    }
}

impl Writer {
    /// `Compaction::retire`, with a ticket for the next grace period.
    fn await_reuse(&mut self, segment: u8, lsn: u8, stamp: u8) {
        let checkpoint = self.begun;
        self.waiting.push(Waiting { segment, lsn, checkpoint, grace: Grace::Next, stamp });
        self.is_awaited = true;
    }

    fn each_grace(&mut self, from: Grace, to: Grace) {
        let past = self.past_next.iter_mut().map(|(_, grace)| grace);
        let waiting = self.waiting.iter_mut().map(|waiting| &mut waiting.grace);
        past.chain(waiting).filter(|grace| **grace == from).for_each(|grace| *grace = to);
    }
}
