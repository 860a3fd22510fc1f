//! `splitpoint lab nfs`: file handles under NetBSD's hash functions.

use std::io::BufReader;
use std::path::{Path, PathBuf};

use splitpoint_lab::handles::{self, BUCKETS, HandleReport};
use splitpoint_lab::zstd;

use super::super::saving::PageOutput;
use crate::command::shared::parse_seed;
use crate::console::Console;
use crate::failure::{Exit, Failure, Result};
use crate::files::open_stream;

/// Show how NetBSD's hash functions spread NFS file handles
///
/// Spreads the handles by four functions: the sum of their bytes, FNV-1 with the starting value of the
/// BSDs, FNV-1 with its own, and the function of today. Prints the line of vmstat for each, beside an
/// ideal hash: once with the generations in FILE, and once with random ones, as file systems of the
/// BSDs assign them.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  splitpoint lab nfs handles.txt
  splitpoint lab nfs handles.txt.zst --buckets 16384 --json
  find /usr -xdev -printf '%i\\n' | splitpoint lab nfs -")]
pub(crate) struct Args {
    /// Handles, one a line: inode and, if known, generation; may be zstd; - reads standard input
    file: PathBuf,

    /// Number of buckets, a power of two
    #[arg(long, value_name = "N", default_value_t = BUCKETS,
          value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    buckets: u64,

    /// The seed of the random generations, in decimal or in hex with 0x
    #[arg(long, default_value = "1", value_parser = parse_seed)]
    seed: u64,

    #[command(flatten)]
    output: PageOutput,
}

/// Reads the handles and spreads them.
pub(super) fn run(args: &Args, console: Console) -> Result<()> {
    args.output.check()?;
    let handles = read(&args.file)?;
    let source = args.file.display().to_string();
    let report = HandleReport::new(source, &handles, args.buckets, args.seed)
        .map_err(|error| Failure::new(Exit::Usage, error.to_string()))?;
    args.output.deliver(&report, console)
}

/// Reads handles from a file or from standard input.
pub(super) fn read(path: &Path) -> Result<Vec<handles::Handle>> {
    let shown = path.display();
    let failed = |error: &std::io::Error| Failure::reading(format_args!("`{shown}`"), error);
    let malformed =
        |error: handles::HandleError| Failure::new(Exit::Usage, format!("`{shown}`: {error}"));
    let handles = if path == Path::new("-") {
        handles::read(std::io::stdin().lock()).map_err(malformed)?
    } else {
        let input =
            zstd::reader(BufReader::new(open_stream(path)?)).map_err(|error| failed(&error))?;
        handles::read(input).map_err(malformed)?
    };
    if handles.is_empty() {
        return Err(Failure::new(Exit::No, format!("`{shown}` holds no handles")));
    }
    Ok(handles)
}
