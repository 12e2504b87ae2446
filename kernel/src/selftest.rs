//! Checks of the architecture layer on the running machine, before the first program: built with the
//! feature `selftest`, chosen by `selftest=` on the command line.
//!
//! `selftest=all` runs those that pass silently and prints one line for each. `selftest=quiet` goes on beside programs, and so does `selftest=isolation`. Every other name does one
//! thing that must end the kernel with a panic; whoever runs it checks the message and the exit code.

#[cfg(feature = "isolation")]
mod isolation;
mod quiet;
mod stop;

use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use shootdown::calls::Wait;
use shootdown::{CallTargets, CpuId, FlushRange, FlushScope, FreedTables, PageSize};
use shootdown_x86::Pcid;
use shootdown_x86::tlb::{InvpcidKind, TagEntries};

use crate::addr::{DIRECT_MAP, KERNEL_BASE, PAGE_BYTES};
use crate::arch::stacks::{self, Stacks};
use crate::arch::{apic, paging, percpu, tlb, uaccess};
use crate::boot::BootInfo;
use crate::boot::fail::boot_fail;
use crate::cpus::MAX_CPUS;
use crate::irq;
use crate::mm::heap;
use crate::platform::SHOOTDOWN;
use crate::{time, vm, watchdog};

pub use quiet::start_if_asked;
pub use stop::on_nmi;

/// Panics unless what it checks is so.
type Check = fn(&BootInfo);

/// Checks that return.
const PASSING: [(&str, Check); 16] = [
    ("ticks", ticks_on_all_cpus),
    ("ipi", calls_reach_all_cpus),
    ("uaccess", user_faults_become_errors),
    ("probe", probing_survives_any_pointer),
    ("stacks", stacks_of_all_cpus_have_guards),
    ("heap", the_heap_counts_what_it_lends),
    ("reserve", large_blocks_leave_room_for_small_ones),
    ("nmi", nmi_returns),
    ("clock", clock_advances_evenly),
    ("tags", tags_are_taken_by_the_rules),
    ("spurious", rights_gained_need_no_flush),
    ("lost-guest", |_| vm::selftest::a_lost_guest_is_told()),
    ("stall", a_stuck_function_is_reported),
    ("backtrace", every_cpu_tells_its_backtrace),
    ("held", |_| {
        vm::selftest::a_guest_that_holds_interrupts_is_left()
    }),
    ("stop", stop::a_stopped_cpu_is_done_without),
];

/// Actions that must panic.
const FATAL: [(&str, fn()); 13] = [
    ("panic", || panic!("asked for")),
    ("write-text", write_text),
    ("write-rodata", write_rodata),
    ("run-data", run_data),
    ("null", read_null),
    ("overflow", || overflow(0)),
    ("overflow-elsewhere", || on_another(|_| overflow(0))),
    ("breakpoint", breakpoint),
    ("other-cpu", || {
        on_another(|cpu| panic!("asked for on {cpu}"))
    }),
    ("everywhere", stop::panic_everywhere),
    ("nmi", stop::panic_in_an_nmi),
    ("deaf", stop::panic_beside_the_deaf),
    ("guest", vm::selftest::panic_beside_a_guest),
];

/// Does what the command line asks for. Boot CPU, all CPUs up.
pub fn run(boot: &BootInfo) {
    let Some(name) = boot.option("selftest") else {
        return;
    };
    if quiet::begin_if_asked(name) {
        return;
    }
    #[cfg(feature = "isolation")]
    if isolation::begin_if_asked(name) {
        return;
    }
    irq::enable();
    if name == "all" {
        for (name, check) in PASSING {
            check(boot);
            log::info!("selftest: {name} passed");
        }
    } else if let Some((_, act)) = FATAL.iter().find(|(known, _)| *known == name) {
        act();
        boot_fail!("selftest={name} should have panicked; this is a bug of the kernel");
    } else {
        boot_fail!("selftest={name} is unknown; see kernel/src/selftest.rs");
    }
    irq::disable();
}

fn ticks_on_all_cpus(boot: &BootInfo) {
    const WANTED: u64 = 5;
    const LIMIT_NS: u64 = 10_000_000_000;
    let end = time::now_ns() + LIMIT_NS;
    for cpu in 0..boot.cpus {
        let start = percpu::ticks(cpu);
        while percpu::ticks(cpu) < start + WANTED {
            assert!(time::now_ns() < end, "cpu{cpu} has no timer");
            core::hint::spin_loop();
        }
    }
}

