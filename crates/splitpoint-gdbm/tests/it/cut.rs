//! Files that lose their bytes under a database.

use crate::support::{Program, Whose};

#[test]
fn a_file_that_a_stranger_has_cut_is_an_error_and_no_signal() {
    assert_eq!(Program::compile("cut").run::<&str>(Whose::Ours, &[]), "done\n");
}
