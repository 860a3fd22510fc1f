//! `splitpoint dump`: write every record in a portable format.

use std::io::Write;
use std::path::PathBuf;

use splitpoint::Error;

use crate::bytes::shown;
use crate::command::shared::Turn;
use crate::console::{self, Console};
use crate::failure::{Exit, Failure, Result};
use crate::format::{Contents, DumpFormat, WriteError};
use crate::loss::Extent;
use crate::number::counted;
use crate::progress::{Progress, ProgressMode, Total};
use crate::shell::shell_word;
use crate::store::{self, Opened};
use crate::verify::damage_count_if_still;

/// Write every record to standard output in a portable format
///
/// `load` reads every format back. All formats except tsv can hold any bytes; tsv stops with exit
/// code 1 at the first record with a TAB or a newline in its key, or a newline in its value.
///
/// jsonl writes `{"key":"..","value":".."}`, with `key_base64` or `value_base64` for bytes that are
/// not UTF-8; `load` also accepts `key_hex` and `value_hex`.
///
/// A key of an old file that has several values is written once for each, in their order; `load`
/// keeps the last.
///
/// Verifies the store first. If it is damaged, writes the records up to the first that it cannot
/// read, perhaps with wrong bytes among them, and exits with code 4; `repair` saves the others too.
/// If an old file is damaged, writes every record that it can read; if it is truncated or was not
/// closed, the exit code is 1 or 4. If another process writes to the store, dumps it as it is, and
/// prints a note that it was not verified.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  splitpoint dump words.spt > words.hex
  splitpoint dump words.spt --format print | db5.3_load words.db
  splitpoint dump words.spt --format cdb | cdb -c words.cdb
  splitpoint dump old.spt | splitpoint load new.spt
  splitpoint dump words.spt --format tsv | sort | head")]
pub(crate) struct Args {
    /// The store, or an old file
    file: PathBuf,

    /// The format
    #[arg(short, long, value_enum, default_value = "hex")]
    format: DumpFormat,

    /// When to show progress
    #[arg(long, value_enum, default_value_t)]
    progress: ProgressMode,

    #[command(flatten)]
    turn: Turn,
}

/// Writes every record.
pub(super) fn run(args: &Args, console: Console) -> Result<()> {
    let opened = store::open(&args.file, args.turn.wait_max(), console)?;
    let extent = Extent::of(&opened)?;
    extent.warn_if_unknown(console);
    // The walk over an old file has already found all damage. For other tables, verify first: a
    // scan does not verify checksums, and the dump may be the only copy that the user keeps.
    let (on_damage, damage_count) = match extent.survey() {
        Some(_) => (OnDamage::GoOn, 0),
        None => (OnDamage::Stop, damage_count_if_still(&opened, args.progress, console)?),
    };
    let written = write_records(args, &opened, &extent, on_damage, console);
    if damage_count > 0 {
        return Err(damaged(args, damage_count, written));
    }
    written?;
    extent.failure("the dump holds only the records found").map_or(Ok(()), Err)
}

/// What to do at an unreadable record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OnDamage {
    Stop,
    /// The walk before has reported the damage.
    GoOn,
}

fn write_records(
    args: &Args,
    table: &Opened,
    extent: &Extent<'_>,
    on_damage: OnDamage,
    console: Console,
) -> Result<()> {
    let failed = |error| table.failed(&error);
    let mut out = console::data();
    let mut writer = args.format.writer();
    let mode = match args.progress {
        // A bar would be drawn over the records.
        ProgressMode::Auto if console::is_terminal() => ProgressMode::Never,
        mode => mode,
    };
    let record_count = extent.value_count;
    let contents =
        Contents { record_count, has_several_values: record_count > extent.record_count };
    let mut progress = Progress::start(mode, console, "dump", Total::Records(record_count));
    writer.begin(&mut out, contents).map_err(|error| Failure::output(&error))?;
    let mut written: u64 = 0;
    let mut written_bytes: u64 = 0;
    let mut empty_count: u64 = 0;
    for record in table.values().map_err(failed)? {
        let record = record.and_then(|one| Ok((one.key, one.value?)));
        let (key, value) = match record {
            Ok(record) => record,
            Err(Error::Corrupt { .. }) if on_damage == OnDamage::GoOn => continue,
            Err(error) => {
                let _ = out.flush();
                let context = counted(written, "record") + " written before the error";
                return Err(failed(error).within(context));
            }
        };
        match writer.write(&mut out, &key, &value) {
            Ok(()) => {}
            Err(WriteError::Io(error)) => return Err(Failure::output(&error)),
            Err(WriteError::Unfit { reason }) => {
                let _ = out.flush();
                return Err(unfit(args, &key, reason, written));
            }
        }
        written += 1;
        empty_count += u64::from(key.is_empty() || value.is_empty());
        written_bytes += crate::number::count(key.len() + value.len());
        progress.update(written, written_bytes);
    }
    writer.end(&mut out).and_then(|()| out.flush()).map_err(|error| Failure::output(&error))?;
    progress.finish(written, written_bytes);
    if empty_count > 0 && matches!(args.format, DumpFormat::GdbmAscii | DumpFormat::GdbmBinary) {
        let records = counted(empty_count, "record");
        console.warn(format_args!(
            "{records} with an empty key or value: `gdbm_load` of gdbm 1.23 refuses this dump"
        ));
    }
    Ok(())
}

/// Reports the damage as `check` does, and how many records the dump has.
fn damaged(args: &Args, damage_count: u64, written: Result<()>) -> Failure {
    let file = args.file.display();
    let damages = counted(damage_count, "damaged place");
    let found = format!("`{file}` is corrupt: {damages} found");
    match written {
        Ok(()) => {
            let file = shell_word(&args.file.to_string_lossy());
            let message = format!("{found}, the dump may hold wrong bytes");
            Failure::new(Exit::Corrupt, message).hint(format!(
                "restore a backup, or save only the undamaged records: splitpoint repair {file} -o \
                 NEW.spt"
            ))
        }
        Err(failure) if failure.exit() == Exit::Corrupt => failure.after(found),
        Err(failure) => failure,
    }
}

fn unfit(args: &Args, key: &[u8], reason: &str, written: u64) -> Failure {
    let message = format!(
        "tsv cannot hold the record of key `{}`: {reason}; stopped after {}",
        shown(key),
        counted(written, "record")
    );
    let file = shell_word(&args.file.to_string_lossy());
    Failure::new(Exit::No, message)
        .hint(format!("jsonl can hold any bytes: splitpoint dump {file} --format jsonl"))
}
