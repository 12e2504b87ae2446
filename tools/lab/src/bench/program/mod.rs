//! User programs under each policy, on kernels that boot: a [`ProgramPlan`] and what becomes of its rows.
//!
//! * [`axes`]: what the caller asks for;
//! * [`plan`], [`group`]: which machines boot, how often, with which parameters;
//! * [`merge`]: many boots become one row;
//! * [`table`]: what people read.

mod axes;
mod group;
mod merge;
mod plan;
mod table;

use std::sync::Arc;

use serde_json::{Value, json};

use super::machine::{Machine, Start};
use super::plan::{Found, Plan, View};
use super::report;
use super::row::{Row, stale};
use super::workload::Program;
use crate::cli::MachineKind;
use crate::failure::{Failure, Outcome};
use crate::image::Image;
use crate::machine::{self, MEMORY_MIB, host_cores};
use crate::progress::Progress;
use crate::protocol::Object;
use crate::{place, session};
use group::Group;

pub use axes::{Axes, distinct};
#[cfg(test)]
pub use merge::tests::{merged, row_of};
pub use merge::{Merge, Metric};
pub use plan::ProgramPlan;

impl Plan for ProgramPlan<'_> {
    fn machines(&self, progress: &mut Progress) -> Outcome<Vec<Machine>> {
        progress.stage("building the kernel and the programs");
        let name = self.axes.program.name;
        let kernels = self.machines.iter().map(|&kind| self.session.kernel(kind));
        let kernels = kernels.collect::<Outcome<Vec<_>>>()?;
        let programs = session::load_programs()?;
        let program = session::image(&programs, name)?;
        let image = self.axes.program.image.map(Image::open).transpose()?;
        let image = image.map(Arc::new);
        let machine = |kernel| Machine::Booted {
            qemu: self.session.qemu.clone(),
            kernel,
            memory_mib: image
                .as_ref()
                .map_or(MEMORY_MIB, |image| image.memory_mib()),
            program: (name, program.to_vec()),
            image: image.clone(),
            files: Vec::new(),
        };
        Ok(kernels.into_iter().map(machine).collect())
    }

    fn groups(&self) -> Vec<Vec<Start>> {
        let machines = |group| {
            self.machines
                .iter()
                .map(move |&kind| self.start(group, kind))
        };
        let groups = self.groups.iter().map(|group| machines(group).collect());
        groups.collect()
    }

    fn tells_failure(&self, rows: &[Row]) -> bool {
        stale(rows) > 0
    }

    fn check(&self, group: usize, machine: usize, rows: &[Row]) -> Outcome<()> {
        let (kind, program) = (self.machines[machine], self.axes.program);
        check_complete(rows, &self.rows(&self.groups[group], kind), program)
            .map_err(|why| Failure::work(format!("{} on {}: {why}", program.name, kind.name())))
    }

    fn view(&self, found: Found) -> View {
        let mut rows = Vec::new();
        for (group, mut boots) in self.groups.iter().zip(found.groups) {
            for rows in &mut boots {
                // Ours first, whichever booted first.
                rows.sort_by_key(|row| row.is_of(MachineKind::Linux));
            }
            rows.extend(merge::merge(boots, group, self.axes.program));
        }
        if report::is_busy(found.others) {
            rows.iter_mut().for_each(Row::withhold_linux);
        }
        let (about, others, stale) = (found.about.as_ref(), found.others, stale(&rows));
        View {
            remarks: report::remarks(others, self.bench.quick.then_some("short boots"))
                + report::crowded(&rows),
            tables: table::render(self, &rows, about),
            result: self.result(&rows, about, others),
            closing: [
                format!("stale accesses: {stale}   raw samples: "),
                format!("   took {:.0} s", found.seconds),
            ],
            failure: report::verdict(stale),
        }
    }
}

impl ProgramPlan<'_> {
    /// What the rows say, with the parameters that they were measured with: the same shape for every program.
    fn result(&self, rows: &[Row], about: Option<&Object>, others: Option<f64>) -> Value {
        let (bench, axes, session) = (self.bench, &self.axes, &self.session);
        let base = &self.groups[0];
        let machines: Vec<&str> = self.machines.iter().map(|kind| kind.name()).collect();
        let actors = axes.program.actors;
        let group = |group: &Group| {
            json!({
                "cpus": group.cpus, "accel": group.accel.to_string(),
                "crowded": group.is_crowded, "effort": group.effort, actors: group.actors,
            })
        };
        json!({
            "workload": axes.program.name,
            "machine": machines.join(","),
            "accel": base.accel.to_string(),
            "cpus": base.cpus,
            "commit": place::commit(),
            "date": place::timestamp(),
            "params": {
                "pages": axes.pages, "policies": bench.policies,
                "seed": bench.seed, "quick": bench.quick, "host_cores": host_cores(),
                "qemu": machine::qemu_version(&session.qemu),
                "linux": session.linux.as_deref().and_then(machine::linux_version),
                "busy_cores_of_others": others,
                "groups": self.groups.iter().map(group).collect::<Vec<Value>>(),
                "program": about, actors: axes.actors,
            },
            "rows": rows,
        })
    }
}

/// Every row that was asked for, once each.
fn check_complete(rows: &[Row], due: &[(&str, u32, u32)], program: &Program) -> Result<(), String> {
    let axis = program.actors;
    for (policy, actors, pages) in due {
        let is_due = |row: &&Row| {
            let numbers = [axis, "pages"].map(|key| row.number(key));
            row.text("policy") == *policy && numbers == [actors, pages].map(|n| Some(f64::from(*n)))
        };
        for operation in program.operations {
            let is_of = |row: &&Row| row.text("operation") == *operation;
            let count = rows.iter().filter(is_due).filter(is_of).count();
            if count != 1 {
                return Err(format!(
                    "{count} rows for {policy}, {actors} {axis}, {pages} pages {operation}; one was due"
                ));
            }
        }
    }
    let count_due = due.len() * program.operations.len();
    if rows.len() != count_due {
        let (count, due) = (rows.len(), count_due);
        return Err(format!("{count} rows where {due} were due"));
    }
    let needed = || ["iterations", "median_ns"].into_iter().chain(program.needs);
    let is_empty = |row: &&Row| needed().any(|key| row.number(key).is_none_or(|n| n <= 0.0));
    match rows.iter().find(is_empty) {
        None => Ok(()),
        Some(row) => Err(format!(
            "the row for {}, {} {axis}, {} pages measured nothing",
            row.text("policy"),
            row.count(axis),
            row.count("pages")
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::workloads::tests::program;

    fn row(policy: &str, further: &str) -> Row {
        row_of(&format!(
            r#"{{"policy":"{policy}","threads":1,"pages":1,"median_ns":5,"p99_ns":9,"min_ns":1,"ipis_per_op":null,
                "stale":0{further}}}"#
        ))
    }

    #[test]
    fn missing_doubled_and_empty_rows_are_noticed() {
        const FIGURES: &str = r#","iterations":3,"call_median_ns":3"#;
        let whole = || row("best", FIGURES);
        let check = |name, rows: &[Row]| check_complete(rows, &[("best", 1, 1)], program(name));
        assert_eq!(check("madvise", &[whole()]), Ok(()));
        for rows in [
            &[][..],
            &[whole(), whole()],
            &[row("best", r#","iterations":0,"call_median_ns":3"#)],
            &[row("best", r#","iterations":3"#)],
            &[whole(), row("other", FIGURES)],
        ] {
            assert!(check("madvise", rows).is_err(), "{rows:?}");
        }
        // It names threads, not spaces.
        assert!(check("pingpong", &[whole()]).is_err());
    }
}
