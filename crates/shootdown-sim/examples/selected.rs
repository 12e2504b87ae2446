//! Table T5 on the simulated machine: how long several initiators need for their calls, beside other kernels' algorithms.
//!
//! `cargo run --release -p shootdown-sim --example selected -- [FUNCTION_US [CPUS [CALLS]]]`, by default 500, 128 and 20. For
//! each way to draw the targets it prints the change against one global lock in percent, the limit for anybody who serves first
//! come, first served, and the largest ratio of two initiators' 99th percentiles.

use std::process::ExitCode;

use shootdown_sim::timed::Preset;
use shootdown_sim::workload::{Masks, Peer, Selected, SelectedResult};

const SIZES: [usize; 4] = [1, 4, 16, 64];
const INITIATORS: [usize; 3] = [1, 2, 4];
const MACHINE: &str = "40-core";

fn main() -> ExitCode {
    let numbers: Result<Vec<usize>, _> =
        std::env::args().skip(1).map(|text| text.parse()).collect();
    let (Ok(numbers), Some(preset)) = (numbers, Preset::named(MACHINE)) else {
        eprintln!("selected takes up to three numbers: microseconds, CPUs, calls");
        return ExitCode::from(2);
    };
    let number = |index: usize, default| numbers.get(index).copied().unwrap_or(default);
    let (function_us, cpus, calls) = (number(0, 500), number(1, 128), number(2, 20));
    let most = INITIATORS[2] + SIZES[3];
    if calls == 0 || !(most..=4096).contains(&cpus) || function_us > 1_000_000 {
        eprintln!("CPUS is {most} to 4096, CALLS at least 1, FUNCTION_US at most 1000000");
        return ExitCode::from(2);
    }
    println!(
        "{MACHINE} extended to {cpus} CPUs, {calls} calls an initiator, {function_us} us, seed 1"
    );
    for masks in Masks::ALL {
        for initiators in INITIATORS {
            for size in SIZES {
                if masks == Masks::Disjoint && initiators * (size + 1) > cpus {
                    continue;
                }
                let run = |peer| {
                    Selected {
                        peer,
                        initiators,
                        size,
                        masks,
                        is_idempotent: false,
                        cpus,
                        function_ps: function_us as u64 * 1_000_000,
                        calls,
                        costs: preset.costs(),
                        seed: 1,
                    }
                    .run()
                };
                print(masks, initiators, size, run);
            }
        }
    }
    ExitCode::SUCCESS
}

fn print(masks: Masks, initiators: usize, size: usize, run: impl Fn(Peer) -> SelectedResult) {
    let base = run(Peer::OneLock);
    let change = |time_ps: u64| 100.0 * (time_ps as f64 / base.whole_ps as f64 - 1.0);
    print!(
        "{masks:9} x{initiators} {size:3} targets  fifo {:+7.2}",
        change(base.limit_ps)
    );
    for peer in Peer::ALL.into_iter().filter(|peer| *peer != Peer::OneLock) {
        let result = run(peer);
        print!(
            "  {peer} {:+7.2} ({:.2})",
            change(result.whole_ps),
            result.unfairness()
        );
    }
    println!();
}
