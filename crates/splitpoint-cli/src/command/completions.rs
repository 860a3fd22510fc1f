//! `splitpoint completions`: print a shell's completion script.

use std::io::Write;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::Cli;
use crate::console;
use crate::failure::{Failure, Result};

/// Print a completion script for a shell
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  splitpoint completions bash | sudo tee /etc/bash_completion.d/splitpoint
  splitpoint completions zsh > ~/.zfunc/_splitpoint
  splitpoint completions fish > ~/.config/fish/completions/splitpoint.fish")]
pub(crate) struct Args {
    /// The shell
    shell: Shell,
}

/// Prints a completion script.
pub(super) fn run(args: &Args) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "splitpoint", &mut script);
    let mut out = console::data();
    out.write_all(&script).and_then(|()| out.flush()).map_err(|error| Failure::output(&error))
}
