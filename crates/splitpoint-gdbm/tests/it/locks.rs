//! Locks of the program's own, turns of two processes, forks, renames and closed descriptors.

use crate::support::{Program, Whose};

#[test]
fn locks_forks_and_renames_of_the_program_do_no_harm() {
    assert_eq!(Program::compile("locks").run::<&str>(Whose::Ours, &[]), "done\n");
}
