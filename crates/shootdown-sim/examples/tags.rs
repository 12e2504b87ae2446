//! How many hardware tags are worth having, and which one to take when all are taken: the tables of
//! `docs/systems/t4-slots.md`.
//!
//! `cargo run --release -p shootdown-sim --example tags [-- --json FILE]`

mod rows;

use serde_json::{Value, json};
use shootdown::Policy;
use shootdown_sim::timed::{Costs, Parameter, Preset};
use shootdown_sim::workload::{Candidates, Eviction, Names, Order, Pingpong, Placement, Victim};

/// Turns of each figure.
const ITERATIONS: usize = 4000;
/// Several draws of names and turns; a figure is their mean.
const SEEDS: u64 = 5;
/// The numbers of spaces that the tables have.
const SPACES: [usize; 8] = [4, 8, 12, 16, 32, 64, 128, 256];
/// The numbers of slots.
const SLOTS: [usize; 11] = [0, 1, 4, 8, 16, 32, 64, 128, 256, 1024, 4095];
/// What hosts get without thinking.
const DEFAULT_SLOTS: usize = 64;
/// Pages that a space touches in its turn, where time is measured.
const PAGES: usize = 16;

const ORDERS: [(&str, Order, Names); 4] = [
    (
        "round robin, names in sequence",
        Order::RoundRobin,
        Names::InSequence,
    ),
    (
        "round robin, names scattered",
        Order::RoundRobin,
        Names::Scattered,
    ),
    (
        "Zipf 1.0, names in sequence",
        Order::Zipf(1.0),
        Names::InSequence,
    ),
    (
        "Zipf 1.0, names scattered",
        Order::Zipf(1.0),
        Names::Scattered,
    ),
];

fn main() {
    let mut rows = Vec::new();
    for (title, order, names) in ORDERS {
        println!("\n{title}, {DEFAULT_SLOTS} slots: tags found again, %, by eviction");
        heading("eviction");
        for eviction in Eviction::ALL {
            let kept = |spaces| percent_kept(eviction, DEFAULT_SLOTS, spaces, order, names);
            let line = line(&name(eviction), kept);
            rows.extend(line.map(|cell| told(cell, "eviction", title, "kept")));
        }
    }
    for (title, order, names) in ORDERS {
        println!("\n{title}: tags found again, %, by slots (the engine's eviction)");
        heading("slots");
        for slots in SLOTS.into_iter().filter(|slots| *slots > 0) {
            let kept = |spaces| percent_kept(Eviction::ENGINE, slots, spaces, order, names);
            line(&slots.to_string(), kept);
        }
    }
    for (title, order, names) in ORDERS {
        println!("\n{title}: ns a turn with {PAGES} pages, by slots (the engine)");
        heading("slots");
        let as_row = |cell| told(cell, "slots", title, "turn_ns");
        for slots in SLOTS {
            let costs = with_slots(slots);
            let turn_ns = |spaces| turn_ns(&costs, Policy::BEST, spaces, order, names);
            rows.extend(line(&slots.to_string(), turn_ns).map(as_row));
        }
        let costs = with_slots(DEFAULT_SLOTS);
        let turn_ns = |spaces| turn_ns(&costs, Policy::PUBLISHED, spaces, order, names);
        rows.extend(line("six, as published", turn_ns).map(as_row));
    }
    rows::write(rows);
}

/// A cell as a row for documents.
fn told((line, spaces, figure): Cell, lines: &str, title: &str, what: &str) -> Value {
    json!({lines: line, "turns": title, "spaces": spaces, what: figure})
}

fn with_slots(slots: usize) -> Costs {
    let mut costs = Preset::named("skylake-laptop").expect("a preset").costs();
    let parameter = Parameter::named("asid_slots").expect("a parameter");
    parameter
        .set(&mut costs, slots as f64)
        .expect("a number of slots");
    costs
}

fn row(costs: &Costs, policy: Policy, spaces: usize, order: Order, names: Names) -> Pingpong {
    Pingpong {
        order,
        names,
        // Separate programs: forks with so few pages would compete for a few sets of the TLB.
        placement: Placement::Random,
        iterations: ITERATIONS,
        ..Pingpong::new(spaces, PAGES, policy, costs)
    }
}

/// The mean over several seeds.
fn mean(figure: impl Fn(u64) -> f64) -> f64 {
    (1..=SEEDS).map(figure).sum::<f64>() / SEEDS as f64
}

fn percent_kept(
    eviction: Eviction,
    slots: usize,
    spaces: usize,
    order: Order,
    names: Names,
) -> f64 {
    let costs = with_slots(slots);
    mean(|seed| {
        let row = Pingpong {
            seed,
            ..row(&costs, Policy::BEST, spaces, order, names)
        };
        let (before, measured) = row.names();
        let kept = eviction.kept(slots, &[before.as_slice(), &measured].concat());
        let kept = kept[before.len()..].iter().filter(|kept| **kept).count();
        100.0 * kept as f64 / measured.len() as f64
    })
}

fn turn_ns(costs: &Costs, policy: Policy, spaces: usize, order: Order, names: Names) -> f64 {
    mean(|seed| {
        let row = Pingpong {
            seed,
            ..row(costs, policy, spaces, order, names)
        };
        row.run().mean_ns()
    })
}

fn name(eviction: Eviction) -> String {
    let candidates = match eviction.candidates {
        Candidates::All => "all slots",
        Candidates::Line => "4 in a line",
    };
    let victim = match eviction.victim {
        Victim::RoundRobin => "in turn",
        Victim::LeastRecent => "least recent",
        Victim::Random => "random",
    };
    format!("{candidates}, {victim}")
}

fn heading(first: &str) {
    print!("{first:<26}");
    for spaces in SPACES {
        print!("{spaces:>8}");
    }
    println!("  spaces");
}

/// The name of its line, a number of spaces, and the figure.
type Cell = (String, usize, f64);

/// Prints a line, and returns its cells.
fn line(name: &str, figure: impl Fn(usize) -> f64) -> [Cell; SPACES.len()] {
    print!("{name:<26}");
    let cells = SPACES.map(|spaces| {
        let figure = figure(spaces);
        print!("{figure:>8.1}");
        (name.to_owned(), spaces, figure)
    });
    println!();
    cells
}
