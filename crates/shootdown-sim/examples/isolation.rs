//! What page-table isolation costs in a turn of `pingpong`: the figures of `docs/systems/t4.md`.
//!
//! `cargo run --release -p shootdown-sim --example isolation [-- --json FILE]`

mod rows;

use serde_json::json;
use shootdown::Policy;
use shootdown_sim::timed::{Costs, Preset};
use shootdown_sim::workload::Pingpong;

const POLICIES: [Policy; 3] = [Policy::BEFORE, Policy::PUBLISHED, Policy::BEST];
/// Pages that the kernel reads in a system call; nobody we know of published how many. With 0 only loads of roots count.
const KERNEL_PAGES: [usize; 2] = [0, 16];

fn main() {
    let mut rows = Vec::new();
    println!(
        "kernel pages, spaces, pages, policy: ns a turn and walks, without isolation and with it"
    );
    for kernel_pages in KERNEL_PAGES {
        let costs = Costs {
            kernel_pages,
            ..Preset::named("skylake-laptop").expect("a preset").costs()
        };
        for (spaces, pages) in [2, 8]
            .into_iter()
            .flat_map(|it| [0, 128, 512].map(|pages| (it, pages)))
        {
            for policy in POLICIES {
                print!(
                    "{kernel_pages:>2} {spaces:>2} {pages:>4} {:<10}",
                    policy.name()
                );
                for isolation in [false, true] {
                    let row = Pingpong {
                        isolation,
                        ..Pingpong::new(spaces, pages, policy, &costs)
                    };
                    let measured = row.run();
                    assert_eq!(measured.stale, 0);
                    let walks = measured.per_iteration(measured.translations.walks);
                    print!(" {:>6.0} ns {walks:>6.1}", measured.mean_ns());
                    rows.push(json!({
                        "kernel_pages": kernel_pages, "spaces": spaces, "pages": pages, "policy": policy.name(),
                        "isolation": isolation, "mean_ns": measured.mean_ns(), "walks": walks,
                    }));
                }
                println!();
            }
        }
    }
    rows::write(rows);
}
