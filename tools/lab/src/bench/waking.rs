//! What a row of `preemptoff` has besides the times of all workloads: the longest wake-ups, and the longest spans with
//! preemption off.

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};
use serde::{Deserialize, Serialize};

use super::rows::{Printed, Row};
use crate::protocol::Object;

/// As the program printed it.
#[derive(Debug, Clone, Deserialize)]
pub struct PrintedWaking {
    pub max_ns: f64,
    pub wakeups: u64,
    pub missed: u64,
    pub fifo: bool,
    pub keepers: u32,
    pub irq_offs: u64,
    pub off_max_ns: Option<f64>,
    pub off_at: Option<String>,
    #[serde(default)]
    pub off_samples: Vec<f64>,
    #[serde(default)]
    pub ipi_wait_samples: Vec<f64>,
}

/// As the result has it, over all boots.
#[derive(Debug, Clone, Serialize)]
pub struct Waking {
    /// The latest wake-up of all.
    pub max_ns: f64,
    pub wakeups: u64,
    /// Moments that passed during a longer delay.
    pub missed: u64,
    /// Whether the thread that wakes up had a higher priority than the load.
    pub fifo: bool,
    /// CPUs that kept interrupts off now and then, and how often.
    pub keepers: u32,
    pub irq_offs: u64,
    #[serde(flatten)]
    pub off: Option<Off>,
}

/// Of the longest spans with preemption off, one for each CPU and interval, over all boots.
#[derive(Debug, Clone, Serialize)]
pub struct Off {
    pub off_spans: usize,
    pub off_p50_ns: f64,
    pub off_p99_ns: f64,
    pub off_max_ns: f64,
    /// Where the longest of all began.
    pub off_at: Option<String>,
    /// The 99th percentile to that of `before`.
    pub off_ratio: Option<f64>,
    /// Of the longest waits for other CPUs with preemption off; where the kernel tells.
    pub ipi_wait_p50_ns: Option<f64>,
    pub ipi_wait_p99_ns: Option<f64>,
}

/// Merges the boots of one row; `None` for rows of other workloads.
pub fn merge(rows: &[&Printed], reference: &[&Printed]) -> Option<Waking> {
    let wakings = || rows.iter().filter_map(|row| row.waking.as_ref());
    let last = wakings().next_back()?;
    Some(Waking {
        max_ns: wakings().map(|waking| waking.max_ns).fold(0.0, f64::max),
        wakeups: wakings().map(|waking| waking.wakeups).sum(),
        missed: wakings().map(|waking| waking.missed).sum(),
        fifo: wakings().all(|waking| waking.fifo),
        keepers: last.keepers,
        irq_offs: wakings().map(|waking| waking.irq_offs).sum(),
        off: merge_off(rows, reference),
    })
}

fn merge_off(rows: &[&Printed], reference: &[&Printed]) -> Option<Off> {
    let spans = pooled(rows, |waking| &waking.off_samples);
    let waits = pooled(rows, |waking| &waking.ipi_wait_samples);
    let off_p99_ns = quantile(&spans, 99)?;
    let before = quantile(&pooled(reference, |waking| &waking.off_samples), 99);
    let wakings = rows.iter().filter_map(|row| row.waking.as_ref());
    let longest = wakings.max_by(|a, b| {
        let ns = |waking: &PrintedWaking| waking.off_max_ns.unwrap_or(0.0);
        ns(a).total_cmp(&ns(b))
    })?;
    Some(Off {
        off_spans: spans.len(),
        off_p50_ns: quantile(&spans, 50)?,
        off_p99_ns,
        off_max_ns: longest.off_max_ns.unwrap_or(0.0),
        off_at: longest.off_at.clone(),
        off_ratio: before.filter(|&ns| ns > 0.0).map(|ns| off_p99_ns / ns),
        ipi_wait_p50_ns: quantile(&waits, 50),
        ipi_wait_p99_ns: quantile(&waits, 99),
    })
}

/// All samples of all boots, sorted.
fn pooled(rows: &[&Printed], samples: impl Fn(&PrintedWaking) -> &[f64]) -> Vec<f64> {
    let wakings = rows.iter().filter_map(|row| row.waking.as_ref());
    let mut pooled: Vec<f64> = wakings.flat_map(samples).copied().collect();
    pooled.sort_by(f64::total_cmp);
    pooled
}

