//! `splitpoint lab classics`: the hashing schemes of the paper of 1991 on the user's keys.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use splitpoint_lab::classics::{self, Plan};
use splitpoint_lab::keys::{Done, Phase, Watch as _};
use splitpoint_legacy::algorithm::{Figure, Parameters, StoreMode, Variant};

use super::super::keys::KeyArgs;
use super::super::saving::PageOutput;
use super::super::watching::Watching;
use crate::command::shared::parse_seed;
use crate::console::{self, Console};
use crate::failure::{Exit, Failure, Result};
use crate::files::read_whole;
use crate::number::{bytes, count, counted};

/// Run the hashing schemes of the 1991 paper on your own keys
///
/// Stores the keys in dbm, ndbm, sdbm, gdbm, hsearch with every option, dynahash and hash (db 1.85),
/// as algorithms in memory, and prints for each what a hit and a miss cost beside an ideal hash,
/// splits, fill, the sizes of index and file, and which keys it refuses and why. The HTML page draws
/// the probes of hsearch over its load. A file without keys gives exit code 1.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  splitpoint lab classics /usr/share/dict/words
  splitpoint lab classics words --algorithm ndbm --algorithm hash --page 512
  splitpoint lab classics words --html classics.html
  splitpoint lab classics --show figure-1          # the trie of the paper
  splitpoint lab classics words --show sdbm        # the trie of your keys")]
pub(crate) struct Args {
    #[command(flatten)]
    keys: KeyArgs,

    /// A file with a value for each key, one a line; of duplicate keys the first counts [default: the
    /// number of the key]
    #[arg(long, value_name = "FILE")]
    values: Option<PathBuf>,

    /// Bytes of a page, for dbm, ndbm, sdbm, gdbm and hash, of which the last two round it up to a
    /// power of two [default: 512, 1024, 1024, 4096, 256]
    #[arg(long, value_name = "BYTES")]
    page: Option<usize>,

    /// Split a bucket when their mean number of keys exceeds this, for dynahash and hash [default: 1,
    /// 8]
    #[arg(long, value_name = "KEYS")]
    fill: Option<u32>,

    /// Expected number of keys, for hsearch, dynahash and hash [default: the number of keys for
    /// hsearch; the others grow]
    #[arg(long, value_name = "N")]
    nelem: Option<u64>,

    /// Run only this algorithm, or this module with all of its options; repeat it for more. hsearch is
    /// the module, hsearch-mult its algorithm with the defaults
    #[arg(long, value_name = "NAME")]
    algorithm: Vec<String>,

    /// The seed of the keys that are missed, in decimal or in hex with 0x
    #[arg(long, default_value = "1", value_parser = parse_seed)]
    seed: u64,

    /// Draw a table as text instead: figure-1 to figure-4 of the paper, or the table that an
    /// algorithm makes of the keys
    #[arg(long, value_name = "WHAT", conflicts_with_all = ["json", "html", "markdown", "algorithm", "seed"])]
    show: Option<String>,

    #[command(flatten)]
    output: PageOutput,
}

/// Measures, or draws.
pub(super) fn run(args: &Args, console: Console) -> Result<()> {
    let figure = args.show.as_deref().and_then(Figure::by_name);
    if let Some(figure) = figure {
        if args.keys.has_file() {
            let message = format!("{} is drawn from keys of its own", figure.name());
            return Err(Failure::new(Exit::Usage, message).hint("omit the file"));
        }
        if args.values.is_some() || args.parameters() != Parameters::default() {
            let message = format!("{} has parameters of its own", figure.name());
            return Err(Failure::new(Exit::Usage, message)
                .hint("omit --values, --page, --fill and --nelem"));
        }
        let drawing = figure.draw().map_err(|error| parameter(&error))?;
        return console::print_styled(&drawing);
    }
    let shown = args.show.as_deref().map(by_name).transpose()?;
    args.keys.require_file(None)?;
    args.output.check()?;
    if args.keys.keeps_duplicates() {
        return Err(
            Failure::new(Exit::Usage, "a table stores a key once").hint("omit --keep-duplicates")
        );
    }
    let variants = shown.map_or_else(|| chosen(&args.algorithm), |shown| Ok(vec![shown]))?;
    check_parameters(&variants, &args.parameters(), args.keys.memory_bytes / 2)?;
    let mut watching = Watching::new(args.keys.progress, console);
    // Every key has a value, also one that comes again.
    let of_values = args.values.as_ref().map(|_| args.keys.with_duplicates());
    let keys = of_values.as_ref().unwrap_or(&args.keys).read(&mut watching, console)?;
    let Some(held) = keys.held() else {
        let message = format!("`{}` does not fit into memory", args.keys.file().display());
        return Err(Failure::new(Exit::Usage, message)
            .hint("--memory-bytes allows more; or use a part of the keys"));
    };
    let values = Values::read(args.values.as_deref(), held.len())?;
    let pairs = held.iter().enumerate().map(|(index, key)| (key, values.of(index)));
    let pairs = classics::distinct(pairs);
    if let Some(variant) = shown {
        return show(variant, &pairs, &args.parameters());
    }
    let plan = Plan {
        source: args.keys.file().display().to_string(),
        variants,
        parameters: args.parameters(),
        seed: args.seed,
    };
    let total = count(plan.variants.len());
    let watching = RefCell::new(watching);
    let mut begin = |number: usize| {
        let phase = Phase { name: "tables", pass: 1, pass_count: 1 };
        let done = Done { key_count: count(number), key_count_total: Some(total), input_bytes: 0 };
        watching.borrow_mut().progress(phase, done);
    };
    let is_stopped = || watching.borrow().is_stopped();
    let report = classics::measure(&pairs, &plan, &mut begin, &is_stopped);
    let report = report.map_err(|error| parameter(&error))?;
    watching.borrow_mut().end_phase();
    args.output.deliver(&report, console)?;
    match &report.interruption {
        None => Ok(()),
        Some(missing) => {
            let exit = watching.borrow().exit().unwrap_or(Exit::Interrupted);
            Err(Failure::new(exit, format!("interrupted: {missing}")))
        }
    }
}

