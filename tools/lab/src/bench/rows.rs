//! Rows: as a boot printed them, and as the result has them.

use serde::{Deserialize, Serialize};

use super::waking::{PrintedWaking, Waking};
use crate::cli::{MachineKind, Workload};
use crate::protocol::Object;

/// A row as a program printed it.
#[derive(Debug, Clone, Deserialize)]
pub struct Printed {
    pub policy: String,
    #[serde(flatten)]
    pub actors: Actors,
    pub pages: u32,
    pub median_ns: f64,
    pub p99_ns: f64,
    pub min_ns: f64,
    pub call_median_ns: Option<f64>,
    pub call_p99_ns: Option<f64>,
    pub per_s: Option<f64>,
    pub iterations: u64,
    pub ipis_per_op: Option<f64>,
    pub stale: u64,
    #[serde(flatten)]
    pub waking: Option<PrintedWaking>,
    #[serde(default)]
    pub counters: Object,
    #[serde(default)]
    pub samples: Vec<f64>,
}

/// How many there were of what the workload has more or less of: one of these is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Actors {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spaces: Option<u32>,
}

impl Actors {
    /// The number, if it is that workload's.
    pub fn of(self, workload: Workload) -> Option<u32> {
        match workload {
            Workload::Pingpong => self.spaces,
            _ => self.threads,
        }
    }

    /// The number, whatever of.
    pub fn count(self) -> u32 {
        self.threads.or(self.spaces).unwrap_or(0)
    }
}

impl Printed {
    /// Whether both were measured under the same load: where a program cannot keep interrupts off, it is lighter.
    pub fn has_load_of(&self, other: &Self) -> bool {
        let keepers = |row: &Self| row.waking.as_ref().map(|waking| waking.keepers);
        keepers(self) == keepers(other)
    }

    /// The number of the workload's actors.
    pub fn actors(&self, workload: Workload) -> Option<u32> {
        self.actors.of(workload)
    }
}

/// A printed row with its boot.
#[derive(Debug, Clone)]
pub struct Sighting {
    /// The machine that printed it.
    pub machine: MachineKind,
    /// Which of the alternating boots: machines with the same number ran next to each other.
    pub boot: u32,
    /// The row.
    pub row: Printed,
}

/// One row of the result.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    pub machine: &'static str,
    pub policy: String,
    #[serde(flatten)]
    pub actors: Actors,
    pub pages: u32,
    pub cpus: usize,
    pub accel: String,
    /// More busy virtual CPUs than host cores: the figures show the host's scheduler.
    pub crowded: bool,
    /// Median over the boots of each boot's median.
    pub median_ns: f64,
    /// Median over the boots of each boot's 99th percentile.
    pub p99_ns: f64,
    pub min_ns: f64,
    /// Median over the boots of this row's median to that of `before` in the same boot.
    pub ratio: Option<f64>,
    /// The same to Linux in the neighbouring boot.
    pub ratio_to_linux: Option<f64>,
    /// As above, for the system call in each iteration alone: the flush is in there, the page faults are not.
    #[serde(flatten)]
    pub call: Option<Call>,
    /// Operations a second of all threads, of a workload that counts them.
    #[serde(flatten)]
    pub rate: Option<Rate>,
    /// Wake-ups and spans with preemption off, of a workload that has them.
    #[serde(flatten)]
    pub waking: Option<Waking>,
    /// What a page adds to an iteration without any, where that was measured too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page_ns: Option<f64>,
    /// Interrupts for each iteration, over all boots.
    pub ipis_per_op: Option<f64>,
    pub stale: u64,
    pub iterations: u64,
    /// The median of each boot.
    pub boot_medians_ns: Vec<f64>,
    /// The program's other counters, an iteration, from the last boot.
    pub counters: Object,
    /// Thinned evenly over all boots.
    pub samples: Vec<f64>,
}

/// The system call in each iteration of a workload that has one.
#[derive(Debug, Clone, Serialize)]
pub struct Call {
    #[serde(rename = "call_median_ns")]
    pub median_ns: f64,
    #[serde(rename = "call_p99_ns")]
    pub p99_ns: f64,
    #[serde(rename = "call_ratio")]
    pub ratio: Option<f64>,
    #[serde(rename = "call_ratio_to_linux")]
    pub ratio_to_linux: Option<f64>,
}

/// Operations of all threads of a workload together.
#[derive(Debug, Clone, Serialize)]
pub struct Rate {
    /// Median over the boots.
    pub per_s: f64,
    /// Median over the boots, to `before` in the same boot.
    #[serde(rename = "per_s_ratio")]
    pub ratio: Option<f64>,
}

/// The name of a machine in results.
pub fn machine_name(kind: MachineKind) -> &'static str {
    match kind {
        MachineKind::Qemu => "qemu",
        MachineKind::Linux => "linux",
        MachineKind::Sim => "sim",
    }
}
