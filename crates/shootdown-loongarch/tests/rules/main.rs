//! The crate's sequences on an emulated processor that keeps every translation that it may keep, walks at every moment, and sees stores to page tables as late as it may.
//!
//! `story` is a kernel in small: whatever it does, no translation contradicts the page tables, and no freed table is walked. `known` holds cases by hand, and mistakes that must be
//! noticed.

mod known;
mod others;
mod processor;
mod random;
mod story;
mod tables;

use others::Others;
use random::Random;
use story::{Config, Kernel, Step, all_steps};

/// Every program of three steps, without tags and with two.
#[test]
fn short_programs_leave_nothing_stale() {
    for config in Config::all().filter(|config| config.slots != 1 && config.bits != 1) {
        let steps = all_steps();
        for program in 0..steps.len().pow(3) {
            let processor = config.processor();
            let mut kernel = Kernel::new(&processor, config);
            let mut rest = program;
            for _ in 0..3 {
                kernel.take(steps[rest % steps.len()]);
                rest /= steps.len();
            }
        }
    }
}

/// Long ones at random, while others change the same tables. A failure names its seed in the panic's message.
#[test]
fn long_programs_leave_nothing_stale() {
    let steps = all_steps();
    for config in Config::all() {
        for seed in 1..=150 {
            let mut random = Random::new(seed);
            let program: Vec<Step> = (0..60).map(|_| steps[random.below(steps.len())]).collect();
            let processor = config.processor();
            let mut kernel = Kernel::new(&processor, config);
            processor.others.replace(Others::busy(seed));
            program.iter().for_each(|&step| kernel.take(step));
        }
    }
}