/// By nearest rank.
fn quantile(sorted: &[f64], percent: usize) -> Option<f64> {
    let rank = (sorted.len() * percent).div_ceil(100).max(1) - 1;
    sorted.get(rank).copied()
}

/// The spans as a table; `None` where no kernel keeps a record of them.
pub fn table<'a>(rows: impl Iterator<Item = &'a Row>) -> Option<String> {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED).set_header([
        "threads",
        "policy",
        "spans",
        "p50 us",
        "p99 us",
        "p99 / before",
        "max us",
        "IPI wait p50 us",
        "IPI wait p99 us",
        "the longest began at",
    ]);
    let mut rows: Vec<(&Row, &Off)> = rows.filter_map(|row| Some((row, off(row)?))).collect();
    rows.sort_by_key(|(row, _)| row.actors.count());
    for &(row, off) in &rows {
        let mark = if row.crowded { " *" } else { "" };
        table.add_row([
            format!("{}{mark}", row.actors.count()),
            row.policy.clone(),
            off.off_spans.to_string(),
            micros(Some(off.off_p50_ns)),
            micros(Some(off.off_p99_ns)),
            or_dash(off.off_ratio.map(|ratio| format!("{ratio:.3}"))),
            micros(Some(off.off_max_ns)),
            micros(off.ipi_wait_p50_ns),
            micros(off.ipi_wait_p99_ns),
            or_dash(off.off_at.clone()),
        ]);
    }
    for (index, column) in table.column_iter_mut().enumerate() {
        if index != 1 && index != 9 {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    (!rows.is_empty()).then(|| table.to_string())
}

/// What must be known to read the tables.
pub fn notes(rows: &[Row], load: Option<&Object>) -> Vec<String> {
    let mut notes = Vec::new();
    let keeps = |load: &&Object| load.get("can_keep_interrupts_off") == Some(&true.into());
    if let Some(load) = load.filter(keeps) {
        let figure = |name: &str| load.get(name).map(ToString::to_string).unwrap_or_default();
        notes.push(format!(
            "a wake-up every {} us; interrupts off for {} us (lognormal, sigma {}), and in {} of the cases for {} us and more \
             (Pareto, alpha {}, cut at {} us), about {} us apart",
            figure("period_us"), figure("body_us"), figure("body_sigma"), figure("tail_share"),
            figure("tail_us"), figure("tail_alpha"), figure("cut_us"), figure("gap_us"),
        ));
    }
    let wakings = || {
        rows.iter()
            .filter_map(|row| Some((row, row.waking.as_ref()?)))
    };
    let mut say = |machines: Vec<&str>, words: &str| {
        if !machines.is_empty() {
            notes.push(format!("{}: {words}", machines.join(", ")));
        }
    };
    let machines = |is_meant: fn(&Waking) -> bool| {
        let mut names: Vec<&str> = wakings()
            .filter(|(_, waking)| is_meant(waking))
            .map(|(row, _)| row.machine)
            .collect();
        names.dedup();
        names
    };
    say(
        machines(|waking| waking.keepers == 0),
        "nobody keeps interrupts off there (a program cannot): a lighter load, and no ratio to it",
    );
    say(
        machines(|waking| !waking.fifo),
        "SCHED_FIFO was refused there: the thread that wakes up waits for its turn",
    );
    say(
        machines(|waking| waking.off.is_none()),
        "no record of the spans with preemption off there",
    );
    notes
}

/// Whether no row was measured under a lighter load than others.
pub fn is_one_load(rows: &[Row]) -> bool {
    let keepers = |row: &Row| row.waking.as_ref().map(|waking| waking.keepers > 0);
    rows.windows(2)
        .all(|pair| keepers(&pair[0]) == keepers(&pair[1]))
}

/// The record of a row.
fn off(row: &Row) -> Option<&Off> {
    row.waking.as_ref()?.off.as_ref()
}

fn micros(ns: Option<f64>) -> String {
    or_dash(ns.map(|ns| format!("{:.1}", ns / 1000.0)))
}

fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".into())
}

