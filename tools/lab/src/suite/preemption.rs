//! Checks that nobody waits for other CPUs while its own cannot be given to another thread (table T3), and that this would
//! be noticed: policy `before` does.

use std::time::Duration;

use serde_json::Value;

use super::coherence;
use super::fleet::{Fleet, Start};
use super::tally::Tally;
use crate::cli::Test;
use crate::failure::{Failure, Outcome};
use crate::machine::{Finished, Kernel};
use crate::protocol::{self, Message};

/// What the boot and the program need on a busy host.
const DEADLINE: Duration = Duration::from_secs(60);

/// What one policy's row says.
#[derive(Debug, PartialEq)]
struct Seen {
    policy: String,
    /// Waits for other CPUs with preemption off, one for each CPU and interval; none where nobody keeps a record.
    waits_ns: Vec<f64>,
    irq_offs: u64,
    is_fifo: bool,
}

/// Runs them all.
pub fn check(test: &Test, fleet: &Fleet, tally: &mut Tally) {
    let machines: &[usize] = if test.fast { &[2] } else { &[2, 4] };
    for &cpus in machines {
        let name = format!("preemption: on while others are waited for, {cpus} CPUs");
        tally.check(&name, || {
            let finished = run(fleet, fleet.kernel(), cpus)?;
            let remark = coherence::clean(&finished)?;
            judge(&Seen::all(&finished)?).map(|waits| format!("{waits}; {remark}"))
        });
    }
    let name = "linux: preemptoff checks itself";
    match fleet.linux() {
        Some(linux) => tally.check(name, || coherence::clean(&run(fleet, &linux, 2)?)),
        None => tally.skip(
            name,
            "no Linux image here; `./lab doctor` says how to get one",
        ),
    }
}

/// A short run under every policy, with many long times of interrupts off.
fn run(fleet: &Fleet, kernel: &Kernel, cpus: usize) -> Outcome<Finished> {
    let threads = format!("--threads={cpus}");
    let arguments = [
        threads.as_str(),
        "--slice-ms=100",
        "--rounds=4",
        "--warmup-ms=0",
        "--tail-share=0.2",
    ];
    let start = Start {
        options: "",
        arguments: &arguments,
        cpus,
        deadline: DEADLINE,
    };
    fleet.boot(kernel, "preemptoff", start)
}

/// Under every policy but `before`, not one wait; under that, some, or the record shows nothing.
fn judge(rows: &[Seen]) -> Result<String, Failure> {
    let mut remarks = Vec::new();
    for row in rows {
        let Seen {
            policy, waits_ns, ..
        } = row;
        let waited = waits_ns.iter().filter(|&&ns| ns > 0.0).count();
        let is_as_due = (waited > 0) == (policy == "before");
        if !is_as_due || waits_ns.is_empty() || row.irq_offs == 0 || !row.is_fifo {
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

impl Seen {
    fn all(finished: &Finished) -> Outcome<Vec<Self>> {
        let messages = finished.console.lines().filter_map(protocol::parse);
        let rows = messages.filter_map(|message| match message {
            Ok(Message::Row(row)) => Some(Ok(Self::new(&row.into()))),
            Ok(_) => None,
            Err(garbled) => Some(Err(Failure::work(garbled.to_string()))),
        });
        rows.collect()
    }

    fn new(row: &Value) -> Self {
        let waits = row["ipi_wait_samples"].as_array();
        Self {
            policy: row["policy"].as_str().unwrap_or_default().to_owned(),
            waits_ns: waits
                .map(|waits| waits.iter().filter_map(Value::as_f64).collect())
                .unwrap_or_default(),
            irq_offs: row["irq_offs"].as_u64().unwrap_or(0),
            is_fifo: row["fifo"] == true,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rows(waits: [&[u64]; 3]) -> Vec<Seen> {
        let policies = ["before", "published", "best"];
        let row = |(policy, waits): (&str, &[u64])| {
            Seen::new(
                &json!({"policy": policy, "ipi_wait_samples": waits, "irq_offs": 3, "fifo": true}),
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
        unloaded[2].irq_offs = 0;
        assert!(judge(&unloaded).is_err());
        unloaded.pop();
        assert!(judge(&unloaded).is_err());
    }
}
