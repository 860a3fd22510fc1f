//! Studies as files, which every command of the lab can save and some can load.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;
use splitpoint::Error;
use splitpoint_lab::classics::ClassicsReport;
use splitpoint_lab::handles::HandleReport;
use splitpoint_lab::live_kernel::LiveKernel;
use splitpoint_lab::live_store::LiveStore;
use splitpoint_lab::paper::PaperReport;
use splitpoint_lab::paper::seltzer_yigit::PaperRerun;
use splitpoint_lab::replay::{LayoutReport, REPLAY_SCHEMA, ReplayStudy, TableSizes};
use splitpoint_lab::study::{KeyFacts, Machine, Program, SCHEMA};
use splitpoint_lab::{Document, Study, document, report};

use crate::bytes::escaped;
use crate::console::{self, Console};
use crate::failure::{Exit, Failure, Result};
use crate::files::read_whole;
use crate::look::look;
use crate::new_file::NewFile;
use crate::number::count;
use crate::shell::shell_word;

/// What a command of the lab saves as JSON and renders.
pub(super) trait Saved: Serialize {
    /// Puts it into words and pictures.
    fn document(&self) -> Document;
}

impl Saved for Study {
    fn document(&self) -> Document {
        report::document(self)
    }
}

impl Saved for ReplayStudy {
    fn document(&self) -> Document {
        report::replay(self)
    }
}

impl Saved for LayoutReport {
    fn document(&self) -> Document {
        report::layouts(self)
    }
}

impl Saved for TableSizes {
    fn document(&self) -> Document {
        report::table_sizes(self)
    }
}

impl Saved for HandleReport {
    fn document(&self) -> Document {
        report::handles(self)
    }
}

impl Saved for LiveKernel {
    fn document(&self) -> Document {
        report::live_kernel(self)
    }
}

impl Saved for LiveStore {
    fn document(&self) -> Document {
        report::live_store(self)
    }
}

impl Saved for PaperRerun {
    fn document(&self) -> Document {
        report::paper_rerun(self)
    }
}

impl Saved for PaperReport {
    fn document(&self) -> Document {
        report::paper(self)
    }
}

impl Saved for ClassicsReport {
    fn document(&self) -> Document {
        report::classics(self)
    }
}

/// Where the result of a measurement goes.
#[derive(Debug, clap::Args)]
pub(super) struct Output {
    /// Print the study as JSON, or save it to a file for `lab report` and `lab compare`; - prints it
    #[arg(long, value_name = "FILE", num_args = 0..=1, display_order = 800)]
    #[expect(clippy::option_option, reason = "absent, alone, with a file")]
    json: Option<Option<PathBuf>>,

    /// Write the study as an HTML page, with charts, to a file; - prints the page
    #[arg(long, value_name = "FILE", display_order = 801)]
    html: Option<PathBuf>,

    /// Write the study as Markdown, for an issue or a wiki, to a file; - prints it
    #[arg(long, value_name = "FILE", display_order = 802)]
    markdown: Option<PathBuf>,
}

/// A format in which a study can be rendered to a file.
struct Rendering<'a> {
    option: &'static str,
    path: Option<&'a Path>,
    what: &'static str,
    /// The first bytes of every file in this format.
    start: &'static str,
    render: fn(&Document) -> String,
}

impl Rendering<'_> {
    /// Returns the file, unless it is standard output.
    fn file(&self) -> Option<&Path> {
        self.path.filter(|path| *path != Path::new("-"))
    }

    /// Returns whether it goes to standard output.
    fn is_printed(&self) -> bool {
        self.path == Some(Path::new("-"))
    }

    /// Refuses to replace a file that does not start like this format.
    fn check(&self) -> Result<()> {
        let is_ours = |old: BufReader<File>| {
            let mut start = Vec::new();
            let read = old.take(count(self.start.len())).read_to_end(&mut start);
            read.is_ok() && start == self.start.as_bytes()
        };
        self.file().map_or(Ok(()), |path| may_replace_if(path, self.option, self.what, is_ours))
    }
}

impl Output {
    /// Returns the file given to `--json`, if any.
    pub(super) fn json_file(&self) -> Option<&Path> {
        file_of_json(self.json.as_ref())
    }

