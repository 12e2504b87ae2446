//! Changes mappings while other threads use them; see the library's `torture` module.

use std::process::ExitCode;

fn main() -> ExitCode {
    shootdown_user::torture::main(std::env::args_os().skip(1))
}
