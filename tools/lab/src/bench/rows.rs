//! Rows: as a boot printed them, and merged over all boots.

use serde::{Deserialize, Serialize};

use crate::cli::MachineKind;
use crate::protocol::Object;

/// How many samples a merged row keeps.
const SAMPLES_KEPT: usize = 2000;
/// The policy that all ratios refer to.
const REFERENCE: &str = "before";

/// A row as a program printed it.
#[derive(Debug, Clone, Deserialize)]
pub struct Printed {
    pub policy: String,
    pub threads: u32,
    pub pages: u32,
    pub median_ns: f64,
    pub p99_ns: f64,
    pub min_ns: f64,
    pub call_median_ns: f64,
    pub call_p99_ns: f64,
    pub iterations: u64,
    pub ipis_per_op: Option<f64>,
    pub stale: u64,
    #[serde(default)]
    pub counters: Object,
    #[serde(default)]
    pub samples: Vec<f64>,
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
    pub threads: u32,
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
    pub call_median_ns: f64,
    pub call_p99_ns: f64,
    pub call_ratio: Option<f64>,
    pub call_ratio_to_linux: Option<f64>,
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

/// What is the same for every row of a group.
#[derive(Debug, Clone)]
pub struct Setting {
    pub cpus: usize,
    pub accel: String,
    pub is_crowded: bool,
}

/// Merges the sightings of one group; the order of the first boot is kept, machine by machine.
pub fn merge(sightings: &[Sighting], setting: &Setting) -> Vec<Row> {
    let mut keys: Vec<(MachineKind, &str, u32, u32)> = Vec::new();
    for sighting in sightings {
        let key = key(sighting);
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    keys.into_iter()
        .map(|wanted| merge_one(wanted, sightings, setting))
        .collect()
}

fn key(sighting: &Sighting) -> (MachineKind, &str, u32, u32) {
    (
        sighting.machine,
        &sighting.row.policy,
        sighting.row.threads,
        sighting.row.pages,
    )
}

fn merge_one(
    wanted: (MachineKind, &str, u32, u32),
    sightings: &[Sighting],
    setting: &Setting,
) -> Row {
    let (machine, policy, threads, pages) = wanted;
    let own: Vec<&Sighting> = sightings
        .iter()
        .filter(|sighting| key(sighting) == wanted)
        .collect();
    let rows = || own.iter().map(|sighting| &sighting.row);
    let iterations: u64 = rows().map(|row| row.iterations).sum();
    let ipis: Option<f64> = rows()
        .map(|row| Some(row.ipis_per_op? * row.iterations as f64))
        .sum();
    let boot_medians_ns: Vec<f64> = rows().map(|row| row.median_ns).collect();
    let to_before = (MachineKind::Qemu, REFERENCE, threads, pages);
    let to_linux = (MachineKind::Linux, "linux", threads, pages);
    let (whole, call) = (
        |row: &Printed| row.median_ns,
        |row: &Printed| row.call_median_ns,
    );
    Row {
        machine: machine_name(machine),
        policy: policy.to_owned(),
        threads,
        pages,
        cpus: setting.cpus,
        accel: setting.accel.clone(),
        crowded: setting.is_crowded,
        median_ns: median(boot_medians_ns.iter().copied()).unwrap_or(0.0),
        p99_ns: median(rows().map(|row| row.p99_ns)).unwrap_or(0.0),
        min_ns: rows().map(|row| row.min_ns).fold(f64::INFINITY, f64::min),
        ratio: ratio(&own, sightings, to_before, whole),
        ratio_to_linux: ratio(&own, sightings, to_linux, whole),
        call_median_ns: median(rows().map(call)).unwrap_or(0.0),
        call_p99_ns: median(rows().map(|row| row.call_p99_ns)).unwrap_or(0.0),
        call_ratio: ratio(&own, sightings, to_before, call),
        call_ratio_to_linux: ratio(&own, sightings, to_linux, call),
        ipis_per_op: ipis.map(|ipis| ipis / iterations.max(1) as f64),
        stale: rows().map(|row| row.stale).sum(),
        iterations,
        boot_medians_ns,
        counters: own
            .last()
            .map(|sighting| sighting.row.counters.clone())
            .unwrap_or_default(),
        samples: thin(rows().flat_map(|row| row.samples.iter().copied()).collect()),
    }
}

/// The median ratio of `figure` to that of `reference`, each row against the one of the same (or neighbouring) boot.
fn ratio(
    own: &[&Sighting],
    all: &[Sighting],
    reference: (MachineKind, &str, u32, u32),
    figure: impl Fn(&Printed) -> f64,
) -> Option<f64> {
    let ratios = own.iter().filter_map(|sighting| {
        let other = all
            .iter()
            .find(|other| other.boot == sighting.boot && key(other) == reference)?;
        let other_ns = figure(&other.row);
        (other_ns > 0.0).then(|| figure(&sighting.row) / other_ns)
    });
    median(ratios)
}

/// The name of a machine in results.
pub fn machine_name(kind: MachineKind) -> &'static str {
    match kind {
        MachineKind::Qemu => "qemu",
        MachineKind::Linux => "linux",
        MachineKind::Sim => "sim",
    }
}

/// The median; the mean of the middle two if there is no middle one.
fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = sorted[(sorted.len() - 1) / 2];
    Some(f64::midpoint(lower, upper))
}