/// Also what grows and shrinks, in place or not.
fn the_heap_counts_what_it_lends(_: &BootInfo) {
    const SIZES: [usize; 5] = [64, 96, 4096, 70_000, 100];
    let before = heap::used_bytes();
    let mut block = Vec::<u8>::new();
    for size in SIZES {
        block.shrink_to(size);
        block.reserve_exact(size);
        assert_eq!(heap::used_bytes() - before, block.capacity());
    }
    // What cannot grow stays what it was.
    block.push(7);
    assert!(block.try_reserve_exact(isize::MAX as usize / 2).is_err());
    assert_eq!(
        (heap::used_bytes() - before, block[0]),
        (block.capacity(), 7)
    );
    drop(block);
    assert_eq!(heap::used_bytes(), before);
}

/// However they come to be large.
fn large_blocks_leave_room_for_small_ones(_: &BootInfo) {
    const LARGE: usize = 64 << 10;
    let block = |bytes| {
        let mut block = Vec::<u8>::new();
        block.try_reserve_exact(bytes).map(|()| block)
    };
    let mut hoard = Vec::with_capacity(1024);
    while let Ok(large) = block(LARGE) {
        hoard.push(large);
    }
    let mut growing = block(8 << 10).expect("small blocks have a share of their own");
    assert!(growing.try_reserve_exact(12 << 10).is_ok());
    assert!(
        growing.try_reserve_exact(LARGE).is_err(),
        "it is a large one then"
    );
}

/// The lines are for whoever runs this to look for.
fn a_stuck_function_is_reported(boot: &BootInfo) {
    const STALL_NS: u64 = 50_000_000;
    let me = percpu::cpu_id();
    let Some(other) = SHOOTDOWN.ready_cpus().iter().find(|&cpu| cpu != me) else {
        return;
    };
    SHOOTDOWN.watch().set_stall_ns(STALL_NS);
    let reached = SHOOTDOWN.call_one(other, &|_| get_stuck());
    assert!(reached.is_ok() && watchdog::reports() > 0);
    watchdog::start(boot.option("stall_ms"));
}

/// Until somebody complains. With a name of its own, for the backtrace.
#[inline(never)]
fn get_stuck() {
    const LIMIT_NS: u64 = 20_000_000_000;
    let (before, end) = (watchdog::reports(), time::now_ns() + LIMIT_NS);
    while watchdog::reports() == before && time::now_ns() < end {
        core::hint::spin_loop();
    }
}

/// Also those that sit in an interrupt handler. The lines are for whoever runs this to look for.
fn every_cpu_tells_its_backtrace(_: &BootInfo) {
    static PRINTED: AtomicBool = AtomicBool::new(false);
    static ARRIVED: AtomicU32 = AtomicU32::new(0);
    let mut others = SHOOTDOWN.ready_cpus();
    others.remove(percpu::cpu_id());
    let post = |_: CpuId| {
        ARRIVED.fetch_add(1, Ordering::Relaxed);
        while !PRINTED.load(Ordering::Relaxed) {
            core::hint::spin_loop();
        }
    };
    _ = SHOOTDOWN.submit(&others, post, Wait::None);
    while ARRIVED.load(Ordering::Relaxed) < others.len() as u32 {
        core::hint::spin_loop();
    }
    // Now nobody prints a late report of the stall before.
    log::info!("selftest: all CPUs tell their backtraces");
    crate::backtrace::print_all();
    PRINTED.store(true, Ordering::Relaxed);
}

