//! Checks of virtual machines that are copied while they run: every byte of the copy, and what the log of dirty pages costs.

use super::coherence::clean;
use super::fleet::{Fleet, Start};
use super::tally::Tally;
use crate::bench::Row;
use crate::cli::Test;
use crate::failure::{Failure, Outcome};

/// One slice for each of three policies, with `%` for the number of CPUs.
const ARGUMENTS: &str = "--pages=64 --threads=1,% --rounds=1 --warmup-ms=5";
const SLICES: u32 = 2 * 3;
/// Has virtual CPUs move, and CPUs leave, meanwhile.
const CHURN: &str = " --churn=1";
/// Figures have three digits.
const ROUNDED: f64 = 0.0015;

/// Runs them all.
pub fn check(test: &Test, fleet: &Fleet, tally: &mut Tally) {
    let (seconds, machines): (u32, &[usize]) = match (test.fast, test.soak) {
        (true, _) => (2, &[2]),
        (_, true) => (60, &[2, 4, 8]),
        _ => (3, &[2, 4]),
    };
    for &cpus in machines {
        for (churn, what) in [
            ("", ""),
            (CHURN, ", virtual CPUs that move and CPUs that leave"),
        ] {
            let name = format!("evacuation: {seconds} s on {cpus} CPUs{what}");
            tally.check(&name, || evacuated(fleet, cpus, seconds, churn));
        }
    }
}

fn evacuated(fleet: &Fleet, cpus: usize, seconds: u32, churn: &str) -> Outcome<String> {
    let options = ARGUMENTS.replace('%', &cpus.to_string());
    let slice_ms = 1000 * seconds / SLICES;
    let start = Start {
        arguments: &format!("{options} --slice-ms={slice_ms}{churn}"),
        ..Start::lasting(2 * seconds, cpus)
    };
    let finished = fleet.boot(&fleet.kernel, "evacuate", start)?;
    let account = clean(&finished)?;
    for row in Row::all_of(&finished.console)? {
        if row.text("policy") == "best" {
            spares(&row)?;
        }
    }
    Ok(account)
}

/// Only clears flush, one flush each, which interrupts each CPU that runs a virtual CPU of the machine once at most: a first write to a page costs none.
fn spares(row: &Row) -> Outcome<()> {
    let figure = |key: &str| {
        let found = row.number(key);
        found.ok_or_else(|| Failure::work(format!("a row without `{key}`: {row:?}")))
    };
    let (clears, flushes) = (figure("clears_per_op")?, figure("flushes_per_op")?);
    let (kicks, vcpus) = (figure("kicks_per_op")?, figure("threads")?);
    if flushes > clears + ROUNDED || kicks > (flushes + ROUNDED) * vcpus {
        return Err(Failure::work(format!(
            "{clears} clears a dirtied page, {flushes} flushes, {kicks} interrupts of {vcpus} virtual CPUs a machine"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_first_write_that_flushes_and_a_second_interrupt_are_noticed() {
        let row = |clears: f64, flushes: f64, kicks: f64| {
            Row::of(
                json!({"threads": 2, "clears_per_op": clears, "flushes_per_op": flushes, "kicks_per_op": kicks}),
            )
        };
        assert!(spares(&row(0.04, 0.04, 0.08)).is_ok());
        assert!(spares(&row(0.04, 0.041, 0.08)).is_ok());
        for wrong in [
            row(0.04, 1.04, 0.02),
            row(0.04, 0.04, 0.09),
            Row::of(json!({"threads": 2})),
        ] {
            assert!(spares(&wrong).is_err(), "{wrong:?}");
        }
    }
}
