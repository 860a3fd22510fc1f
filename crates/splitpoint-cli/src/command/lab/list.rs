//! `splitpoint lab list`: the hash functions and the facts about them.

use std::ffi::OsStr;
use std::fmt::Write as _;

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use serde::Serialize;
use splitpoint_lab::Specimen;
use splitpoint_lab::specimen::{Seeding, Stability};

use crate::console;
use crate::failure::{Exit, Failure, Result};

/// List the hash functions, or print the facts about one
///
/// The facts are its width, its seed, whether files may name it, the reduction it was published
/// with, its source, who uses it, when to avoid it, and its other names. Names match regardless of case, hyphens
/// and underscores.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  splitpoint lab list
  splitpoint lab list fnv1a-32
  splitpoint lab list MurmurHash3                # by another name
  splitpoint lab list --json | jq -r '.[] | select(.stable) | .name'")]
pub(super) struct Args {
    /// The function [default: list all]
    #[arg(value_parser = FunctionName, hide_possible_values = true)]
    name: Option<String>,

    /// Print a JSON array of objects
    #[arg(long)]
    json: bool,
}

/// The facts of one function.
#[derive(Debug, Serialize)]
struct Facts {
    name: &'static str,
    aliases: Vec<&'static str>,
    width_bits: u32,
    seed: &'static str,
    stable: bool,
    keys: &'static str,
    reduction: Option<String>,
    source: &'static str,
    used_in: Option<&'static str>,
    avoid: &'static str,
}

impl Facts {
    fn of(specimen: &Specimen) -> Self {
        Self {
            name: specimen.name(),
            aliases: specimen.aliases().collect(),
            width_bits: specimen.width_bits(),
            seed: match specimen.seeding() {
                Seeding::None => "none",
                Seeding::Bits32 => "32 bits",
                Seeding::Bits64 => "64 bits",
                Seeding::Key128 => "a key of 128 bits",
                Seeding::Key256 => "a key of 256 bits",
            },
            stable: specimen.stability() == Stability::Frozen,
            keys: specimen.layout().description(),
            reduction: specimen.historic_reduction().map(|reduction| reduction.to_string()),
            source: specimen.source(),
            used_in: Some(specimen.users()).filter(|users| !users.is_empty()),
            avoid: specimen.avoid(),
        }
    }
}

/// Lists the functions, or the facts about one.
pub(super) fn run(args: &Args) -> Result<()> {
    let facts: Vec<Facts> = match &args.name {
        Some(name) => vec![Facts::of(by_name(name)?)],
        None => Specimen::all().map(Facts::of).collect(),
    };
    if args.json {
        return console::print_json(&facts);
    }
    console::print_styled(&match args.name {
        Some(_) => one_in_words(&facts[0]),
        None => all_in_words(&facts),
    })
}

/// The name of a function. Shell completions offer the canonical names.
///
/// It accepts any text: [`by_name`] also knows the other names, and its error suggests the nearest.
#[derive(Clone, Debug)]
pub(super) struct FunctionName;

impl TypedValueParser for FunctionName {
    type Value = String;

    fn parse_ref(
        &self,
        command: &clap::Command,
        arg: Option<&clap::Arg>,
        value: &OsStr,
    ) -> std::result::Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let value = |specimen: &Specimen| PossibleValue::new(specimen.name());
        Some(Box::new(Specimen::all().map(value)))
    }
}

/// Returns the function called `name`, or a usage failure that suggests the nearest name.
pub(super) fn by_name(name: &str) -> Result<&'static Specimen> {
    Specimen::by_name(name).map_err(|error| {
        Failure::new(Exit::Usage, error.to_string()).hint("splitpoint lab list shows them all")
    })
}

fn all_in_words(facts: &[Facts]) -> String {
    let mut out = format!("{:<27}{:>4}  {:<18}{:<9}reduction\n", "name", "bits", "seed", "output");
    for Facts { name, width_bits, seed, stable, reduction, .. } in facts {
        let output = if *stable { "frozen" } else { "memory" };
        let reduction = reduction.as_deref().unwrap_or("-");
        let _ = writeln!(out, "{name:<27}{width_bits:>4}  {seed:<18}{output:<9}{reduction}");
    }
    let _ = writeln!(out, "\n{:<27}other names", "name");
    for Facts { name, aliases, .. } in facts.iter().filter(|facts| !facts.aliases.is_empty()) {
        let _ = writeln!(out, "{name:<27}{}", aliases.join(", "));
    }
    out
}

fn one_in_words(facts: &Facts) -> String {
    let Facts { name, aliases, width_bits, seed, stable, keys, reduction, .. } = facts;
    let Facts { source, used_in, avoid, .. } = facts;
    let output = match stable {
        true => "frozen: it may be named in a file",
        false => "may change with the version or the machine: in memory only",
    };
    let reduction = reduction.as_deref().unwrap_or("any");
    let aliases = if aliases.is_empty() { "none".to_owned() } else { aliases.join(", ") };
    let used_in = used_in.map_or_else(String::new, |users| format!("  used in      {users}\n"));
    format!(
        "{name}\n  other names  {aliases}\n  source       {source}\n{used_in}  width        {width_bits} bits\n  \
         seed         {seed}\n  output       {output}\n  keys         {keys}\n  \
         reduction    {reduction}\n  do not use   {avoid}\n"
    )
}
