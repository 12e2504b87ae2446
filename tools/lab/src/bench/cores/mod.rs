//! Contests on real cores: `shootdown-cores`, one pinned thread a core and flags as interrupts, in a process of its own.
//!
//! * [`merge`]: rows of several processes as one.
//! * [`table`]: what people read.

mod merge;
mod table;

use std::time::Duration;

use serde_json::json;

use super::machine::{Machine, Start};
use super::plan::{Found, Plan, View};
use super::report;
use super::row::Row;
use crate::cargo;
use crate::cli::{Calls, CallsBench};
use crate::failure::{Failure, Outcome};
use crate::machine::{Accel, host_cores};
use crate::place;
use crate::progress::Progress;

/// The workload that cores can do.
const WORKLOAD: &str = "shoot";
/// The figures of every row.
const FIGURES: &str = "interrupt_cycles cpus rounds calls wrong median_cycles p99_cycles";
/// Without a choice: interrupts that cost nothing show the rest; a real one costs 1000 to 4000 cycles.
const INTERRUPTS: [u64; 2] = [0, 2000];
const LOCAL: u64 = 200;
/// Processes, in which the memory lies differently, and rounds of each.
const PROCESSES: (u32, u32) = (3, 7);
const PROCESSES_QUICK: (u32, u32) = (1, 3);
/// Rounds that the host disturbs are done again.
const DEADLINE: Duration = Duration::from_secs(300);

/// A contest on cores, settled.
#[derive(Debug)]
pub struct CoresPlan<'a> {
    calls: &'a Calls,
    arguments: Vec<String>,
}

impl<'a> CoresPlan<'a> {
    /// Settles everything before the first start.
    ///
    /// # Errors
    /// The options make no sense on cores.
    pub fn new(bench: &'a CallsBench) -> Outcome<Self> {
        let CallsBench { contest, calls } = bench;
        if contest.name != WORKLOAD {
            return Err(Failure::input(
                format!("{} is not measured on cores", contest.name),
                format!("use bench {WORKLOAD}, or --machine qemu, hosted or sim"),
            ));
        }
        let others = [
            calls.preset.is_some() || !calls.set.is_empty() || calls.figures || calls.lines,
            calls.initiators.is_some() || calls.targets.is_some() || calls.masks.is_some(),
            calls.peers.is_some() || calls.function_us.is_some() || calls.counts_instructions(),
        ];
        if others.contains(&true) {
            return Err(Failure::input(
                "on cores all contenders do all that the cores can do",
                "leave out --preset, --set, --figures, --lines, --initiators, --targets, --masks, --peers, --function-us and --accel icount",
            ));
        }
        let interrupts = calls.interrupt_cycles.as_deref().unwrap_or(&INTERRUPTS);
        let words: Vec<String> = interrupts.iter().map(u64::to_string).collect();
        let mut arguments = vec![
            format!("--interrupt={}", words.join(",")),
            format!("--local={}", calls.local_cycles.unwrap_or(LOCAL)),
            format!("--rounds={}", processes(calls).1),
        ];
        arguments.extend(calls.calls.map(|calls| format!("--calls={calls}")));
        arguments.extend(calls.steps.then(|| "--steps".to_owned()));
        match calls.cpus.as_deref() {
            None => {}
            Some([cpus]) => arguments.push(format!("--cpus={cpus}")),
            Some(_) => {
                return Err(Failure::input(
                    "cores are measured for one number of CPUs at a time",
                    "give --cpus one number",
                ));
            }
        }
        Ok(Self { calls, arguments })
    }
}

fn processes(calls: &Calls) -> (u32, u32) {
    match calls.quick {
        true => PROCESSES_QUICK,
        false => PROCESSES,
    }
}

impl Plan for CoresPlan<'_> {
    fn machines(&self, progress: &mut Progress) -> Outcome<Vec<Machine>> {
        progress.stage("building what measures on cores");
        Ok(vec![Machine::Hosted(cargo::build_cores()?)])
    }

    fn groups(&self) -> Vec<Vec<Start>> {
        vec![vec![Start {
            what: "calls on cores".into(),
            label: "real cores".into(),
            boots: processes(self.calls).0,
            cpus: host_cores(),
            accel: Accel::Kvm,
            options: String::new(),
            arguments: self.arguments.clone(),
            deadline: DEADLINE,
            needs: FIGURES,
            mark: ("machine", "cores".into()),
            tells: true,
        }]]
    }

    /// A wrong operation is in its row.
    fn tells_failure(&self, rows: &[Row]) -> bool {
        !rows.is_empty()
    }

    fn check(&self, _: usize, _: usize, rows: &[Row]) -> Outcome<()> {
        match rows {
            [] => Err(Failure::work("calls on cores: no result")),
            _ => Ok(()),
        }
    }

    fn view(&self, found: Found) -> View {
        let rows = merge::merged(found.groups.into_iter().flatten().flatten());
        let wrong: u64 = rows.iter().map(|row| row.count("wrong")).sum();
        let about = found.about.unwrap_or_default();
        View {
            remarks: report::remarks(found.others, self.calls.quick.then_some("three rounds")),
            tables: table::render(&rows, &about, self.calls.steps),
            result: json!({
                "workload": WORKLOAD,
                "machine": "cores",
                "commit": place::commit(),
                "date": place::timestamp(),
                "params": {
                    "arguments": self.arguments, "quick": self.calls.quick, "host_cores": host_cores(),
                    "busy_cores_of_others": found.others,
                },
                "about": about,
                "rows": rows,
            }),
            closing: ["raw samples by round: ".into(), String::new()],
            failure: (wrong > 0).then(|| {
                format!("{wrong} operations were over although a target had not done its part once")
            }),
        }
    }
}
