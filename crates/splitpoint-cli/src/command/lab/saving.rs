//! Studies as files: what every command of the lab can save, and what others begin from.

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use splitpoint::Error;
use splitpoint_lab::study::{KeyFacts, Machine, Program, SCHEMA};
use splitpoint_lab::{Study, report};

use crate::bytes::{escaped, shell_word};
use crate::console::{self, Console};
use crate::failure::{Exit, Failure, Result};
use crate::files::read_whole;
use crate::interrupt::Unfinished;
use crate::number::count;

/// Where the result of a measurement goes.
#[derive(Debug, clap::Args)]
pub(super) struct Output {
    /// Print the study as JSON, or save it in a file: what reports are made of
    #[arg(long, value_name = "FILE", num_args = 0..=1, display_order = 800)]
    #[expect(clippy::option_option, reason = "absent, alone, with a file")]
    json: Option<Option<PathBuf>>,

    /// Make a page of the study, with pictures, in a file; - prints the page
    #[arg(long, value_name = "FILE", display_order = 801)]
    html: Option<PathBuf>,
}

impl Output {
    /// Returns the file that was given to `--json`, if there was one.
    pub(super) fn json_file(&self) -> Option<&Path> {
        self.json.as_ref()?.as_deref()
    }

    /// Fails early if the study could not be saved in the end.
    pub(super) fn check(&self) -> Result<()> {
        self.json_file().map_or(Ok(()), may_replace)?;
        self.html_file().map_or(Ok(()), may_replace_page)
    }

    /// Returns the file that was given to `--html`, if there was one.
    fn html_file(&self) -> Option<&Path> {
        self.html.as_deref().filter(|path| *path != Path::new("-"))
    }

    /// Prints a study in words, or prints or saves it as JSON.
    pub(super) fn deliver(
        &self,
        study: &Study,
        console: Console,
        in_words: impl FnOnce(&Study) -> String,
    ) -> Result<()> {
        if let Some(path) = self.json_file() {
            save(path, study)?;
            console.note(format_args!("saved the study in `{}`", path.display()));
        }
        if let Some(path) = self.html_file() {
            may_replace_page(path)?;
            replace(path, report::html(study).as_bytes())?;
            console.note(format_args!("made the page `{}`", path.display()));
        }
        if self.json == Some(None) {
            return console::print_json(study);
        }
        if self.html.is_some() && self.html_file().is_none() {
            return print_page(study);
        }
        let mut text = String::new();
        if let Some(interruption) = &study.interruption {
            let _ = writeln!(text, "PARTIAL, it was interrupted: {}\n", interruption.missing);
        }
        text.push_str(&in_words(study));
        console::print_styled(&text)
    }
}

/// Saves a study in a file, which holds the old one or the whole new one at any time.
///
/// A file that is something else is not replaced.
pub(super) fn save(path: &Path, study: &Study) -> Result<()> {
    may_replace(path)?;
    let mut text = serde_json::to_vec(study)
        .map_err(|error| Failure::new(Exit::Bug, format!("the study cannot be saved: {error}")))?;
    text.push(b'\n');
    replace(path, &text)
}

/// Writes a file beside the one at `path`, then gives it its name.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    let failed = |error: io::Error| Failure::io(format!("write `{}`", path.display()), &error);
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let mut file =
        tempfile::NamedTempFile::new_in(parent.unwrap_or(Path::new("."))).map_err(failed)?;
    let _unfinished = Unfinished::new(file.path());
    file.write_all(bytes).and_then(|()| file.as_file().sync_all()).map_err(failed)?;
    // The directory's own file mode, not that of a private temporary file.
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = fs::metadata(path).map_or(0o644, |metadata| metadata.permissions().mode());
        file.as_file().set_permissions(fs::Permissions::from_mode(mode)).map_err(failed)?;
    }
    file.persist(path).map(drop).map_err(|error| failed(error.error))
}

