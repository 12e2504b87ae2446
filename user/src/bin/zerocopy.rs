//! Measures calls that lend pages to a server; see the library's `zerocopy` module.

use std::process::ExitCode;

fn main() -> ExitCode {
    shootdown_user::zerocopy::main(std::env::args_os().skip(1))
}
