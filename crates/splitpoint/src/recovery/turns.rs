//! Reloads the state of the writer at the start of a turn, for a handle that changes the file by
//! turns.

use std::sync::Arc;

use super::{FoundState, Opening};
use crate::error::{Error, Result};
use crate::format::LIVE_OFFSET;
use crate::hash::HashFunction;
use crate::log::append::Appender;
use crate::options::Access;
use crate::region::{Extents, Region, read_superblock, unknown_features};
use crate::stats::Recovery;
use crate::store::{LastTurn, Mark, TakeOver, Writer, committed_position};

/// Continues where the previous writer has ended.
#[derive(Debug)]
pub(super) struct GoOn {
    pub(super) hash: HashFunction,
}

impl TakeOver for GoOn {
    fn take_over(
        &self,
        region: &Arc<Region>,
        before: &mut Writer,
        last: LastTurn,
    ) -> Result<Writer> {
        let superblock = read_superblock(region.storage())?;
        if superblock.uuid != before.superblock.uuid {
            // Another program has truncated the file, and a new store was created in it since:
            // nothing that this handle has cached is valid.
            return Err(Error::Poisoned {
                reason: "another store is in the file by now; open it again".to_string(),
            });
        }
        let epoch = region.follow_pieces()?;
        debug_assert_eq!(epoch, region.live().piece_epoch(), "nobody else changes the pieces now");
        if superblock.write_features != 0 {
            return Err(unknown_features(region.storage().path()));
        }
        region.live().validate(region.view.file_bytes())?;
        let log = Appender::new(
            before.log.next_salt(),
            superblock.segment_bytes_min.into(),
            superblock.segment_bytes_max.into(),
        );
        let access = Access::ReadWrite;
        let mut opening =
            Opening { superblock, hash: self.hash.clone(), log, access, on_recovery: None };
        let is_clean = opening.superblock.is_clean;
        let mut mark = None;
        let (extents, (state, ..)) = match last {
            _ if is_clean => opening.go_on_from_close(region)?,
            LastTurn::Ended { is_not_clean_durably } => {
                mark = Some(if is_not_clean_durably { Mark::Changing } else { Mark::NotClean });
                opening.go_on_from_turn(region, Some(&before.extents))?
            }
            LastTurn::Killed => {
                mark = Some(Mark::NotClean);
                // The file may have been copied (reflinked) since this handle claimed its blocks,
                // so claim them again.
                region.storage().forget_claims();
                opening.warm_restart(region, false)?
            }
        };
        let mut writer = Writer::new(opening.log, extents, state, opening.superblock);
        writer.mark = mark.unwrap_or(writer.mark);
        Ok(writer)
    }
}

impl Opening {
    /// Uses the tables that an ended turn left: no change is unfinished. `before` has the mappings
    /// of this handle's own earlier turn.
    pub(super) fn go_on_from_turn(
        &mut self,
        region: &Arc<Region>,
        before: Option<&Extents>,
    ) -> Result<(Extents, FoundState)> {
        let (position, state) = committed_position(&self.superblock, region);
        let mut extents = Extents::of(region);
        if let Some(before) = before {
            extents.keep_mapping(before);
        }
        self.load_segments(&mut extents)?;
        self.resume(region, position)?;
        let durable_lsn = region.live().durable_lsn().min(position.lsn);
        Ok((extents, (state, Recovery::WarmRestart { records: 0 }, durable_lsn)))
    }

    /// Uses the tables of a store that another handle has closed.
    fn go_on_from_close(&mut self, region: &Arc<Region>) -> Result<(Extents, FoundState)> {
        let (expected, found) = (self.superblock.live_crc.into(), region.live().crc().into());
        let damaged =
            || Error::Corrupt { what: "live header", offset: LIVE_OFFSET, expected, found };
        if expected != found {
            return Err(damaged());
        }
        self.open_clean(region)?.ok_or_else(damaged)
    }
}
