//! Measures the turns of processes that share a CPU; see the library's `pingpong` module.

use std::process::ExitCode;

use shootdown_user::{course, pingpong::Pingpong};

fn main() -> ExitCode {
    course::main::<Pingpong>()
}