    /// Returns whether one of its options is given.
    #[cfg(feature = "studies")]
    pub(super) fn is_asked_for(&self) -> bool {
        self.json.is_some() || self.html.is_some() || self.markdown.is_some()
    }

    fn renderings(&self) -> [Rendering<'_>; 2] {
        renderings(self.html.as_deref(), self.markdown.as_deref())
    }

    /// Fails early if saving the study would fail in the end.
    pub(super) fn check(&self) -> Result<()> {
        refuse_two_on_stdout(is_printed(self.json.as_ref()), &self.renderings())?;
        self.json_file().map_or(Ok(()), may_replace)?;
        self.renderings().iter().try_for_each(Rendering::check)
    }

    /// Prints a study in words, or prints or saves it in another form.
    pub(super) fn deliver(&self, study: &impl Saved, console: Console) -> Result<()> {
        self.deliver_with(study, console, || study.document().text(&look(false)))
    }

    /// Does the same with other text.
    pub(super) fn deliver_with(
        &self,
        study: &impl Saved,
        console: Console,
        in_words: impl FnOnce() -> String,
    ) -> Result<()> {
        if let Some(path) = self.json_file() {
            save(path, study)?;
            console.note(format_args!("saved the study to `{}`", path.display()));
        }
        write_renderings(&self.renderings(), study, console)?;
        if is_printed(self.json.as_ref()) {
            return console::print_json(study);
        }
        match self.renderings().iter().find(|form| form.is_printed()) {
            Some(form) => print(&(form.render)(&study.document())),
            None => console::print_styled(&in_words()),
        }
    }
}

/// Returns the file given to `--json`, unless it is standard output.
fn file_of_json(json: Option<&Option<PathBuf>>) -> Option<&Path> {
    json?.as_deref().filter(|path| *path != Path::new("-"))
}

/// Returns whether `--json` is given, alone or with `-`, so that JSON goes to standard output.
fn is_printed(json: Option<&Option<PathBuf>>) -> bool {
    json.is_some() && file_of_json(json).is_none()
}

/// Refuses to print more than one document, of which no program could read the first.
fn refuse_two_on_stdout(is_json_printed: bool, renderings: &[Rendering<'_>]) -> Result<()> {
    let printed = renderings.iter().filter(|form| form.is_printed()).map(|form| form.option);
    let options: Vec<&str> =
        is_json_printed.then_some("--json").into_iter().chain(printed).collect();
    match options[..] {
        [first, .., last] => {
            let message = format!("standard output has room for {first} or {last}, not for both");
            let hint = format!("give one of them a file: {last} FILE");
            Err(Failure::new(Exit::Usage, message).hint(hint))
        }
        _ => Ok(()),
    }
}

/// Returns the formats that have a file.
fn renderings<'a>(html: Option<&'a Path>, markdown: Option<&'a Path>) -> [Rendering<'a>; 2] {
    [
        Rendering {
            option: "--html",
            path: html,
            what: "lab page",
            start: document::PAGE_START,
            render: Document::html,
        },
        Rendering {
            option: "--markdown",
            path: markdown,
            what: "lab Markdown file",
            start: document::MARKDOWN_START,
            render: Document::markdown,
        },
    ]
}

