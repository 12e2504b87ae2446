//! The tables that people read.

use super::plan::ProgramPlan;
use crate::bench::columns::{Column, Format, counted, table};
use crate::bench::report;
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
pub fn render(
    plan: &ProgramPlan<'_>,
    rows: &[Row],
    program: Option<&Object>,
    others: Option<f64>,
) -> String {
    let (bench, workload) = (plan.bench, plan.bench.workload);
    let mut text = String::new();
    let mut line = |words: &str| {
        text.push_str(words);
        text.push('\n');
    };
    for &pages in &plan.axes.pages {
        let mut rows: Vec<&Row> = rows
            .iter()
            .filter(|row| row.count("pages") == u64::from(pages))
            .collect();
        rows.sort_by_key(|row| row.count(workload.actors));
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
    if rows.iter().any(Row::is_crowded) {
        line(
            "* more busy vCPUs than host cores: shows the host's scheduler, not the flush; IPIs/op and stale still hold",
        );
    }
    let has_linux = rows.iter().any(|row| row.is_of(MachineKind::Linux));
    if let Some(note) = workload.linux_note.filter(|_| has_linux) {
        line(note);
    }
    let is_compared = match workload.linux {
        OnLinux::Always => true,
        OnLinux::IfAsked | OnLinux::WithDisk => has_linux,
        OnLinux::Never(_) => false,
    };
    if rows.iter().any(|row| row.text("policy") == "best") && is_compared && is_one_load(rows) {
        line(&against_linux(rows, workload));
    }
    text + &report::remarks(others, bench.quick.then_some("short boots"))
}

fn times(rows: &[&Row], workload: &Program) -> String {
    let actors = actors(workload);
    let columns = [&[actors], &TIMES[..], workload.columns, &COUNTS].concat();
    table(&columns, rows.iter().copied())
}

fn actors(workload: &Program) -> Column {
    let name = workload.actors;
    Column::new(name, name, Format::Actors)
}

/// How each policy works, in counts of the engine: they show what an emulator's times hide.
fn counters(rows: &[Row], workload: &Program) -> Option<String> {
    let actors = workload.actors;
    let mut rows: Vec<&Row> = rows
        .iter()
        .filter(|row| row.count(actors) > 1 && row.is_of(MachineKind::Qemu))
        .collect();
    rows.sort_by_key(|row| (row.count("pages"), row.count(actors)));
    let axis = |name| Column::new(name, name, Format::Digits(0));
    let mut columns = vec![axis("pages"), axis(actors), POLICY];
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
fn against_linux(rows: &[Row], workload: &Program) -> String {
    let actors = workload.actors;
    let figure = |row: &Row| {
        let ratio = row.number("ratio_to_linux")?;
        let [actors, pages] = [actors, "pages"].map(|key| counted(row.count(key) as usize, key));
        Some(format!("{ratio:.3} ({actors}, {pages})"))
    };
    let best = rows
        .iter()
        .filter(|row| row.text("policy") == "best" && !row.is_crowded());
    let figures: Vec<String> = best.filter_map(figure).collect();
    match figures.is_empty() {
        true => "no comparison with Linux: `./lab doctor --get-linux` fetches an image".into(),
        false => format!("best / linux: {}", figures.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::program::merge::tests::{merged, row_of};
    use crate::bench::workloads::tests::program;

    #[test]
    fn counters_of_the_reference_kernel_are_shown_and_no_others() {
        let row = |machine: &str| {
            row_of(&format!(
                r#"{{"machine":"{machine}","policy":"best","spaces":2,"pages":0,"counters":{{"tags_kept":0.75}}}}"#
            ))
        };
        let text = counters(&[row("qemu")], program("pingpong")).unwrap();
        assert!(text.contains("tags kept") && text.contains("0.75") && text.contains("0.00"));
        assert_eq!(counters(&[row("linux")], program("pingpong")), None);
    }

    #[test]
    fn the_call_has_columns_of_its_own() {
        let row = |policy: &str, call_median_ns: f64| {
            row_of(&format!(
                r#"{{"machine":"qemu","policy":"{policy}","threads":2,"pages":32,"median_ns":900,"p99_ns":990,"min_ns":1,
                    "call_median_ns":{call_median_ns},"call_p99_ns":777,"iterations":3,"ipis_per_op":1,"stale":0}}"#
            ))
        };
        let madvise = program("madvise");
        let rows = merged(
            madvise,
            vec![vec![row("before", 400.0), row("best", 100.0)]],
        );
        let text = times(&rows.iter().collect::<Vec<_>>(), madvise);
        let cells = |line: &str| -> Vec<String> {
            let cells = line.split(['│', '┆']).map(|cell| cell.trim().to_owned());
            cells.filter(|cell| !cell.is_empty()).collect()
        };
        let lines: Vec<Vec<String>> = text.lines().map(cells).collect();
        let find = |word: &str| lines.iter().find(|line| line.iter().any(|c| c == word));
        let (heading, best) = (find("policy").unwrap(), find("best").unwrap());
        let cell = |name: &str| &best[heading.iter().position(|cell| cell == name).unwrap()];
        assert_eq!(cell("call ns"), "100");
        assert_eq!(cell("call p99"), "777");
        assert_eq!(cell("call / before"), "0.250");
        assert_eq!(cell("/ before"), "1.000");
    }
}
