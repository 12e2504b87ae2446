//! The course of one `bench`: it is settled, its machines start in turn, their rows are gathered, shown, kept and judged.

use std::time::Instant;

use super::machine::{Heard, Machine};
use super::plan::{Found, Plan};
use super::report::Summary;
use super::row::Row;
use super::{contest, cores, guests, ports, program, report, sim, trace, wis};
use crate::cli::{Bench, ContestMachine, MachineKind, OwnBench};
use crate::failure::Outcome;
use crate::host::Usage;
use crate::progress::Progress;

/// Measures, prints the main result and, where they are wanted, all tables, and writes the results.
///
/// # Errors
/// The options make no sense or something is missing (exit code 2); a machine failed, a row is missing, an access was stale or a call was
/// not carried out as it should.
pub fn command(bench: &Bench, summary: Summary) -> Outcome<()> {
    let started = Instant::now();
    if trace::write(bench)? && bench.machine.is_empty() {
        return Ok(());
    }
    report::probe(bench.result(), "--json")?;
    if let Some(OwnBench::Wis(wis)) = &bench.own {
        return carry_out(&wis::WisPlan::open(wis)?, started, |_| None, bench);
    }
    if let Some(arch) = bench.arch() {
        let plan = ports::PortPlan::open(arch, bench)?;
        return carry_out(&plan, started, |_| None, bench);
    }
    if sim::is_meant(bench)? {
        return sim::command(bench, summary);
    }
    let plan: Box<dyn Plan> = match bench.calls() {
        Some(calls) if calls.calls.machine == Some(ContestMachine::Cores) => {
            Box::new(cores::CoresPlan::contest(calls)?)
        }
        Some(calls) => Box::new(contest::ContestPlan::new(calls)?),
        None if bench.machine.contains(&MachineKind::Cores) => {
            Box::new(cores::CoresPlan::program(bench)?)
        }
        None if bench.workload.in_guests.is_some() => Box::new(guests::GuestPlan::open(bench)?),
        None => Box::new(program::ProgramPlan::open(bench)?),
    };
    carry_out(&*plan, started, summary, bench)
}

/// Starts the machines of a settled bench, and finishes it.
fn carry_out(plan: &dyn Plan, started: Instant, summary: Summary, bench: &Bench) -> Outcome<()> {
    let mut progress = Progress::new();
    let machines = plan.machines(&mut progress)?;
    let usage = Usage::now();
    let mut found = measure(plan, &machines, progress)?;
    found.others = usage.and_then(|usage| usage.others_since());
    found.seconds = started.elapsed().as_secs_f64();
    report::finish(&plan.view(found), summary, bench)
}

fn measure(plan: &dyn Plan, machines: &[Machine], mut progress: Progress) -> Outcome<Found> {
    let (mut number, mut found) = (0, Found::default());
    let groups = plan.groups();
    let total: u32 = groups.iter().flatten().map(|start| start.boots).sum();
    for (group, starts) in groups.iter().enumerate() {
        let mut boots = Vec::new();
        for boot in 0..starts[0].boots {
            let mut together = Vec::new();
            // Whoever boots first finds the host in another state: the order changes every time.
            let mut order: Vec<usize> = (0..machines.len()).collect();
            if boot % 2 == 1 {
                order.reverse();
            }
            for index in order {
                number += 1;
                let start = &starts[index];
                let label = format!("boot {number} of {total}: {}", start.label);
                progress.part(number - 1, total, &label);
                let mut heard = Heard::of(start);
                let ended = machines[index].run(start, &mut |line| {
                    heard.listen(line, &mut progress, &label);
                })?;
                heard.judge(ended, |rows| plan.tells_failure(rows))?;
                plan.check(group, index, &heard.rows)?;
                found.take(heard, &mut together);
            }
            boots.push(together);
        }
        found.groups.push(boots);
    }
    Ok(found)
}

impl Found {
    /// Adds what one start has said to the rows of those that it stands beside.
    pub fn take(&mut self, heard: Heard<'_>, together: &mut Vec<Row>) {
        if let Some(about) = heard.about {
            self.about = Some(about);
        }
        together.extend(heard.rows);
    }
}
