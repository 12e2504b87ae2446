//! The course of one `bench`: machines boot in turn, their rows are gathered, merged and shown.

use std::time::Instant;

use super::merge::merge;
use super::plan::{Group, Plan};
use super::row::Row;
use super::workload::{Axes, Program};
use super::{calls, report, sim, table, trace};
use crate::cli::{Bench, MachineKind};
use crate::failure::{Failure, Outcome};
use crate::host::Usage;
use crate::machine::{Boot, End, Kernel};
use crate::progress::Progress;
use crate::protocol::{self, Message, Object};
use crate::session::{self, Session};

/// Figures that every program prints.
const FIGURES: [&str; 6] = [
    "pages",
    "median_ns",
    "p99_ns",
    "min_ns",
    "iterations",
    "stale",
];

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
    report::probe(bench.json.as_deref())?;
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
    let name = bench.workload.name;
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
    let tables = table::render(bench, &plan, &rows, program.as_ref(), others);
    let result = report::result(bench, &session, &plan, &rows, program.as_ref(), others);
    report::finish(
        bench,
        &tables,
        &result,
        &rows,
        started.elapsed().as_secs_f64(),
    )
}

impl Course<'_> {
    fn measure(&mut self, group: &Group) -> Outcome<Vec<Row>> {
        let mut boots = Vec::new();
        for boot in 0..group.effort.boots {
            // Whoever boots first finds the host in another state: the order changes every time.
            let mut order: Vec<usize> = (0..self.kernels.len()).collect();
            if boot % 2 == 1 {
                order.reverse();
            }
            let mut machines = Vec::new();
            for index in order {
                machines.push(self.boot(group, index)?);
            }
            machines.sort_by_key(|(kind, _)| *kind);
            boots.push(machines.into_iter().flat_map(|(_, rows)| rows).collect());
        }
        Ok(merge(boots, &group.setting(), self.axes.program))
    }

    fn boot(&mut self, group: &Group, index: usize) -> Outcome<(MachineKind, Vec<Row>)> {
        let (kind, kernel) = &self.kernels[index];
        let number = self.boots_done + 1;
        let label = format!(
            "boot {number} of {}: {} on {} CPUs",
            self.boots_total,
            kind.name(),
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
        let mut heard = Heard::of(*kind);
        let progress = &mut self.progress;
        let finished = boot.run(&mut |line| heard.listen(line, progress, &label))?;
        self.boots_done += 1;
        let what = format!("{} on {}", self.program.0, kind.name());
        // The program fails when it saw a stale access: its rows say more than its status.
        if !(finished.end == End::Exited(1) && heard.rows.iter().any(|row| row.count("stale") > 0))
        {
            finished.expect_success(&what)?;
        }
        if let Some(garbled) = heard.garbled {
            return Err(Failure::work(format!("{what}: {garbled}")));
        }
        if *kind == MachineKind::Qemu || self.about.is_none() {
            self.about = heard.about;
        }
        let wanted = group.rows(self.bench, self.axes, *kind);
        check_complete(&heard.rows, &wanted, self.axes.program)
            .map_err(|why| Failure::work(format!("{what}: {why}")))?;
        Ok((*kind, heard.rows))
    }
}

/// What one boot has printed so far.
pub struct Heard {
    machine: MachineKind,
    /// Results.
    pub rows: Vec<Row>,
    /// What the program said of itself.
    pub about: Option<Object>,
    /// What could not be read.
    pub garbled: Option<String>,
}

impl Heard {
    /// Nothing yet, of this machine.
    pub fn of(machine: MachineKind) -> Self {
        Self {
            machine,
            rows: Vec::new(),
            about: None,
            garbled: None,
        }
    }

    /// Takes one line of the console, and shows progress.
    pub fn listen(&mut self, line: &str, progress: &mut Progress, boot: &str) {
        match protocol::parse(line) {
            Some(Ok(Message::Row(row))) => self.take(Row(row)),
            Some(Ok(Message::Progress { done, total, label })) => {
                progress.step(done, total, &format!("{boot}: {label}"))
            }
            Some(Ok(Message::Info(about))) => self.about = Some(about),
            None => {}
            Some(Err(garbled)) => self.garbled = Some(garbled.to_string()),
        }
    }

    fn take(&mut self, mut row: Row) {
        let lacks = |key: &&&str| row.number(key).is_none();
        let lacking = FIGURES.iter().find(lacks).copied();
        match lacking.or(row.text("policy").is_empty().then_some("policy")) {
            Some(key) => self.garbled = Some(format!("a result row lacks something: {key}")),
            None => {
                row.set("machine", self.machine.name());
                self.rows.push(row);
            }
        }
    }
}

/// Every row that was asked for, once each.
pub fn check_complete(
    rows: &[Row],
    wanted: &[(String, u32, u32)],
    program: &Program,
) -> Result<(), String> {
    let axis = program.actors.name();
    for (policy, actors, pages) in wanted {
        let is_wanted = |row: &&Row| {
            let numbers = [axis, "pages"].map(|key| row.number(key));
            row.text("policy") == policy && numbers == [actors, pages].map(|n| Some(f64::from(*n)))
        };
        let count = rows.iter().filter(is_wanted).count();
        if count != 1 {
            return Err(format!(
                "{count} rows for {policy}, {actors} {axis}, {pages} pages; one was due"
            ));
        }
    }
    match rows.iter().find(|row| !is_measured(row, program)) {
        Some(row) => Err(format!(
            "the row for {}, {} {axis}, {} pages measured nothing",
            row.text("policy"),
            row.count(axis),
            row.count("pages")
        )),
        None if rows.len() != wanted.len() => Err(format!(
            "{} rows where {} were due",
            rows.len(),
            wanted.len()
        )),
        None => Ok(()),
    }
}

fn is_measured(row: &Row, program: &Program) -> bool {
    let needed = ["iterations", "median_ns"].into_iter().chain(program.needs);
    let is_there = |key| row.number(key).is_some_and(|figure| figure > 0.0);
    needed.into_iter().all(is_there)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::merge::tests::row_of;
    use crate::bench::workloads;

    fn row(policy: &str, further: &str) -> Row {
        row_of(&format!(
            r#"{{"policy":"{policy}","threads":1,"pages":1,"median_ns":5,"p99_ns":9,"min_ns":1,"ipis_per_op":null,
                "stale":0{further}}}"#
        ))
    }

    #[test]
    fn missing_doubled_and_empty_rows_are_noticed() {
        let whole = || row("best", r#","iterations":3,"call_median_ns":3"#);
        let check = |name: &str, rows: &[Row]| {
            let mut programs = workloads::PROGRAMS.iter();
            let program = programs.find(|program| program.name == name).unwrap();
            check_complete(rows, &[("best".to_owned(), 1, 1)], program)
        };
        assert_eq!(check("madvise", &[whole()]), Ok(()));
        for rows in [
            &[][..],
            &[whole(), whole()],
            &[row("best", r#","iterations":0,"call_median_ns":3"#)],
            &[row("best", r#","iterations":3"#)],
            &[
                whole(),
                row("other", r#","iterations":3,"call_median_ns":3"#),
            ],
        ] {
            assert!(check("madvise", rows).is_err(), "{rows:?}");
        }
        // It names threads, not spaces.
        assert!(check("pingpong", &[whole()]).is_err());
    }

    #[test]
    fn rows_that_lack_a_field_count_as_garbled() {
        let mut heard = Heard::of(MachineKind::Qemu);
        heard.listen(r#"@row {"policy":"best"}"#, &mut Progress::new(), "");
        assert!(heard.rows.is_empty() && heard.garbled.is_some());
    }
}
