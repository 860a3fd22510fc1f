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

/// Runs the function that bash calls when a user presses the tab key.
#[test]
fn bash_completes_the_functions_of_the_lab() {
    let sandbox = Sandbox::new();
    let Some(bash) = tool("bash", "bash") else { return };
    sandbox.write("script", &sandbox.run(&["completions", "bash"]).stdout);
    for command in ["hash", "table", "avalanche", "sweep", "compare", "recommend", "gate", "list"] {
        let before = if command == "list" { "" } else { " keys --hash" };
        let words = format!("splitpoint lab {command}{before} fnv1a");
        let press_tab = format!(
            "source ./script; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             _splitpoint splitpoint fnv1a ${{COMP_WORDS[COMP_CWORD - 1]}}; echo ${{COMPREPLY[@]}}"
        );
        let completed = sandbox.command(&bash, &["-c", &press_tab]).output();
        let completed = Outcome::of(&completed.expect("bash can be run"));
        assert_eq!(completed.text(), "fnv1a-32 fnv1a-64\n", "{words}: {}", completed.stderr);
    }
}
