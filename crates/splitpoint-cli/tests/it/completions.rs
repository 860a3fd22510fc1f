//! `splitpoint completions`.

use crate::sandbox::{Outcome, Sandbox, tool};

#[test]
fn completions_are_scripts_that_their_shells_accept() {
    let sandbox = Sandbox::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let outcome = sandbox.run(&["completions", shell]);
        assert_eq!((outcome.exit, outcome.stderr.as_str()), (0, ""), "{shell}");
        assert!(outcome.text().contains("no-overwrite"), "{shell}");
        sandbox.write(shell, &outcome.stdout);
    }
    for shell in ["bash", "zsh", "fish"] {
        let Some(program) = tool(shell, shell) else { continue };
        let mut command = sandbox.command(&program, &["-n", shell]);
        let checked = Outcome::of(&command.output().expect("the shell can be run"));
        assert_eq!((checked.exit, checked.stderr.as_str()), (0, ""), "{shell}");
    }
    assert_eq!(sandbox.run(&["completions", "tcsh"]).exit, 2);
}
