//! Measures writes through a shared mapping and fdatasync; see the library's `dirtysync` module.

use std::process::ExitCode;

fn main() -> ExitCode {
    shootdown_user::dirtysync::main(std::env::args_os().skip(1))
}
