//! Measures threads that change memory of their own; see the library's `threads` module.

use std::process::ExitCode;

use shootdown_user::{course, threads::Threads};

fn main() -> ExitCode {
    course::main::<Threads>()
}
