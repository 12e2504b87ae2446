//! Measures munmap of whole page tables under faults; see the library's `collapse` module.

use std::process::ExitCode;

use shootdown_user::{collapse::Collapse, course};

fn main() -> ExitCode {
    course::main::<Collapse>()
}
