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
fn get_of_several_keys_prints_a_line_for_each_that_is_there() {
    let sandbox = Sandbox::with_words();
    sandbox.run(&["get", "words.spt", "cherry", "apple"]).check(0, "3\n1\n", "");
    sandbox.run(&["get", "words.spt", "-0", "cherry", "apple"]).check(0, "3\x001\x00", "");
    let objects = "{\"key\":\"cherry\",\"value\":\"3\"}\n{\"key\":\"apple\",\"value\":\"1\"}\n";
    sandbox.run(&["get", "words.spt", "cherry", "apple", "--json"]).check(0, objects, "");
    sandbox.run(&["get", "words.spt", "durian", "apple", "elder"]).check(
        1,
        "1\n",
        "splitpoint: error: 2 of 3 keys not found in `words.spt`, the first is `durian`\n",
    );
}

#[test]
fn get_reads_keys_from_standard_input() {
    let sandbox = Sandbox::with_words();
    let get = ["get", "words.spt", "--stdin"];
    sandbox.run_with(&get, b"banana\napple").check(0, "2\n1\n", "");
    sandbox.run_with(&get, b"").check(0, "", "");
    sandbox.run_with(&[&get[..], &["-0"]].concat(), b"banana\0apple\0").check(0, "2\x001\0", "");
    sandbox.run_with(&[&get[..], &["--hex"]].concat(), b"6170706c65\n").check(0, "31\n", "");
    sandbox.run_with(&[&get[..], &["apple"]].concat(), b"banana\n").check(0, "1\n2\n", "");
    let missing = sandbox.run_with(&get, b"banana\n\n");
    missing.check(
        1,
        "2\n",
        "splitpoint: error: 1 of 2 keys not found in `words.spt`, the first is ``\n",
    );
    assert_eq!(sandbox.run(&["get", "words.spt"]).exit, 2);
}

#[test]
fn exists_answers_by_its_exit_code_alone() {
    let sandbox = Sandbox::with_words();
    sandbox.run(&["exists", "words.spt", "apple"]).check(0, "", "");
    sandbox.run(&["exists", "words.spt", "apple", "cherry"]).check(0, "", "");
    sandbox.run(&["exists", "words.spt", "apple", "durian"]).check(1, "", "");
    sandbox.run(&["exists", "words.spt", "--hex", "6170706c65"]).check(0, "", "");
    assert_eq!(sandbox.run(&["exists", "missing.spt", "apple"]).exit, 3);
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
