//! Starting the other CPUs, all at once: INIT, start-up IPI, and a second one for those that slept
//! through the first (SDM vol. 3A, "Typical BSP Initialization Sequence").

use core::ops::Range;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use shootdown_x86::apic::StartupPage;
use shootdown_x86::{ApicId, SendError};
use spin::Once;

use crate::addr::{PAGE_BYTES, PhysAddr};
use crate::arch::{apic, cpu as processor, paging, percpu, steal, timer, tlb};
use crate::boot::fail::boot_fail;
use crate::cpus::MAX_CPUS;
use crate::platform::SHOOTDOWN;
use crate::{hotplug, panic, task, time};

/// Ids that no CPU has: the broadcast address.
const NOBODY: u32 = u32::MAX;
/// Where a CPU finds its number, in `entry.s`.
pub static APIC_IDS: [AtomicU32; MAX_CPUS] = [const { AtomicU32::new(NOBODY) }; MAX_CPUS];
/// Which page tables it loads there.
pub static ROOT: AtomicU64 = AtomicU64::new(0);

/// How often a CPU has reached [`ap_main`]'s end.
static ARRIVED: AtomicU32 = AtomicU32::new(0);

/// After INIT (SDM, as above).
const INIT_DELAY_NS: u64 = 10_000_000;
/// Before a start-up IPI is repeated. The manual's 200 us is for real CPUs; in an emulator on a busy
/// host the first needs longer, and a second that comes too early costs nothing but is ignored.
const STARTUP_DELAY_NS: u64 = 200_000;
/// An emulator on a busy host may not run a virtual CPU for seconds.
const ARRIVAL_LIMIT_NS: u64 = 20_000_000_000;
/// The trampoline goes to the first page of RAM from here on (below are interrupt vectors and the
/// loader's data).
const LOWEST_PAGE: u64 = 0x8000;

unsafe extern "C" {
    static trampoline_start: u8;
    static trampoline_end: u8;
    static trampoline_gdt_base: u8;
    static trampoline_to_32: u8;
    static trampoline_to_64: u8;
}

/// Notes the APIC id of CPU `cpu`, before it starts.
pub fn set_apic_id(cpu: usize, id: ApicId) {
    // ORDERING: as for `ROOT`.
    APIC_IDS[cpu].store(id.0, Ordering::Relaxed);
}

/// Where the trampoline is.
static PAGE: Once<StartupPage> = Once::new();

/// Starts CPUs 1 to `cpus - 1` and returns when all are online.
pub fn start_others(cpus: usize, ram: &[(u64, u64)]) {
    if cpus == 1 {
        return;
    }
    // ORDERING: before the start-up IPI, whose send fences (x2APIC), or is an uncached store behind this one (xAPIC); the CPU loads it in `entry.s`.
    ROOT.store(paging::kernel_root().as_u64(), Ordering::Relaxed);
    PAGE.call_once(|| install_trampoline(ram));
    // SAFETY: 1. the CPUs have run nothing of this kernel.
    unsafe { start(1..cpus) };
}

/// Resets these CPUs, starts them, and returns when they are online.
///
/// # Safety
/// 1. None of them is 0, and they execute nothing of this kernel.
pub unsafe fn start(cpus: Range<usize>) {
    let page = *PAGE.get().expect("the boot has installed the trampoline");
    let wanted = ARRIVED.load(Ordering::Relaxed) as usize + cpus.len();
    let ids = || cpus.clone().filter_map(|cpu| apic::MAP.id(cpu));
    for id in ids() {
        // SAFETY: 1. as the caller says.
        check(unsafe { apic::local().send_init(id) });
    }
    time::spin_ns(INIT_DELAY_NS);
    for _ in 0..2 {
        for id in ids() {
            // SAFETY: 1. the trampoline, in place for ever.
            check(unsafe { apic::local().send_startup(id, page) });
        }
        if all_arrive(wanted, STARTUP_DELAY_NS) {
            return;
        }
    }
    if !all_arrive(wanted, ARRIVAL_LIMIT_NS) {
        let arrived = ARRIVED.load(Ordering::Acquire) + 1;
        let cpus = wanted + 1;
        boot_fail!(
            "only {arrived} of {cpus} CPUs started; use fewer (-smp, or cpus= on the command line) or a less busy host"
        );
    }
}

fn check(sent: Result<(), SendError>) {
    if let Err(error) = sent {
        boot_fail!(
            "cannot start other CPUs: {error}; use one CPU (-smp 1, or cpus=1 on the command line)"
        );
    }
}

/// Waits until so many have come online since boot, or not longer than `limit_ns`.
fn all_arrive(wanted: usize, limit_ns: u64) -> bool {
    let end = time::now_ns() + limit_ns;
    loop {
        // ORDERING: acquires what the others set up; pairs with the Release in `ap_main`.
        if ARRIVED.load(Ordering::Acquire) as usize == wanted {
            return true;
        }
        if time::now_ns() > end {
            return false;
        }
        SHOOTDOWN.poll();
        core::hint::spin_loop();
    }
}

/// Copies the trampoline to low memory and fills in its absolute addresses.
fn install_trampoline(ram: &[(u64, u64)]) -> StartupPage {
    let start = &raw const trampoline_start;
    let len = (&raw const trampoline_end).addr() - start.addr();
    assert!(len <= PAGE_BYTES, "the trampoline has outgrown its page");
    let fits = |at: u64| {
        ram.iter()
            .any(|&(first, end)| first <= at && at + PAGE_BYTES as u64 <= end)
    };
    let mut candidates = (LOWEST_PAGE..1 << 20).step_by(PAGE_BYTES);
    let found = candidates.find_map(|at| {
        StartupPage::new(at)
            .filter(|_| fits(at))
            .map(|page| (at, page))
    });
    let Some((at, page)) = found else {
        boot_fail!("no RAM below 1 MiB to start other CPUs; use one CPU (-smp 1)");
    };
    let target = PhysAddr::new(at).to_direct();
    // SAFETY: both are `len` bytes; RAM below 1 MiB is nobody's.
    unsafe { target.copy_from_nonoverlapping(start, len) };
    for field in [
        &raw const trampoline_gdt_base,
        &raw const trampoline_to_32,
        &raw const trampoline_to_64,
    ] {
        // SAFETY: the three symbols are inside the trampoline.
        let word = unsafe { target.add(field.addr() - start.addr()) }.cast::<u32>();
        // SAFETY: inside the copy; any alignment.
        let offset = unsafe { word.read_unaligned() };
        // SAFETY: as above.
        unsafe { word.write_unaligned(offset + at as u32) };
    }
    page
}

/// Called by `entry.s` on the main stack of CPU `cpu`: interrupts off, the kernel's page tables.
pub extern "C" fn ap_main(cpu: u32) -> ! {
    let cpu = cpu as usize;
    processor::set_up(cpu);
    panic::cpu_starts(cpu);
    tlb::start();
    apic::enable(cpu);
    steal::register(percpu::cpu_id());
    SHOOTDOWN.online();
    timer::start();
    // ORDERING: publishes this CPU's set-up; pairs with the Acquire in `all_arrive`.
    ARRIVED.fetch_add(1, Ordering::Release);
    task::start_scheduling();
    task::idle(hotplug::park_if_asked)
}
