//! Measures writes through a shared mapping and fdatasync; see the library's `dirtysync` module.

use std::process::ExitCode;

use shootdown_user::{course, dirtysync::Dirtysync};

fn main() -> ExitCode {
    course::main::<Dirtysync>()
}
