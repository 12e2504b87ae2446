//! How much faster all slots are than six, whatever the TLB: the figures of `docs/systems/t4.md`.
//!
//! `cargo run --release -p shootdown-sim --example gains [-- --json FILE]`

mod rows;

use serde_json::{Value, json};
use shootdown::{Policy, tags::Tags};
use shootdown_sim::timed::{Costs, Parameter, Preset, Replacement};
use shootdown_sim::workload::{Pingpong, Placement};

/// Turns of each space that are measured.
const ROUNDS: usize = 20;
/// Several draws of addresses; a figure is their mean.
const SEEDS: u64 = 5;
const SPACES: [usize; 6] = [6, 7, 8, 9, 10, 12];
const PAGES: [usize; 8] = [0, 16, 64, 128, 160, 192, 256, 512];

fn main() {
    let costs = Preset::named("skylake-laptop").expect("a preset").costs();
    let mut random = costs.clone();
    random.tlb.replacement = Replacement::Random;
    let few = with(&costs, "tlb_tags", 4.0);
    let larger = with(&costs, "tlb_l2_ways", 24.0);
    let (same, random_places) = (Placement::Same, Placement::Random);
    let own = "each at addresses of its own";
    let tables = [
        table("forks, as in T4's table", &costs, same, gain),
        table(own, &costs, random_places, gain),
        table(
            &format!("{own}, random replacement in the TLB"),
            &random,
            random_places,
            gain,
        ),
        table(
            "the most that any replacement could reach",
            &costs,
            same,
            most,
        ),
        table("forks, entries of four tags at a time", &few, same, gain),
        table("forks, 3072 entries instead of 1536", &larger, same, gain),
    ];
    rows::write(tables.concat());
}

fn with(costs: &Costs, name: &str, value: f64) -> Costs {
    let mut costs = costs.clone();
    Parameter::named(name)
        .and_then(|parameter| parameter.set(&mut costs, value))
        .expect("a parameter and its value");
    costs
}

/// Prints a table, and returns its rows.
fn table(
    title: &str,
    costs: &Costs,
    placement: Placement,
    figure: fn(&[Pingpong; 3]) -> f64,
) -> Vec<Value> {
    println!("\n{title}");
    let columns: String = PAGES.iter().map(|pages| format!("{pages:>7}")).collect();
    println!("spaces{columns}  pages");
    let mut rows = Vec::new();
    for spaces in SPACES {
        print!("{spaces:>6}");
        for pages in PAGES {
            let of = |seed| figure(&runs(costs, placement, seed, spaces, pages));
            let gain = (1..=SEEDS).map(of).sum::<f64>() / SEEDS as f64;
            print!("{gain:>7.2}");
            rows.push(json!({"case": title, "spaces": spaces, "pages": pages, "gain": gain}));
        }
        println!();
    }
    rows
}

/// With six slots, with all, and with all but no pages.
fn runs(
    costs: &Costs,
    placement: Placement,
    seed: u64,
    spaces: usize,
    pages: usize,
) -> [Pingpong; 3] {
    [(Tags::Six, pages), (Tags::All, pages), (Tags::All, 0)].map(|(tags, pages)| Pingpong {
        placement,
        seed,
        iterations: ROUNDS * spaces,
        ..Pingpong::new(spaces, pages, Policy::BEST.with_tags(tags), costs)
    })
}

fn gain([six, all, _]: &[Pingpong; 3]) -> f64 {
    six.run().mean_ns() / all.run().mean_ns()
}

fn most([six, all, empty]: &[Pingpong; 3]) -> f64 {
    six.run().mean_ns() / all.least_ns(empty.run().mean_ns())
}
