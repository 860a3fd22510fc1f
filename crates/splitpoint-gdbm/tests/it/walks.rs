//! Walks reach every key, whatever the program does with those that they have reached.

use crate::support::{Program, Whose};

#[test]
fn walks_reach_every_key_while_others_are_deleted_and_stored() {
    let found = Program::compile("walks").run::<&str>(Whose::Ours, &[]);
    let expected = "next, then delete: 1000, left 0\n\
                    delete, then next: 1000, left 0\n\
                    delete the first: 1000, left 0\n\
                    store others and replace: at least 1000\n\
                    two walks agree: 1\n";
    assert_eq!(found, expected);
}
