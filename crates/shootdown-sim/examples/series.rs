//! The small patches of T1's series, each left out of Linux's flush in turn: a table of `docs/systems/t1-patches.md`.
//!
//! `cargo run --release -p shootdown-sim --example series [-- --json FILE]`

mod rows;

use serde_json::json;
use shootdown_sim::timed::Preset;
use shootdown_sim::workload::{Callers, Means, Operation, Peer, Volley};

/// On the machine class of T1's table: who flushes, and on how many CPUs.
const SITUATIONS: [(&str, Callers, usize); 3] = [
    ("one of 2 CPUs", Callers::One, 2),
    ("one of 4 CPUs", Callers::One, 4),
    ("both of 2 CPUs", Callers::All, 2),
];

fn main() {
    let mut found = Vec::new();
    for (who, callers, cpus) in SITUATIONS {
        let mut whole = None;
        for peer in Peer::SERIES {
            let result = Volley {
                peer,
                callers,
                operation: Operation::Flush,
                means: Means::Interrupts,
                targets: cpus - 1,
                cpus,
                function_ps: 0,
                calls: 200,
                costs: Preset::named("haswell-ep").expect("a preset").costs(),
                seed: 1,
                names_lines: false,
            }
            .run();
            let [median, p99] =
                [500, 990].map(|share| result.quantile_ns(share, |called| called.whole_ps));
            let ratio = median / *whole.get_or_insert(median);
            let lines = result.per_call(result.lines);
            let name = peer.name();
            println!("{who:<16}{name:<18}{median:7.1}{p99:8.1} ns{ratio:7.3}{lines:7.2} lines");
            found.push(json!({
                "who": who, "peer": name, "median_ns": median, "p99_ns": p99, "ratio": ratio, "lines_per_flush": lines,
            }));
        }
    }
    rows::write(found);
}
