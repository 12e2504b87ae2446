//! Measures Debian's sysbench, writing to mapped files; see the library's `sysbench` module.

use std::process::ExitCode;

use shootdown_user::{course, sysbench::Sysbench};

fn main() -> ExitCode {
    course::main::<Sysbench>()
}
