//! `splitpoint check`: verify a store without writing to it.

use std::fmt::Write as _;
use std::path::PathBuf;

use serde::Serialize;
use splitpoint::check::CheckReport;
use splitpoint::{Error, TableCheck};
use splitpoint_legacy::{Doubt, Format, OldFile};

use crate::command::shared::{Showing, Turn};
use crate::console::{self, Console};
use crate::failure::{Exit, Failure, Result};
use crate::loss::Numbers;
use crate::number::{bytes, counted, grouped};
use crate::shell::shell_word;
use crate::store;
use crate::verify::verify;

/// Verify every structure of a store without writing to it
///
/// Verifies the checksum of every record, the index against the records, and the headers against
/// both. Prints one line per damaged place, with its byte offset, and exits with code 1 if there is
/// any. Consequences, such as slots that point into the damage, are only counted, on one more line.
///
/// Nobody can write to the store meanwhile, and check waits for a process that does. If one writes all the
/// time, check a copy made by `splitpoint backup`.
///
/// Most old files have no checksums, so check walks every chain and compares the records, pages and
/// blocks that it finds with the numbers in the file. It reports a file that is truncated or was
/// not closed as damaged.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  splitpoint check words.spt
  splitpoint check words.spt --quiet || echo 'restore the backup'
  splitpoint check words.spt --json")]
pub(crate) struct Args {
    /// The store, or an old file
    file: PathBuf,

    #[command(flatten)]
    showing: Showing,

    #[command(flatten)]
    turn: Turn,
}

/// What a check found.
#[derive(Debug, Serialize)]
struct Report {
    store: String,
    is_clean: bool,
    records: u64,
    log_bytes: u64,
    lines: u64,
    damage_count: u64,
    damages: Vec<Damage>,
    consequences: Consequences,
    #[serde(skip)]
    kind: Kind,
}

/// The kind of table, for the wording of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Store,
    Old,
    /// A table of another access method.
    Other,
}

/// Consequences of damage elsewhere.
#[derive(Debug, Default, Serialize)]
struct Consequences {
    /// Slots that point into the damage; as many keys cannot be read.
    slots: u64,
    /// Records without a slot.
    records: u64,
}

#[derive(Debug, Serialize)]
struct Damage {
    what: String,
    /// What is damaged and where, for people.
    #[serde(skip)]
    words: String,
    #[serde(flatten)]
    place: Option<Place>,
    /// Both numbers, if the file states one and check found another.
    #[serde(flatten)]
    numbers: Option<Numbers>,
}

impl Report {
    /// A file with damage that prevents any further check.
    fn of_damage(store: String, damage: Damage, kind: Kind) -> Self {
        Self {
            store,
            is_clean: false,
            records: 0,
            log_bytes: 0,
            lines: 0,
            damage_count: 1,
            damages: vec![damage],
            consequences: Consequences::default(),
            kind,
        }
    }
}

/// The place of damage, if it has one.
#[derive(Debug, Serialize)]
struct Place {
    offset: u64,
    expected: u64,
    found: u64,
}

impl Damage {
    fn at(what: &'static str, offset: u64, expected: u64, found: u64) -> Self {
        let words = splitpoint::check::Damage { what, offset, expected, found }.to_string();
        let place = Some(Place { offset, expected, found });
        Self { what: what.to_string(), words, place, numbers: None }
    }

    /// Damage that is described in words alone.
    fn in_words(what: String, numbers: Option<Numbers>) -> Self {
        Self { words: what.clone(), what, place: None, numbers }
    }

    fn of_doubt(doubt: &Doubt) -> Self {
        let numbers = match doubt {
            Doubt::Fault(fault) => {
                return Self::at(fault.what, fault.offset, fault.expected, fault.found);
            }
            Doubt::Discrepancy(discrepancy) => Some(Numbers::from(*discrepancy)),
            _ => None,
        };
        Self::in_words(doubt.to_string(), numbers)
    }
}

/// Verifies a store.
pub(super) fn run(args: &Args, console: Console) -> Result<()> {
    let report = check(args, console)?;
    if args.showing.json {
        console::print_json(&report)?;
    } else {
        console::print_styled(&in_words(&report, console))?;
    }
    if report.is_clean {
        return Ok(());
    }
    let file = shell_word(&report.store);
    let damages = counted(report.damage_count, "damaged place");
    let failure = Failure::new(Exit::No, format!("`{}` is corrupt: {damages} found", report.store));
    let saving = match report.kind {
        Kind::Store => "repair",
        Kind::Old => "salvage",
        Kind::Other => return Err(failure),
    };
    Err(failure.hint(format!(
        "restore the file from a backup, or save what can be read: splitpoint {saving} {file} -o \
         NEW.spt"
    )))
}