/// Writes the renderings that go to files.
fn write_renderings(
    renderings: &[Rendering<'_>],
    study: &impl Saved,
    console: Console,
) -> Result<()> {
    for form in renderings {
        let Some(path) = form.file() else { continue };
        form.check()?;
        replace(path, (form.render)(&study.document()).as_bytes())?;
        console.note(format_args!("wrote the {} `{}`", form.what, path.display()));
    }
    Ok(())
}

/// Where a result goes that `lab report` does not read.
#[derive(Debug, clap::Args)]
pub(super) struct PageOutput {
    /// Print the result as a JSON object, or save it to a file; - prints it
    #[arg(long, value_name = "FILE", num_args = 0..=1, display_order = 800)]
    #[expect(clippy::option_option, reason = "absent, alone, with a file")]
    json: Option<Option<PathBuf>>,

    /// Write the result as an HTML page to a file; - prints the page
    #[arg(long, value_name = "FILE", display_order = 801)]
    html: Option<PathBuf>,

    /// Write the result as Markdown, for an issue or a wiki, to a file; - prints it
    #[arg(long, value_name = "FILE", display_order = 802)]
    markdown: Option<PathBuf>,
}

impl PageOutput {
    fn renderings(&self) -> [Rendering<'_>; 2] {
        renderings(self.html.as_deref(), self.markdown.as_deref())
    }

    /// Returns whether results are printed as JSON, one after the other; fails if they would go to files,
    /// or to pages.
    pub(super) fn is_json_of_several(&self) -> Result<bool> {
        match (&self.json, &self.html, &self.markdown) {
            (json, None, None) if file_of_json(json.as_ref()).is_none() => Ok(json.is_some()),
            _ => Err(Failure::new(Exit::Usage, "a watch has no end that a file could wait for")
                .hint("without --watch there is one result to save; --json alone prints lines")),
        }
    }

    /// Fails early if saving the result would fail in the end.
    pub(super) fn check(&self) -> Result<()> {
        refuse_two_on_stdout(is_printed(self.json.as_ref()), &self.renderings())?;
        if let Some(path) = file_of_json(self.json.as_ref()) {
            may_replace_result(path)?;
        }
        self.renderings().iter().try_for_each(Rendering::check)
    }

    /// Prints a result in words, or prints or saves it in another form.
    pub(super) fn deliver(&self, result: &impl Saved, console: Console) -> Result<()> {
        if let Some(path) = file_of_json(self.json.as_ref()) {
            may_replace_result(path)?;
            let mut text = serde_json::to_vec(result).map_err(|error| {
                Failure::new(Exit::Bug, format!("the result cannot be saved: {error}"))
            })?;
            text.push(b'\n');
            replace(path, &text)?;
            console.note(format_args!("saved the result to `{}`", path.display()));
        }
        write_renderings(&self.renderings(), result, console)?;
        if is_printed(self.json.as_ref()) {
            return console::print_json(result);
        }
        match self.renderings().iter().find(|form| form.is_printed()) {
            Some(form) => print(&(form.render)(&result.document())),
            None => console::print_styled(&result.document().text(&look(false))),
        }
    }
}

/// Refuses to replace anything except the JSON of a result.
fn may_replace_result(path: &Path) -> Result<()> {
    let has_schema = |value: serde_json::Value| value["schema"].is_u64();
    let is_result = |old| serde_json::from_reader(old).is_ok_and(has_schema);
    may_replace_if(path, "--json", "saved result", is_result)
}

/// Saves a study to a file, which at every moment holds either the old study or the new one.
///
/// Refuses to replace a file that is not a study.
pub(super) fn save(path: &Path, study: &impl Saved) -> Result<()> {
    may_replace(path)?;
    let mut text = serde_json::to_vec(study)
        .map_err(|error| Failure::new(Exit::Bug, format!("the study cannot be saved: {error}")))?;
    text.push(b'\n');
    replace(path, &text)
}

/// Writes a file beside the one at `path`, then renames it to `path`.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    let failed = |error: io::Error| Failure::io(format!("write `{}`", path.display()), &error);
    let (mut file, new) = NewFile::create(path, "lab", create_anew).map_err(failed)?;
    // Keep the permissions of the old file.
    if let Ok(old) = fs::metadata(path) {
        file.set_permissions(old.permissions()).map_err(failed)?;
    }
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(failed)?;
    new.publish_over()
}

/// Creates a file. If a killed process has left one of this name, removes it first and does not
/// write to it, because it may be a link by now, or open elsewhere.
fn create_anew(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => File::create_new(path),
    }
}

/// Reads a saved study of keys.
pub(super) fn load(path: &Path) -> Result<Study> {
    match load_any(path)? {
        Loaded::Keys(study) => Ok(*study),
        #[cfg(feature = "studies")]
        Loaded::Replays(_) => {
            let message = format!("`{}` is a saved replay, not a study of keys", path.display());
            Err(Failure::new(Exit::Usage, message).hint("render it with `splitpoint lab report`"))
        }
    }
}

/// A saved study.
pub(super) enum Loaded {
    /// Of hash functions on keys.
    Keys(Box<Study>),
    /// Of traces of the kernel's caches.
    #[cfg(feature = "studies")]
    Replays(Box<ReplayStudy>),
}

