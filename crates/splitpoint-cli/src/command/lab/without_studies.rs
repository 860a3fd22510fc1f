//! The names of the studies in a command that is built without them: each says where they are.

use std::ffi::OsString;

use clap::{Arg, ArgMatches, FromArgMatches, Subcommand, value_parser};

use crate::failure::{Exit, Failure};

const NAMES: [&str; 10] = [
    "replay", "golden", "tables", "layout", "nfs", "trace", "paper", "classics", "partial", "merge",
];

/// A study that somebody has asked for.
#[derive(Debug)]
pub(super) struct Command(String);

impl Command {
    /// Returns the command as its user has typed it.
    pub(super) fn shown(&self) -> String {
        format!("`splitpoint lab {}`", self.0)
    }
}

/// Returns why `what` is refused.
pub(super) fn refused(what: &str) -> Failure {
    let message = format!("{what} is not for the command of the Python package");
    Failure::new(Exit::Usage, message).hint(
        "the whole command has it: `cargo install --locked --path crates/splitpoint-cli` in the \
         repository makes ~/.cargo/bin/splitpoint; call it by this path, since the package's comes \
         first in a virtual environment",
    )
}

impl FromArgMatches for Command {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self(matches.subcommand_name().unwrap_or_default().to_owned()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Subcommand for Command {
    fn augment_subcommands(parent: clap::Command) -> clap::Command {
        // Whatever follows, `--help` too, is accepted.
        let rest = || {
            let values = Arg::new("rest").num_args(0..).value_parser(value_parser!(OsString));
            values.trailing_var_arg(true).allow_hyphen_values(true)
        };
        let study = |name| clap::Command::new(name).hide(true).disable_help_flag(true).arg(rest());
        parent.subcommands(NAMES.map(study))
    }

    fn augment_subcommands_for_update(parent: clap::Command) -> clap::Command {
        Self::augment_subcommands(parent)
    }

    fn has_subcommand(name: &str) -> bool {
        NAMES.contains(&name)
    }
}
