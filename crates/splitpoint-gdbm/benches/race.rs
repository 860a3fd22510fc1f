//! A race against the machine's gdbm: the same program, with its library and with ours, in turn.
//!
//! ```text
//! cargo bench -p splitpoint-gdbm --bench race -- [PAIRS] [ROUNDS] [FOLDER]
//! ```
//!
//! It prints the best time of each kind of call, and the ratio. The program checks every answer. Without
//! the original library it prints ours alone. The files are in FOLDER, or in one of the system's.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

type Times = BTreeMap<String, f64>;

fn main() -> std::io::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let number =
        |i: usize, default| args.get(i).and_then(|arg| arg.parse().ok()).unwrap_or(default);
    let (pairs, rounds) = (number(0, 1_000_000_u64), number(1, 3));
    let folder = args.get(2).map_or_else(std::env::temp_dir, PathBuf::from);
    let folder = folder.join(format!("splitpoint-race-{}", std::process::id()));
    std::fs::create_dir(&folder)?;
    let program = compile(&folder)?;
    let (mut ours, mut original) = (Times::new(), Times::new());
    for _ in 0..rounds {
        run(&program, &folder, pairs, true, &mut ours)?;
        // There need not be one.
        let _ = run(&program, &folder, pairs, false, &mut original);
    }
    let mut out = std::io::stdout();
    writeln!(out, "{pairs} pairs, best of {rounds}, ns a call: gdbm, ours, ratio")?;
    for (what, time) in &ours {
        match original.get(what) {
            Some(other) => {
                writeln!(out, "{what:16} {other:10.0} {time:10.0} {:6.2}", time / other)?;
            }
            None => writeln!(out, "{what:16} {:>10} {time:10.0}", "-")?,
        }
    }
    std::fs::remove_dir_all(&folder)
}

/// Compiles the program, which asks for the library by the name of the original.
fn compile(folder: &Path) -> std::io::Result<PathBuf> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let library = std::env::current_exe()?.with_file_name("libsplitpoint_gdbm.so");
    std::os::unix::fs::symlink(library, folder.join("libgdbm.so.6"))?;
    let program = folder.join("race");
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-I"]).arg(own.join("include")).arg(own.join("benches/race.c"));
    compiler.arg("-o").arg(&program).arg("-L").arg(folder).arg("-l:libgdbm.so.6");
    if compiler.status()?.success() { Ok(program) } else { Err(std::io::ErrorKind::Other.into()) }
}

/// Runs the program once, and keeps the best times.
fn run(
    program: &Path,
    folder: &Path,
    pairs: u64,
    is_ours: bool,
    best: &mut Times,
) -> std::io::Result<()> {
    let mut command = Command::new(program);
    command.arg(folder.join("race.db")).arg(pairs.to_string());
    if is_ours {
        command.env("LD_LIBRARY_PATH", folder);
    } else {
        command.env_remove("LD_LIBRARY_PATH");
    }
    let output = command.output()?;
    if !output.status.success() {
        return Err(std::io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        if let Some((what, time)) = line.split_once(' ')
            && let Ok(time) = time.parse::<f64>()
        {
            let kept = best.entry(what.to_string()).or_insert(time);
            *kept = kept.min(time);
        }
    }
    Ok(())
}
