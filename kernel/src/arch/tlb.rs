//! This machine's translation caches: the one value through which all CPUs reach their own, and what
//! each remembers of its hardware tags.

use shootdown::{CpuId, tags::AsidSlot};
use shootdown_x86::tlb::PcidSupport;
use shootdown_x86::{Features, Pcid, Tlb};
use spin::Once;

use super::percpu;
use super::spurious::Retries;
use crate::cpus::MAX_CPUS;

/// How many tags a CPU uses. The processor has 4095, but its TLB holds the pages of a few dozen
/// spaces at most, and whatever frees tables of the kernel's part voids them all in one sweep: this many
/// are 1 KiB, 16 cache lines.
pub const TAGS: usize = 64;
const _: () = assert!(TAGS <= Pcid::TAGS);

/// One CPU's slots, on cache lines of its own.
#[repr(align(128))]
struct Slots([AsidSlot; TAGS]);

static SLOTS: [Slots; MAX_CPUS] = [const { Slots([const { AsidSlot::new() }; TAGS]) }; MAX_CPUS];
static TLB: Once<Tlb> = Once::new();

/// Whether the kernel may use tags.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TagUse {
    /// Where the processor has them and no erratum speaks against it.
    Auto,
    /// No.
    Off,
}

/// Decides on tags. Boot CPU, once. Returns what the processor offers.
pub fn choose(features: &Features, wanted: TagUse) -> PcidSupport {
    // SAFETY: 1. the kernel. 2. the boot CPU's.
    let support = unsafe { PcidSupport::detect(features) };
    TLB.call_once(|| {
        // SAFETY: 1. the kernel. 2. all CPUs of a machine are taken to be alike; `start` comes first.
        let tlb = unsafe { Tlb::new(features) };
        match wanted {
            // SAFETY: 1. usable. 2. `start` below.
            TagUse::Auto if support.is_usable() => unsafe { tlb.with_pcids() },
            _ => tlb,
        }
    });
    support
}

/// The caches of the running CPU.
///
/// # Panics
///
/// Before [`choose`].
#[inline]
pub fn local() -> &'static Tlb {
    TLB.get().expect("tags are decided on at boot")
}

static RETRIES: [Retries; MAX_CPUS] = [const { Retries::none() }; MAX_CPUS];

/// Drops what this CPU has of a page that permits by now what was refused, so that the access may be made again; `false` where that has not
/// helped so often that it never will. Interrupts are off; any context else.
pub fn retry(address: usize) -> bool {
    let cpu = percpu::cpu_id().index();
    let is_allowed = RETRIES[cpu].allow(address, percpu::ticks(cpu));
    if is_allowed {
        local().flush_page(address);
    }
    is_allowed
}

/// Accesses of the kernel that were made again, of all CPUs, since boot.
pub fn retries() -> u64 {
    RETRIES.iter().map(Retries::total).sum()
}

/// Turns tags on, if they are used, on this CPU. Interrupts off, the kernel's root loaded.
pub fn start() {
    // SAFETY: 1. no root of this kernel has caching attributes.
    unsafe { local().start() };
}

/// What a CPU remembers of its tags; nothing where tags are not used.
#[inline]
pub fn slots(cpu: CpuId) -> &'static [AsidSlot] {
    if local().has_pcids() {
        &SLOTS[cpu.index()].0
    } else {
        &[]
    }
}
