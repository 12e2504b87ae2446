//! `preemptoff`, table T3: the longest wake-ups, and the longest spans with preemption off.
//!
//! * [`spans`]: what the reference kernel's tracer records;
//! * [`simulated`]: on the simulated machine.

mod simulated;
mod spans;

use crate::bench::columns::{Column, Format};
use crate::bench::program::Merge;
use crate::bench::row::Row;
use crate::bench::sim::Simulated;
use crate::bench::workload::{OnLinux, OwnEffort, Program};
use crate::protocol::Object;

/// The workload.
pub const PROGRAM: Program = Program {
    name: "preemptoff",
    about: "A thread of high priority wakes up by the clock while others unmap memory and some keep interrupts off (table T3)",
    default_actors: &[2, 4],
    default_pages: &[8],
    // For a 99th percentile over intervals: many, each long enough for a long time with interrupts off.
    effort: Some(OwnEffort {
        quick: [100, 8, 100, 1],
        whole: [100, 25, 100, 3],
    }),
    linux: OnLinux::IfAsked,
    title: |pages| {
        format!(
            "preemptoff: {pages} an unmap; ns by which a SCHED_FIFO thread wakes up late, an unmapping thread on every CPU"
        )
    },
    columns: &[
        Column::new("max_ns", "max ns", Format::Digits(0)),
        Column::new("wakeups", "wake-ups", Format::Digits(0)),
        Column::new("irq_offs", "irqs off", Format::Digits(0)),
    ],
    metrics: &[
        ("max_ns", Merge::Most),
        ("wakeups", Merge::Sum),
        ("missed", Merge::Sum),
        ("fifo", Merge::All),
        ("keepers", Merge::Last),
        ("irq_offs", Merge::Sum),
    ],
    needs: Some("wakeups"),
    pool: spans::pool,
    below: spans::render,
    notes,
    simulated: Ok(Simulated {
        preset: "16-core",
        policies: Program::PLAIN.default_policies,
        has_load: true,
        isolates: false,
        shapes: simulated::shapes,
        measure: simulated::measure,
    }),
    ..Program::PLAIN
};

fn notes(rows: &[Row], load: Option<&Object>) -> Vec<String> {
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
    type IsMeant = fn(&Row) -> bool;
    let remarks: [(IsMeant, &str); 3] = [
        (
            |row| row.count("keepers") == 0,
            "nobody keeps interrupts off there (a program cannot): a lighter load, and no ratio to it",
        ),
        (
            |row| row.0.get("fifo") != Some(&true.into()),
            "SCHED_FIFO was refused there: the thread that wakes up waits for its turn",
        ),
        (
            |row| !spans::are_in(row),
            "no record of the spans with preemption off there",
        ),
    ];
    for (is_meant, words) in remarks {
        let meant = rows.iter().filter(|row| is_meant(row));
        let mut machines: Vec<&str> = meant.map(|row| row.text("machine")).collect();
        machines.dedup();
        if !machines.is_empty() {
            notes.push(format!("{}: {words}", machines.join(", ")));
        }
    }
    notes
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::bench::program::{merged, row_of};

    /// A row of a boot, whose number is in some of its figures.
    pub fn row(machine: &str, boot: u32, policy: &str, further: &str) -> Row {
        row_of(&format!(
            r#"{{"machine":"{machine}","policy":"{policy}","threads":2,"pages":8,"median_ns":20,"p99_ns":90,"min_ns":1,
                "max_ns":{boot}00,"wakeups":10,"missed":{boot},"fifo":true,"irq_offs":5,"iterations":4,"ipis_per_op":1,
                "stale":0{further}}}"#
        ))
    }

    #[test]
    fn what_a_machine_lacks_is_said() {
        let row = row("qemu", 1, "best", r#","keepers":1"#);
        let rows = merged(&PROGRAM, vec![vec![row]]);
        assert!(spans::render(&[&rows[0]]).is_none());
        let note = "qemu: no record of the spans with preemption off there";
        assert_eq!(notes(&rows, None), [note]);
        assert!(!rows[0].0.contains_key("off_p99_ns"));
    }

    #[test]
    fn other_loads_are_no_reference() {
        for (keepers, ratio) in [(0, None), (1, Some(1.0))] {
            let ours = row("qemu", 1, "best", r#","keepers":1"#);
            let linux = row("linux", 1, "linux", &format!(r#","keepers":{keepers}"#));
            let rows = merged(&PROGRAM, vec![vec![ours, linux]]);
            assert_eq!(rows[0].number("ratio_to_linux"), ratio);
        }
    }

    #[test]
    fn the_load_is_described_by_its_parameters() {
        let load = r#"{"period_us":1000,"body_us":15,"body_sigma":0.5,"tail_share":0.02,"tail_us":200,
            "tail_alpha":1.2,"cut_us":50000,"gap_us":700,"can_keep_interrupts_off":true}"#;
        let notes = notes(&[], Some(&serde_json::from_str(load).unwrap()));
        let note = &notes[0];
        assert!(note.contains("alpha 1.2") && note.contains("700 us apart"));
    }
}
