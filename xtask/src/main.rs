//! Automation of this repository: `cargo xtask test`, `tidy`, `docs`, `race`, `stage` and
//! `ci-deps`.
//!
//! One way to do each thing, the same on a developer's machine and in CI.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

mod console;
mod dependencies;
mod docs;
mod drop_ins;
mod hash_ids;
mod instructions;
mod lanes;
mod layers;
mod licenses;
mod process;
mod python;
mod race;
mod rust;
mod schema;
mod stage;
mod tidy;
mod tree;

const HELP: &str = "\
Automation of this repository.

usage: cargo xtask <command>

commands:
  test [WORD]   install what the tests need, then run them all, in layers,
                or only the layers with WORD in their names; with
                --no-install skip what needs a missing program, by name
  tidy          check the rules that no compiler checks
  docs          bring the generated parts of docs/ up to date
  race          run other engines and this one against each other; `race --help`
  stage PREFIX [WORD]
                build the C libraries, or those with WORD in their names,
                and install them under PREFIX, with headers and manual pages
  ci-deps       install what the tests need

`cargo xtask test` stops at the first layer that fails. With SPLITPOINT_SLOW=1 the same tests run
more rounds and larger sizes.
";

use dependencies::Installing;

/// What went wrong, for the user, with its remedy where there is one.
type Failure = String;

/// What the user asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Command {
    Help,
    /// All layers, or those with a word in their names.
    Test {
        word: Option<String>,
        installing: Installing,
    },
    Tidy,
    Docs,
    /// The options, for the program that runs the race.
    Race(Vec<String>),
    /// Where the C libraries are installed; all, or those with a word in their names.
    Stage {
        prefix: PathBuf,
        word: Option<String>,
    },
    InstallDependencies,
}

fn main() -> ExitCode {
    let arguments: Vec<OsString> = env::args_os().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(|word| word.to_str().unwrap_or("?")).collect();
    match parse(&words).and_then(run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            console::complain(&format!("error: {failure}"));
            ExitCode::FAILURE
        }
    }
}

fn parse(words: &[&str]) -> Result<Command, Failure> {
    match words {
        [] => Err(format!("which command?\n\n{HELP}")),
        ["race", options @ ..] => {
            Ok(Command::Race(options.iter().map(|&word| word.to_owned()).collect()))
        }
        ["help" | "-h" | "--help", ..] | [_, "-h" | "--help"] => Ok(Command::Help),
        ["test", options @ ..] => parse_test(options),
        ["stage", prefix] => Ok(Command::Stage { prefix: prefix.into(), word: None }),
        ["stage", prefix, word] => {
            Ok(Command::Stage { prefix: prefix.into(), word: Some((*word).to_owned()) })
        }
        ["stage"] => Err(format!("where to? `cargo xtask stage PREFIX`\n\n{HELP}")),
        ["tidy"] => Ok(Command::Tidy),
        ["docs"] => Ok(Command::Docs),
        ["ci-deps"] => Ok(Command::InstallDependencies),
        [command] => Err(format!("there is no command `{command}`\n\n{HELP}")),
        [_, surplus, ..] => Err(format!("unexpected argument `{surplus}`\n\n{HELP}")),
    }
}

fn parse_test(options: &[&str]) -> Result<Command, Failure> {
    let mut word = None;
    let mut installing = Installing::Allowed;
    for option in options {
        match *option {
            "--no-install" => installing = Installing::Refused,
            unknown if unknown.starts_with('-') => {
                return Err(format!("there is no option `{unknown}`\n\n{HELP}"));
            }
            surplus if word.is_some() => {
                return Err(format!("unexpected argument `{surplus}`\n\n{HELP}"));
            }
            first => word = Some(first.to_owned()),
        }
    }
    Ok(Command::Test { word, installing })
}

fn run(command: Command) -> Result<(), Failure> {
    let root = repository_root();
    match command {
        Command::Help => console::say(HELP.trim_end()),
        Command::Test { word, installing } => layers::run(&root, word.as_deref(), installing)?,
        Command::Tidy => tidy::run(&root)?,
        Command::Docs => docs::regenerate(&root)?,
        Command::Race(options) => race::run(&root, &options)?,
        Command::Stage { prefix, word } => {
            stage::run(&root, &prefix, word.as_deref(), stage::RELEASE)?;
        }
        Command::InstallDependencies => drop(dependencies::install(&root, Installing::Allowed)?),
    }
    Ok(())
}

/// Returns the directory above the one of this package.
fn repository_root() -> PathBuf {
    // Set by `cargo run`; the path at the time of building is wrong once the repository has moved.
    let package = env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    package.parent().expect("the package is in a directory of the repository").to_path_buf()
}

#[cfg(test)]
mod tests {
    use super::{Command, Installing, parse};

    #[test]
    fn unknown_commands_are_refused_with_the_help() {
        for words in
            [&[][..], &["tests"], &["tidy", "now"], &["test", "one", "more"], &["test", "--no"]]
        {
            let failure = parse(words).expect_err("not a command");
            assert!(failure.contains("usage: cargo xtask"), "{words:?}: {failure}");
        }
    }

    #[test]
    fn tests_are_chosen_by_a_word_and_may_be_run_without_installing() {
        let test = |word: Option<&str>, installing| {
            Ok(Command::Test { word: word.map(str::to_owned), installing })
        };
        assert_eq!(parse(&["test"]), test(None, Installing::Allowed));
        assert_eq!(parse(&["test", "loom"]), test(Some("loom"), Installing::Allowed));
        assert_eq!(parse(&["test", "--no-install"]), test(None, Installing::Refused));
        assert_eq!(
            parse(&["test", "--no-install", "loom"]),
            test(Some("loom"), Installing::Refused)
        );
    }

    #[test]
    fn the_options_of_a_race_are_passed_on() {
        let options = ["--quick", "--help"].map(str::to_owned);
        assert_eq!(parse(&["race", "--quick", "--help"]), Ok(Command::Race(options.into())));
    }

    #[test]
    fn help_is_given_for_every_command() {
        for words in [&["--help"][..], &["help"], &["test", "--help"], &["tidy", "-h"]] {
            assert_eq!(parse(words), Ok(Command::Help), "{words:?}");
        }
    }
}
