//! Contests of cross-CPU calls, the engine's beside other kernels': a [`ContestPlan`] where CPUs are real, and what becomes of its rows.
//!
//! The run itself is `shootdown-callbench`, in ring 0 of the reference kernel and on threads of this host.
//!
//! * [`lists`]: what the command line asks of the simulated machine;
//! * [`plan`]: which machines start, with which plans;
//! * [`table`]: what people read.

mod lists;
mod plan;
mod table;

use serde_json::{Value, json};

use super::machine::{Machine, Start};
use super::plan::{Found, Plan, View};
use super::report;
use super::row::Row;
use super::workload::Contest;
use crate::cli::{Calls, CallsBench, ContestMachine, MachineKind};
use crate::failure::{Failure, Outcome};
use crate::machine::{MEMORY_MIB, host_cores};
use crate::progress::Progress;
use crate::session::Session;
use crate::{cargo, place};
use plan::{Clock, Group};

pub use lists::{Asked, Count};
pub use table::{AXES, Axis, LIMIT, LIMIT_NOTE, by_peer};

/// The figures of every row.
const FIGURES: &str = "initiators targets function_ns cpus busy calls wrong min_ns median_ns p99_ns limit_ns ipis sends entries spurious runs";

/// A contest where CPUs are real, settled.
#[derive(Debug)]
pub struct ContestPlan<'a> {
    contest: &'static Contest,
    calls: &'a Calls,
    kind: ContestMachine,
    groups: Vec<Group>,
}

impl<'a> ContestPlan<'a> {
    /// Settles everything before the first start.
    ///
    /// # Errors
    /// The options make no sense together, or on no machine.
    pub fn new(bench: &'a CallsBench) -> Outcome<Self> {
        let CallsBench { contest, calls } = bench;
        let kind = calls.machine.unwrap_or(ContestMachine::Sim);
        if calls.preset.is_some() || !calls.set.is_empty() || calls.lines {
            return Err(Failure::input(
                "--preset, --set and --lines are about the simulated machine",
                "use them with --machine sim",
            ));
        }
        if calls.interrupt_cycles.is_some() || calls.local_cycles.is_some() || calls.steps {
            return Err(Failure::input(
                "--interrupt-cycles, --local-cycles and --steps are about real cores",
                "use them with --machine cores",
            ));
        }
        let groups = Group::all(contest, calls)?;
        if calls.counts_instructions() && kind != ContestMachine::Qemu {
            return Err(Failure::input(
                "instructions are counted by the emulator",
                "use --accel icount with --machine qemu",
            ));
        }
        Ok(Self {
            contest,
            calls,
            kind,
            groups,
        })
    }

    /// What a group runs on.
    fn ground(&self, group: &Group) -> String {
        match self.kind {
            ContestMachine::Hosted => "threads of this host".into(),
            _ => group.accel.to_string(),
        }
    }
}

impl Plan for ContestPlan<'_> {
    fn machines(&self, progress: &mut Progress) -> Outcome<Vec<Machine>> {
        progress.stage("building the machine");
        if self.kind == ContestMachine::Hosted {
            return Ok(vec![Machine::Hosted(cargo::build_hosted("calls")?)]);
        }
        let session = Session::open(&self.calls.emulator, &[])?;
        Ok(vec![Machine::Booted {
            kernel: session.kernel(MachineKind::Qemu)?,
            qemu: session.qemu,
            memory_mib: MEMORY_MIB,
            // Nothing runs in ring 3.
            program: ("none", Vec::new()),
            image: None,
            files: Vec::new(),
        }])
    }

    fn groups(&self) -> Vec<Vec<Start>> {
        let start = |group: &Group| Start {
            what: match self.kind {
                ContestMachine::Hosted => "calls on threads".into(),
                _ => "calls in ring 0".into(),
            },
            label: format!("{} CPUs, {}", group.cpus, group.words),
            boots: 1,
            cpus: group.cpus,
            accel: group.accel,
            options: format!("calls={}", group.words),
            arguments: match self.kind {
                ContestMachine::Hosted => {
                    vec![format!("--cpus={}", group.cpus), group.words.clone()]
                }
                _ => Vec::new(),
            },
            deadline: group.deadline,
            needs: FIGURES,
            mark: (
                "counts_instructions",
                (group.clock == Clock::Instructions).into(),
            ),
            tells: false,
        };
        self.groups.iter().map(|group| vec![start(group)]).collect()
    }

    /// A wrong call is in its row.
    fn tells_failure(&self, _: &[Row]) -> bool {
        true
    }

    fn check(&self, group: usize, _: usize, rows: &[Row]) -> Outcome<()> {
        let Group { words, cpus, .. } = &self.groups[group];
        match rows {
            [] => Err(Failure::input(
                format!("no shape of {words} fits {cpus} CPUs"),
                "ask for fewer --initiators or --targets, or more --cpus",
            )),
            _ => Ok(()),
        }
    }

    fn view(&self, found: Found) -> View {
        let groups = found.groups.into_iter().map(|rows| rows.concat());
        let mut rows: Vec<Vec<Row>> = groups.collect();
        if self.contest.has_rounds {
            rows.iter_mut()
                .for_each(|rows| table::compare_with_one_lock(rows));
        }
        for row in rows.iter_mut().flatten() {
            row.set("crowded", !row.has_times());
        }
        let wrong: u64 = rows.iter().flatten().map(|row| row.count("wrong")).sum();
        let is_timed = self.groups.iter().any(|group| group.clock == Clock::Host);
        View {
            remarks: report::remarks(
                found.others.filter(|_| is_timed),
                self.calls.quick.then_some("few calls"),
            ) + report::crowded(rows.iter().flatten()),
            tables: table::render(self, &rows),
            result: self.result(&rows, found.others),
            closing: ["raw samples by round: ".into(), String::new()],
            failure: (wrong > 0).then(|| {
                format!("{wrong} calls returned although a target had not run the function once")
            }),
        }
    }
}

impl ContestPlan<'_> {
    fn result(&self, rows: &[Vec<Row>], others: Option<f64>) -> Value {
        let group = |(group, rows): (&Group, &Vec<Row>)| {
            json!({
                "cpus": group.cpus, "accel": self.ground(group), "plan": group.words, "rows": rows,
            })
        };
        let groups = self.groups.iter().zip(rows).map(group);
        json!({
            "workload": self.contest.name,
            "machine": self.kind.name(),
            "commit": place::commit(),
            "date": place::timestamp(),
            "params": {
                "seed": self.calls.seed, "quick": self.calls.quick, "host_cores": host_cores(),
                "busy_cores_of_others": others,
            },
            "groups": groups.collect::<Vec<Value>>(),
        })
    }
}
