//! Calls and flushes on real cores: `shootdown-cores`, one pinned thread a core and flags as interrupts, in a process of its own.
//!
//! * [`merge`]: rows of several processes as one.
//! * [`table`]: what people read.

mod merge;
mod table;

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;

use super::machine::{Machine, Start};
use super::plan::{Found, Plan, View};
use super::report;
use super::row::Row;
use crate::cargo;
use crate::cli::{Bench, Calls, CallsBench, MachineKind};
use crate::failure::{Failure, Outcome};
use crate::machine::{Accel, host_cores};
use crate::place;
use crate::progress::Progress;

/// The figures of every row.
const FIGURES: &str = "interrupt_cycles cpus rounds calls wrong median_cycles p99_cycles";
/// Without a choice: interrupts that cost nothing show the rest; a real one costs 1000 to 4000 cycles.
const INTERRUPTS: [u64; 2] = [0, 2000];
const LOCAL: u64 = 200;
/// The peers that are Linux's flush as T1's series has it, and without each of its small patches: in the options of the lab, and of the program.
const SERIES: &str = "series";
/// Processes, in which the memory lies differently, and rounds of each.
const PROCESSES: (u32, u32) = (21, 1);
const PROCESSES_QUICK: (u32, u32) = (1, 3);
/// Rounds that the host disturbs are done again.
const DEADLINE: Duration = Duration::from_secs(300);
/// Cycles of a microsecond on a processor of 2.5 GHz: how long a function takes need not be exact, it is the same for all.
const CYCLES_OF_US: u64 = 2500;
/// Longer functions would keep a bench on cores for minutes.
const MOST_FUNCTION_US: u64 = 20;

/// What a workload measures on cores.
#[derive(Debug, Clone, Copy)]
pub struct OnCores {
    /// Kinds of operations, as `shootdown-cores` names them.
    pub operations: &'static [&'static str],
    /// How long a called function takes without a choice.
    pub function_us: u64,
}

/// Operations on cores, settled.
#[derive(Debug)]
pub struct CoresPlan {
    workload: &'static str,
    is_quick: bool,
    has_steps: bool,
    /// Of the program, by name.
    options: BTreeMap<&'static str, String>,
}

impl CoresPlan {
    /// Settles a contest before the first start.
    ///
    /// # Errors
    /// The options make no sense on cores.
    pub fn contest(bench: &CallsBench) -> Outcome<Self> {
        let CallsBench { contest, calls } = bench;
        let is_series = calls.peers.as_ref().is_some_and(|peers| *peers == [SERIES]);
        let others = [
            calls.preset.is_some() || !calls.set.is_empty() || calls.figures || calls.lines,
            calls.initiators.is_some() || calls.targets.is_some() || calls.masks.is_some(),
            calls.peers.is_some() && !is_series || calls.counts_instructions(),
        ];
        if others.contains(&true) {
            return Err(Failure::input(
                "on cores all contenders do all that the cores can do, or those of T1's series",
                "leave out --preset, --set, --figures, --lines, --initiators, --targets, --masks, --peers but for series, and --accel icount",
            ));
        }
        let cpus = match calls.cpus.as_deref() {
            None => None,
            Some([cpus]) => Some(*cpus),
            Some(_) => {
                return Err(Failure::input(
                    "cores are measured for one number of CPUs at a time",
                    "give --cpus one number",
                ));
            }
        };
        let mut plan = Self::new(contest.name, contest.on_cores, cpus, calls.quick);
        plan.has_steps = calls.steps;
        if is_series {
            plan.set("contenders", SERIES);
        }
        plan.add_calls(calls)?;
        Ok(plan)
    }

