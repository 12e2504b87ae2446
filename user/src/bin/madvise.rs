//! Measures madvise(MADV_DONTNEED) + touch; see the library's `madvise` module.

use std::process::ExitCode;

use shootdown_user::{course, madvise::Madvise};

fn main() -> ExitCode {
    course::main::<Madvise>()
}
