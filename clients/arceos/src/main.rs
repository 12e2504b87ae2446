//! ArceOS with the engine: what its own unmap leaves in the TLBs of other CPUs, what the engine leaves there, and torture.
//!
//! `boot` brings the engine up beside a running ArceOS, `platform` is the engine's platform, `memory` changes kernel pages, `probe`, `locks` and
//! `torture` look whether all of it holds. `arch` is the only part that knows the processor.

#![no_std]
#![no_main]

extern crate alloc;
#[allow(
    unused_imports,
    reason = "examples use the macros without a name, and call it std"
)]
#[macro_use]
extern crate axstd as std;

mod arch;
mod boot;
mod clock;
mod example;
mod fault;
mod locks;
mod memory;
mod options;
mod platform;
mod probe;
mod threads;
mod torture;

use axstd::println;

use memory::Flusher;
use options::Options;
use probe::Found;

/// How long each half of the probe takes, at most.
const PROBE_SECONDS: u64 = 5;

#[unsafe(no_mangle)]
fn main() {
    let options = Options::read();
    clock::calibrate();
    boot::start(&options);
    boot::check_calls();
    if example::run() {
        arch::end(true);
    }
    locks::check();
    println!("arceos: a CPU that waits for a lock with interrupts off answers");
    let seconds = options.seconds.min(PROBE_SECONDS);
    let before = probe::run(Flusher::Stock, seconds);
    report("stock", seconds, &before);
    let after = probe::run(Flusher::Engine, seconds);
    report("engine", seconds, &after);
    if after.is_bad() {
        println!("arceos: the engine's unmap left a page to be used through a stale translation");
    }
    let violations = torture::run(options.seconds);
    let (stale, late) = (after.stale_reads, after.late_writes);
    println!(
        "arceos: cpus={} seconds={} stock-stale={} stale={stale} late={late} violations={violations}",
        platform::CPUS,
        options.seconds,
        before.stale_reads,
    );
    arch::end(!after.is_bad() && violations == 0);
}

fn report(whose: &str, seconds: u64, found: &Found) {
    println!(
        "probe: {whose:<6} {seconds} s  {:>9} changes  {:>11} reads  {:>9} of them stale  {:>6} stores after the page was freed",
        found.changes, found.reads, found.stale_reads, found.late_writes
    );
}
