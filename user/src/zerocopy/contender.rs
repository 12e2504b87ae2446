//! What the name of a row means: a policy of the kernel, and a way to map.

use super::abi::{MODE_ORDINARY, MODE_WINDOW};

/// How names of rows end whose pages all threads of the server can reach, although the policy has windows.
const ORDINARY: &str = "+ordinary";
/// How names of policies begin under which pages are mapped in windows otherwise.
const BEST: &str = "best";

/// Both ways to map.
pub const MODES: [u32; 2] = [MODE_WINDOW, MODE_ORDINARY];

/// The kernel's policy.
pub fn policy(row: &str) -> &str {
    row.strip_suffix(ORDINARY).unwrap_or(row)
}

/// How pages are mapped.
pub fn mode(row: &str) -> u32 {
    if row.starts_with(BEST) && !row.ends_with(ORDINARY) {
        MODE_WINDOW
    } else {
        MODE_ORDINARY
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_policy_and_mapping() {
        for (row, expected) in [
            ("before", ("before", MODE_ORDINARY)),
            ("published", ("published", MODE_ORDINARY)),
            ("best", ("best", MODE_WINDOW)),
            ("best+defer", ("best+defer", MODE_WINDOW)),
            ("best+ordinary", ("best", MODE_ORDINARY)),
            ("best+defer+ordinary", ("best+defer", MODE_ORDINARY)),
        ] {
            assert_eq!((policy(row), mode(row)), expected, "{row}");
        }
    }
}
