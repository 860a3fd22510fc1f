//! `docs/cli.md` and the help it is made of; the commands in `docs/compat/formats.md`.

use std::path::Path;

use crate::old_files::fixtures;
use crate::sandbox::Sandbox;

/// The samples behind the names in `docs/compat/formats.md`.
const NAMES: [(&str, &str); 13] = [
    ("aliases.db", "db185-be-512-small.db"),
    ("mail.pag", "sdbm-ruby-word.pag"),
    ("mail.dir", "sdbm-ruby-word.dir"),
    ("cache.gdbm", "gdbm-std-512.gdbm"),
    ("users.pag", "ndbm-be-word.pag"),
    ("users.dir", "ndbm-be-word.dir"),
    ("principal.db", "krb5db2-v3-le-512-word.db"),
    ("index.bdb", "bdb53-le-512-word.bdb53"),
    ("tags.db", "bdb53-btree-le-512-several.bdb53"),
    ("hosts.cdb", "cdb-tinycdb-word.cdb"),
    ("shelf.dat", "dumb-python3-changed.dat"),
    ("shelf.dir", "dumb-python3-changed.dir"),
    ("unclean.db", "db185-unclean-le-1024.db"),
];

/// Runs the commands of every block of a `console`, one after the other in one directory, and puts
/// what they print behind them.
#[test]
fn docs_compat_formats_md_shows_what_the_commands_print() {
    let sandbox = Sandbox::new();
    for (name, sample) in NAMES {
        sandbox.write(name, &std::fs::read(fixtures().join(sample)).expect("a sample"));
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/compat/formats.md");
    let written = std::fs::read_to_string(&path).expect("the document");
    let (mut printed, mut is_console, mut command_count) = (String::new(), false, 0);
    for line in written.lines() {
        if is_console && line != "```" {
            let Some(command) = line.strip_prefix("$ ") else { continue };
            printed.extend([line, "\n", &shell(&sandbox, command)]);
            command_count += 1;
            continue;
        }
        is_console = line == "```console";
        printed.extend([line, "\n"]);
    }
    assert!(command_count > 10, "{command_count} commands");
    if std::env::var_os("SPLITPOINT_WRITE_DOCS").is_some() {
        std::fs::write(&path, &printed).expect("the document is written");
        return;
    }
    let differs =
        written.lines().zip(printed.lines()).find(|(written, printed)| written != printed);
    assert!(
        written == printed,
        "docs/compat/formats.md is not what the commands print: {differs:?}; make it with\n  \
         SPLITPOINT_WRITE_DOCS=1 cargo test -p splitpoint-cli --test it docs::docs_compat"
    );
}

/// Returns what a user sees of a command.
fn shell(sandbox: &Sandbox, command: &str) -> String {
    let program = Path::new(env!("CARGO_BIN_EXE_splitpoint")).parent().expect("a directory");
    let output = sandbox
        .command(Path::new("/bin/sh"), &["-c", &format!("{{ {command}; }} 2>&1")])
        .env("PATH", format!("{}:/usr/bin:/bin", program.display()))
        .output()
        .expect("a shell");
    let text = String::from_utf8(output.stdout).expect("text");
    if text.is_empty() || text.ends_with('\n') { text } else { text + "\n" }
}

#[test]
fn docs_cli_md_is_what_the_command_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli.md");
    let generated = Sandbox::new().run(&["man", "--markdown"]).text();
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == generated,
        "docs/cli.md is not what the command says of itself: run `cargo xtask docs`"
    );
}

/// An example that names no function of the lab fails as soon as it is tried.
#[test]
fn every_hash_function_in_an_example_of_the_lab_exists() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let mut name_count = 0;
    for document in ["cli.md", "lab.md"] {
        let written = std::fs::read_to_string(path.join(document)).expect("the document");
        for line in written.lines().filter(|line| line.contains("splitpoint lab ")) {
            let words: Vec<&str> = line.split(|c: char| c.is_whitespace() || c == '`').collect();
            for pair in words.windows(2).filter(|pair| pair[0] == "--hash") {
                // A placeholder is in capitals.
                if pair[1].contains(char::is_lowercase) {
                    let found = splitpoint_lab::Specimen::by_name(pair[1]);
                    assert!(found.is_ok(), "{document}: {line}: {found:?}");
                    name_count += 1;
                }
            }
        }
    }
    assert!(name_count > 20, "{name_count} names");
}

#[test]
fn help_is_data_and_a_missing_command_is_a_usage_error() {
    let sandbox = Sandbox::new();
    let help = sandbox.run(&["--help"]);
    assert_eq!((help.exit, help.stderr.as_str()), (0, ""));
    assert!(help.text().contains("Exit codes:\n  0    done\n"), "{}", help.text());
    for command in ["create", "put", "load", "dump", "stat", "demo"] {
        let help = sandbox.run(&[command, "--help"]);
        assert_eq!((help.exit, help.stderr.as_str()), (0, ""));
        assert!(help.text().contains("Examples:\n  splitpoint "), "{}", help.text());
    }
    assert_eq!(sandbox.run(&[]).exit, 2);
    let unknown = sandbox.run(&["stats", "a.spt"]);
    assert_eq!(unknown.exit, 2);
    assert!(unknown.stderr.contains("'stat'"), "{}", unknown.stderr);
    assert!(sandbox.run(&["--version"]).text().starts_with("splitpoint 0."));
}
