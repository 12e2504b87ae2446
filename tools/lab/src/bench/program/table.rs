//! The tables that people read.

use super::plan::ProgramPlan;
use crate::bench::columns::{Column, Format, counted, table};
use crate::bench::row::Row;
use crate::bench::workload::{OnLinux, Program};
use crate::cli::MachineKind;
use crate::machine::host_cores;
use crate::protocol::Object;

/// Columns before those of the workload.
const TIMES: [Column; 5] = [
    POLICY,
    Column::new("median_ns", "median ns", Format::Digits(0)),
    Column::new("p99_ns", "p99 ns", Format::Digits(0)),
    Column::new("ratio", "/ before", Format::Digits(3)),
    Column::new("ratio_to_linux", "/ linux", Format::Digits(3)),
];
/// Columns after them.
const COUNTS: [Column; 2] = [
    Column::new("ipis_per_op", "IPIs/op", Format::Digits(2)),
    Column::new("stale", "stale", Format::Digits(0)),
];
const POLICY: Column = Column::new("policy", "policy", Format::Words);

/// One table for each number of pages, the notes that they need, and the comparison with Linux.
///
/// `program` is what the program said of itself.
pub fn render(plan: &ProgramPlan<'_>, rows: &[Row], program: Option<&Object>) -> String {
    let workload = plan.bench.workload;
    let mut text = String::new();
    let mut line = |words: &str| {
        text.push_str(words);
        text.push('\n');
    };
    for &pages in &plan.axes.pages {
        let mut rows: Vec<&Row> = rows.iter().collect();
        rows.retain(|row| row.count("pages") == u64::from(pages));
        let operation = |row: &Row| {
            let mut all = workload.operations.iter();
            all.position(|known| *known == row.text("operation"))
        };
        rows.sort_by_key(|row| (operation(row), row.count(workload.actors)));
        let pages = counted(pages as usize, "pages");
        line(&format!("\n{}", (workload.title)(&pages)));
        line(&times(&rows, workload));
        if let Some(below) = (workload.below)(&rows) {
            line(&below);
        }
    }
    for note in (workload.notes)(rows, program) {
        line(&note);
    }
    if let Some(why) = (workload.no_counters)(rows) {
        line(&format!("\n{why}"));
    } else if let Some(counters) = counters(rows, workload) {
        line("\nwhat the engine counted an iteration; counts hold on any host");
        line(&counters);
    }
    for group in &plan.groups {
        let actors: Vec<String> = group.actors.iter().map(u32::to_string).collect();
        line(&format!(
            "{} {}: {} virtual CPUs on {} host cores, accel {}",
            actors.join(" and "),
            workload.actors,
            group.cpus,
            host_cores(),
            group.accel,
        ));
    }
    let has_linux = rows.iter().any(|row| row.is_of(MachineKind::Linux));
    if let Some(note) = workload.linux_note.filter(|_| has_linux) {
        line(note);
    }
    let is_compared = match workload.linux {
        OnLinux::Always => true,
        OnLinux::IfAsked | OnLinux::WithDisk | OnLinux::WithKvm => has_linux,
        OnLinux::Never(_) => false,
    };
    if rows.iter().any(|row| row.text("policy") == "best") && is_compared && is_one_load(rows) {
        line(&against_linux(rows, workload, has_linux));
    }
    text
}

fn times(rows: &[&Row], workload: &Program) -> String {
    let actors = Column::new(workload.actors, workload.actors, Format::Actors);
    let columns = [
        operation(workload),
        &[actors],
        &TIMES[..],
        workload.columns,
        &COUNTS,
    ]
    .concat();
    table(&columns, rows.iter().copied())
}

/// The first column where there are several operations.
fn operation(workload: &Program) -> &'static [Column] {
    const OPERATION: [Column; 1] = [Column::new("operation", "operation", Format::Words)];
    &OPERATION[..usize::from(workload.operations.len() > 1)]
}

/// How each policy works, in counts of the engine: they show what an emulator's times hide.
fn counters(rows: &[Row], workload: &Program) -> Option<String> {
    let actors = workload.actors;
    let mut rows: Vec<&Row> = rows.iter().collect();
    rows.retain(|row| row.count(actors) > 1 && row.is_of(MachineKind::Qemu));
    rows.sort_by_key(|row| (row.count("pages"), row.count(actors)));
    let axis = |name| Column::new(name, name, Format::Digits(0));
    let mut columns = [operation(workload), &[axis("pages"), axis(actors), POLICY]].concat();
    let counter = |&(heading, name)| Column::new(name, heading, Format::Counter);
    columns.extend(workload.counters.iter().map(counter));
    (!rows.is_empty()).then(|| table(&columns, rows))
}

/// Whether no row was measured under a lighter load than others: where programs cannot keep interrupts off on Linux, there is nothing
/// to compare with.
fn is_one_load(rows: &[Row]) -> bool {
    let load = |row: &Row| row.number("keepers").map(|keepers| keepers > 0.0);
    rows.windows(2).all(|pair| load(&pair[0]) == load(&pair[1]))
}

/// One sentence with the figures that count, or why there are none.
fn against_linux(rows: &[Row], workload: &Program, has_linux: bool) -> String {
    let actors = workload.actors;
    let figure = |row: &Row| {
        let ratio = row.number("ratio_to_linux")?;
        let [actors, pages] = [actors, "pages"].map(|key| counted(row.count(key) as usize, key));
        Some(format!("{ratio:.3} ({actors}, {pages})"))
    };
    let is_judged = |row: &&Row| row.text("policy") == "best" && !row.is_crowded();
    let figures: Vec<String> = rows.iter().filter(is_judged).filter_map(figure).collect();
    match figures.is_empty() {
        true if has_linux => {
            "no comparison with Linux, which ran at other times on a busy host".into()
        }
        true => "no comparison with Linux: `./lab doctor --get-linux` fetches an image".into(),
        false => format!("best / linux: {}", figures.join(", ")),
    }
}