impl Args {
    fn parameters(&self) -> Parameters {
        Parameters { page_bytes: self.page, fill_factor: self.fill, expected_records: self.nelem }
    }
}

/// Returns the variants with these names or of these modules, or without names all.
fn chosen(names: &[String]) -> Result<Vec<Variant>> {
    if names.is_empty() {
        return Ok(classics::variants());
    }
    let mut chosen = Vec::new();
    for name in names {
        match Variant::by_name(name) {
            Some(variant) if name != "hsearch" => chosen.push(variant),
            _ => {
                let of_module = classics::variants().into_iter();
                let mut of_module = of_module.filter(|it| it.module() == name).peekable();
                if of_module.peek().is_none() {
                    return Err(unknown(name));
                }
                chosen.extend(of_module);
            }
        }
    }
    let mut seen = Vec::new();
    chosen.retain(|variant| {
        let is_new = !seen.contains(variant);
        seen.push(*variant);
        is_new
    });
    Ok(chosen)
}

fn by_name(name: &str) -> Result<Variant> {
    Variant::by_name(name).ok_or_else(|| unknown(name))
}

fn unknown(name: &str) -> Failure {
    Failure::new(Exit::Usage, format!("there is no algorithm `{name}`")).hint(
        "choose dbm, ndbm, sdbm, gdbm, hsearch, dynahash or hash, or hsearch with options such as \
         hsearch-mult, hsearch-div-brent or hsearch-sortup; --show also takes figure-1 to figure-4",
    )
}

fn parameter(error: &splitpoint::Error) -> Failure {
    Failure::new(Exit::Usage, error.to_string())
        .hint("choose another --page, --fill or --nelem, or fewer algorithms with --algorithm")
}

/// Fails before the keys are read if a variant does not take the parameters, or if its empty table
/// takes more than `allowed_bytes`.
fn check_parameters(
    variants: &[Variant],
    parameters: &Parameters,
    allowed_bytes: u64,
) -> Result<()> {
    for variant in variants {
        let checked = variant.check(parameters);
        checked.map_err(|error| parameter(&error).within(variant.name()))?;
        let needed_bytes = variant.empty_bytes(parameters);
        if needed_bytes > allowed_bytes {
            let message = format!(
                "{}: too little memory: an empty table takes {} of {}",
                variant.name(),
                bytes(needed_bytes),
                bytes(allowed_bytes)
            );
            return Err(Failure::new(Exit::Usage, message).hint(
                "choose a smaller --nelem; --memory-bytes allows more, of which half is for keys",
            ));
        }
    }
    Ok(())
}

/// Prints the table that a variant makes of the pairs.
fn show(variant: Variant, pairs: &[(&[u8], &[u8])], parameters: &Parameters) -> Result<()> {
    let mut parameters = *parameters;
    if variant.module() == "hsearch" && parameters.expected_records.is_none() {
        parameters.expected_records = Some(count(pairs.len()));
    }
    let mut table = variant.create(&parameters).map_err(|error| parameter(&error))?;
    let mut refused = 0;
    for (key, value) in pairs {
        refused += u64::from(table.store(key, value, StoreMode::Insert).is_err());
    }
    let mut drawing = format!("{}: ", variant.name());
    drawing.push_str(&table.show());
    if refused > 0 {
        let _ = writeln!(drawing, "{} refused", counted(refused, "key"));
    }
    console::print_styled(&drawing)
}

/// The values of the keys, in order.
enum Values {
    Numbers(Vec<String>),
    Lines(Vec<Vec<u8>>),
}

impl Values {
    /// Reads a value for each of `key_count` keys, or numbers them.
    fn read(path: Option<&Path>, key_count: usize) -> Result<Self> {
        let Some(path) = path else {
            return Ok(Self::Numbers((1..=key_count).map(|number| number.to_string()).collect()));
        };
        let text = read_whole(path)?;
        let text = text.strip_suffix(b"\n").unwrap_or(&text);
        let lines: Vec<Vec<u8>> = text.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
        if lines.len() != key_count {
            let message = format!(
                "`{}` has {} for {}",
                path.display(),
                counted(count(lines.len()), "value"),
                counted(count(key_count), "key")
            );
            return Err(Failure::new(Exit::Usage, message)
                .hint("give a value for each key, one a line, also for duplicates, but not for blank lines"));
        }
        Ok(Self::Lines(lines))
    }

    fn of(&self, index: usize) -> &[u8] {
        match self {
            Self::Numbers(numbers) => numbers[index].as_bytes(),
            Self::Lines(lines) => &lines[index],
        }
    }
}
