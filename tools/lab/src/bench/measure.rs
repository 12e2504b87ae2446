//! The course of one `bench`: machines boot in turn, their rows are gathered, merged and shown.

use std::time::{Duration, Instant};

use super::merge::{Setting, merge};
use super::plan::{Group, Plan};
use super::report::Report;
use super::rows::{Printed, Row, Sighting, machine_name};
use super::workload::Axes;
use super::{calls, sim, table, trace};
use crate::cli::{Bench, MachineKind, Workload};
use crate::failure::{Failure, Outcome};
use crate::host::Usage;
use crate::machine::{Boot, End, Kernel};
use crate::progress::Progress;
use crate::protocol::{self, Message, Object};
use crate::session::{self, Session};

/// What the boots of one `bench` have in common.
struct Course<'a> {
    bench: &'a Bench,
    axes: &'a Axes,
    session: &'a Session,
    kernels: Vec<(MachineKind, Kernel)>,
    program: (&'static str, &'a [u8]),
    /// What it said of itself, last on the reference kernel if that is among the machines.
    about: Option<Object>,
    progress: Progress,
    boots_done: u64,
    boots_total: u64,
}

/// Measures, prints the tables and writes the results.
///
/// # Errors
/// Something is missing (exit code 2); a machine failed, a row is missing or an access was stale.
pub fn command(bench: &Bench) -> Outcome<()> {
    if let Some(calls) = &bench.calls {
        return calls::command(calls);
    }
    let started = Instant::now();
    if trace::write(bench)? && bench.machine.is_empty() {
        return Ok(());
    }
    if let Some(path) = &bench.json {
        Report::probe(path)?;
    }
    if sim::is_meant(bench)? {
        return sim::command(bench);
    }
    if let Some(asked) = bench.cpus {
        session::cpus(asked)?;
    }
    let session = Session::open(&bench.emulator, &bench.machine)?;
    let plan = Plan::new(bench, &session)?;
    let mut progress = Progress::new();
    progress.stage("building the kernel and the programs");
    let kernels = plan
        .machines
        .iter()
        .map(|&kind| Ok((kind, session.kernel(kind)?)))
        .collect::<Outcome<_>>()?;
    let programs = session::load_programs()?;
    let name = bench.workload.name();
    let boots_total = plan
        .groups
        .iter()
        .map(|group| u64::from(group.effort.boots))
        .sum::<u64>()
        * plan.machines.len() as u64;
    let program = (name, session::image(&programs, name)?);
    let mut course = Course {
        bench,
        axes: &plan.axes,
        session: &session,
        kernels,
        program,
        about: None,
        progress,
        boots_done: 0,
        boots_total,
    };
    let (mut rows, mut program) = (Vec::new(), None);
    let usage = Usage::now();
    for group in &plan.groups {
        rows.extend(course.measure(group)?);
        program = course.about.take().or(program);
    }
    drop(course);
    let others = usage.and_then(|usage| usage.others_since());
    let report = Report::new(bench, &session, &plan, &rows, program.as_ref(), others);
    finish(
        bench,
        &report,
        &table::render(bench, &plan, &rows, program.as_ref(), others),
        started.elapsed(),
    )
}

fn finish(bench: &Bench, report: &Report<'_>, tables: &str, elapsed: Duration) -> Outcome<()> {
    print!("{tables}");
    let raw = report.keep()?;
    if let Some(path) = &bench.json {
        report.write(path)?;
    }
    let (stale, seconds) = (report.stale(), elapsed.as_secs_f64());
    println!(
        "stale accesses: {stale}   raw samples: {}   took {seconds:.0} s",
        raw.display()
    );
    match stale {
        0 => Ok(()),
        _ => Err(Failure::work(format!(
            "{stale} stale accesses: a flush was lost or came late"
        ))),
    }
}

impl Course<'_> {
    fn measure(&mut self, group: &Group) -> Outcome<Vec<Row>> {
        let mut sightings = Vec::new();
        for boot in 0..group.effort.boots {
            // Whoever boots first finds the host in another state: the order changes every time.
            let mut order: Vec<usize> = (0..self.kernels.len()).collect();
            if boot % 2 == 1 {
                order.reverse();
            }
            for index in order {
                let (machine, rows) = self.boot(group, index)?;
                sightings.extend(rows.into_iter().map(|row| Sighting { machine, boot, row }));
            }
        }
        let setting = Setting {
            cpus: group.cpus,
            accel: group.accel.to_string(),
            is_crowded: group.is_crowded,
        };
        sightings.sort_by_key(|sighting| (sighting.boot, sighting.machine));
        Ok(merge(&sightings, &setting))
    }

    fn boot(&mut self, group: &Group, index: usize) -> Outcome<(MachineKind, Vec<Printed>)> {
        let (kind, kernel) = &self.kernels[index];
        let number = self.boots_done + 1;
        let label = format!(
            "boot {number} of {}: {} on {} CPUs",
            self.boots_total,
            machine_name(*kind),
            group.cpus
        );
        self.progress.stage(&label);
        let boot = Boot {
            qemu: &self.session.qemu,
            accel: group.accel,
            cpus: group.cpus,
            kernel,
            options: "",
            program: self.program,
            arguments: &group.arguments(self.bench, self.axes, *kind),
            deadline: group.deadline(self.bench, self.axes, *kind),
        };
        let mut heard = Heard::default();
        let progress = &mut self.progress;
        let finished = boot.run(&mut |line| heard.listen(line, progress, &label))?;
        self.boots_done += 1;
        let what = format!("{} on {}", self.program.0, machine_name(*kind));
        // The program fails when it saw a stale access: its rows say more than its status.
        if !(finished.end == End::Exited(1) && heard.rows.iter().any(|row| row.stale > 0)) {
            finished.expect_success(&what)?;
        }
        if let Some(garbled) = heard.garbled {
            return Err(Failure::work(format!("{what}: {garbled}")));
        }
        if *kind == MachineKind::Qemu || self.about.is_none() {
            self.about = heard.about;
        }
        let wanted = group.rows(self.bench, self.axes, *kind);
        check_complete(&heard.rows, &wanted, self.axes.workload)
            .map_err(|why| Failure::work(format!("{what}: {why}")))?;
        Ok((*kind, heard.rows))
    }
}

