//! What no guest of a VMM can bring about: the host's own state where the guest's should be, and a guest that holds the interrupts of its CPU.

use core::arch::asm;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use shootdown::calls::Wait;
use shootdown::guest::{self, GuestExit, GuestSpace};
use shootdown::{CpuId, CpuMask, FlushRange, FlushScope, FreedTables, PageSize, Root};
use shootdown_x86::guest::GuestTags;
use spin::Once;

use super::abi::{exit, run};
use super::exits::{Next, code};
use super::host;
use super::interrupt::V_INTR_MASKING;
use super::machine::Machine;
use super::run::in_processors_terms;
use super::vcpu::State;
use super::vmcb::Field;
use crate::addr::PhysAddr;
use crate::arch::{percpu, svm};
use crate::cpus::Cpus;
use crate::mm::MemorySpace;
use crate::mm::frames;
use crate::platform::{SHOOTDOWN, TAKES_NMI};

/// An address of the host's, which the VMM must not see.
const OF_HOST: u64 = 0xffff_ffff_8010_0000;

/// `inc dword [0x1000]`, again and again, in 16-bit code.
const COUNTS: [u8; 7] = [0x66, 0xff, 0x06, 0x00, 0x10, 0xeb, 0xf9];
/// Of an entry of nested tables, whose walks are those of a user.
const ALLOWED: u64 = 7;
/// The intercept of INTR, in the upper half of its word.
const INTR: u64 = 1 << 32;

/// The memory of a guest that counts in its second page, and never leaves guest mode by itself.
struct Counting {
    space: GuestSpace<Cpus>,
    /// Its lowest table, and what its second page may be.
    table: PhysAddr,
    pages: [PhysAddr; 2],
}

static COUNTING: Once<Counting> = Once::new();
/// NMIs that were to end guest mode, and entries that were put off because there was work.
static NMIS: AtomicU32 = AtomicU32::new(0);
static PUT_OFF: AtomicU32 = AtomicU32::new(0);

/// Writes an entry of a nested table, which nobody else writes.
fn point(table: PhysAddr, index: usize, to: PhysAddr) {
    let entry = table.to_direct().cast::<u64>().wrapping_add(index);
    // SAFETY: an aligned word of a frame of `Counting`, in the direct map; processors walk it.
    unsafe { entry.write_volatile(to.as_u64() | ALLOWED) };
}

impl Counting {
    fn new() -> Self {
        let frame = || frames::alloc_zeroed().expect("memory").into_raw();
        let [root, third, second, table, code, first, other] = [(); 7].map(|()| frame());
        for (table, below) in [
            (root, third),
            (third, second),
            (second, table),
            (table, code),
        ] {
            point(table, 0, below);
        }
        point(table, 1, first);
        let target = code.to_direct();
        // SAFETY: both are so many bytes; the frame is nobody else's.
        unsafe { target.copy_from_nonoverlapping(COUNTS.as_ptr(), COUNTS.len()) };
        // SAFETY: 1. its memory is two pages. 2. the frames are never freed. 3. they were taken just now. 4. it is no window's.
        let root = unsafe { Root::new(root.as_u64()) };
        Self {
            space: GuestSpace::new(&SHOOTDOWN, root),
            table,
            pages: [first, other],
        }
    }

    /// How far it has counted in that page.
    fn count(&self, page: usize) -> u32 {
        let count = self.pages[page].to_direct().cast::<AtomicU32>();
        // SAFETY: an aligned word of a frame that stays; the guest changes it by one access.
        unsafe { &*count }.load(Ordering::Relaxed)
    }

    /// Runs it on this CPU until `is_over`, which is asked behind each exit.
    fn run(&self, is_over: impl Fn() -> bool) {
        let space = MemorySpace::new().expect("a space");
        let machine = Machine::new(&space).expect("a machine");
        let vcpu = machine.create_vcpu(0).expect("a virtual CPU");
        let mut state = vcpu.state();
        hold_interrupts(&mut state);
        let mut engine = guest::Vcpu::new(&SHOOTDOWN, &self.space);
        while !is_over() {
            let ran = host::with_tags(|cpu, tags| {
                let enter = |entry| enter_unless_asked(entry, cpu, tags, &mut state);
                // SAFETY: 1. once, as `tags` has prepared it. 2. `takes_nmi` has an NMI sent, entering and leaving are as `is_in_guest` says. 3. nothing else enters them.
                unsafe { self.space.run(&SHOOTDOWN, &mut engine, enter) };
                if SHOOTDOWN.control().has_work() {
                    SHOOTDOWN.handle_ipi();
                }
            });
            assert!(ran.is_some(), "there is no SVM");
        }
    }
}

/// Its first instruction is at 0. Interrupts of the host do not end guest mode, and the guest's own flag, which is off, masks them.
fn hold_interrupts(state: &mut State) {
    let events = state.vmcb.get(Field::INTERCEPT_EVENTS) & !INTR;
    let code = state.vmcb.get(Field::CS) & !0xffff;
    for (field, value) in [
        (Field::INTERCEPT_EVENTS, events),
        (Field::V_INTR, 0),
        (Field::CS, code),
        (Field::CS.next(), 0),
        (Field::RIP, 0),
    ] {
        state.vmcb.set(field, value);
    }
}

