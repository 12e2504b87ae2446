//! OSTD with the engine beside it: how long its calls and flushes take and the engine's, what either leaves in the TLBs of other CPUs, and torture.
//!
//! `platform` is the engine's platform on what OSTD offers, `cpus` brings the CPUs online and gives them work, `spaces` changes user pages by OSTD
//! and by hand; `contest`, `probe`, `locks` and `torture` measure and check. `machine` is what OSTD keeps to itself: tables, the local APIC, the end.

#![no_std]

extern crate alloc;

/// Prints a line on the serial console.
macro_rules! say {
    ($($words:tt)*) => {
        ostd::console::early_print(format_args!("{}\n", format_args!($($words)*)))
    };
}

mod contest;
mod cpus;
mod locks;
mod machine;
mod options;
mod platform;
mod probe;
mod spaces;
mod torture;

use spaces::Flusher;

use crate::options::Options;
use crate::probe::Found;

/// How long each half of the probe takes, at most.
const PROBE_SECONDS: u64 = 5;

#[ostd::main]
fn main() {
    let options = Options::read();
    cpus::start(&options);
    cpus::check_calls();
    locks::check(&options);
    say!("ostd: a CPU that waits for a lock with interrupts off answers");
    contest::run();
    let seconds = options.seconds.min(PROBE_SECONDS);
    let before = probe::run(Flusher::Stock, seconds);
    report("before", seconds, &before);
    let after = probe::run(Flusher::Engine, seconds);
    report("after", seconds, &after);
    if after.is_bad() {
        say!("ostd: the engine's flush left a page to be used through a stale translation");
        machine::end(false);
    }
    let violations = torture::run(options.seconds);
    say!(
        "ostd: cpus={} seconds={} stock-stale={} stale={} late={} violations={violations}",
        cpus::count(),
        options.seconds,
        before.stale_reads + before.late_writes,
        after.stale_reads,
        after.late_writes,
    );
    machine::end(!before.is_bad() && violations == 0);
}

fn report(when: &str, seconds: u64, found: &Found) {
    say!(
        "probe: {when:<6} {seconds} s  {:>8} changes  {:>10} reads  {:>8} of them stale  {:>6} stores after the page was freed",
        found.changes,
        found.reads,
        found.stale_reads,
        found.late_writes
    );
}
