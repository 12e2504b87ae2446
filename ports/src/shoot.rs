//! What a flush costs while all other CPUs use the space: the boot CPU flushes, the others wait for interrupts.

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use shootdown::{FlushRange, FreedTables, Policy};
use shootdown_torture::{Memory, Region};

use crate::arch::{self, PAGE_SIZE};
use crate::console::say;
use crate::cpus;
use crate::memory;
use crate::options::Options;
use crate::platform::SHOOTDOWN;

/// The space of all.
const SPACE: usize = 0;
const WARM_UP: usize = 200;
const FLUSHES: usize = 2000;

/// CPUs that use the space.
static USERS: AtomicUsize = AtomicUsize::new(0);
static IS_OVER: AtomicBool = AtomicBool::new(false);

/// A row of each policy, of the boot CPU; whether each flush was done by all.
pub fn lead(options: &Options) -> bool {
    let pages = options.number("pages", 1).clamp(1, 16) as usize;
    memory::spaces().enter(Some(SPACE));
    while USERS.load(Ordering::Acquire) < cpus::count() - 1 {
        core::hint::spin_loop();
    }
    let is_well = [
        ("before", Policy::BEFORE),
        ("published", Policy::PUBLISHED),
        ("best", Policy::BEST),
    ]
    .map(|(name, policy)| measure(name, policy, pages));
    IS_OVER.store(true, Ordering::Release);
    memory::spaces().enter(None);
    is_well.iter().all(|is_well| *is_well)
}

#[inline(never)]
fn measure(name: &str, policy: Policy, pages: usize) -> bool {
    SHOOTDOWN.set_policy(policy);
    let address = memory::spaces().address(Region::Space(SPACE), 0);
    let range = FlushRange::new(address, address + pages * PAGE_SIZE.bytes(), PAGE_SIZE);
    let space = memory::spaces().space(SPACE);
    let flush = || {
        let start_ns = arch::now_ns();
        SHOOTDOWN.flush(space, range, FreedTables::No);
        arch::now_ns() - start_ns
    };
    for _ in 0..WARM_UP {
        flush();
    }
    let watcher = SHOOTDOWN.watch();
    let before = watcher.total_stats();
    let mut samples_ns = [0; FLUSHES];
    samples_ns.fill_with(flush);
    let counts = watcher.total_stats().since(&before);
    samples_ns.sort_unstable();
    let (cpus, of_all) = (cpus::count(), FLUSHES as f64);
    let (median_ns, p99_ns) = (samples_ns[FLUSHES / 2], samples_ns[FLUSHES * 99 / 100]);
    let ipis = counts.ipis_sent as f64 / of_all;
    let flushed =
        (counts.remote_flushes + counts.flushes_covered + counts.cpus_taken) as f64 / of_all;
    say!(
        r#"@row {{"policy":"{name}","cpus":{cpus},"pages":{pages},"median_ns":{median_ns},"p99_ns":{p99_ns},"ipis_per_op":{ipis:.3},"flushed_per_op":{flushed:.3}}}"#
    );
    flushed >= (cpus - 1) as f64
}

/// Every other CPU.
pub fn follow() -> ! {
    memory::spaces().enter(Some(SPACE));
    USERS.fetch_add(1, Ordering::Release);
    while !IS_OVER.load(Ordering::Acquire) {
        core::hint::spin_loop();
    }
    memory::spaces().enter(None);
    crate::wait_for_ever()
}
