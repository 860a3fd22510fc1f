//! Losses of an old file: numbers that it states and that do not match what it holds. Every command
//! that reads old files reports them in the same way.

use std::path::Path;

use serde::Serialize;
use splitpoint_legacy::{Discrepancy, OldFile, Survey};

use crate::console::Console;
use crate::failure::{Exit, Failure, Result};
use crate::number::counted;
use crate::shell::shell_word;
use crate::store::Opened;

/// A discrepancy, for JSON output.
#[derive(Debug, Serialize)]
pub(crate) struct Numbers {
    counted: &'static str,
    stated_by: &'static str,
    stated: u64,
    found: u64,
}

impl From<Discrepancy> for Numbers {
    fn from(discrepancy: Discrepancy) -> Self {
        let Discrepancy { counted, stated_by, stated, found, .. } = discrepancy;
        Self { counted: counted.name(), stated_by: stated_by.name(), stated, found }
    }
}

/// Warns if the size of the file shows that it was truncated or not closed, for a command that does
/// not read all of it.
pub(crate) fn warn_at_once(opened: &Opened, console: Console) {
    if let Some(discrepancy) = opened.as_old().and_then(OldFile::discrepancy) {
        warn(opened.path(), discrepancy, console);
    }
}

/// What a command will find that reads a whole table.
#[derive(Debug)]
pub(crate) struct Extent<'a> {
    /// The number of records that a scan returns.
    pub(crate) record_count: u64,
    /// The number of records that a scan of all values returns.
    pub(crate) value_count: u64,
    /// The result of a walk over an old file.
    survey: Option<&'a Survey>,
    path: &'a Path,
}

impl<'a> Extent<'a> {
    /// Analyzes a table; for an old file this walks all of it.
    pub(crate) fn of(opened: &'a Opened) -> Result<Self> {
        let failed = |error| opened.failed(&error);
        let survey = opened.as_old().map(OldFile::survey).transpose().map_err(failed)?;
        let record_count = match survey {
            Some(survey) => survey.pair_count,
            None => opened.len().map_err(failed)?,
        };
        let further = survey.map_or(0, |survey| survey.further_value_count);
        let value_count = record_count + further;
        Ok(Self { record_count, value_count, survey, path: opened.path() })
    }

    /// Returns the result of the walk over an old file, which lists all damage.
    pub(crate) fn survey(&self) -> Option<&'a Survey> {
        self.survey
    }

    /// Warns of a doubt that nothing in the file can settle.
    pub(crate) fn warn_if_unknown(&self, console: Console) {
        let doubts = self.survey.map_or(&[][..], |survey| &survey.doubts);
        if let Some(doubt) = doubts.iter().find(|doubt| doubt.is_reservation()) {
            warn(self.path, doubt, console);
        }
    }

    /// Returns the failure of a command if some of the table was missing or unreadable. `done`
    /// states what the command did with the rest.
    pub(crate) fn failure(&self, done: &str) -> Option<Failure> {
        self.survey.and_then(|survey| of_survey(self.path, survey, done))
    }
}

fn warn(path: &Path, what: impl std::fmt::Display, console: Console) {
    console.warn(format_args!("`{}`: {what}", path.display()));
}

fn of_survey(path: &Path, survey: &Survey, done: &str) -> Option<Failure> {
    if let Some(numbers) = in_words(survey.discrepancies()) {
        return Some(
            Failure::new(Exit::No, format!("`{}`: {numbers}; {done}", path.display()))
                .hint(hint(path)),
        );
    }
    if survey.loss_count == 0 {
        return None;
    }
    let exit = if survey.fault().is_some() { Exit::Corrupt } else { Exit::No };
    let lost = counted(survey.loss_count, "part");
    let message = format!("`{}`: {lost} could not be read; {done}", path.display());
    let file = shell_word(&path.to_string_lossy());
    Some(Failure::new(exit, message).hint(format!("to list them: splitpoint check {file}")))
}

/// Returns the failure of a command that listed `listed` records without a walk, if the file states
/// that it has more.
pub(crate) fn of_scan(opened: &Opened, listed: u64) -> Option<Failure> {
    let (file, path) = (opened.as_old()?, opened.path());
    let stated = file.stated_record_count().filter(|stated| listed < *stated);
    let records =
        stated.map(|stated| format!("the header states {stated} records, listed {listed}"));
    let extent = file.discrepancy().map(|discrepancy| discrepancy.to_string());
    let clauses: Vec<String> = records.into_iter().chain(extent).collect();
    let message = format!("`{}`: {}", path.display(), clauses.join("; "));
    (!clauses.is_empty()).then(|| Failure::new(Exit::No, message).hint(hint(path)))
}

/// Returns discrepancies as one clause, if there are any.
pub(crate) fn in_words(discrepancies: impl Iterator<Item = Discrepancy>) -> Option<String> {
    let clauses: Vec<String> = discrepancies.map(|one| one.to_string()).collect();
    (!clauses.is_empty()).then(|| clauses.join("; "))
}

/// Returns the hint for a file that lacks something.
pub(crate) fn hint(path: &Path) -> String {
    let file = shell_word(&path.to_string_lossy());
    format!(
        "restore the file from a backup, or save what can be read: splitpoint salvage {file} \
         -o NEW.spt"
    )
}
