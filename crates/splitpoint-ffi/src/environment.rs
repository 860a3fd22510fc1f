//! The environment, which a program with the rights of another user does not believe.

use std::ffi::OsString;

/// Returns a variable of the environment, or `None` if it is not set or the process has more rights than
/// the user who started it.
pub fn secure_variable(name: &str) -> Option<OsString> {
    // SAFETY: the call has no conditions.
    let has_more_rights = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    if has_more_rights { None } else { std::env::var_os(name) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_is_found_if_it_is_set() {
        assert!(secure_variable("PATH").is_some());
        assert_eq!(secure_variable("SPLITPOINT_NO_SUCH_VARIABLE"), None);
    }
}
