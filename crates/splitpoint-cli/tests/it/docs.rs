//! `docs/cli.md` and the help it is made of.

use std::path::Path;

use crate::sandbox::Sandbox;

#[test]
fn docs_cli_md_is_what_the_command_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli.md");
    let generated = Sandbox::new().run(&["man", "--markdown"]).text();
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == generated,
        "docs/cli.md is not current; make it with\n  \
         cargo run -p splitpoint-cli -- man --markdown > docs/cli.md"
    );
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
