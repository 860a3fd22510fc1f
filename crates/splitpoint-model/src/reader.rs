//! What a reader does: it pins, and looks.

use crate::{Action, Canary, Look, Model, State, Step};

impl Model {
    /// Lists what reader `r` may do next.
    pub(crate) fn reader_actions(&self, state: &State, r: u8, actions: &mut Vec<Action>) {
        let reader = &state.readers[usize::from(r)];
        if !reader.is_alive {
            return;
        }
        match reader.look {
            Look::Idle if reader.looks_left == 0 => {}
            Look::Idle if self.is_made(Canary::PinsAfterTheSlot) => {
                actions.push(Action::LoadSlot(r));
            }
            Look::Idle | Look::LoadedFirst(_) => actions.push(Action::LoadParity(r)),
            Look::Parity(_) | Look::LoadedParity(..) => actions.push(Action::CountPin(r)),
            Look::Pinned(_) => actions.push(Action::LoadSlot(r)),
            Look::Holds(..) => actions.push(Action::Unpin(r)),
        }
        // A horizon opens under the lock of the writer.
        if reader.snapshots_left > 0 && state.writers[0].step == Step::Turn {
            actions.push(Action::TakeSnapshot(r));
        }
        if reader.snapshot.is_some() {
            actions.push(Action::DropSnapshot(r));
        }
        if state.ghost.deaths_left > 0 {
            actions.push(Action::KillReader(r));
        }
    }
}

impl State {
    pub(crate) fn reader_acts(&mut self, r: u8, action: Action) {
        let Self { file, readers, ghost, .. } = self;
        let reader = &mut readers[usize::from(r)];
        let pins = &mut file.pins[usize::from(r)];
        match (action, reader.look) {
            (Action::LoadParity(_), Look::LoadedFirst(slot)) => {
                reader.look = Look::LoadedParity(slot, file.parity);
            }
            (Action::LoadParity(_), _) => {
                reader.looks_left -= 1;
                reader.look = Look::Parity(file.parity);
            }
            (Action::CountPin(_), Look::Parity(parity)) => {
                pins[usize::from(parity)] += 1;
                reader.look = Look::Pinned(parity);
            }
            (Action::CountPin(_), Look::LoadedParity(slot, parity)) => {
                pins[usize::from(parity)] += 1;
                reader.look = Look::Holds(slot, parity);
            }
            (Action::LoadSlot(_), Look::Idle) => {
                reader.looks_left -= 1;
                reader.look = Look::LoadedFirst(file.slot);
            }
            (Action::LoadSlot(_), Look::Pinned(parity)) => {
                // By a snapshot it finds the version of that moment.
                reader.look = Look::Holds(reader.snapshot.unwrap_or(file.slot), parity);
            }
            (Action::Unpin(_), Look::Holds(_, parity)) => {
                pins[usize::from(parity)] = pins[usize::from(parity)].saturating_sub(1);
                reader.look = Look::Idle;
            }
            (Action::TakeSnapshot(_), _) => {
                reader.snapshots_left -= 1;
                reader.snapshot = Some(file.slot);
                ghost.stamp += 1;
            }
            (Action::DropSnapshot(_), _) => reader.snapshot = None,
            (Action::KillReader(_), _) => {
                ghost.deaths_left -= 1;
                // Its place keeps what it has counted, and has no lock any more.
                *reader = crate::Reader::default();
            }
            (action, look) => unreachable!("{action:?} in {look:?}"),
        }
    }
}
