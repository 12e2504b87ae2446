//! Measures madvise(MADV_DONTNEED) + touch; see the library's `madvise` module.

use std::process::ExitCode;

fn main() -> ExitCode {
    shootdown_user::madvise::main(std::env::args_os().skip(1))
}
