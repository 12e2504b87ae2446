//! Copies virtual machines while they run; see the library's `evacuate` module.

use std::process::ExitCode;

use shootdown_user::{course, evacuate::Evacuate};

fn main() -> ExitCode {
    course::main::<Evacuate>()
}
