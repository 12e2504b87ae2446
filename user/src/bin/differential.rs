//! Random programs, whose outcomes are compared between kernels: see [`shootdown_user::differential`].
//!
//! `differential FIRST COUNT` prints a line a seed; `differential SEED` prints each step.

use std::process::ExitCode;

use shootdown_user::differential;
use shootdown_user::{checks, machine, report};

/// More than what threads and files leave behind.
const SPARE_KIB: u64 = 256;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os()
        .skip(1)
        .map(|argument| argument.into_string());
    let first = arguments.next();
    if first
        .as_ref()
        .is_some_and(|first| first.as_deref() == Ok(differential::FRESH))
    {
        return match differential::show_fresh() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => checks::fail("differential", &error.to_string()),
        };
    }
    machine::prepare();
    let number = |text: Option<Result<String, _>>| -> Option<u64> { text?.ok()?.parse().ok() };
    let first = number(first);
    let count = arguments.next();
    let shows_steps = count.is_none();
    let (Some(first), Some(count)) = (first, count.map_or(Some(1), |count| number(Some(count))))
    else {
        println!("differential: the arguments are a first seed and how many; or a seed");
        return ExitCode::from(2);
    };
    checks::must_not_lose(SPARE_KIB, || {
        for seed in first..first + count {
            match differential::run(seed, shows_steps) {
                Ok(digest) => report::say(&format!("seed {seed}: {digest:016x}")),
                Err(error) => checks::fail("differential", &error.to_string()),
            }
        }
    });
    ExitCode::SUCCESS
}
