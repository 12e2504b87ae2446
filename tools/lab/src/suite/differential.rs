//! Random programs, each step of which must come out here as on Linux: `user/src/differential`.
//!
//! What Linux makes of them is recorded, so that no Linux is needed to compare; where there is one, the record is compared with it, and
//! made anew by `SHOOTDOWN_UPDATE_GOLDEN=1 ./lab test --soak --only "differential: on Linux"`.

use std::path::PathBuf;
use std::time::Duration;

use super::fleet::{Fleet, Start};
use super::tally::Tally;
use crate::cli::Test;
use crate::failure::{Doing, Failure, Outcome};
use crate::machine::Kernel;
use crate::place;

const PROGRAM: &str = "differential";
const CPUS: usize = 2;
/// Set, the record is written.
const UPDATE: &str = "SHOOTDOWN_UPDATE_GOLDEN";

/// Programs that are recorded.
const RECORDED: usize = 200;
/// How many of them a run plays here, and on Linux, which takes longer.
const PLAYED: usize = 20;
const PLAYED_FAST: usize = 12;
const PLAYED_ON_LINUX: usize = 6;
/// A second a program is plenty, a boot included.
const DEADLINE: Duration = Duration::from_secs(60);

/// Runs them on the reference kernel.
pub fn check(test: &Test, fleet: &Fleet, tally: &mut Tally) {
    let count = match (test.fast, test.soak) {
        (true, _) => PLAYED_FAST,
        (_, true) => RECORDED,
        _ => PLAYED,
    };
    let name = format!("differential: {count} random programs as on Linux");
    tally.check(&name, || {
        compare(&play(fleet, &fleet.kernel, count)?, count)
    });
}

/// Compares the record with Linux.
pub fn control(test: &Test, fleet: &Fleet, tally: &mut Tally) {
    let count = if test.soak { RECORDED } else { PLAYED_ON_LINUX };
    fleet.check_on_linux(tally, "differential: on Linux as recorded", |linux| {
        let played = play(fleet, linux, count)?;
        if std::env::var_os(UPDATE).is_some() && count == RECORDED {
            std::fs::write(record(), played.join("\n") + "\n").doing("write the record")?;
        }
        compare(&played, count)
    });
}

fn record() -> PathBuf {
    place::root().join("tools/lab/golden/differential.txt")
}

/// A line a program.
fn play(fleet: &Fleet, kernel: &Kernel, count: usize) -> Outcome<Vec<String>> {
    let start = Start {
        arguments: &format!("0 {count}"),
        deadline: DEADLINE + Duration::from_secs(6 * count as u64),
        ..Start::on(CPUS)
    };
    let finished = fleet
        .boot(kernel, PROGRAM, start)?
        .expect_success(PROGRAM)?;
    let lines = finished.console.lines().map(str::trim_end);
    Ok(lines
        .filter(|line| line.starts_with("seed "))
        .map(str::to_owned)
        .collect())
}

fn compare(played: &[String], count: usize) -> Outcome<String> {
    let recorded = std::fs::read_to_string(record()).doing("read what Linux makes of them")?;
    let recorded: Vec<&str> = recorded.lines().take(count).collect();
    if let Some((one, _)) = recorded
        .iter()
        .zip(played)
        .find(|(one, other)| one != other)
    {
        let seed = one.split([' ', ':']).nth(1).unwrap_or_default();
        return Err(Failure::work(format!(
            "the program of seed {seed} is another than on Linux; compare what `differential {seed}` prints in \
             `./lab run` and on this host, step by step: it is built to target/x86_64-unknown-linux-musl/release"
        )));
    }
    match played.len() == count && recorded.len() == count {
        true => Ok(String::new()),
        false => Err(Failure::work(format!(
            "{} programs were played, {} are recorded, {count} are due",
            played.len(),
            recorded.len()
        ))),
    }
}