/// What one boot has printed so far.
#[derive(Default)]
struct Heard {
    rows: Vec<Printed>,
    about: Option<Object>,
    garbled: Option<String>,
}

impl Heard {
    fn listen(&mut self, line: &str, progress: &mut Progress, boot: &str) {
        match protocol::parse(line) {
            Some(Ok(Message::Row(row))) => self.take(row),
            Some(Ok(Message::Progress { done, total, label })) => {
                progress.step(done, total, &format!("{boot}: {label}"))
            }
            Some(Ok(Message::Info(about))) => self.about = Some(about),
            None => {}
            Some(Err(garbled)) => self.garbled = Some(garbled.to_string()),
        }
    }

    fn take(&mut self, row: Object) {
        match serde_json::from_value(row.into()) {
            Ok(row) => self.rows.push(row),
            Err(error) => self.garbled = Some(format!("a result row lacks something: {error}")),
        }
    }
}

/// Every row that was asked for, once each.
fn check_complete(
    rows: &[Printed],
    wanted: &[(String, u32, u32)],
    workload: Workload,
) -> Result<(), String> {
    let axis = workload.actors();
    for (policy, actors, pages) in wanted {
        let key = (policy, Some(*actors), *pages);
        let count = rows
            .iter()
            .filter(|row| (&row.policy, row.actors(workload), row.pages) == key)
            .count();
        if count != 1 {
            return Err(format!(
                "{count} rows for {policy}, {actors} {axis}, {pages} pages; one was due"
            ));
        }
    }
    match rows.iter().find(|row| !is_measured(row, workload)) {
        Some(row) => Err(format!(
            "the row for {}, {} {axis}, {} pages measured nothing",
            row.policy,
            row.actors(workload).unwrap_or(0),
            row.pages
        )),
        None if rows.len() != wanted.len() => Err(format!(
            "{} rows where {} were due",
            rows.len(),
            wanted.len()
        )),
        None => Ok(()),
    }
}

fn is_measured(row: &Printed, workload: Workload) -> bool {
    let is_time = |ns: f64| ns.is_finite() && ns > 0.0;
    let has_call = row.call_median_ns.is_some_and(is_time);
    let has_all = match workload {
        Workload::Madvise | Workload::Dirtysync => has_call,
        Workload::Pingpong => true,
        Workload::Zerocopy => row.per_s.is_some_and(is_time),
        Workload::Preemptoff => row.waking.as_ref().is_some_and(|waking| waking.wakeups > 0),
    };
    row.iterations > 0 && is_time(row.median_ns) && has_all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(policy: &str, iterations: u64) -> Printed {
        let text = format!(
            r#"{{"policy":"{policy}","threads":1,"pages":1,"median_ns":5,"p99_ns":9,"min_ns":1,
                "call_median_ns":3,"call_p99_ns":4,
                "iterations":{iterations},"ipis_per_op":null,"stale":0}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn missing_doubled_and_empty_rows_are_noticed() {
        let wanted = [("best".to_owned(), 1, 1)];
        assert!(check_complete(&[row("best", 3)], &wanted, Workload::Madvise).is_ok());
        assert!(check_complete(&[], &wanted, Workload::Madvise).is_err());
        assert!(
            check_complete(
                &[row("best", 3), row("best", 3)],
                &wanted,
                Workload::Madvise
            )
            .is_err()
        );
        assert!(check_complete(&[row("best", 0)], &wanted, Workload::Madvise).is_err());
        let without_call = Printed {
            call_median_ns: None,
            ..row("best", 3)
        };
        assert!(check_complete(&[without_call], &wanted, Workload::Madvise).is_err());
        let of_the_other_workload = check_complete(&[row("best", 3)], &wanted, Workload::Pingpong);
        assert!(
            of_the_other_workload.is_err(),
            "it names threads, not spaces"
        );
        assert!(
            check_complete(
                &[row("best", 3), row("other", 3)],
                &wanted,
                Workload::Madvise
            )
            .is_err()
        );
    }

    #[test]
    fn rows_that_lack_a_field_count_as_garbled() {
        let mut heard = Heard::default();
        heard.listen(r#"@row {"policy":"best"}"#, &mut Progress::new(), "");
        assert!(heard.rows.is_empty() && heard.garbled.is_some());
    }
}
