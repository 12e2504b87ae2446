//! What no guest of a VMM can bring about: the host's own state where the guest's should be, and a guest that holds the interrupts of its CPU.

use core::sync::atomic::{AtomicU32, Ordering};

use shootdown::calls::Wait;
use shootdown::guest::{self, GuestExit, GuestSpace};
use shootdown::{CpuId, CpuMask, Root};
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
use crate::platform::SHOOTDOWN;

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
    /// What its second page is.
    page: PhysAddr,
}

static COUNTING: Once<Counting> = Once::new();

impl Counting {
    fn new() -> Self {
        let frame = || frames::alloc_zeroed().expect("memory").into_raw();
        let point = |table: PhysAddr, index: usize, to: PhysAddr| {
            let entry = table.to_direct().cast::<u64>().wrapping_add(index);
            // SAFETY: an entry of a frame that is nobody else's, in the direct map.
            unsafe { entry.write(to.as_u64() | ALLOWED) };
        };
        let [root, third, second, first, code, page] = [(); 6].map(|()| frame());
        for (table, below) in [
            (root, third),
            (third, second),
            (second, first),
            (first, code),
        ] {
            point(table, 0, below);
        }
        point(first, 1, page);
        let target = code.to_direct();
        // SAFETY: both are so many bytes; the frame is nobody else's.
        unsafe { target.copy_from_nonoverlapping(COUNTS.as_ptr(), COUNTS.len()) };
        // SAFETY: 1. its memory is two pages. 2. the frames are never freed. 3. they were taken just now. 4. it is no window's.
        let root = unsafe { Root::new(root.as_u64()) };
        let space = GuestSpace::new(&SHOOTDOWN, root);
        Self { space, page }
    }

    /// How far it has counted.
    fn count(&self) -> u32 {
        let count = self.page.to_direct().cast::<AtomicU32>();
        // SAFETY: an aligned word of a frame that stays; the guest changes it by one access.
        unsafe { &*count }.load(Ordering::Relaxed)
    }

    /// Runs it on this CPU until an NMI comes.
    fn run(&self, state: &mut State, vcpu: &mut guest::Vcpu) {
        let ran = host::with_tags(|cpu, tags| {
            let enter = |entry| {
                let prepared = tags.enter(in_processors_terms(entry), state.vmcb.control());
                assert!(prepared.is_ok());
                // SAFETY: 1. `with_tags` has turned it on. 2. as `State::reset` and `hold_interrupts` have set it, NMIs end guest mode, and the nested tables show
                // what is the guest's. 3. it uses no others.
                unsafe { svm::enter(cpu, state.vmcb.address(), &mut state.registers) };
                assert_eq!(state.vmcb.get(Field::EXIT_CODE) as u32, code::NMI);
                tags.ran();
                GuestExit::Ran(())
            };
            // SAFETY: 1. once, as `tags` has prepared it. 2. nobody waits for this CPU. 3. nothing else enters them.
            unsafe { self.space.run(&SHOOTDOWN, vcpu, enter) };
        });
        assert!(ran.is_some(), "there is no SVM");
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

/// Another CPU panics while this one is in guest mode, and takes no interrupts.
pub fn panic_beside_a_guest() {
    let me = percpu::cpu_id();
    let guest = COUNTING.call_once(Counting::new);
    let panic = |cpu: CpuId| {
        while COUNTING.get().is_none_or(|guest| guest.count() == 0) {
            core::hint::spin_loop();
        }
        panic!("asked for on {cpu}");
    };
    let ready = SHOOTDOWN.ready_cpus();
    let another: CpuMask<Cpus> = ready.iter().filter(|&cpu| cpu != me).take(1).collect();
    _ = SHOOTDOWN.submit(&another, panic, Wait::None);
    let space = MemorySpace::new().expect("a space");
    let machine = Machine::new(&space).expect("a machine");
    let vcpu = machine.create_vcpu(0).expect("a virtual CPU");
    let mut state = vcpu.state();
    hold_interrupts(&mut state);
    let mut engine = guest::Vcpu::new(&SHOOTDOWN, &guest.space);
    guest.run(&mut state, &mut engine);
    panic!("the guest was left, and this CPU goes on");
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