/// Reads a saved study.
pub(super) fn load(path: &Path) -> Result<Study> {
    let shown = path.display();
    let text = read_whole(path)?;
    let no_study = |reason: &str| {
        Failure::new(Exit::Usage, format!("`{shown}` is no saved study: {reason}"))
            .hint("a study is saved by --json FILE, for example of `splitpoint lab hash`")
    };
    let value: serde_json::Value =
        serde_json::from_slice(&text).map_err(|error| no_study(&error.to_string()))?;
    match value["schema"].as_u64() {
        Some(schema) if schema == u64::from(SCHEMA) => {}
        Some(schema) => {
            let message = format!("`{shown}` has schema {schema}, this splitpoint reads {SCHEMA}");
            return Err(Failure::new(Exit::Usage, message).hint("save the study again"));
        }
        None => return Err(no_study("it has no number `schema`")),
    }
    serde_json::from_value(value).map_err(|error| no_study(&error.to_string()))
}

/// Refuses to write over anything but a saved study.
fn may_replace(path: &Path) -> Result<()> {
    let has_fields = |value: serde_json::Value| {
        value["schema"].is_u64() && value["program"].is_object() && value["keys"].is_object()
    };
    // What is no JSON is read no farther than to where that shows.
    let is_study = |old| serde_json::from_reader(old).is_ok_and(has_fields);
    may_replace_if(path, "--json", "saved study", is_study)
}

/// Refuses to write over anything but a page of the lab.
fn may_replace_page(path: &Path) -> Result<()> {
    let is_page = |old: BufReader<File>| {
        let mut start = Vec::new();
        let read = old.take(count(report::PAGE_START.len())).read_to_end(&mut start);
        read.is_ok() && start == report::PAGE_START.as_bytes()
    };
    may_replace_if(path, "--html", "page of the lab", is_page)
}

/// Refuses to write over a file that is not empty and that `is_ours` does not know, and over
/// anything that is no regular file.
fn may_replace_if(
    path: &Path,
    option: &str,
    what: &str,
    is_ours: impl FnOnce(BufReader<File>) -> bool,
) -> Result<()> {
    let shown = path.display();
    let failed = |error: io::Error| Failure::io(format!("replace `{shown}`"), &error);
    let old = match splitpoint::open_regular(path, OpenOptions::new().read(true)) {
        Ok(old) => old,
        Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(Error::Io { source, .. }) => return Err(failed(source)),
        Err(error) => {
            return Err(Failure::new(Exit::Usage, format!("{error}: it is not replaced"))
                .hint(format!("give {option} the path of a regular file")));
        }
    };
    let is_empty = old.metadata().map_err(failed)?.len() == 0;
    if is_empty || is_ours(BufReader::new(old)) {
        return Ok(());
    }
    let message = format!("`{shown}` exists and is no {what}: it is not replaced");
    Err(Failure::new(Exit::Usage, message).hint(format!(
        "give {option} another name, or remove the file first: rm {}",
        shell_word(&path.to_string_lossy())
    )))
}

/// Prints the page of a study.
fn print_page(study: &Study) -> Result<()> {
    let mut out = console::data();
    out.write_all(report::html(study).as_bytes())
        .and_then(|()| out.flush())
        .map_err(|error| Failure::output(&error))
}

/// Returns a study of keys on which nothing has been measured yet.
pub(super) fn study(keys: KeyFacts) -> Study {
    Study::new(program(), machine(), keys)
}

/// Returns this program and how it was called.
fn program() -> Program {
    let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let arguments = std::env::args_os().skip(1);
    Program {
        version: env!("CARGO_PKG_VERSION").to_string(),
        arguments: arguments.map(|argument| escaped(argument.as_encoded_bytes(), "")).collect(),
        started_unix_s: started.as_secs(),
    }
}

/// Returns this machine.
fn machine() -> Machine {
    // Linux names the processor here; elsewhere only its kind is known.
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    Machine {
        processor: name.map_or(std::env::consts::ARCH, |(_, name)| name).to_string(),
        core_count: crate::number::count(cores),
        system: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
    }
}
