//! Guests see the memory of their VMM as it is, whatever happens to it, and their writes are logged.
//!
//! On machines that have no virtual machines there is nothing to check.

use std::process::ExitCode;
use std::thread;

use shootdown_user::checks::{self, Check, expect};
use shootdown_user::child::{Child, End};
use shootdown_user::kvm::abi::{self, ClearDirtyLog, EnableCap, MemoryRegion, Regs};
use shootdown_user::kvm::{self, CODE_PAGE, Guest, MEMORY_PAGES, Stop, code, slot};
use shootdown_user::machine;
use shootdown_user::policy::PolicySwitch;
use shootdown_user::region::{PAGE_BYTES, Region};

/// How often a race is tried.
const TURNS: u32 = 50;
/// A thread that runs a guest is in the address space of its VMM, so that what is flushed there interrupts the guest as well; but not where the policy leaves
/// CPUs alone that are in a system call.
const POLICIES: [&str; 2] = ["best", "best+defer"];
/// Where guests read from, and write to.
const FROM: usize = 16 * PAGE_BYTES;
const TO: usize = 17 * PAGE_BYTES;
const LOGGED: u32 = abi::MEM_LOG_DIRTY_PAGES;
const CLEAN: [usize; 0] = [];

fn guest(flags: u32) -> Guest {
    let device = kvm::open().unwrap().expect("looked for before");
    Guest::new(&device, flags).unwrap()
}

fn page(number: usize) -> usize {
    number * PAGE_BYTES
}

fn both_see_each_others_writes() {
    let guest = guest(0);
    guest.put(FROM, 5);
    assert_eq!(guest.read(FROM).unwrap(), 5);
    guest.write(TO, 6).unwrap();
    assert_eq!(guest.look(TO), 6);
    for number in 2..MEMORY_PAGES {
        guest.write(page(number), number as u32).unwrap();
    }
    assert!((2..MEMORY_PAGES).all(|number| guest.look(page(number)) == number as u32));
}

fn discarded_pages_read_zero() {
    let guest = guest(0);
    guest.write(FROM, 5).unwrap();
    guest.discard(16, 1);
    assert_eq!((guest.read(FROM).unwrap(), guest.look(FROM)), (0, 0));
}

fn copy() -> Regs {
    Regs {
        rdi: FROM as u64,
        rsi: TO as u64,
        ..Regs::default()
    }
}

/// Waits until the guest, which copies all the time, has copied once more than what it was about to.
fn copied_anew(guest: &Guest) -> u32 {
    const MARK: u32 = u32::MAX;
    for _ in 0..2 {
        guest.put(TO, MARK);
        while guest.look(TO) == MARK {
            std::hint::spin_loop();
        }
    }
    guest.look(TO)
}

/// What is discarded is gone for a guest that reads it all the time, too.
///
/// Each time in another run: a thread that has lost its CPU in the middle of a system call counts as out of it from then on.
fn running_guests_lose_discarded_pages() {
    let guest = guest(0);
    for turn in 1..=2 * TURNS {
        guest.load(code::COPY, copy());
        let ((), end) = guest.run_beside(None, || {
            guest.put(FROM, turn);
            while guest.look(TO) != turn {
                thread::yield_now();
            }
            guest.discard(16, 1);
            assert_eq!(copied_anew(&guest), 0, "turn {turn}");
        });
        expect(libc::EINTR, end);
    }
}

/// A copy on write moves the page of the VMM; the guest goes with it. On Linux in QEMU that does not end at times; why is not known.
fn running_guests_follow_copies() {
    if !machine::is_reference_kernel() {
        return;
    }
    let guest = guest(0);
    guest.load(code::COPY, copy());
    let ((), end) = guest.run_beside(None, || {
        for turn in 1..=TURNS / 10 {
            guest.put(FROM, turn);
            while guest.look(TO) != turn {
                thread::yield_now();
            }
            let child = Child::start(|| {
                let before = guest.look(FROM);
                i32::from(before != turn)
            })
            .unwrap();
            guest.put(FROM, turn + 1000);
            assert_eq!(copied_anew(&guest), turn + 1000);
            assert_eq!(child.wait().unwrap(), End::Exited(0));
        }
    });
    expect(libc::EINTR, end);
}