fn calls_reach_all_cpus(boot: &BootInfo) {
    const ROUNDS: u32 = 200;
    let ran = AtomicU32::new(0);
    for _ in 0..ROUNDS {
        let reached = SHOOTDOWN.call_many(CallTargets::Online, &|cpu| {
            assert_eq!(
                cpu,
                percpu::cpu_id(),
                "a call ran on another CPU than it was told"
            );
            ran.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(reached.len(), boot.cpus);
    }
    assert_eq!(ran.load(Ordering::Relaxed), ROUNDS * boot.cpus as u32);
}

/// No program runs yet, so every user address is unmapped.
fn user_faults_become_errors(_: &BootInfo) {
    let mut buffer = [0; 24];
    for address in [
        0,
        0x1000,
        0x7fff_ffff_efff,
        0x7fff_ffff_f000,
        DIRECT_MAP,
        KERNEL_BASE,
        usize::MAX,
    ] {
        assert!(uaccess::copy_from_user(&mut buffer, address).is_err());
        assert!(uaccess::copy_to_user(address, &buffer).is_err());
        assert!(uaccess::clear_user(address, 8).is_err());
        assert!(uaccess::read_user::<u32>(address).is_err());
        assert!(uaccess::write_user::<u64>(address, 0).is_err());
    }
}

fn probing_survives_any_pointer(_: &BootInfo) {
    for address in [
        0,
        8,
        usize::MAX - 7,
        0xdead_beef_0000_0000,
        paging::APIC_PAGE + 0x10_0000,
    ] {
        assert!(uaccess::probe_kernel(address).is_err());
    }
    let word = 0x1234usize;
    assert_eq!(uaccess::probe_kernel((&raw const word).addr()), Ok(word));
}

/// CPUs beyond those of the machine have no stacks.
fn stacks_of_all_cpus_have_guards(boot: &BootInfo) {
    for cpu in 0..MAX_CPUS {
        let pages: Vec<usize> = Stacks::of(cpu).pages().collect();
        assert_eq!(pages.len(), stacks::PAGES_PER_CPU);
        for &page in &pages {
            assert_eq!(uaccess::probe_kernel(page).is_ok(), cpu < boot.cpus);
            assert_eq!(stacks::guard_owner(page), None);
        }
        let first = pages[0] - PAGE_BYTES;
        let all = (first..first + stacks::STRIDE).step_by(PAGE_BYTES);
        for guard in all.filter(|page| !pages.contains(page)) {
            assert_eq!(stacks::guard_owner(guard), Some(cpu));
            assert!(uaccess::probe_kernel(guard).is_err());
        }
    }
}

/// An NMI that nobody sent because of a panic is ignored, also between any two instructions.
fn nmi_returns(_: &BootInfo) {
    const ROUNDS: usize = 100;
    for _ in 0..ROUNDS {
        assert!(apic::send_nmi(percpu::cpu_id()).is_ok());
    }
}

/// The calibrated clock agrees with the wall clock's scale: ticks at the chosen rate.
fn clock_advances_evenly(_: &BootInfo) {
    let start = time::now_ns();
    time::spin_ns(20_000_000);
    let elapsed = time::now_ns() - start;
    assert!(
        (20_000_000..2_000_000_000).contains(&elapsed),
        "20 ms took {elapsed} ns"
    );
}

/// Every way to load and to flush a tag, on every CPU: none faults, and the tag asked for is loaded.
fn tags_are_taken_by_the_rules(_: &BootInfo) {
    SHOOTDOWN.call_many(CallTargets::Online, &|_| {
        let before = irq::save();
        for number in [0, 1, tlb::TAGS as u16, 0xfff] {
            take_tag(Pcid::new(number).expect("12 bits"));
        }
        // SAFETY: 1. the root that was loaded before. 2. a frame.
        unsafe { tlb::local().load_root(paging::kernel_root().as_u64()) };
        irq::restore(before);
    });
}

fn take_tag(pcid: Pcid) {
    let (tlb, root) = (tlb::local(), paging::kernel_root().as_u64());
    let expected = if tlb.has_pcids() {
        pcid
    } else {
        Pcid::UNTAGGED
    };
    for entries in [TagEntries::Drop, TagEntries::Keep] {
        // SAFETY: 1. the kernel's. 2. a frame. 3. nobody else has used a tag yet.
        unsafe { tlb.load_tagged_root(root, pcid, entries) };
        assert_eq!(tlb.loaded_pcid(), expected);
        assert_eq!(tlb.root(), root | u64::from(expected.as_u16()));
        for other in [Pcid::UNTAGGED, expected] {
            tlb.flush_tagged(InvpcidKind::Page(other, paging::APIC_PAGE));
            tlb.flush_tagged(InvpcidKind::Context(other));
        }
        tlb.flush_tagged(InvpcidKind::AllNonGlobal);
        tlb.flush_non_global();
        tlb.flush_all();
        assert_eq!(tlb.root(), root | u64::from(expected.as_u16()));
    }
}

/// A page of the kernel's, and what its entry gains while a fault there is on its way.
/// A page of the kernel's image, whose entry the checks change.
#[repr(align(4096))]
struct Page([AtomicU64; PAGE_BYTES / 8]);

impl Page {
    const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; PAGE_BYTES / 8])
    }
}

