//! The course of one bench, and its result.

use std::io::Write;

use serde_json::{Value, json};
use shootdown_calls::Workload;

use super::group::{Clock, Group};
use super::hosted::Hosted;
use super::qemu::Qemu;
use super::row::LiveRow;
use super::table;
use crate::bench::report::Report;
use crate::cli_calls::{Calls, CallsBench, CallsMachine};
use crate::failure::{Doing, Failure, Outcome};
use crate::host::Usage;
use crate::machine::host_cores;
use crate::place;
use crate::progress::Progress;
use crate::protocol::{self, Message};

/// One of the machines, ready to start.
enum Machine {
    Qemu(Qemu),
    Hosted(Hosted),
}

/// A group with what it found.
#[derive(Debug)]
pub struct Measured {
    /// What was started.
    pub group: Group,
    /// What it ran on.
    pub ground: String,
    /// What the contenders did.
    pub rows: Vec<LiveRow>,
}

/// Measures on one of the machines, prints the tables and writes the result.
///
/// # Errors
/// The options make no sense (exit code 2); a machine failed, or a call was not carried out as it should.
pub fn command(bench: &CallsBench, kind: CallsMachine) -> Outcome<()> {
    let (workload, calls) = match bench {
        CallsBench::Selected(calls) => (Workload::Selected, calls),
        CallsBench::Shoot(calls) => (Workload::Shoot, calls),
    };
    if let Some(path) = &calls.json {
        Report::probe(path)?;
    }
    let groups = Group::all(workload, calls)?;
    if calls.counts_instructions() && kind != CallsMachine::Qemu {
        return Err(Failure::input(
            "instructions are counted by the emulator",
            "use --accel icount with --machine qemu",
        ));
    }
    let mut progress = Progress::new();
    progress.stage("building the machine");
    let machine = match kind {
        CallsMachine::Qemu => Machine::Qemu(Qemu::open(&calls.emulator)?),
        CallsMachine::Hosted => Machine::Hosted(Hosted::open()?),
        CallsMachine::Sim => {
            return Err(Failure::input(
                "the simulated machine has no CPUs of its own",
                "use --machine qemu or hosted",
            ));
        }
    };
    let usage = Usage::now();
    let measured = groups
        .into_iter()
        .map(|group| machine.measure(group, &mut progress))
        .collect::<Outcome<Vec<_>>>()?;
    drop(progress);
    let others = usage.and_then(|usage| usage.others_since());
    let text = table::render(workload, &measured, others, calls.quick);
    // A reader that has seen enough may have gone.
    let _ = std::io::stdout().write_all(text.as_bytes());
    keep(workload, kind, calls, &measured, others)?;
    let wrong: u64 = measured
        .iter()
        .flat_map(|it| &it.rows)
        .map(|row| row.wrong)
        .sum();
    match wrong {
        0 => Ok(()),
        _ => Err(Failure::work(format!(
            "{wrong} calls returned although a target had not run the function once"
        ))),
    }
}

impl Machine {
    fn measure(&self, group: Group, progress: &mut Progress) -> Outcome<Measured> {
        let (mut rows, mut garbled) = (Vec::new(), None);
        let label = format!("{} CPUs, {}", group.cpus, group.words);
        progress.stage(&label);
        let mut on_line = |line: &str| {
            match LiveRow::parse(line) {
                Some(Ok(row)) => rows.push(LiveRow {
                    counts_instructions: group.clock == Clock::Instructions,
                    ..row
                }),
                Some(Err(error)) => garbled = Some(error),
                None => {}
            }
            if let Some(Ok(Message::Progress { done, total, label })) = protocol::parse(line) {
                progress.step(done, total, &label);
            }
        };
        let ground = match self {
            Self::Qemu(qemu) => {
                qemu.run(&group, &mut on_line)?;
                qemu.accel(&group)?.to_string()
            }
            Self::Hosted(hosted) => {
                hosted.run(&group, &mut on_line)?;
                "threads of this host".to_owned()
            }
        };
        match garbled {
            Some(error) => Err(Failure::work(error)),
            None if rows.is_empty() => Err(Failure::input(
                format!("no shape of {} fits {} CPUs", group.words, group.cpus),
                "ask for fewer --initiators or --targets, or more --cpus",
            )),
            None => Ok(Measured {
                group,
                ground,
                rows,
            }),
        }
    }
}

fn keep(
    workload: Workload,
    kind: CallsMachine,
    calls: &Calls,
    measured: &[Measured],
    others: Option<f64>,
) -> Outcome<()> {
    let groups: Vec<Value> = measured
        .iter()
        .map(
            |Measured {
                 group,
                 ground,
                 rows,
             }| {
                json!({
                    "cpus": group.cpus, "accel": ground,
                    "plan": group.words, "rows": rows,
                })
            },
        )
        .collect();
    let date = place::timestamp();
    let result = json!({
        "workload": workload.name(),
        "machine": kind.name(),
        "commit": place::commit(),
        "date": date,
        "params": {
            "seed": calls.seed, "quick": calls.quick, "host_cores": host_cores(),
            "busy_cores_of_others": others,
        },
        "groups": groups,
    });
    let text = result.to_string() + "\n";
    let raw = place::keep("runs")?.join(format!("{date}-{}.json", workload.name()));
    for path in calls.json.iter().chain([&raw]) {
        std::fs::write(path, &text).doing(format!("write the result to {}", path.display()))?;
    }
    println!("raw samples by round: {}", raw.display());
    Ok(())
}
