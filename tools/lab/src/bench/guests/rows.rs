//! What the rows of all boots become: one row a host, number of virtual CPUs, and way in which CPUs are told of a flush.

use serde_json::json;

use super::GuestPlan;
use crate::bench::columns::{Column, Format, table};
use crate::bench::row::{Ratio, Row, median, thin};
use crate::cli::MachineKind;
use crate::machine::host_cores;

const SAMPLES_KEPT: usize = 2000;

/// What tells CPUs of a flush: the row's name, whether the host flushes before entry, the guest's policy.
pub const TELLINGS: [(&str, bool, &str); 3] = [
    ("interrupts", false, "best"),
    ("kvm", true, "published"),
    ("best", true, "best"),
];

/// Counts come first: times are an emulator's on a host with other work.
const COLUMNS: [Column; 9] = [
    Column::new("threads", "vCPUs", Format::Actors),
    Column::new("policy", "flushes by", Format::Words),
    Column::new("ipis_per_op", "IPIs/op", Format::Digits(2)),
    Column::new("taken_per_op", "taken/op", Format::Digits(2)),
    Column::new("median_ratio", "median / interrupts", Format::Digits(3)),
    Column::new("ratio", "p99 / interrupts", Format::Digits(3)),
    Column::new("median_ns", "median us", Format::Micros),
    Column::new("iterations", "calls", Format::Digits(0)),
    Column::new("stale", "stale", Format::Digits(0)),
];
/// Within one host.
pub const RATIOS: [Ratio; 2] = [
    Ratio::new("median_ratio", "median_ns", &[("policy", "interrupts")]),
    Ratio::new("ratio", "p99_ns", &[("policy", "interrupts")]),
];

/// The key by which a boot's rows are marked.
pub const MARK: &str = "host";

/// What stands there: the host, and whether it flushes before entry.
pub fn mark(host: MachineKind, flushes: bool) -> String {
    let side = if flushes { "on" } else { "off" };
    format!("{} {side}", host.name())
}

impl GuestPlan<'_> {
    /// One row of those of all boots.
    pub(super) fn merge(
        &self,
        host: MachineKind,
        vcpus: u32,
        telling: (&str, bool, &str),
        boots: &[Vec<Row>],
    ) -> Row {
        let (name, flushes, policy) = telling;
        let mark = mark(host, flushes);
        let is_own = |row: &&Row| row.text(MARK) == mark && row.text("policy") == policy;
        let own: Vec<&Row> = boots.iter().flatten().filter(is_own).collect();
        let calls: u64 = own.iter().map(|row| row.count("iterations")).sum();
        let per_call = |of: &dyn Fn(&Row) -> f64| {
            let weighted = |row: &&Row| of(row) * row.count("iterations") as f64;
            own.iter().map(weighted).sum::<f64>() / calls.max(1) as f64
        };
        let middle = |key: &str| median(own.iter().filter_map(|row| row.number(key)));
        let samples: Vec<f64> = own.iter().flat_map(|row| row.numbers("samples")).collect();
        Row::of(json!({
            "machine": host.name(), "policy": name, "threads": vcpus, "pages": 1,
            "cpus": self.cpus, "accel": self.accel.to_string(),
            "crowded": self.cpus > host_cores(),
            "median_ns": middle("call_median_ns"), "p99_ns": middle("call_p99_ns"),
            "median_ratio": null, "ratio": null,
            "ipis_per_op": per_call(&|row| row.number("ipis_per_op").unwrap_or(0.0)),
            "taken_per_op": per_call(&|row| row.counter("cpus_taken")),
            "walks_per_op": per_call(&|row| row.counter("walks_awaited")),
            "stale": own.iter().map(|row| row.count("stale")).sum::<u64>(),
            "iterations": calls, "samples": thin(samples, SAMPLES_KEPT),
        }))
    }

    /// The rows of one host.
    pub(super) fn table(&self, host: MachineKind, rows: &[Row]) -> String {
        let what = match host {
            MachineKind::Linux => "Linux",
            _ => "the reference kernel",
        };
        let columns = [&COLUMNS, self.inside.columns].concat();
        format!(
            "\n{} in the reference kernel as a guest of {what}: one thread a virtual CPU, a host of {} CPUs; {}\n{}\n",
            self.bench.workload.name,
            self.cpus,
            self.inside.call,
            table(&columns, rows.iter().filter(|row| row.is_of(host)))
        )
    }
}