/// What the guest writes after a fork the child does not see.
fn forked_processes_keep_their_copy() {
    let guest = guest(0);
    guest.write(FROM, 1).unwrap();
    let go = Region::shared(1).unwrap();
    let child = Child::start(|| {
        while go.word(0, 0).load(std::sync::atomic::Ordering::SeqCst) == 0 {
            std::hint::spin_loop();
        }
        guest.look(FROM) as i32
    })
    .unwrap();
    guest.write(FROM, 2).unwrap();
    go.word(0, 0).store(1, std::sync::atomic::Ordering::SeqCst);
    assert_eq!(child.wait().unwrap(), End::Exited(1));
    assert_eq!((guest.look(FROM), guest.read(FROM).unwrap()), (2, 2));
}

/// A guest may do with memory what its VMM may.
fn rights_are_those_of_the_vmm() {
    let guest = guest(0);
    guest.write(FROM, 1).unwrap();
    guest.protect(16, libc::PROT_READ);
    assert_eq!(guest.read(FROM).unwrap(), 1);
    expect(libc::EFAULT, guest.write(FROM, 2));
    guest.protect(16, libc::PROT_NONE);
    guest.load(
        code::READ,
        Regs {
            rdi: FROM as u64,
            ..Regs::default()
        },
    );
    expect(libc::EFAULT, guest.run());
    guest.protect(16, libc::PROT_READ | libc::PROT_WRITE);
    assert_eq!(guest.run().unwrap(), Stop::Halted);
    assert_eq!(guest.write(FROM, 3).unwrap(), Stop::Halted);
    assert_eq!(guest.look(FROM), 3);
}

fn slots_come_and_go() {
    let guest = guest(0);
    let other = Region::new(4).unwrap();
    let far = 1 << 30;
    assert!(matches!(
        guest.write(far, 1).unwrap(),
        Stop::Memory(address, true) if address == far as u64
    ));
    let region = MemoryRegion {
        slot: 1,
        guest_phys_addr: far as u64,
        ..slot(&other, 0)
    };
    guest.machine.set_memory(region).unwrap();
    assert_eq!(guest.write(far, 9).unwrap(), Stop::Halted);
    // It moves.
    let moved = MemoryRegion {
        guest_phys_addr: 2 * far as u64,
        ..region
    };
    guest.machine.set_memory(moved).unwrap();
    assert_eq!(guest.read(2 * far).unwrap(), 9);
    assert!(matches!(guest.write(far, 1).unwrap(), Stop::Memory(..)));
    let gone = MemoryRegion {
        memory_size: 0,
        ..region
    };
    guest.machine.set_memory(gone).unwrap();
    assert!(matches!(guest.write(2 * far, 1).unwrap(), Stop::Memory(..)));
    // What may only be read.
    let read_only = MemoryRegion {
        flags: abi::MEM_READONLY,
        ..region
    };
    guest.machine.set_memory(read_only).unwrap();
    assert_eq!(guest.read(far).unwrap(), 9);
    assert!(matches!(
        guest.write(far, 1).unwrap(),
        Stop::Memory(_, true)
    ));
}

/// The log, but for the page with the program: Linux logs what it lets a guest write, whether it has written or not.
fn logged(guest: &Guest) -> Vec<usize> {
    let mut pages = guest.dirty_pages().unwrap();
    let is_exact = machine::is_reference_kernel();
    pages.retain(|&number| is_exact || number != CODE_PAGE);
    pages
}

fn the_log_has_what_was_written() {
    let guest = guest(LOGGED);
    assert_eq!(logged(&guest), CLEAN);
    for number in [16, 17, 63, 64, 200] {
        guest.write(page(number), 1).unwrap();
    }
    guest.read(page(100)).unwrap();
    assert_eq!(logged(&guest), [16, 17, 63, 64, 200]);
    assert_eq!(logged(&guest), CLEAN);
    guest.write(page(64), 2).unwrap();
    guest.write(page(64), 3).unwrap();
    assert_eq!(logged(&guest), [64]);
    // Also of pages that were writable before.
    guest.machine.set_memory(slot(&guest.memory, 0)).unwrap();
    guest.write(page(30), 1).unwrap();
    guest
        .machine
        .set_memory(slot(&guest.memory, LOGGED))
        .unwrap();
    assert_eq!(logged(&guest), CLEAN);
    guest.write(page(30), 2).unwrap();
    assert_eq!(logged(&guest), [30]);
}

/// Linux clears before it copies, and loses it.
fn a_log_that_goes_nowhere_is_not_lost() {
    if !machine::is_reference_kernel() {
        return;
    }
    let guest = guest(LOGGED);
    guest.write(page(16), 1).unwrap();
    expect(libc::EFAULT, guest.log_to(8));
    assert_eq!(logged(&guest), [16]);
}

