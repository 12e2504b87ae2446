//! How much faster all slots are than six, whatever the TLB: the figures of `docs/systems/t4.md`.
//!
//! `cargo run --release -p shootdown-sim --example gains`

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
    table("as table T4 says, forks", &costs, Placement::Same, gain);
    table("addresses at random", &costs, Placement::Random, gain);
    table(
        "addresses and replacement at random",
        &random,
        Placement::Random,
        gain,
    );
    table(
        "the most that replacement could reach",
        &costs,
        Placement::Same,
        most,
    );
    table(
        "entries of four tags at a time",
        &few,
        Placement::Same,
        gain,
    );
    table("3072 entries, forks", &larger, Placement::Same, gain);
}

fn with(costs: &Costs, name: &str, value: f64) -> Costs {
    let mut costs = costs.clone();
    Parameter::named(name)
        .and_then(|parameter| parameter.set(&mut costs, value))
        .expect("a parameter and its value");
    costs
}

fn table(title: &str, costs: &Costs, placement: Placement, figure: fn(&[Pingpong; 3]) -> f64) {
    println!("\n{title}");
    let columns: String = PAGES.iter().map(|pages| format!("{pages:>7}")).collect();
    println!("spaces{columns}  pages");
    for spaces in SPACES {
        let cell = |pages| {
            let sum: f64 = (1..=SEEDS)
                .map(|seed| figure(&rows(costs, placement, seed, spaces, pages)))
                .sum();
            format!("{:>7.2}", sum / SEEDS as f64)
        };
        println!("{spaces:>6}{}", PAGES.map(cell).concat());
    }
}

/// With six slots, with all, and with all but no pages.
fn rows(
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
