//! The tables that people read: by placement and cost of an interrupt, a line an operation, a column a contender.

use serde_json::Value;

use crate::bench::columns::grid;
use crate::bench::row::Row;
use crate::protocol::Object;

/// Whom ratios refer to: the first of these that took part.
const REFERENCES: [&str; 2] = ["linux", "series"];
/// What stands between the two ends of an operation.
const STEPS: [&str; 4] = ["until sent", "interrupt", "until it runs", "until over"];

/// What rows have in common that stand in one table.
type Part<'a> = (&'a str, u64);

/// All tables.
pub fn render(rows: &[Row], about: &Object, has_steps: bool) -> String {
    let mut parts: Vec<Part<'_>> = rows.iter().map(part).collect();
    parts.dedup();
    let mut text = String::new();
    for part in &parts {
        text += &tables(rows, *part, has_steps);
    }
    let missing = about.get("not_measured").and_then(Value::as_array);
    for operation in missing.into_iter().flatten().filter_map(Value::as_str) {
        text += &format!("{operation}: not measured, there are too few cores\n");
    }
    let moved = about.get("moved").and_then(Value::as_u64).unwrap_or(0);
    if moved > 0 {
        text += &format!("{moved} rounds left out: the host moved a CPU meanwhile\n");
    }
    let calls: u64 = rows.iter().map(|row| row.count("calls")).sum();
    text + &format!("{calls} operations, every one checked when its turn was over\n")
}

fn part(row: &Row) -> Part<'_> {
    (row.text("placement"), row.count("interrupt_cycles"))
}

fn find<'a>(rows: &'a [Row], of: Part<'_>, operation: &str, peer: &str) -> Option<&'a Row> {
    rows.iter().find(|row| {
        part(row) == of && row.text("operation") == operation && row.text("peer") == peer
    })
}

fn distinct<'a>(rows: impl Iterator<Item = &'a Row>, key: &str) -> Vec<&'a str> {
    let mut words: Vec<&str> = Vec::new();
    for row in rows {
        let word = row.text(key);
        if !words.contains(&word) {
            words.push(word);
        }
    }
    words
}

fn title((placement, interrupt): Part<'_>) -> String {
    let cores = match placement {
        "near" => "CPUs near each other (on one core)",
        "shared cache" => "CPUs on two cores that share a cache",
        _ => "CPUs far from each other (on cores of their own)",
    };
    match interrupt {
        0 => format!("{cores}, interrupts for nothing"),
        cycles => format!("{cores}, interrupts of {cycles} cycles"),
    }
}

fn tables(rows: &[Row], of: Part<'_>, has_steps: bool) -> String {
    let mine = || rows.iter().filter(|row| part(row) == of);
    let (operations, peers) = (distinct(mine(), "operation"), distinct(mine(), "peer"));
    let cells = |key: &str| -> Vec<Vec<String>> {
        let line = |operation: &&str| {
            let figure = |peer: &str| find(rows, of, operation, peer)?.number(key);
            let reference = REFERENCES
                .into_iter()
                .find_map(|it| Some((it, figure(it)?)));
            let cell = |peer: &&str| match (figure(peer), reference) {
                (Some(cycles), Some((name, its))) if *peer != name => {
                    format!("{cycles:.0} ({:.2})", cycles / its)
                }
                (Some(cycles), _) => format!("{cycles:.0}"),
                _ => "-".to_owned(),
            };
            [(*operation).to_owned()]
                .into_iter()
                .chain(peers.iter().map(cell))
                .collect()
        };
        operations.iter().map(line).collect()
    };
    let rounds = mine().map(|row| row.count("rounds")).max().unwrap_or(0);
    let mut text = format!(
        "\n{}: {rounds} rounds\n{}",
        title(of),
        mine().next().map_or(String::new(), transfers)
    );
    for (key, what) in [
        ("median_cycles", "medians"),
        ("p99_cycles", "99th percentiles"),
    ] {
        let heading = [what].into_iter().chain(peers.iter().copied());
        text += &format!("{}\n", grid(heading, cells(key), |column| column == 0));
    }
    text += "cycles (and by Linux's, or the series's); a flush by a peer is a call of all CPUs, which overlaps the local flush, as Linux and FreeBSD do it today\n";
    if has_steps {
        text += &steps(rows, of, &operations, &peers);
    }
    text
}

fn transfers(row: &Row) -> String {
    let lines = row.0.get("lines");
    let figure = |key: &str| {
        let cycles = lines.and_then(|all| all.get(key)).and_then(Value::as_u64);
        cycles.map_or("-".to_owned(), |cycles| cycles.to_string())
    };
    format!(
        "a line there and back {}, a load of what the other wrote {}, a locked operation there {}, on a line that both have read {}, behind eight such stores {}, on an own line {} cycles, {} of each for reading the counter; PAUSE {}\n",
        figure("round_trip"),
        figure("load"),
        figure("locked"),
        figure("upgrade"),
        figure("drain"),
        figure("own"),
        figure("nothing"),
        figure("pause"),
    )
}

/// Where the time of the first initiator's operations goes, to its first target.
fn steps(rows: &[Row], of: Part<'_>, operations: &[&str], peers: &[&str]) -> String {
    let mut lines = Vec::new();
    for operation in operations {
        for peer in peers {
            let row = find(rows, of, operation, peer);
            let steps = row.and_then(|row| row.0.get("steps_cycles")?.as_array());
            let cell = |step: usize| {
                let cycles = steps.and_then(|steps| steps.get(step)?.as_u64());
                cycles.map_or("-".to_owned(), |cycles| cycles.to_string())
            };
            let names = [(*operation).to_owned(), (*peer).to_owned()];
            lines.push(
                names
                    .into_iter()
                    .chain((0..STEPS.len()).map(cell))
                    .collect(),
            );
        }
    }
    let heading = ["where the time goes", "contender"]
        .into_iter()
        .chain(STEPS);
    format!("{}\n", grid(heading, lines, |column| column < 2))
}
