//! A race against the machine's libraries: the same program, with its library and with ours, in turn.
//!
//! ```text
//! cargo xtask race --drop-ins [PAIRS] [ENTRIES] [ROUNDS] [FOLDER]
//! ```
//!
//! installs the libraries, and runs this with their PREFIX before the numbers.
//!
//! For gdbm, its compatibility library (ndbm), db 1.85 and hsearch it prints the best time of each kind of
//! call, and the ratio; of hsearch with ENTRIES entries, whose number the C library is told and ours is not.
//! Last, the time in which the program starts and ends. The program checks every answer. A library that the
//! machine lacks is left out. The files are in FOLDER, or in one of the system's.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

type Times = BTreeMap<String, f64>;

/// A library of the machine, and how a program that uses it gets ours.
struct Library {
    name: &'static str,
    /// What the program is compiled and linked with.
    compiled: &'static [&'static str],
    ours: Ours,
}

/// Where ours lies in the prefix.
enum Ours {
    /// In the folder of libraries that have the names of the originals.
    DropIn,
    Preloaded(&'static str),
}

const LIBRARIES: [Library; 4] = [
    Library { name: "gdbm", compiled: &["-DGDBM", "-lgdbm"], ours: Ours::DropIn },
    Library { name: "ndbm", compiled: &["-DNDBM", "-lgdbm_compat", "-lgdbm"], ours: Ours::DropIn },
    Library {
        name: "db185",
        compiled: &["-DDB185", "-DDB_HEADER=<db_185.h>", "-ldb-5.3"],
        ours: Ours::Preloaded("libsplitpoint_db185.so"),
    },
    Library {
        name: "hsearch",
        compiled: &["-DHSEARCH"],
        ours: Ours::Preloaded("libsplitpoint_hsearch.so"),
    },
];

/// Starts of a program that are timed.
const STARTS: u32 = 200;

struct Race {
    prefix: PathBuf,
    folder: PathBuf,
    pairs: String,
    entries: String,
    rounds: u32,
}

fn main() -> std::io::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let mut out = std::io::stdout();
    let Some(prefix) = args.first() else {
        return writeln!(out, "what `cargo xtask stage` has made is missing: see benches/race.rs");
    };
    let number = |i: usize, default: &str| args.get(i).map_or(default, String::as_str).to_string();
    let folder = args.get(4).map_or_else(std::env::temp_dir, PathBuf::from);
    let race = Race {
        prefix: std::path::absolute(prefix)?,
        folder: folder.join(format!("splitpoint-race-{}", std::process::id())),
        pairs: number(1, "1000000"),
        entries: number(2, "10000000"),
        rounds: number(3, "3").parse().unwrap_or(3),
    };
    std::fs::create_dir(&race.folder)?;
    writeln!(
        out,
        "{} pairs, {} entries, best of {}; ns a call: the machine's, ours, ratio",
        race.pairs, race.entries, race.rounds
    )?;
    for library in &LIBRARIES {
        race.run(library, &mut out)?;
    }
    std::fs::remove_dir_all(&race.folder)
}

impl Race {
    fn run(&self, library: &Library, out: &mut impl Write) -> std::io::Result<()> {
        let Some(program) = self.compile(library)? else {
            return writeln!(out, "{:8} is not on this machine", library.name);
        };
        let (mut original, mut ours) = (Times::new(), Times::new());
        for _ in 0..self.rounds {
            self.run_once(library, &program, false, &mut original)?;
            self.run_once(library, &program, true, &mut ours)?;
        }
        for (what, time) in &ours {
            let other = original[what];
            writeln!(
                out,
                "{:8} {what:16} {other:12.1} {time:12.1} {:6.2}",
                library.name,
                time / other
            )?;
        }
        Ok(())
    }

    /// Compiles the program for the library of the machine, if it is there.
    fn compile(&self, library: &Library) -> std::io::Result<Option<PathBuf>> {
        let program = self.folder.join(library.name);
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/race.c");
        let mut compiler = Command::new("cc");
        compiler.arg("-O2").arg(source).arg("-o").arg(&program).args(library.compiled);
        let is_compiled = compiler.stderr(Stdio::null()).status()?.success();
        Ok(is_compiled.then_some(program))
    }

    fn command(&self, library: &Library, program: &Path, is_ours: bool) -> Command {
        let mut command = Command::new(program);
        command.env_remove("LD_LIBRARY_PATH").env_remove("LD_PRELOAD");
        let lib = self.prefix.join("lib");
        match library.ours {
            _ if !is_ours => {}
            Ours::DropIn => {
                command.env("LD_LIBRARY_PATH", lib.join("splitpoint/drop-in"));
            }
            Ours::Preloaded(name) => {
                command.env("LD_PRELOAD", lib.join(name)).env("UNTOLD", "1");
            }
        }
        command
    }

    /// Runs the program once, and keeps the best times.
    fn run_once(
        &self,
        library: &Library,
        program: &Path,
        is_ours: bool,
        best: &mut Times,
    ) -> std::io::Result<()> {
        let count = if library.name == "hsearch" { &self.entries } else { &self.pairs };
        let mut command = self.command(library, program, is_ours);
        let output = command.arg(self.folder.join("race.db")).arg(count).output()?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(std::io::Error::other(format!("{}: {said}", library.name)));
        }
        let mut keep = |what: &str, time: f64| {
            let kept = best.entry(what.to_string()).or_insert(time);
            *kept = kept.min(time);
        };
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            if let Some((what, time)) = line.split_once(' ')
                && let Ok(time) = time.parse::<f64>()
            {
                keep(what, time);
            }
        }
        let begun = Instant::now();
        for _ in 0..STARTS {
            self.command(library, program, is_ours).status()?;
        }
        keep("start", begun.elapsed().as_secs_f64() * 1e9 / f64::from(STARTS));
        Ok(())
    }
}
