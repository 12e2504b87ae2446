//! The result as one JSON object, the same shape for every workload.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::{Value, json};

use super::plan::Plan;
use super::rows::{Row, machine_name};
use crate::cli::Bench;
use crate::failure::{Doing, Failure, Outcome};
use crate::machine::{self, host_cores};
use crate::place;
use crate::protocol::Object;
use crate::session::Session;

/// One result.
#[derive(Debug, Serialize)]
pub struct Report<'a> {
    workload: &'static str,
    /// Which machines, comma-separated; each row names its own.
    machine: String,
    accel: String,
    cpus: usize,
    commit: String,
    date: String,
    params: Value,
    rows: &'a [Row],
}

impl<'a> Report<'a> {
    /// Puts the parameters beside the rows.
    pub fn new(
        bench: &Bench,
        session: &Session,
        plan: &Plan,
        rows: &'a [Row],
        program: Option<&Object>,
        others: Option<f64>,
    ) -> Self {
        let base = &plan.groups[0];
        let machines: Vec<&str> = plan
            .machines
            .iter()
            .map(|&kind| machine_name(kind))
            .collect();
        let (axes, actors) = (&plan.axes, plan.axes.workload.actors());
        let groups: Vec<Value> = plan
            .groups
            .iter()
            .map(|group| {
                let mut group_json = json!({
                    "cpus": group.cpus, "accel": group.accel.to_string(),
                    "crowded": group.is_crowded, "effort": group.effort,
                });
                group_json[actors] = json!(group.actors);
                group_json
            })
            .collect();
        let mut params = json!({
            "pages": axes.pages, "policies": bench.policies,
            "seed": bench.seed, "quick": bench.quick, "host_cores": host_cores(),
            "qemu": machine::qemu_version(&session.qemu),
            "linux": session.linux.as_deref().and_then(machine::linux_version),
            "busy_cores_of_others": others, "groups": groups, "program": program,
        });
        params[actors] = json!(axes.actors);
        Self {
            workload: bench.workload.name(),
            machine: machines.join(","),
            accel: base.accel.to_string(),
            cpus: base.cpus,
            commit: place::commit(),
            date: place::timestamp(),
            params,
            rows,
        }
    }

    /// Accesses that used a translation after it had to be gone.
    pub fn stale(&self) -> u64 {
        self.rows.iter().map(|row| row.stale).sum()
    }

    /// Writes the result where the caller wants it.
    pub fn write(&self, path: &Path) -> Outcome<()> {
        let text = serde_json::to_string(self).doing("write the result as JSON")?;
        std::fs::write(path, text + "\n").doing(format!("write the result to {}", path.display()))
    }

    /// Keeps the result with its raw samples.
    pub fn keep(&self) -> Outcome<PathBuf> {
        let path = place::keep("runs")?.join(format!("{}-{}.json", self.date, self.workload));
        self.write(&path)?;
        Ok(path)
    }

    /// Finds out before measuring whether the result can be written.
    pub fn probe(path: &Path) -> Outcome<()> {
        OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .map(drop)
            .map_err(|error| {
                Failure::input(
                    format!("cannot write {}: {error}", path.display()),
                    "give --json a file that can be written",
                )
            })
    }
}
