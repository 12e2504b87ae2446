//! The course of one bench, and its result.

use serde_json::{Value, json};

use super::group::{Clock, Group};
use super::machine::Machine;
use super::row;
use super::table;
use crate::bench::calls::Contest;
use crate::bench::report;
use crate::bench::row::Row;
#[cfg(test)]
use crate::cli_calls::CallsBench;
use crate::cli_calls::{Calls, CallsMachine};
use crate::failure::{Failure, Outcome};
use crate::host::Usage;
use crate::machine::host_cores;
use crate::place;
use crate::progress::Progress;
use crate::protocol::{self, Message};

/// A group with what it found.
#[derive(Debug)]
pub struct Measured {
    /// What was started.
    pub group: Group,
    /// What it ran on.
    pub ground: String,
    /// What the contenders did.
    pub rows: Vec<Row>,
}

/// Measures on one of the machines, prints the tables and writes the result.
///
/// # Errors
/// The options make no sense (exit code 2); a machine failed, or a call was not carried out as it should.
pub fn command(contest: &Contest, calls: &Calls, kind: CallsMachine) -> Outcome<()> {
    report::probe(calls.json.as_deref())?;
    let groups = Group::all(contest, calls)?;
    if calls.counts_instructions() && kind != CallsMachine::Qemu {
        return Err(Failure::input(
            "instructions are counted by the emulator",
            "use --accel icount with --machine qemu",
        ));
    }
    let mut progress = Progress::new();
    progress.stage("building the machine");
    let machine = Machine::open(kind, &calls.emulator)?;
    let usage = Usage::now();
    let measured = groups
        .into_iter()
        .map(|group| measure(&machine, group, &mut progress))
        .collect::<Outcome<Vec<_>>>()?;
    drop(progress);
    let others = usage.and_then(|usage| usage.others_since());
    report::print(&table::render(contest, &measured, others, calls.quick));
    let result = result(contest, kind, calls, &measured, others);
    let raw = report::keep(&result)?;
    report::write(calls.json.as_deref(), &result)?;
    println!("raw samples by round: {}", raw.display());
    let wrong: u64 = measured
        .iter()
        .flat_map(|it| &it.rows)
        .map(|row| row.count("wrong"))
        .sum();
    match wrong {
        0 => Ok(()),
        _ => Err(Failure::work(format!(
            "{wrong} calls returned although a target had not run the function once"
        ))),
    }
}

fn measure(machine: &Machine, group: Group, progress: &mut Progress) -> Outcome<Measured> {
    let (mut rows, mut garbled) = (Vec::new(), None);
    let label = format!("{} CPUs, {}", group.cpus, group.words);
    progress.stage(&label);
    let mut on_line = |line: &str| {
        match row::parse(line) {
            Some(Ok(mut row)) => {
                let counts = group.clock == Clock::Instructions;
                row.set("counts_instructions", counts);
                rows.push(row);
            }
            Some(Err(error)) => garbled = Some(error),
            None => {}
        }
        if let Some(Ok(Message::Progress { done, total, label })) = protocol::parse(line) {
            progress.step(done, total, &label);
        }
    };
    let ground = machine.run(&group, &mut on_line)?;
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

fn result(
    contest: &Contest,
    kind: CallsMachine,
    calls: &Calls,
    measured: &[Measured],
    others: Option<f64>,
) -> Value {
    let group = |measured: &Measured| {
        json!({
            "cpus": measured.group.cpus, "accel": measured.ground,
            "plan": measured.group.words, "rows": measured.rows,
        })
    };
    json!({
        "workload": contest.name,
        "machine": kind.name(),
        "commit": place::commit(),
        "date": place::timestamp(),
        "params": {
            "seed": calls.seed, "quick": calls.quick, "host_cores": host_cores(),
            "busy_cores_of_others": others,
        },
        "groups": measured.iter().map(group).collect::<Vec<Value>>(),
    })
}

/// Tables and result of recorded lines, one console for each start.
#[cfg(test)]
pub fn recorded<'a>(
    bench: &CallsBench,
    consoles: impl Iterator<Item = Vec<&'a str>>,
) -> (String, Value) {
    let CallsBench { contest, calls } = bench;
    let groups = Group::all(contest, calls).unwrap();
    let of = |(group, lines): (Group, Vec<&str>)| Measured {
        group,
        ground: "tcg".into(),
        rows: lines
            .into_iter()
            .filter_map(row::parse)
            .map(|row| {
                let mut row = row.unwrap();
                row.set("counts_instructions", false);
                row
            })
            .collect(),
    };
    let measured: Vec<Measured> = groups.into_iter().zip(consoles).map(of).collect();
    let kind = calls.machine.expect("a machine");
    let tables = table::render(contest, &measured, None, calls.quick);
    (tables, result(contest, kind, calls, &measured, None))
}
