//! How this program is run again: by its file, unless it is a part of another program, as of the interpreter
//! that has imported the Python package.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use crate::shell::shell_word;

/// The first words of a command that runs this program in another.
static IN_ANOTHER: OnceLock<Vec<OsString>> = OnceLock::new();

/// Notes the words that run this program, a file and its arguments; the first call counts.
pub(crate) fn is_run_by(words: Vec<OsString>) {
    let _ = IN_ANOTHER.set(words);
}

fn words() -> io::Result<Vec<OsString>> {
    match IN_ANOTHER.get() {
        Some(words) => Ok(words.clone()),
        None => Ok(vec![std::env::current_exe()?.into()]),
    }
}

/// Returns a command to which this program's arguments can be added.
///
/// # Errors
///
/// Those of the system, if it does not know the file of this program.
pub(crate) fn command() -> io::Result<Command> {
    let mut words = words()?.into_iter();
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words);
    Ok(command)
}

/// Returns the words by which the user can run this program again.
pub(crate) fn shown() -> String {
    let Ok(words) = words() else { return "splitpoint".to_string() };
    let program = Path::new(&words[0]);
    // A program that contains this one has the command beside it.
    let file = if words.len() > 1 { program.with_file_name("splitpoint") } else { program.into() };
    let name = file.file_name().unwrap_or_default();
    let mut dirs: Vec<_> =
        std::env::var_os("PATH").iter().flat_map(std::env::split_paths).collect();
    dirs.retain(|dir| dir.join(name).is_file());
    if dirs.first().is_some_and(|dir| dir.join(name) == file) {
        return shell_word(&name.to_string_lossy());
    }
    let inside = std::env::current_dir().ok();
    let inside = inside.and_then(|dir| program.strip_prefix(dir).ok());
    let first = inside.map_or_else(|| program.to_path_buf(), |inside| Path::new(".").join(inside));
    let rest = words[1..].iter().map(|word| word.to_string_lossy().into_owned());
    // An option needs no quotes, which `shell_word` gives it.
    let rest = rest.map(|word| if word.starts_with('-') { word } else { shell_word(&word) });
    let words: Vec<String> =
        std::iter::once(shell_word(&first.to_string_lossy())).chain(rest).collect();
    words.join(" ")
}
