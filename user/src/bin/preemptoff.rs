//! Measures wake-ups of a thread of high priority under a load of flushes; see the library's `preemptoff` module.

use std::process::ExitCode;

use shootdown_user::{course, preemptoff::Preemptoff};

fn main() -> ExitCode {
    course::main::<Preemptoff>()
}
