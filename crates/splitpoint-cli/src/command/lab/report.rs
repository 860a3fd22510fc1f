//! `splitpoint lab report`: a saved study as a page, or in words.

use std::path::PathBuf;

use serde_json::Value;
use splitpoint_lab::Study;
use splitpoint_lab::study::Interruption;

use super::saving::{self, Output};
use super::{hash, table};
use crate::bytes::escaped;
use crate::chains::Form;
use crate::console::Console;
use crate::failure::Result;

/// Make a page of a saved study
///
/// The page is one file that needs no other: pictures, tables and the verdict in words, to be read
/// in any browser, on paper, or by a screen reader. It is made of the study alone, so that it is
/// the same page that --html would have made when the study was measured. Without --html the
/// verdict and the bars are printed.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  splitpoint lab table words.txt --hash fnv1a-32 --json words.json
  splitpoint lab report words.json --html words.html
  splitpoint lab report words.json")]
pub(super) struct Args {
    /// The study, as --json FILE saved it
    study: PathBuf,

    #[command(flatten)]
    output: Output,
}

/// Makes the page.
pub(super) fn run(args: &Args, console: Console) -> Result<()> {
    args.output.check()?;
    let study = saving::load(&args.study)?;
    args.output.deliver(&study, console, in_words)
}

/// One measurement is told in depth, several are compared.
fn in_words(study: &Study) -> String {
    let study = &readable(study);
    let words = if study.reports.len() == 1 {
        table::in_words(study, Form::default())
    } else {
        hash::in_words(study)
    };
    match &study.interruption {
        None => words,
        Some(Interruption { missing, .. }) => {
            format!("stopped before its end; missing: {missing}\n\n{words}")
        }
    }
}

/// Returns the study without control characters: the file may be anybody's.
fn readable(study: &Study) -> Study {
    fn escape(value: &mut Value) {
        match value {
            Value::String(text) => *text = escaped(text.as_bytes(), ""),
            Value::Array(values) => values.iter_mut().for_each(escape),
            Value::Object(fields) => fields.values_mut().for_each(escape),
            _ => {}
        }
    }
    let mut value = serde_json::to_value(study).expect("a study can be saved");
    escape(&mut value);
    serde_json::from_value(value).expect("texts are free, and variants have plain names")
}