    fn add_calls(&mut self, calls: &Calls) -> Outcome<()> {
        if let Some(us) = &calls.function_us {
            let [us @ 0..=MOST_FUNCTION_US] = us[..] else {
                return Err(Failure::input(
                    "on cores functions of one length are measured at a time, and short ones",
                    format!("give --function-us one number, at most {MOST_FUNCTION_US}"),
                ));
            };
            self.set("function", us * CYCLES_OF_US);
        }
        if let Some(interrupts) = &calls.interrupt_cycles {
            let words: Vec<String> = interrupts.iter().map(u64::to_string).collect();
            self.set("interrupt", words.join(","));
        }
        if let Some(local) = calls.local_cycles {
            self.set("local", local);
        }
        if let Some(calls) = calls.calls {
            self.set("calls", calls);
        }
        Ok(())
    }

    /// Settles what a program measures, without the program: its flushes.
    ///
    /// # Errors
    /// It has none, or the options make no sense on cores.
    pub fn program(bench: &Bench) -> Outcome<Self> {
        let program = bench.workload;
        let Some(on_cores) = program.on_cores else {
            return Err(Failure::input(
                format!("{} is not measured on cores", program.name),
                "use --machine qemu, linux or sim",
            ));
        };
        if bench.machine.iter().any(|kind| *kind != MachineKind::Cores) {
            return Err(Failure::input(
                "cores are measured alone",
                "use --machine cores, without others",
            ));
        }
        if bench.threads.is_some() || bench.sweep || bench.policies != program.default_policies {
            return Err(Failure::input(
                "on cores one CPU flushes, or all do, and all contenders take part",
                "leave out --threads, --policies and --sweep",
            ));
        }
        let mut plan = Self::new(program.name, on_cores, bench.cpus, bench.quick);
        let pages = bench.pages.as_deref().unwrap_or(program.default_pages);
        let words: Vec<String> = pages.iter().map(u32::to_string).collect();
        plan.set("pages", words.join(","));
        Ok(plan)
    }

    fn new(workload: &'static str, on_cores: OnCores, cpus: Option<i64>, is_quick: bool) -> Self {
        let mut plan = Self {
            workload,
            is_quick,
            has_steps: false,
            options: BTreeMap::new(),
        };
        plan.set("operations", on_cores.operations.join(","));
        plan.set("function", on_cores.function_us * CYCLES_OF_US);
        plan.set("interrupt", INTERRUPTS.map(|it| it.to_string()).join(","));
        plan.set("local", LOCAL);
        plan.set("rounds", plan.processes().1);
        if let Some(cpus) = cpus {
            plan.set("cpus", cpus);
        }
        plan
    }

    fn set(&mut self, option: &'static str, value: impl std::fmt::Display) {
        self.options.insert(option, value.to_string());
    }

    fn arguments(&self) -> Vec<String> {
        let options = self.options.iter();
        let words = options.map(|(name, value)| format!("--{name}={value}"));
        words
            .chain(self.has_steps.then(|| "--steps".to_owned()))
            .collect()
    }

    /// Processes, and rounds of each.
    fn processes(&self) -> (u32, u32) {
        match self.is_quick {
            true => PROCESSES_QUICK,
            false => PROCESSES,
        }
    }
}

impl Plan for CoresPlan {
    fn machines(&self, progress: &mut Progress) -> Outcome<Vec<Machine>> {
        progress.stage("building what measures on cores");
        Ok(vec![Machine::Hosted(cargo::build_cores()?)])
    }

    fn groups(&self) -> Vec<Vec<Start>> {
        vec![vec![Start {
            what: "calls on cores".into(),
            label: "real cores".into(),
            boots: self.processes().0,
            cpus: host_cores(),
            accel: Accel::Kvm,
            options: String::new(),
            arguments: self.arguments(),
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
            remarks: report::remarks(found.others, self.is_quick.then_some("three rounds")),
            tables: table::render(&rows, &about, self.has_steps),
            result: json!({
                "workload": self.workload,
                "machine": "cores",
                "commit": place::commit(),
                "date": place::timestamp(),
                "params": {
                    "arguments": self.arguments(), "quick": self.is_quick, "host_cores": host_cores(),
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
