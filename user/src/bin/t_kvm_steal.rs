//! Steal-time records: what a guest is told of virtual CPUs that do not run, and flushes that it asks for there.
//!
//! On machines that have no virtual machines, or no records, there is nothing to check.

use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use shootdown_user::checks::{self, expect};
use shootdown_user::kvm::abi::{self, Regs};
use shootdown_user::kvm::{self, Guest, Stop};
use shootdown_user::machine;
use shootdown_user::region::PAGE_BYTES;

const REGISTER: u64 = 0x4b56_4d03;
const RECORD: usize = 20 * PAGE_BYTES + 64;
const PREEMPTED: usize = RECORD + 16;
const FLUSH: u32 = 2;
/// Where the guest puts what it has read.
const SEEN: usize = 21 * PAGE_BYTES;

/// Programs in 32-bit code: EAX, EDX and ECX are for WRMSR, ESI and EDI addresses.
mod code {
    /// Copies a word, and halts.
    pub const COPY: &[u8] = &[0x8b, 0x06, 0x89, 0x07, 0xf4];
    /// Computes for ever.
    pub const SPIN: &[u8] = &[0xeb, 0xfe];
}

/// A guest that is told of records.
fn guest() -> Guest {
    let device = kvm::open().unwrap().expect("looked for before");
    let guest = Guest::new(&device, 0).unwrap();
    let mut cpuid = kvm::supported_cpuid(&device).unwrap();
    kvm::request_with(&guest.vcpu, abi::SET_CPUID2, &mut cpuid).unwrap();
    guest
}

/// Has the guest write to the register.
fn write(guest: &Guest, value: u64) -> Stop {
    let registers = Regs {
        rcx: REGISTER,
        rax: value & 0xffff_ffff,
        rdx: value >> 32,
        ..Regs::default()
    };
    guest.load(kvm::code::WRMSR, registers);
    guest.run().unwrap()
}

fn registered() -> Guest {
    let guest = guest();
    assert_eq!(write(&guest, RECORD as u64 | 1), Stop::Halted);
    guest
}

fn preempted(guest: &Guest) -> u32 {
    guest.look(PREEMPTED) & 0xff
}

/// What the guest finds in that word as it runs.
fn seen(guest: &Guest, address: usize) -> u32 {
    let registers = Regs {
        rsi: address as u64,
        rdi: SEEN as u64,
        ..Regs::default()
    };
    guest.load(code::COPY, registers);
    assert_eq!(guest.run().unwrap(), Stop::Halted);
    guest.look(SEEN)
}

fn it_runs_only_inside() {
    let guest = registered();
    for _ in 0..3 {
        assert_eq!(preempted(&guest), 1);
        assert_eq!(seen(&guest, PREEMPTED), 0);
    }
}

/// Does it on one CPU: on another nothing is cached.
fn on_one_cpu(work: impl FnOnce() + Send) {
    machine::run_on(machine::allowed_cpus().unwrap()[0], work);
}

fn a_request_is_taken_by_the_entry() {
    on_one_cpu(|| {
        let guest = registered();
        assert_eq!(seen(&guest, PREEMPTED), 0);
        guest.put(PREEMPTED, 1 | FLUSH);
        must_drop(&guest);
        assert_eq!(preempted(&guest), 1);
    });
}

/// What the guest has cached is gone as it enters.
fn must_drop(guest: &Guest) {
    guest.load(kvm::code::CPUID, Regs::default());
    let (stop, drops) = guest.run_counting_drops().unwrap();
    assert_eq!(stop, Stop::Halted);
    assert!(drops > Some(0), "{drops:?}");
}

/// Who asked relies on it, also where RUN returns before it enters.
fn a_request_outlives_a_run_that_does_not_enter() {
    on_one_cpu(|| {
        let guest = registered();
        assert_eq!(seen(&guest, PREEMPTED), 0);
        guest.put(PREEMPTED, 1 | FLUSH);
        guest.vcpu.write(abi::RUN_IMMEDIATE_EXIT, 1_u8);
        expect(libc::EINTR, guest.run());
        guest.vcpu.write(abi::RUN_IMMEDIATE_EXIT, 0_u8);
        must_drop(&guest);
    });
}

