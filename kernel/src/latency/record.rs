//! What one CPU has seen in an interval.
//!
//! Only the CPU itself writes its record, with interrupts off for the few stores; others read it at any time and look twice
//! (a sequence lock).

use core::panic::Location;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};

use shootdown::CpuId;
use shootdown_x86::irq;

use super::control::{self, Epoch};
use crate::arch::percpu;
use crate::arch::tsc;
use crate::cpus::MAX_CPUS;

/// A place in the source.
pub(super) type Site = &'static Location<'static>;

/// Kinds of spans.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    PreemptOff,
    IrqOff,
    Wait,
}

const KINDS: usize = 3;
/// Beginnings keep so many bits of the clock, 78 hours; the rest is the epoch.
const CLOCK_BITS: u32 = 48;
const CLOCK_MASK: u64 = (1 << CLOCK_BITS) - 1;

/// Spans of one kind: the open one, and what is known of those that ended.
struct Spans {
    /// Epoch and clock; 0 for none.
    since: AtomicU64,
    site: AtomicPtr<Location<'static>>,
    longest_ns: AtomicU64,
    longest_site: AtomicPtr<Location<'static>>,
    sum_ns: AtomicU64,
    count: AtomicU64,
}

/// All of one CPU, on lines of its own.
#[repr(align(128))]
struct Record {
    /// Odd while the CPU writes what others read.
    version: AtomicU32,
    /// The interval that the rest is about.
    interval: AtomicU32,
    spans: [Spans; KINDS],
}

static RECORDS: [Record; MAX_CPUS] = [const {
    Record {
        version: AtomicU32::new(0),
        interval: AtomicU32::new(0),
        spans: [const { Spans::new() }; KINDS],
    }
}; MAX_CPUS];

/// What is known of one kind of spans that ended in this interval.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Summary {
    pub longest_ns: u64,
    /// Where the longest began.
    pub site: Option<Site>,
    pub sum_ns: u64,
    pub count: u64,
}

/// A span of that kind begins.
#[cold]
pub(super) fn begin(kind: Kind, epoch: Epoch, site: Site) {
    let state = irq::save();
    RECORDS[percpu::cpu_id().index()].spans[kind as usize].begin(epoch, site);
    // SAFETY: 1. from `save` above.
    unsafe { irq::restore(state) };
}

/// A wait begins: it counts if nobody else can have this CPU meanwhile. Otherwise the waiter may even end it elsewhere.
#[cold]
pub(super) fn begin_wait(epoch: Epoch, site: Site) {
    let is_exclusive = percpu::preempt_count() > 0 || !irq::state().is_enabled();
    if is_exclusive {
        begin(Kind::Wait, epoch, site);
    }
}

/// The open span of that kind ends, if its beginning was seen.
#[cold]
pub(super) fn end(kind: Kind, epoch: Epoch) {
    let state = irq::save();
    let record = &RECORDS[percpu::cpu_id().index()];
    if let Some((span_ns, site)) = record.spans[kind as usize].end(epoch) {
        record.write(|| record.spans[kind as usize].add(span_ns, site));
    }
    // SAFETY: 1. from `save` above.
    unsafe { irq::restore(state) };
}

/// What is known of that CPU: preemption off, interrupts off, waits. Any context.
pub(super) fn read(cpu: CpuId) -> [Summary; KINDS] {
    let record = &RECORDS[cpu.index()];
    loop {
        // ORDERING: acquires what was written before; pairs with the release in `write`.
        let before = record.version.load(Ordering::Acquire);
        let is_current = record.interval.load(Ordering::Relaxed) == control::interval();
        let summaries = record.spans.each_ref().map(Spans::summary);
        // ORDERING: the second look comes after all that was read; pairs with the fence in `write`.
        fence(Ordering::Acquire);
        if before.is_multiple_of(2) && record.version.load(Ordering::Relaxed) == before {
            return match is_current {
                true => summaries,
                false => Default::default(),
            };
        }
        core::hint::spin_loop();
    }
}

impl Record {
    /// Changes what others read, after emptying it if it is of an earlier interval. Own CPU, interrupts off.
    fn write(&self, change: impl FnOnce()) {
        let version = self.version.load(Ordering::Relaxed);
        self.version
            .store(version.wrapping_add(1), Ordering::Relaxed);
        // ORDERING: readers that see any of the changes see the odd version; pairs with the fence in `read`.
        fence(Ordering::Release);
        let interval = control::interval();
        if self.interval.load(Ordering::Relaxed) != interval {
            self.spans.iter().for_each(Spans::clear);
            self.interval.store(interval, Ordering::Relaxed);
        }
        change();
        // ORDERING: publishes the changes; pairs with the acquire in `read`.
        self.version
            .store(version.wrapping_add(2), Ordering::Release);
    }
}

impl Spans {
    const fn new() -> Self {
        Self {
            since: AtomicU64::new(0),
            site: AtomicPtr::new(ptr::null_mut()),
            longest_ns: AtomicU64::new(0),
            longest_site: AtomicPtr::new(ptr::null_mut()),
            sum_ns: AtomicU64::new(0),
            count: AtomicU64::new(0),
        }
    }

    fn begin(&self, epoch: Epoch, site: Site) {
        self.site
            .store(ptr::from_ref(site).cast_mut(), Ordering::Relaxed);
        let since = u64::from(epoch.number()) << CLOCK_BITS | tsc::now_ns() & CLOCK_MASK;
        self.since.store(since, Ordering::Relaxed);
    }

    /// Length and place of the open span; None when there is none, or one of another epoch.
    fn end(&self, epoch: Epoch) -> Option<(u64, *mut Location<'static>)> {
        let since = self.since.load(Ordering::Relaxed);
        self.since.store(0, Ordering::Relaxed);
        let began_now = since >> CLOCK_BITS == u64::from(epoch.number());
        began_now.then(|| {
            let span_ns = tsc::now_ns().wrapping_sub(since) & CLOCK_MASK;
            (span_ns, self.site.load(Ordering::Relaxed))
        })
    }

    fn add(&self, span_ns: u64, site: *mut Location<'static>) {
        if span_ns > self.longest_ns.load(Ordering::Relaxed) {
            self.longest_ns.store(span_ns, Ordering::Relaxed);
            self.longest_site.store(site, Ordering::Relaxed);
        }
        let sum_ns = self.sum_ns.load(Ordering::Relaxed);
        self.sum_ns.store(sum_ns + span_ns, Ordering::Relaxed);
        let count = self.count.load(Ordering::Relaxed);
        self.count.store(count + 1, Ordering::Relaxed);
    }

    fn clear(&self) {
        self.longest_ns.store(0, Ordering::Relaxed);
        self.longest_site.store(ptr::null_mut(), Ordering::Relaxed);
        self.sum_ns.store(0, Ordering::Relaxed);
        self.count.store(0, Ordering::Relaxed);
    }

    fn summary(&self) -> Summary {
        let site = self.longest_site.load(Ordering::Relaxed);
        Summary {
            longest_ns: self.longest_ns.load(Ordering::Relaxed),
            // SAFETY: null, or made from a `Site` in `begin`, which lives for ever.
            site: unsafe { site.as_ref() },
            sum_ns: self.sum_ns.load(Ordering::Relaxed),
            count: self.count.load(Ordering::Relaxed),
        }
    }
}