fn logs_are_cleared_by_hand() {
    let guest = guest(LOGGED);
    let mut manual = EnableCap {
        cap: abi::CAP_MANUAL_DIRTY_LOG_PROTECT2 as u32,
        args: [1, 0, 0, 0],
        ..EnableCap::default()
    };
    kvm::request_with(&guest.machine, abi::ENABLE_CAP, &mut manual).unwrap();
    for number in [16, 17, 70] {
        guest.write(page(number), 1).unwrap();
    }
    assert_eq!(logged(&guest), [16, 17, 70]);
    assert_eq!(logged(&guest), [16, 17, 70]);
    clear(&guest, 0, 64, &[1 << 16 | 1 << 20]);
    assert_eq!(logged(&guest), [17, 70]);
    guest.write(page(16), 1).unwrap();
    clear(&guest, 64, 192, &[1 << 6, 0, 0]);
    assert_eq!(logged(&guest), [16, 17]);
    // All pages count as dirty at first.
    manual.args[0] = 3;
    kvm::request_with(&guest.machine, abi::ENABLE_CAP, &mut manual).unwrap();
    guest.machine.set_memory(slot(&guest.memory, 0)).unwrap();
    guest
        .machine
        .set_memory(slot(&guest.memory, LOGGED))
        .unwrap();
    assert_eq!(guest.dirty_pages().unwrap().len(), MEMORY_PAGES);
    clear(&guest, 0, 256, &[u64::MAX; 4]);
    assert_eq!(logged(&guest), CLEAN);
    guest.write(page(16), 1).unwrap();
    assert_eq!(logged(&guest), [16]);
}

fn clear(guest: &Guest, first_page: u64, num_pages: u32, bits: &[u64]) {
    let mut argument = ClearDirtyLog {
        slot: 0,
        num_pages,
        first_page,
        bitmap: bits.as_ptr().expose_provenance() as u64,
    };
    kvm::request_with(&guest.machine, abi::CLEAR_DIRTY_LOG, &mut argument).unwrap();
}

/// Pages of a running guest that a log does not have are as they were when they were copied last, or in the next log.
fn no_write_escapes_the_log() {
    const FIRST: usize = 32;
    const SWEPT: usize = 64;
    let guest = guest(LOGGED);
    guest.load(
        code::SWEEP,
        Regs {
            rdi: page(FIRST) as u64,
            rbx: page(FIRST) as u64,
            rcx: SWEPT as u64,
            rdx: SWEPT as u64,
            ..Regs::default()
        },
    );
    let mut copies = [0; MEMORY_PAGES];
    let mut ahead: Vec<usize> = Vec::new();
    let mut store = || {
        let dirty = guest.dirty_pages().unwrap();
        for late in &ahead {
            assert!(dirty.contains(late), "page {late} was written to unnoticed");
        }
        dirty
            .iter()
            .for_each(|&number| copies[number] = guest.look(page(number)));
        let has_changed = |&number: &usize| guest.look(page(number)) != copies[number];
        ahead = (FIRST..FIRST + SWEPT).filter(has_changed).collect();
    };
    let ((), end) = guest.run_beside(None, || {
        for _ in 0..TURNS {
            let before = guest.look(page(FIRST));
            while guest.look(page(FIRST)) == before {
                thread::yield_now();
            }
            store();
        }
    });
    expect(libc::EINTR, end);
    store();
    store();
    assert!(guest.look(page(FIRST)) > 0);
}

const CHECKS: [Check; 11] = checks::named![
    both_see_each_others_writes,
    discarded_pages_read_zero,
    running_guests_lose_discarded_pages,
    running_guests_follow_copies,
    forked_processes_keep_their_copy,
    rights_are_those_of_the_vmm,
    slots_come_and_go,
    the_log_has_what_was_written,
    a_log_that_goes_nowhere_is_not_lost,
    logs_are_cleared_by_hand,
    no_write_escapes_the_log,
];

fn main() -> ExitCode {
    kvm::check("t_kvm_memory", || {
        checks::fail_on_panic("t_kvm_memory");
        machine::prepare();
        let switch = PolicySwitch::of_this_kernel();
        for policy in switch.resolve(&POLICIES.map(String::from)).unwrap() {
            switch.select(&policy).unwrap();
            checks::run_all(&format!("t_kvm_memory: {policy}"), &CHECKS);
        }
        println!("t_kvm_memory: OK");
        ExitCode::SUCCESS
    })
}
