//! Repeats one run: what `./lab sim replay` does, without the lab.
//!
//! `cargo run --release -p shootdown-sim --example replay -- --cpus N --seed S [--schedule ANSWERS]`

use shootdown_sim::fuzz::{Case, run_with_story};

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let case: Case = words.join(" ").parse().expect("options of a case");
    let report = run_with_story(&case);
    for line in &report.story {
        println!("{line}");
    }
    println!("{:?}", report.failure);
}
