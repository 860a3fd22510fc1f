//! `splitpoint get`.

use crate::sandbox::{AWKWARD, Outcome, Sandbox, hex, tool};

#[test]
fn get_prints_exactly_the_value_into_a_pipe() {
    let sandbox = Sandbox::with_awkward();
    for (key, value) in AWKWARD {
        let in_hex = sandbox.run(&["get", "awkward.spt", "--hex", &hex(key)]);
        in_hex.check(0, format!("{}\n", hex(value)), "");
        // As it is, too, where an argument can hold it.
        if let Some(raw) = std::str::from_utf8(key).ok().filter(|raw| !raw.contains('\0')) {
            sandbox.run(&["get", "awkward.spt", "--", raw]).check(0, value, "");
        }
    }
}

#[test]
fn get_of_a_missing_key_is_exit_code_1() {
    let sandbox = Sandbox::with_words();
    sandbox.run(&["get", "words.spt", "durian\n"]).check(
        1,
        "",
        "splitpoint: error: no key `durian\\x0a` in `words.spt`\n",
    );
}

#[test]
fn get_prints_an_object() {
    let sandbox = Sandbox::with_awkward();
    for (args, line) in [
        (&["get", "awkward.spt", "plain", "--json"][..], r#"{"key":"plain","value":"text"}"#),
        (
            &["get", "awkward.spt", "706c61696e", "--hex", "--json"],
            r#"{"key_hex":"706c61696e","value_hex":"74657874"}"#,
        ),
    ] {
        sandbox.run(args).check(0, format!("{line}\n"), "");
    }
}

/// On a terminal a newline is added and control characters cannot play tricks.
#[test]
fn get_is_safe_on_a_terminal() {
    let Some(script) = tool("script", "bsdutils") else { return };
    let sandbox = Sandbox::with_awkward();
    let program = env!("CARGO_BIN_EXE_splitpoint");
    let key = hex(AWKWARD[3].0);
    let line = format!("{program} get awkward.spt plain; {program} list awkward.spt");
    let mut command = sandbox.command(&script, &["-qec", &line, "/dev/null"]);
    let outcome = Outcome::of(&command.output().expect("script can be run"));
    let shown = outcome.text().replace("\r\n", "\n");
    assert!(shown.starts_with("text\n"), "{shown:?}");
    assert!(shown.contains("\\x00\\xff\\\\x0a\\x09 \n"), "{shown:?} lacks {key}");
    assert!(!shown.contains('\x1b'), "{shown:?}");
}
