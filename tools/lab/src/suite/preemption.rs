//! Checks that nobody waits for other CPUs while its own cannot be given to another thread (table T3), and that this would
//! be noticed: policy `before` does.

use super::coherence;
use super::fleet::{Fleet, Start};
use super::tally::Tally;
use crate::bench::Row;
use crate::cli::Test;
use crate::failure::{Failure, Outcome};
use crate::machine::{Finished, Kernel};

/// Runs them all.
pub fn check(test: &Test, fleet: &Fleet, tally: &mut Tally) {
    let machines: &[usize] = if test.fast { &[2] } else { &[2, 4] };
    for &cpus in machines {
        let name = format!("preemption: on while others are waited for, {cpus} CPUs");
        tally.check(&name, || {
            let finished = run(fleet, &fleet.kernel, cpus)?;
            let remark = coherence::clean(&finished)?;
            let waits = judge(&Row::all_of(&finished.console)?)?;
            Ok(format!("{waits}; {remark}"))
        });
    }
    fleet.check_on_linux(tally, "linux: preemptoff checks itself", |linux| {
        coherence::clean(&run(fleet, linux, 2)?)
    });
}

/// A short run under every policy, with many long times of interrupts off.
fn run(fleet: &Fleet, kernel: &Kernel, cpus: usize) -> Outcome<Finished> {
    let start = Start {
        arguments: &format!(
            "--threads={cpus} --slice-ms=100 --rounds=4 --warmup-ms=0 --tail-share=0.2"
        ),
        ..Start::on(cpus)
    };
    fleet.boot(kernel, "preemptoff", start)
}

/// Under every policy but `before`, not one wait for other CPUs with preemption off; under that, some, or the record shows nothing.
fn judge(rows: &[Row]) -> Outcome<String> {
    let mut remarks = Vec::new();
    for row in rows {
        let policy = row.text("policy");
        // One for each CPU and interval.
        let waits_ns: Vec<f64> = row.numbers("ipi_wait_samples").collect();
        let waited = waits_ns.iter().filter(|&&ns| ns > 0.0).count();
        let is_as_due = (waited > 0) == (policy == "before");
        let is_fifo = row.0.get("fifo") == Some(&true.into());
        if !is_as_due || waits_ns.is_empty() || row.count("irq_offs") == 0 || !is_fifo {
            return Err(Failure::work(format!(
                "preemption was off while others were waited for in {waited} of {} spans under {policy}: {row:?}",
                waits_ns.len()
            )));
        }
        remarks.push(format!("{policy} {waited} of {}", waits_ns.len()));
    }
    match rows.len() {
        3 => Ok(format!("spans with a wait: {}", remarks.join(", "))),
        count => Err(Failure::work(format!("{count} rows instead of 3"))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rows(waits: [&[u64]; 3]) -> Vec<Row> {
        let policies = ["before", "published", "best"];
        let row = |(policy, waits): (&str, &[u64])| {
            Row::of(
                json!({"policy": policy, "ipi_wait_samples": waits, "irq_offs": 3, "fifo": true}),
            )
        };
        policies.into_iter().zip(waits).map(row).collect()
    }

    #[test]
    fn waits_belong_under_before_and_nowhere_else() {
        assert!(judge(&rows([&[0, 5], &[0, 0], &[0, 0]])).is_ok());
        for wrong in [
            rows([&[0, 5], &[0, 0], &[0, 1]]),
            rows([&[0, 5], &[2, 0], &[0, 0]]),
            rows([&[0, 0], &[0, 0], &[0, 0]]),
            rows([&[5], &[], &[0]]),
        ] {
            assert!(judge(&wrong).is_err(), "{wrong:?}");
        }
        let mut unloaded = rows([&[5], &[0], &[0]]);
        unloaded[2].set("irq_offs", 0);
        assert!(judge(&unloaded).is_err());
        unloaded.pop();
        assert!(judge(&unloaded).is_err());
    }
}
