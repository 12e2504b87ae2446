//! The course of one `bench`: it is settled, its machines start in turn, their rows are gathered, shown, kept and judged.

use std::time::Instant;

use serde_json::Value;

use super::machine::{Heard, Machine, Start};
use super::row::Row;
use super::{contest, program, report, sim, trace};
use crate::cli::Bench;
use crate::failure::Outcome;
use crate::host::Usage;
use crate::progress::Progress;
use crate::protocol::Object;

/// A bench on machines whose CPUs are real, settled before the first of them starts.
pub trait Plan {
    /// Builds the machines.
    ///
    /// # Errors
    /// Something is missing.
    fn machines(&self, progress: &mut Progress) -> Outcome<Vec<Machine>>;

    /// The groups of rows that are measured together, in order: how each machine is started for them.
    fn groups(&self) -> Vec<Vec<Start>>;

    /// Whether rows say more of a failure than the status 1 does.
    fn tells_failure(&self, rows: &[Row]) -> bool;

    /// Whether the rows that a machine has printed for a group are those that were due.
    ///
    /// # Errors
    /// They are not.
    fn check(&self, group: usize, machine: usize, rows: &[Row]) -> Outcome<()>;

    /// What is shown and kept.
    fn view(&self, found: Found) -> View;
}

/// What all machines have said.
#[derive(Default)]
pub struct Found {
    /// The rows of each start, by group; those of machines that started in turn are together.
    pub groups: Vec<Vec<Vec<Row>>>,
    /// What a program said of itself.
    pub about: Option<Object>,
    /// How many host cores others kept busy meanwhile.
    pub others: Option<f64>,
    /// How long it took.
    pub seconds: f64,
}

/// What becomes of it.
pub struct View {
    /// What people read.
    pub tables: String,
    /// What is kept and written.
    pub result: Value,
    /// What is said before and behind the name of the file in which it is kept.
    pub closing: [String; 2],
    /// What was wrong, if anything.
    pub failure: Option<String>,
}

/// Measures, prints the tables and writes the results.
///
/// # Errors
/// The options make no sense or something is missing (exit code 2); a machine failed, a row is missing, an access was stale or a call was
/// not carried out as it should.
pub fn command(bench: &Bench) -> Outcome<()> {
    let started = Instant::now();
    if trace::write(bench)? && bench.machine.is_empty() {
        return Ok(());
    }
    report::probe(bench.result())?;
    if sim::is_meant(bench)? {
        return sim::command(bench);
    }
    let plan: Box<dyn Plan> = match &bench.calls {
        Some(calls) => Box::new(contest::ContestPlan::new(calls)?),
        None => Box::new(program::ProgramPlan::open(bench)?),
    };
    let mut progress = Progress::new();
    let machines = plan.machines(&mut progress)?;
    let usage = Usage::now();
    let mut found = measure(&*plan, &machines, progress)?;
    found.others = usage.and_then(|usage| usage.others_since());
    found.seconds = started.elapsed().as_secs_f64();
    report::finish(&plan.view(found), bench.result())
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
                progress.stage(&label);
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