/// Keeps every n-th sample.
fn thin(samples: Vec<f64>) -> Vec<f64> {
    let stride = samples.len().div_ceil(SAMPLES_KEPT).max(1);
    samples.into_iter().step_by(stride).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The call is all but 40 ns of the iteration.
    fn sighting(machine: MachineKind, boot: u32, policy: &str, median_ns: f64) -> Sighting {
        let call_ns = median_ns - 40.0;
        let text = format!(
            r#"{{"policy":"{policy}","threads":2,"pages":1,"median_ns":{median_ns},"p99_ns":9,"min_ns":{boot},
                "call_median_ns":{call_ns},"call_p99_ns":{boot},
                "iterations":100,"ipis_per_op":1.0,"stale":{boot},"samples":[1,2]}}"#
        );
        Sighting {
            machine,
            boot,
            row: serde_json::from_str(&text).unwrap(),
        }
    }

    fn merged(sightings: &[Sighting]) -> Vec<Row> {
        merge(
            sightings,
            &Setting {
                cpus: 2,
                accel: "tcg".into(),
                is_crowded: false,
            },
        )
    }

    #[test]
    fn ratios_are_taken_within_a_boot() {
        use MachineKind::{Linux, Qemu};
        // Boot 1 ran on a host twice as slow: the ratios do not see it.
        let rows = merged(&[
            sighting(Qemu, 0, "before", 100.0),
            sighting(Qemu, 0, "best", 80.0),
            sighting(Linux, 0, "linux", 160.0),
            sighting(Qemu, 1, "before", 200.0),
            sighting(Qemu, 1, "best", 160.0),
            sighting(Linux, 1, "linux", 320.0),
        ]);
        assert_eq!(rows.len(), 3);
        assert_eq!(
            (rows[0].ratio, rows[1].ratio, rows[2].ratio),
            (Some(1.0), Some(0.8), Some(1.6))
        );
        assert_eq!(rows[1].ratio_to_linux, Some(0.5));
        assert_eq!(rows[1].median_ns, 120.0);
    }

    #[test]
    fn the_call_is_compared_with_the_call() {
        use MachineKind::{Linux, Qemu};
        let rows = merged(&[
            sighting(Qemu, 0, "before", 100.0),
            sighting(Qemu, 0, "best", 70.0),
            sighting(Linux, 0, "linux", 160.0),
        ]);
        let best = &rows[1];
        assert_eq!((best.ratio, best.call_ratio), (Some(0.7), Some(0.5)));
        assert_eq!(best.call_ratio_to_linux, Some(0.25));
        assert_eq!((best.call_median_ns, best.call_p99_ns), (30.0, 0.0));
    }

    #[test]
    fn counts_add_up_over_boots() {
        let rows = merged(&[
            sighting(MachineKind::Qemu, 1, "best", 1.0),
            sighting(MachineKind::Qemu, 2, "best", 3.0),
        ]);
        assert_eq!(
            (rows[0].stale, rows[0].iterations, rows[0].ipis_per_op),
            (3, 200, Some(1.0))
        );
        assert_eq!((rows[0].min_ns, rows[0].samples.len()), (1.0, 4));
        assert_eq!(rows[0].ratio, None, "nothing to compare with");
    }

    #[test]
    fn thinning_keeps_the_spread() {
        let kept = thin((0..10_000).map(f64::from).collect());
        assert_eq!((kept.len(), kept[0], kept[1]), (2000, 0.0, 5.0));
        assert_eq!(thin(vec![1.0]), [1.0]);
    }

    #[test]
    fn median_of_even_counts_is_the_middle() {
        assert_eq!(median([4.0, 1.0, 2.0, 3.0].into_iter()), Some(2.5));
        assert_eq!(median([].into_iter()), None);
    }
}