static GAINING: Page = Page::new();
static GAINS: AtomicU64 = AtomicU64::new(0);

/// Page-table entry bits.
const PRESENT: u64 = 1 << 0;
const WRITE: u64 = 1 << 1;

/// Before the kernel looks whether a fault is spurious: another CPU was faster. Interrupts are off.
pub fn before_spurious(address: usize) {
    let page = (&raw const GAINING).addr();
    if (page..page + PAGE_BYTES).contains(&address) {
        paging::image_entry(page).fetch_or(GAINS.swap(0, Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// Each CPU accesses a page whose entry has gained the right since the CPU has cached it, and one whose entry gains it after the access was refused.
///
/// The first is a fault on processors, and none under QEMU, which walks the tables again before it refuses; the second is one everywhere.
fn rights_gained_need_no_flush(_: &BootInfo) {
    let page = (&raw const GAINING).addr();
    let entry = paging::image_entry(page);
    let lose = |right: u64| {
        entry.fetch_and(!right, Ordering::Relaxed);
        let range = FlushRange::pages(page, 1, PageSize::SIZE_4K);
        SHOOTDOWN.flush(FlushScope::Kernel, range, FreedTables::No);
    };
    let (first, second) = (&GAINING.0[0], &GAINING.0[1]);
    lose(WRITE);
    let before = tlb::retries();
    SHOOTDOWN.call_many(CallTargets::Online, &|_| {
        assert_eq!(first.load(Ordering::Relaxed), 0)
    });
    entry.fetch_or(WRITE, Ordering::Relaxed);
    let reached = SHOOTDOWN.call_many(CallTargets::Online, &|_| {
        _ = first.fetch_add(1, Ordering::Relaxed)
    });
    assert_eq!(first.load(Ordering::Relaxed), reached.len() as u64);
    let faults = tlb::retries() - before;
    log::info!(
        "selftest: {faults} CPUs of {} had the old right",
        reached.len()
    );
    for cpu in reached.iter() {
        for right in [WRITE, PRESENT] {
            lose(right);
            let before = tlb::retries();
            GAINS.store(right, Ordering::Relaxed);
            let called = SHOOTDOWN.call_one(cpu, &|_| _ = second.fetch_add(1, Ordering::Relaxed));
            assert!(called.is_ok());
            assert_eq!(tlb::retries(), before + 1, "{cpu}: one fault");
        }
    }
    let writes = 2 * reached.len() as u64;
    assert_eq!(second.load(Ordering::Relaxed), writes);
}

fn write_text() {
    let target = write_text as *const () as *mut u8;
    // SAFETY: none: the page is not writable, and that is what is tested.
    unsafe { target.write_volatile(0xcc) };
}

fn write_rodata() {
    static CONSTANT: u32 = 7;
    let target = (&raw const CONSTANT).cast_mut();
    // SAFETY: none: the page is not writable, and that is what is tested.
    unsafe { target.write_volatile(8) };
}

fn run_data() {
    static CODE: AtomicU32 = AtomicU32::new(0xc3c3_c3c3);
    let target = CODE.as_ptr() as usize;
    // SAFETY: none: the page is not executable, and that is what is tested.
    unsafe { core::arch::asm!("call {}", in(reg) target, clobber_abi("C")) };
}

fn read_null() {
    let target = core::hint::black_box(8usize) as *const u32;
    // SAFETY: none: nothing is mapped there, and that is what is tested.
    let value = unsafe { target.read_volatile() };
    core::hint::black_box(value);
}

/// Runs into the guard page below this stack.
#[expect(unconditional_recursion, reason = "that is the test")]
fn overflow(depth: usize) {
    let mut room = [depth; 64];
    core::hint::black_box(&mut room);
    overflow(depth + 1);
    core::hint::black_box(&mut room);
}

fn breakpoint() {
    x86_64::instructions::interrupts::int3();
}

/// Acts in an interrupt handler of another CPU, while this one spins; panics with one CPU.
fn on_another(act: fn(CpuId)) {
    let me = percpu::cpu_id();
    let ready = SHOOTDOWN.ready_cpus();
    match ready.iter().filter(|&cpu| cpu != me).last() {
        Some(other) => {
            let _ = SHOOTDOWN.call_one(other, &|cpu| act(cpu));
        }
        None => panic!("asked for, with one CPU"),
    }
}
