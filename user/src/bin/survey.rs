//! Measures the machine that it finds and shows the tables; see the library's `survey` module.

use std::process::ExitCode;

fn main() -> ExitCode {
    shootdown_user::survey::main()
}
