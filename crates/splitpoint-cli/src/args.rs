//! The command line: the one definition behind help, completions, manual pages and `docs/cli.md`.

use clap::Parser;

use crate::command::Command;

/// A crash-safe hash table in one file.
///
/// A store holds records: a key and a value, both arbitrary bytes. Results go to standard
/// output, messages to standard error.
#[derive(Debug, Parser)]
#[command(
    name = "splitpoint",
    version,
    max_term_width = 100,
    arg_required_else_help = true,
    after_help = EXAMPLES,
    after_long_help = AFTER_LONG_HELP
)]
pub(crate) struct Cli {
    /// Print only errors
    #[arg(short, long, global = true, display_order = 900)]
    pub(crate) quiet: bool,

    /// The command to run
    #[command(subcommand)]
    pub(crate) command: Command,
}

macro_rules! examples {
    () => {
        "\
Examples:
  splitpoint demo                            # a quick tour of a store
  splitpoint put capitals.spt France Paris   # creates a missing file
  splitpoint get capitals.spt France
  splitpoint load words.spt /usr/share/dict/words
  splitpoint stat words.spt"
    };
}

const EXAMPLES: &str = examples!();

const AFTER_LONG_HELP: &str = concat!(
    examples!(),
    "

Exit codes:
  0    done
  1    no: a key is missing, check found damage, or some records could not be
       converted or saved
  2    the command line is wrong
  3    a file is missing or cannot be opened, or another process has it open
  4    the store is corrupt
  5    the operating system refused to read or write
  70   a bug in splitpoint
  130  interrupted by Ctrl-C (143: by a termination signal, 129: by a closed
       terminal); the store is valid

Environment:
  NO_COLOR        disable colors
  CLICOLOR_FORCE  use colors even if the output is not a terminal"
);

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    /// The command itself, its commands, and theirs.
    fn all_commands(main: &clap::Command) -> Vec<&clap::Command> {
        let inner = main.get_subcommands().flat_map(all_commands);
        std::iter::once(main).chain(inner).collect()
    }

    #[test]
    fn every_command_has_help_with_an_example() {
        // The program calls hidden ones itself.
        let main = Cli::command();
        let commands = all_commands(&main).into_iter().skip(1);
        for command in commands.filter(|command| !command.is_hide_set()) {
            let name = command.get_name();
            assert!(command.get_about().is_some(), "{name} has no help");
            let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(after.starts_with("Examples:\n  splitpoint "), "{name} has no example");
            assert!(after.lines().all(|line| line.len() <= 80), "{name} has a long example");
            for argument in command.get_arguments() {
                assert!(argument.get_help().is_some(), "{name} {} has no help", argument.get_id());
            }
        }
    }

    /// Takes every `splitpoint ...` out of the examples and parses it.
    #[test]
    fn every_example_is_a_command_line_that_parses() {
        let mut parsed = 0;
        let main = Cli::command();
        for command in all_commands(&main) {
            let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            for line in after.lines().skip(1) {
                let line = line.split(" # ").next().unwrap_or_default();
                for part in line.split(" | ").flat_map(|part| part.split(" || ")) {
                    let words = part.split(&['<', '>'][..]).next().unwrap_or_default();
                    let words: Vec<&str> =
                        words.split_whitespace().map(|word| word.trim_matches('\'')).collect();
                    let start = words.iter().position(|word| *word == "splitpoint");
                    let Some(words) = start.map(|start| &words[start..]) else { continue };
                    // `xargs` adds the keys.
                    let keys = (words.last() == Some(&"--")).then_some("key");
                    let result = Cli::try_parse_from(words.iter().copied().chain(keys));
                    assert!(result.is_ok(), "{line}: {}", result.unwrap_err());
                    parsed += 1;
                }
            }
        }
        assert!(parsed > 30, "only {parsed} examples were found");
    }

    /// The words of `docs/glossary.md`: a user must not meet two names for one thing.
    #[test]
    fn help_uses_the_words_of_the_glossary() {
        let manual = crate::manual::markdown();
        for word in ["entry", "entries", "item", "iterator", "spill", "vacuum"] {
            assert!(
                !manual.split(|c: char| !c.is_alphanumeric()).any(|found| found == word),
                "the help says `{word}`"
            );
        }
    }
}