/// Reads a saved study of any kind.
pub(super) fn load_any(path: &Path) -> Result<Loaded> {
    let shown = path.display();
    let text = read_whole(path)?;
    let no_study = |reason: &str| {
        Failure::new(Exit::Usage, format!("`{shown}` is not a saved study: {reason}"))
            .hint("save a study with --json FILE, for example with `splitpoint lab hash`")
    };
    let value: serde_json::Value =
        serde_json::from_slice(&text).map_err(|error| no_study(&error.to_string()))?;
    let is_replay = value["traces"].is_array();
    #[cfg(not(feature = "studies"))]
    if is_replay {
        return Err(super::without_studies::refused(&format!("`{shown}`, a saved replay,")));
    }
    let readable = if is_replay { REPLAY_SCHEMA } else { SCHEMA };
    match value["schema"].as_u64() {
        Some(schema) if schema == u64::from(readable) => {}
        Some(schema) => {
            let message =
                format!("`{shown}` has schema {schema}, this splitpoint reads {readable}");
            return Err(Failure::new(Exit::Usage, message).hint("save the study again"));
        }
        None => return Err(no_study("it has no number `schema`")),
    }
    let wrong = |error: serde_json::Error| no_study(&error.to_string());
    #[cfg(feature = "studies")]
    if is_replay {
        return Ok(Loaded::Replays(Box::new(serde_json::from_value(value).map_err(wrong)?)));
    }
    Ok(Loaded::Keys(Box::new(serde_json::from_value(value).map_err(wrong)?)))
}

/// Refuses to replace anything except a saved study.
fn may_replace(path: &Path) -> Result<()> {
    let has_fields = |value: serde_json::Value| {
        let has = |field: &str| value[field].is_object() || value[field].is_array();
        value["schema"].is_u64() && has("program") && (has("keys") || has("traces"))
    };
    // The parser stops at the first byte that is not JSON.
    let is_study = |old| serde_json::from_reader(old).is_ok_and(has_fields);
    may_replace_if(path, "--json", "saved study", is_study)
}

/// Refuses to replace a file that is neither empty nor accepted by `is_ours`, and anything that is
/// not a regular file.
pub(super) fn may_replace_if(
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
            return Err(Failure::new(Exit::Usage, format!("{error}, so it was not replaced"))
                .hint(format!("give {option} the path of a regular file")));
        }
    };
    let is_empty = old.metadata().map_err(failed)?.len() == 0;
    if is_empty || is_ours(BufReader::new(old)) {
        return Ok(());
    }
    let message = format!("`{shown}` exists and is not a {what}, so it was not replaced");
    Err(Failure::new(Exit::Usage, message).hint(format!(
        "give {option} another name, or remove the file first: rm {}",
        shell_word(&path.to_string_lossy())
    )))
}

/// Prints a rendering as it is.
fn print(text: &str) -> Result<()> {
    let mut out = console::data();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|error| Failure::output(&error))
}

/// Returns a study of keys without any measurement yet.
pub(super) fn study(keys: KeyFacts) -> Study {
    Study::new(program(), machine(), keys)
}

/// Returns a study of replays without any trace yet.
pub(super) fn replay_study(seed_count: u64, draw_count: u64) -> ReplayStudy {
    ReplayStudy {
        schema: REPLAY_SCHEMA,
        program: program(),
        machine: machine(),
        seed_count,
        draw_count,
        traces: Vec::new(),
        attacks: Vec::new(),
    }
}

/// Returns this program and its arguments.
pub(super) fn program() -> Program {
    let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let arguments = std::env::args_os().skip(1);
    Program {
        version: env!("CARGO_PKG_VERSION").to_string(),
        arguments: arguments.map(|argument| escaped(argument.as_encoded_bytes(), "")).collect(),
        started_unix_s: started.as_secs(),
    }
}

/// Returns this machine.
pub(super) fn machine() -> Machine {
    // The kernel names the processor here on some architectures only.
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    Machine {
        processor: name.map_or(std::env::consts::ARCH, |(_, name)| name).to_string(),
        core_count: crate::number::count(cores),
        system: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
    }
}
