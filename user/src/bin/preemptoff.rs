//! Measures wake-ups of a thread of high priority under a load of flushes; see the library's `preemptoff` module.

use std::process::ExitCode;

fn main() -> ExitCode {
    shootdown_user::preemptoff::main(std::env::args_os().skip(1))
}
