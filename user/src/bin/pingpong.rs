//! Measures the turns of processes that share a CPU; see the library's `pingpong` module.

use std::process::ExitCode;

fn main() -> ExitCode {
    shootdown_user::pingpong::main(std::env::args_os().skip(1))
}