/// Enters such a guest, which an NMI ends, unless something waits for this CPU.
fn enter_unless_asked(
    entry: guest::GuestEntry,
    cpu: CpuId,
    tags: &mut svm::Tags,
    state: &mut State,
) -> GuestExit<()> {
    let prepared = tags.enter(in_processors_terms(entry), state.vmcb.control());
    assert!(prepared.is_ok());
    // An NMI that comes from here on waits, and ends guest mode at once: who has sent it had published before.
    // SAFETY: SVM is on; STGI follows, here or in `svm::enter`.
    unsafe { asm!("clgi", options(nostack)) };
    if SHOOTDOWN.control().has_work() {
        // SAFETY: SVM is on; NMI handlers have a stack of their own.
        unsafe { asm!("stgi", options(nostack)) };
        PUT_OFF.fetch_add(1, Ordering::Relaxed);
        return GuestExit::NotEntered(());
    }
    // SAFETY: 1. `with_tags` has turned it on. 2. as `State::reset` and `hold_interrupts` have set it; the nested tables show what is the guest's.
    // 3. it uses no others.
    unsafe { svm::enter(cpu, state.vmcb.address(), &mut state.registers) };
    assert_eq!(state.vmcb.get(Field::EXIT_CODE) as u32, code::NMI);
    tags.ran();
    GuestExit::Ran(())
}

/// The boot CPU's guest holds its interrupts.
fn takes_nmi(target: CpuId) -> bool {
    let takes = target.index() == 0 && SHOOTDOWN.control().is_in_guest(target);
    NMIS.fetch_add(u32::from(takes), Ordering::Relaxed);
    takes
}

/// The CPU that does something while this one runs the guest.
fn beside() -> CpuMask<Cpus> {
    let (ready, me) = (SHOOTDOWN.ready_cpus(), percpu::cpu_id());
    ready.iter().filter(|&cpu| cpu != me).take(1).collect()
}

fn spin_until(is_so: impl Fn() -> bool) {
    while !is_so() {
        // Under QEMU 7.2 an NMI may get lost.
        SHOOTDOWN.watch().look();
        SHOOTDOWN.poll();
        core::hint::spin_loop();
    }
}

/// Another CPU panics while this one is in guest mode, and takes no interrupts.
pub fn panic_beside_a_guest() {
    let guest = COUNTING.call_once(Counting::new);
    let panic = |cpu: CpuId| {
        spin_until(|| COUNTING.get().is_some_and(|guest| guest.count(0) != 0));
        panic!("asked for on {cpu}");
    };
    _ = SHOOTDOWN.submit(&beside(), panic, Wait::None);
    guest.run(|| false);
}

/// Flushes of a guest that holds this CPU's interrupts, and of the kernel, and functions, end, whether the guest runs or is about to.
pub fn a_guest_that_holds_interrupts_is_left() {
    const ROUNDS: u32 = 50;
    static POSTED: AtomicU32 = AtomicU32::new(0);
    static IS_OVER: AtomicBool = AtomicBool::new(false);
    let beside = beside();
    if beside.is_empty() || !svm::is_supported() {
        return;
    }
    let guest = COUNTING.call_once(Counting::new);
    TAKES_NMI.call_once(|| takes_nmi);
    let work = |_: CpuId| {
        let guest = COUNTING.call_once(Counting::new);
        let (control, holder) = (SHOOTDOWN.control(), CpuId::new(0));
        for round in 0..ROUNDS {
            let (new, old) = (round as usize % 2, (round as usize + 1) % 2);
            spin_until(|| control.is_in_guest(holder));
            let before = guest.count(new);
            point(guest.table, 1, guest.pages[new]);
            let flush = SHOOTDOWN.submit_flush(&guest.space, FlushRange::WHOLE, FreedTables::No);
            flush.wait();
            let last = guest.count(old);
            spin_until(|| guest.count(new) != before);
            assert_eq!(guest.count(old), last, "a stale page of the guest");
            let page = FlushRange::pages((&raw const COUNTING).addr(), 1, PageSize::SIZE_4K);
            SHOOTDOWN.flush(FlushScope::Kernel, page, FreedTables::No);
            let count = |_: CpuId| _ = POSTED.fetch_add(1, Ordering::Relaxed);
            let holders: CpuMask<Cpus> = [holder].into_iter().collect();
            assert!(SHOOTDOWN.try_post(&holders, count).is_ok());
            spin_until(|| POSTED.load(Ordering::Relaxed) == round + 1);
        }
        IS_OVER.store(true, Ordering::Relaxed);
        control.kick(&SHOOTDOWN.ready_cpus()).wait();
    };
    let ticket = SHOOTDOWN.submit(&beside, work, Wait::Done);
    guest.run(|| IS_OVER.load(Ordering::Relaxed));
    ticket.wait();
    let [nmis, put_off] = [&NMIS, &PUT_OFF].map(|count| count.load(Ordering::Relaxed));
    assert!(nmis > 0);
    log::info!("selftest: {nmis} NMIs to a guest, {put_off} entries put off");
}

/// A virtual CPU whose VMCB has the host's state is told of as an internal error, and begins anew.
pub fn a_lost_guest_is_told() {
    let space = MemorySpace::new().expect("a space");
    let machine = Machine::new(&space).expect("a machine");
    let vcpu = machine.create_vcpu(0).expect("a virtual CPU");
    let page = vcpu.page();
    let mut state = vcpu.state();
    // As for an interrupt, after which the guest goes on.
    state.vmcb.set(Field::EXIT_CODE, code::INTR.into());
    assert_eq!(state.handle_exit(&machine, page), Ok(Next::Guest));
    for field in [Field::RIP, Field::RSP, Field::CR3] {
        state.vmcb.set(field, OF_HOST);
    }
    state.vmcb.set(Field::V_INTR, 0);
    assert_eq!(state.handle_exit(&machine, page), Ok(Next::Vmm));
    assert_eq!(page.read::<u32>(run::EXIT_REASON), exit::INTERNAL_ERROR);
    for field in [Field::RIP, Field::RSP, Field::CR3] {
        assert_ne!(state.vmcb.get(field), OF_HOST, "{field:?}");
    }
    assert_eq!(state.vmcb.get(Field::V_INTR), V_INTR_MASKING);
}
