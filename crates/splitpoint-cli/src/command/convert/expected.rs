//! What a source should hold, and what of it the new file lacks.

use std::time::Duration;

use splitpoint::Error;
use splitpoint_legacy::{Discrepancy, Doubt};

use crate::command::convert::Args;
use crate::command::duplicates::{CHOOSE, Duplicates, Keep, Several};
use crate::command::target::LeftOut;
use crate::console::{self, Console};
use crate::failure::{Exit, Failure, Result};
use crate::loss::{self, Extent};
use crate::number::{count, counted};
use crate::shell::shell_word;
use crate::store::{self, Opened};
use crate::verify::verify;

/// What the source should hold, before reading its records.
pub(super) struct Expected {
    pub(super) format: String,
    pub(super) records: u64,
    pub(super) several: Several,
    /// Numbers that the source states and that do not match what it holds.
    pub(super) discrepancies: Vec<Discrepancy>,
    /// What cannot be converted.
    pub(super) left_out: LeftOut,
    pub(super) why: Why,
}

/// Why something was left out, the reason that most needs an advice last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Why {
    /// A key is there twice, or nothing was left out.
    Other,
    /// Nothing says what becomes of further values.
    Undecided,
    /// The key of a further value is a key of the source.
    Taken,
    /// The new file cannot hold a record.
    Refused,
    /// The source is damaged.
    Damaged,
}

impl Why {
    /// Returns what to do about it.
    pub(super) fn hint(self, source: &str) -> String {
        let file = shell_word(source);
        match self {
            Self::Undecided => format!("{CHOOSE}; or keep them in a cdb: --format cdb"),
            Self::Taken => format!(
                "to keep every value: splitpoint convert {file} NEW.cdb --format cdb; or keep one \
                 of each key: --duplicates first or last"
            ),
            Self::Refused => {
                format!("a store has no such limit: splitpoint convert {file} NEW.spt")
            }
            Self::Damaged | Self::Other => format!(
                "restore the file from a backup, or let salvage look for more: splitpoint salvage \
                 {file} -o SAVED.spt"
            ),
        }
    }
}

impl Expected {
    /// Describes what the new file lacks, one line each.
    pub(super) fn losses(&self) -> String {
        let discrepancies = self.discrepancies.iter().map(|one| format!("damage: {one}\n"));
        discrepancies.chain([self.left_out.lines()]).collect()
    }

    pub(super) fn leave_out(&mut self, why: Why) {
        self.why = self.why.max(why);
    }

    /// Takes account of what becomes of further values, and returns it in words.
    pub(super) fn settle_several(&mut self, args: &Args, keep: Keep) -> Result<Option<String>> {
        let several = self.several;
        if several.keys > 0 && args.duplicates == Some(Duplicates::Fail) {
            let (file, keys) = (args.source.display(), several.keys_in_words());
            let message = format!("`{file}` has {keys}; nothing was converted");
            let hint = Why::Undecided.hint(&args.source.to_string_lossy());
            return Err(Failure::new(Exit::No, message).hint(hint));
        }
        if several.further == 0 {
            return Ok(None);
        }
        if keep == Keep::First && args.duplicates.is_none() {
            self.left_out.add(several.left_out(), several.further);
            self.leave_out(Why::Undecided);
            return Ok(None);
        }
        if matches!(keep, Keep::Numbered | Keep::Every) {
            self.records += several.further;
        }
        Ok(Some(several.kept(keep)))
    }

    /// Fails if the new file lacks something, and the old one may not be replaced without it.
    pub(super) fn check_replaceable(&self, args: &Args) -> Result<()> {
        let is_whole = self.left_out.count == 0 && self.discrepancies.is_empty();
        if !args.in_place || args.accept_loss || is_whole {
            return Ok(());
        }
        console::print_styled(&if args.showing.json { String::new() } else { self.losses() })?;
        let numbers = loss::in_words(self.discrepancies.iter().copied());
        let parts = counted(self.left_out.count, "part");
        let reason = numbers.unwrap_or_else(|| format!("{parts} cannot be converted"));
        let source = args.source.display();
        let message = format!("`{source}`: {reason}; nothing was replaced");
        let file = shell_word(&args.source.to_string_lossy());
        Err(Failure::new(Exit::No, message).hint(format!(
            "save what can be read: splitpoint salvage {file} -o NEW.spt; or accept the \
             loss: --accept-loss"
        )))
    }
}

/// Verifies the source, to find all damage before creating anything.
pub(super) fn survey(
    opened: &Opened,
    args: &Args,
    wait_max: Duration,
    console: Console,
) -> Result<Expected> {
    let extent = Extent::of(opened)?;
    extent.warn_if_unknown(console);
    let mut expected = Expected {
        format: "Splitpoint store".to_string(),
        records: extent.record_count,
        several: Several::default(),
        discrepancies: Vec::new(),
        left_out: LeftOut::default(),
        why: Why::Other,
    };
    let (Some(file), Some(survey)) = (opened.as_old(), extent.survey()) else {
        if opened.as_store().is_none() {
            expected.format = "table of another access method".to_string();
        }
        // A scan does not verify checksums.
        let damage_count = damage_count(opened, args, wait_max, console)?;
        return if damage_count == 0 { Ok(expected) } else { Err(damaged(args, damage_count)) };
    };
    expected.format = file.identity().to_string();
    expected.several =
        Several { keys: survey.several_values_count, further: survey.further_value_count };
    expected.discrepancies = survey.discrepancies().collect();
    for doubt in &survey.doubts {
        let is_damage = doubt.is_about_index() || matches!(doubt, Doubt::Fault(_));
        if is_damage {
            expected.leave_out(Why::Damaged);
        }
        match doubt {
            Doubt::Discrepancy(_) => {}
            Doubt::ShorterIndex { key_count } => {
                expected.left_out.add(doubt.to_string(), *key_count);
            }
            _ if is_damage || doubt.is_loss() => expected.left_out.add(doubt.to_string(), 1),
            _ => {}
        }
    }
    let listed = survey.doubts.iter().filter(|doubt| doubt.is_loss()).count();
    expected.left_out.add_unlisted(survey.loss_count - count(listed));
    Ok(expected)
}

/// Returns the number of damaged places, of a table that nobody changes meanwhile.
fn damage_count(opened: &Opened, args: &Args, wait_max: Duration, console: Console) -> Result<u64> {
    let Some(db) = opened.as_store() else {
        return Ok(opened.check().map_err(|error| opened.failed(&error))?.damage_count);
    };
    let check = |_| verify(db, args.showing.progress, console);
    let checked = store::wait_for_rest(wait_max, console, check);
    let report = checked.map_err(|error| match error {
        Error::Locked { .. } => {
            let file = shell_word(&args.source.to_string_lossy());
            opened.failed(&error).hint(format!(
                "--lock-timeout waits longer; or convert a copy: splitpoint backup {file} COPY"
            ))
        }
        error => opened.failed(&error),
    })?;
    Ok(report.damage_count)
}

/// Returns the failure to convert a damaged store.
fn damaged(args: &Args, damage_count: u64) -> Failure {
    let damages = counted(damage_count, "damaged place");
    let file = shell_word(&args.source.to_string_lossy());
    let message = format!("`{}` is corrupt: {damages} found", args.source.display());
    Failure::new(Exit::Corrupt, message)
        .hint(format!("save what can be read first: splitpoint repair {file} -o NEW.spt"))
}