#[cfg(test)]
mod tests {
    use super::super::merge::{Setting, merge as merge_rows};
    use super::super::rows::Sighting;
    use super::*;
    use crate::cli::MachineKind;

    fn sighting(boot: u32, policy: &str, spans: &str) -> Sighting {
        let text = format!(
            r#"{{"policy":"{policy}","threads":2,"pages":8,"median_ns":20,"p99_ns":90,"min_ns":1,"max_ns":{boot}00,
                "wakeups":10,"missed":{boot},"fifo":true,"keepers":1,"irq_offs":5,"iterations":4,"ipis_per_op":1,
                "stale":0{spans}}}"#
        );
        Sighting {
            machine: MachineKind::Qemu,
            boot,
            row: serde_json::from_str(&text).unwrap(),
        }
    }

    fn merged(sightings: &[Sighting]) -> Vec<Row> {
        let setting = Setting {
            cpus: 2,
            accel: "tcg".into(),
            is_crowded: false,
        };
        merge_rows(sightings, &setting)
    }

    fn spans(samples: &str, most: u32, place: &str) -> String {
        format!(r#","off_samples":{samples},"off_max_ns":{most},"off_at":"{place}""#)
    }

    #[test]
    fn the_spans_of_all_boots_are_one_distribution() {
        let rows = merged(&[
            sighting(1, "before", &spans("[1000,4000]", 4000, "a.rs:1")),
            sighting(1, "best", &spans("[100,300]", 300, "b.rs:1")),
            sighting(2, "before", &spans("[2000,8000]", 8000, "a.rs:2")),
            sighting(2, "best", &spans("[200,250]", 250, "b.rs:2")),
        ]);
        let [before, best] = [0, 1].map(|index| rows[index].waking.clone().unwrap());
        assert_eq!(
            (before.wakeups, before.missed, before.max_ns),
            (20, 3, 200.0)
        );
        let (before, best) = (before.off.unwrap(), best.off.unwrap());
        assert_eq!((before.off_p50_ns, before.off_p99_ns), (2000.0, 8000.0));
        assert_eq!((before.off_spans, before.off_ratio), (4, Some(1.0)));
        assert_eq!((best.off_p99_ns, best.off_ratio), (300.0, Some(0.0375)));
        assert_eq!(best.off_at.as_deref(), Some("b.rs:1"));
        let text = table(rows.iter()).unwrap();
        assert!(text.contains("a.rs:2") && text.contains("0.037") && text.contains("8.0"));
        let json = serde_json::to_value(&rows[1]).unwrap();
        assert_eq!(
            (&json["off_p99_ns"], &json["max_ns"]),
            (&300.0.into(), &200.0.into())
        );
    }

    #[test]
    fn what_a_machine_lacks_is_said() {
        let rows = merged(&[sighting(1, "best", "")]);
        assert!(table(rows.iter()).is_none());
        let notes = notes(&rows, None);
        assert_eq!(
            notes,
            ["qemu: no record of the spans with preemption off there"]
        );
        let json = serde_json::to_value(&rows[0]).unwrap();
        assert!(json.get("off_p99_ns").is_none());
    }

    #[test]
    fn other_loads_are_no_reference() {
        use MachineKind::Linux;
        let on_linux = |keepers: u32| {
            let mut on_linux = sighting(1, "linux", "");
            on_linux.machine = Linux;
            on_linux.row.waking.as_mut().unwrap().keepers = keepers;
            on_linux
        };
        for (keepers, ratio) in [(0, None), (1, Some(1.0))] {
            let rows = merged(&[sighting(1, "best", ""), on_linux(keepers)]);
            assert_eq!(rows[0].ratio_to_linux, ratio);
        }
    }

    #[test]
    fn the_load_is_described_by_its_parameters() {
        let load = r#"{"period_us":1000,"body_us":15,"body_sigma":0.5,"tail_share":0.02,"tail_us":200,
            "tail_alpha":1.2,"cut_us":50000,"gap_us":700,"can_keep_interrupts_off":true}"#;
        let notes = notes(&[], Some(&serde_json::from_str(load).unwrap()));
        assert!(
            notes[0].contains("alpha 1.2") && notes[0].contains("700 us apart"),
            "{notes:?}"
        );
    }
}