fn the_register_keeps_what_is_valid() {
    let guest = registered();
    let registers = Regs {
        rcx: REGISTER,
        ..Regs::default()
    };
    guest.load(kvm::code::RDMSR, registers);
    assert_eq!(guest.run().unwrap(), Stop::Halted);
    assert_eq!(guest.regs().unwrap().rax, RECORD as u64 | 1);
    // #GP, for which there is no table.
    assert_eq!(
        write(&guest, RECORD as u64 | 3),
        Stop::Other(abi::EXIT_SHUTDOWN)
    );
}

fn an_end_is_an_end() {
    let guest = registered();
    assert_eq!(write(&guest, RECORD as u64), Stop::Halted);
    guest.put(PREEMPTED, 0);
    assert_eq!(seen(&guest, PREEMPTED), 0);
    assert_eq!(preempted(&guest), 0);
}

/// Where the VMM has not told the guest of it, there is no such register.
fn it_is_there_if_the_vmm_says_so() {
    let device = kvm::open().unwrap().expect("looked for before");
    let guest = Guest::new(&device, 0).unwrap();
    assert_eq!(
        write(&guest, RECORD as u64 | 1),
        Stop::Other(abi::EXIT_SHUTDOWN)
    );
}

/// In no memory, and in memory that its VMM may not write to.
fn a_record_may_be_anywhere() {
    let guest = guest();
    for place in [1 << 30, u64::MAX << 6, 0x7fff_ffff_ffff_ffc0] {
        assert_eq!(write(&guest, place | 1), Stop::Halted);
    }
    assert_eq!(write(&guest, RECORD as u64 | 1), Stop::Halted);
    guest.protect(RECORD / PAGE_BYTES, libc::PROT_READ);
    assert_eq!(seen(&guest, PREEMPTED), 1);
    guest.protect(RECORD / PAGE_BYTES, libc::PROT_READ | libc::PROT_WRITE);
    assert_eq!(seen(&guest, PREEMPTED), 0);
    guest.discard(RECORD / PAGE_BYTES, 1);
    assert_eq!(seen(&guest, PREEMPTED), 0);
    assert_eq!(preempted(&guest), 1);
}

/// A guest and a thread take turns on one CPU.
fn turns_of_others_are_told() {
    let guest = registered();
    guest.load(code::SPIN, Regs::default());
    let cpus = machine::allowed_cpus().unwrap();
    let ((), end) = guest.run_beside(Some(cpus[0]), || {
        let start = Instant::now();
        let (mut states, mut turns) = ([false; 2], 0);
        machine::run_on(cpus[0], || {
            while states != [true; 2] || guest.look(RECORD) == 0 {
                states[preempted(&guest) as usize & 1] = true;
                turns += 1;
                if turns % 1000 == 0 {
                    thread::sleep(Duration::from_millis(1));
                }
                let waited = start.elapsed();
                assert!(waited < Duration::from_secs(20), "{states:?}");
                look_from_elsewhere(&guest, &cpus, &mut states);
            }
        });
    });
    expect(libc::EINTR, end);
    assert_eq!(preempted(&guest), 1);
    assert_eq!(
        guest.look(RECORD + 8) % 2,
        0,
        "the version is odd only meanwhile"
    );
}

/// Who shares the guest's CPU never sees it run.
fn look_from_elsewhere(guest: &Guest, cpus: &[usize], states: &mut [bool; 2]) {
    match cpus {
        [_, other, ..] if !states[0] => machine::run_on(*other, || {
            let start = Instant::now();
            while !states[0] && start.elapsed() < Duration::from_millis(50) {
                states[0] = preempted(guest) == 0;
            }
        }),
        [_, _, ..] => {}
        _ => states[0] = true,
    }
}

fn main() -> ExitCode {
    kvm::check("t_kvm_steal", || {
        // Linux's say that a virtual CPU does not run only where an interrupt has stopped it.
        if !machine::is_reference_kernel() {
            println!("t_kvm_steal: OK, there are Linux's records");
            return ExitCode::SUCCESS;
        }
        checks::run(
            "t_kvm_steal",
            &checks::named![
                it_runs_only_inside,
                a_request_is_taken_by_the_entry,
                a_request_outlives_a_run_that_does_not_enter,
                the_register_keeps_what_is_valid,
                an_end_is_an_end,
                it_is_there_if_the_vmm_says_so,
                a_record_may_be_anywhere,
                turns_of_others_are_told,
            ],
        )
    })
}
