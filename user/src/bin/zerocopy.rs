//! Measures calls that lend pages to a server; see the library's `zerocopy` module.

use std::process::ExitCode;

use shootdown_user::{course, zerocopy::Zerocopy};

fn main() -> ExitCode {
    course::main::<Zerocopy>()
}