fn check(args: &Args, console: Console) -> Result<Report> {
    let path = args.file.as_path();
    let store = path.display().to_string();
    // One time for both steps.
    let mut wait_max = args.turn.wait_max();
    let opened = match store::open_to_read(path, &mut wait_max, console) {
        Ok(opened) => opened,
        // A store too damaged to open is a result of the check, not a failure to check.
        Err(ref error @ Error::Corrupt { what, offset, expected, found }) => {
            let damage = Damage::at(what, offset, expected, found);
            let is_old = store::format_of(path, error).is_some_and(|found| found != Format::Store);
            let kind = if is_old { Kind::Old } else { Kind::Store };
            return Ok(Report::of_damage(store, damage, kind));
        }
        Err(error) => return Err(store::opening(path, &error)),
    };
    let report = match (opened.as_store(), opened.as_old()) {
        (Some(db), _) => {
            let check = |_| verify(db, args.showing.progress, console);
            store::wait_for_rest(wait_max, console, check).map(|report| report_of(store, &report))
        }
        (None, Some(file)) => check_old(store, file),
        (None, None) => opened.check().map(|report| report_of_other(store, report)),
    };
    report.map_err(|error| match error {
        Error::Locked { .. } => {
            let file = shell_word(&path.to_string_lossy());
            opened.failed(&error).hint(format!(
                "a check needs a store that stays as it is; check a copy: splitpoint backup {file} \
                 COPY && splitpoint check COPY"
            ))
        }
        error => opened.failed(&error),
    })
}

/// Walks an old file: its format has no checksums, so only its structure is verified.
fn check_old(store: String, file: &OldFile) -> Result<Report, Error> {
    let survey = file.survey()?;
    Ok(Report {
        store,
        is_clean: survey.doubt_count == 0,
        records: survey.pair_count,
        log_bytes: 0,
        lines: survey.bucket_count,
        damage_count: survey.doubt_count,
        damages: survey.doubts.iter().map(Damage::of_doubt).collect(),
        consequences: Consequences::default(),
        kind: Kind::Old,
    })
}

/// Other access methods describe damage only in words.
fn report_of_other(store: String, check: TableCheck) -> Report {
    let damages = check.damages.into_iter();
    Report {
        store,
        is_clean: check.damage_count == 0,
        records: check.record_count,
        log_bytes: 0,
        lines: 0,
        damage_count: check.damage_count,
        damages: damages.map(|what| Damage::in_words(what, None)).collect(),
        consequences: Consequences::default(),
        kind: Kind::Other,
    }
}

fn report_of(store: String, report: &CheckReport) -> Report {
    let damage_of = |damage: &splitpoint::check::Damage| {
        Damage::at(damage.what, damage.offset, damage.expected, damage.found)
    };
    Report {
        store,
        is_clean: report.is_clean(),
        records: report.record_count,
        log_bytes: report.log_bytes,
        lines: report.line_count,
        damage_count: report.damage_count,
        damages: report.damages.iter().map(damage_of).collect(),
        consequences: Consequences {
            slots: report.lost_slot_count,
            records: report.slotless_count,
        },
        kind: Kind::Store,
    }
}

fn in_words(report: &Report, console: Console) -> String {
    let mut text = String::new();
    for Damage { words, .. } in &report.damages {
        let _ = writeln!(text, "damage: {words}");
    }
    let unlisted = report.damage_count - crate::number::count(report.damages.len());
    if unlisted > 0 {
        let _ = writeln!(text, "damage: {} more", grouped(unlisted));
    }
    text += &report.consequences.in_words();
    if report.is_clean && !console.is_quiet() {
        let verified = match report.kind {
            Kind::Old => {
                let (records, buckets) =
                    (counted(report.records, "record"), counted(report.lines, "bucket"));
                format!("{records} in {buckets} walked; its format has no checksums for values")
            }
            Kind::Store => {
                let (records, lines) =
                    (counted(report.records, "log record"), counted(report.lines, "index line"));
                format!("{records} ({}) and {lines} verified", bytes(report.log_bytes))
            }
            Kind::Other => format!("{} verified", counted(report.records, "record")),
        };
        let _ = writeln!(text, "`{}` is sound: {verified}", report.store);
    }
    text
}

impl Consequences {
    /// Returns the line that counts them, or an empty string.
    fn in_words(&self) -> String {
        let verb = |count, one, more| if count == 1 { one } else { more };
        let slots = (self.slots > 0).then(|| {
            let verb = verb(self.slots, "points", "point");
            format!("{} {verb} into the damage", counted(self.slots, "slot"))
        });
        let records = (self.records > 0).then(|| {
            let verb = verb(self.records, "has", "have");
            format!("{} {verb} no slot", counted(self.records, "record"))
        });
        let words: Vec<String> = slots.into_iter().chain(records).collect();
        if words.is_empty() { String::new() } else { format!("hence: {}\n", words.join(", ")) }
    }
}
