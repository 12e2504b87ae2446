//! Threads that run virtual CPUs: signals end that, CPUs change under them, and registers are nobody else's.
//!
//! On machines that have no virtual machines there is nothing to check.

use std::arch::asm;
use std::os::fd::AsRawFd;
use std::process::ExitCode;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::{Duration, Instant};

use shootdown_user::checks::{self, expect};
use shootdown_user::child::{Child, End};
use shootdown_user::hotplug;
use shootdown_user::kvm::abi::{self, Regs};
use shootdown_user::kvm::{self, Guest, Stop, code};
use shootdown_user::machine::{self, run_on};
use shootdown_user::region::PAGE_BYTES;

const DATA: usize = 16 * PAGE_BYTES;

fn guest() -> Guest {
    let device = kvm::open().unwrap().expect("looked for before");
    Guest::new(&device, 0).unwrap()
}

fn counting() -> Guest {
    let guest = guest();
    let registers = Regs {
        rdi: DATA as u64,
        ..Regs::default()
    };
    guest.load(code::COUNT, registers);
    guest
}

/// Waits until the guest has counted on.
fn counts(guest: &Guest) {
    let before = guest.look(DATA);
    while guest.look(DATA) == before {
        thread::yield_now();
    }
}

fn signals_end_a_run() {
    let guest = counting();
    for _ in 0..20 {
        let ((), end) = guest.run_beside(None, || counts(&guest));
        expect(libc::EINTR, end);
        assert_eq!(guest.stop(), Stop::Other(abi::EXIT_INTR));
    }
}

fn a_run_may_end_at_once() {
    let guest = counting();
    guest.vcpu.write(abi::RUN_IMMEDIATE_EXIT, 1u8);
    expect(libc::EINTR, guest.run());
    assert_eq!(guest.look(DATA), 0);
    // What the VMM has done is finished first.
    guest.vcpu.write(abi::RUN_IMMEDIATE_EXIT, 0u8);
    guest.load(code::OUT, Regs::default());
    guest.run().unwrap();
    let before = guest.regs().unwrap().rip;
    guest.vcpu.write(abi::RUN_IMMEDIATE_EXIT, 1u8);
    expect(libc::EINTR, guest.run());
    assert_eq!(guest.regs().unwrap().rip, before + 1);
}

/// A process whose threads run guests can be killed.
fn processes_end_that_run_guests() {
    for _ in 0..5 {
        let child = Child::start(|| {
            let guest = counting();
            let _never = guest.run();
            1
        })
        .unwrap();
        thread::sleep(Duration::from_millis(5));
        assert_eq!(child.kill().unwrap(), End::Killed(libc::SIGKILL));
    }
}

fn guests_share_a_cpu_with_threads() {
    let guest = counting();
    let cpu = machine::allowed_cpus().unwrap()[0];
    let ((), end) = guest.run_beside(Some(cpu), || {
        run_on(cpu, || {
            let start = Instant::now();
            while start.elapsed() < Duration::from_millis(50) {
                std::hint::spin_loop();
            }
        });
        counts(&guest);
    });
    expect(libc::EINTR, end);
}

/// What it has cached on one CPU it does not use on another, and back.
fn virtual_cpus_move() {
    let guest = guest();
    let cpus = machine::allowed_cpus().unwrap();
    for turn in 0..200 {
        run_on(cpus[turn % cpus.len()], || {
            if turn % 3 == 0 {
                guest.discard(16, 1);
                assert_eq!(guest.read(DATA).unwrap(), 0);
            }
            guest.put(DATA, turn as u32);
            assert_eq!(guest.read(DATA).unwrap(), turn as u32);
        });
    }
}

fn virtual_cpus_take_turns() {
    let guests: Vec<Guest> = (0..6).map(|_| guest()).collect();
    for turn in 0..60u32 {
        for (at, guest) in guests.iter().enumerate() {
            guest.write(DATA, turn * 10 + at as u32).unwrap();
        }
        for (at, guest) in guests.iter().enumerate() {
            assert_eq!(guest.read(DATA).unwrap(), turn * 10 + at as u32);
        }
    }
}

fn cpus_come_and_go_under_guests() {
    let possible = hotplug::list("possible").unwrap_or_default();
    let may_leave = possible.iter().copied().filter(|&cpu| cpu > 0);
    let leaving: Vec<usize> = may_leave
        .filter(|&cpu| hotplug::switch(cpu).exists())
        .collect();
    let guest = counting();
    let ((), end) = guest.run_beside(None, || {
        for _ in 0..5 {
            for &cpu in &leaving {
                hotplug::take_offline(cpu).unwrap();
                counts(&guest);
                hotplug::bring_online(cpu).unwrap();
                counts(&guest);
            }
        }
    });
    expect(libc::EINTR, end);
    for &cpu in &leaving {
        run_on(cpu, || guest.write(DATA, 1)).unwrap();
    }
}

/// Whatever a guest does, and whatever state its VMM gives it, ends in an answer; the machine below goes on.
fn any_guest_ends() {
    let random = &mut fastrand::Rng::with_seed(11);
    let device = kvm::open().unwrap().expect("looked for before");
    for _ in 0..150 {
        let guest = Guest::new(&device, 0).unwrap();
        for word in 0..512 {
            guest.memory.word(1, word).store(random.u64(..), SeqCst);
            guest
                .memory
                .word(2, word)
                .store(random.u64(..) & 0xf_f0ff | 7, SeqCst);
        }
        let mut sregs = guest.sregs().unwrap();
        match random.u8(..4) {
            0 => sregs.cr0 = random.u64(..) & 0xe005_003f | 1,
            1 => {
                (sregs.cr0, sregs.cr3, sregs.cr4, sregs.efer) = (0x8000_0001, 0x2000, 32, 0x500);
                (sregs.cs.l, sregs.cs.db) = (1, random.u8(..2));
            }
            2 => (sregs.cs.kind, sregs.ss.dpl, sregs.ds.limit) = random_segments(random),
            _ => (sregs.cr4, sregs.idt.base) = (random.u64(..) & 0x30_0fff, random.u64(..)),
        }
        let _refused = guest.set_sregs(&mut sregs);
        let mut regs = Regs {
            rip: 0x1000 + random.u64(..0x1000),
            rflags: random.u64(..) & 0x3f_7fd7 | 2,
            rax: random.u64(..),
            rcx: random.u64(..64),
            rdx: random.u64(..0x1_0000),
            rsi: random.u64(..0x10_0000),
            rdi: random.u64(..0x10_0000),
            rsp: random.u64(..0x10_0000),
            ..Regs::default()
        };
        kvm::request_with(&guest.vcpu, abi::SET_REGS, &mut regs).unwrap();
        let pause = || thread::sleep(Duration::from_micros(200));
        let ((), _any) = guest.run_beside(None, pause);
        guest.regs().unwrap();
    }
    assert_eq!(guest().write(DATA, 1).unwrap(), Stop::Halted);
}

fn random_segments(random: &mut fastrand::Rng) -> (u8, u8, u32) {
    (random.u8(..16), random.u8(..4), random.u32(..))
}

/// Neither finds the other's values in the registers of the FPU.
fn registers_of_the_fpu_are_kept() {
    let guest = guest();
    let mut sregs = guest.sregs().unwrap();
    sregs.cr4 |= 1 << 9;
    guest.set_sregs(&mut sregs).unwrap();
    guest.load(code::CLEAR_XMM, Regs::default());
    let (fd, value) = (guest.vcpu.as_raw_fd() as u64, 0x1234_5678_9abc_def0u64);
    let (answer, after): (i64, u64);
    // SAFETY: a request without an argument in memory; the registers that a system call changes are named.
    unsafe {
        asm!(
            "movq xmm0, {value}",
            "syscall",
            "movq {after}, xmm0",
            value = in(reg) value,
            after = lateout(reg) after,
            inlateout("rax") libc::SYS_ioctl => answer,
            in("rdi") fd,
            in("rsi") u64::from(abi::RUN),
            in("rdx") 0u64,
            out("rcx") _,
            out("r11") _,
            out("xmm0") _,
        );
    }
    assert_eq!((answer, after), (0, value));
    assert_eq!(guest.stop(), Stop::Halted);
}

/// Each finds in its debug registers what it has put there, but for the bit of DR7 that is always set.
fn debug_registers_are_kept() {
    let both = [guest(), guest()];
    // Conditions and lengths; no breakpoint is on.
    for (guest, address, control) in [(&both[0], 0x1234, 0x000d_0300), (&both[1], 0x5678, 0)] {
        let registers = Regs {
            rax: address,
            rcx: control,
            ..Regs::default()
        };
        guest.load(code::DEBUG_REGISTERS, registers);
        assert_eq!(guest.run().unwrap(), Stop::Halted);
        let after = guest.regs().unwrap();
        assert_eq!((after.rbx, after.rdx), (address, control | 0x400));
    }
    let read = &code::DEBUG_REGISTERS[6..];
    both[0].load(read, Regs::default());
    assert_eq!(both[0].run().unwrap(), Stop::Halted);
    let after = both[0].regs().unwrap();
    assert_eq!((after.rbx, after.rdx), (0x1234, 0x000d_0700));
    // DR4 is DR6, or, with debugging extensions, nothing: #UD, for which there is no table.
    let write_dr4 = &[0x0f, 0x23, 0xe0, 0xf4];
    both[0].load(write_dr4, Regs::default());
    assert_eq!(both[0].run().unwrap(), Stop::Halted);
    let mut sregs = both[0].sregs().unwrap();
    sregs.cr4 |= 1 << 3;
    both[0].set_sregs(&mut sregs).unwrap();
    both[0].load(write_dr4, Regs::default());
    assert_eq!(both[0].run().unwrap(), Stop::Other(abi::EXIT_SHUTDOWN));
}

/// Whoever changes a register that decides on translations: the next entry drops those that the tag holds. Others drop none.
fn changes_of_paging_drop_translations() {
    // Linux does not count.
    if machine::is_reference_kernel() {
        machine::run_on(machine::allowed_cpus().unwrap()[0], drop_what_is_cached);
    }
}

fn drop_what_is_cached() {
    const EFER: u64 = 0xc000_0080;
    const EFER_SCE: u64 = 1;
    const PAT: u64 = 0x277;
    /// All of it write-back memory.
    const WRITE_BACK: u64 = 0x0606_0606;
    let guest = guest();
    let drops = |program: &[u8], rcx, rax| {
        let registers = Regs {
            rcx,
            rax,
            ..Regs::default()
        };
        guest.load(program, registers);
        let (stop, drops) = guest.run_counting_drops().unwrap();
        assert_eq!(stop, Stop::Halted);
        drops.unwrap()
    };
    let nothing = || drops(code::CPUID, 0, 0);
    // Others drop theirs meanwhile.
    let is_kept = |again: &dyn Fn() -> u64| (0..4).any(|_| again() == 0);
    assert!(is_kept(&nothing));
    assert!(is_kept(&|| drops(code::WRMSR, PAT, WRITE_BACK)));
    assert_ne!(drops(code::WRMSR, EFER, EFER_SCE), 0);
    assert!(is_kept(&nothing));
    let mut sregs = guest.sregs().unwrap();
    guest.set_sregs(&mut sregs).unwrap();
    assert_ne!(nothing(), 0);
    // A reset; there is no memory where the guest begins then.
    guest.load(code::FAULT, Regs::default());
    assert_eq!(guest.run().unwrap(), Stop::Other(abi::EXIT_SHUTDOWN));
    let (stop, drops) = guest.run_counting_drops().unwrap();
    assert_eq!(stop, Stop::Other(abi::EXIT_INTERNAL_ERROR));
    assert!(drops > Some(0), "{drops:?}");
}

fn main() -> ExitCode {
    kvm::check("t_kvm_run", || {
        // Linux patches itself when its first virtual CPU comes and when the last one goes, and QEMU brings it down at times as it does.
        let _kept = guest();
        checks::run(
            "t_kvm_run",
            &checks::named![
                signals_end_a_run,
                a_run_may_end_at_once,
                processes_end_that_run_guests,
                guests_share_a_cpu_with_threads,
                virtual_cpus_move,
                virtual_cpus_take_turns,
                cpus_come_and_go_under_guests,
                any_guest_ends,
                registers_of_the_fpu_are_kept,
                debug_registers_are_kept,
                changes_of_paging_drop_translations,
            ],
        )
    })
}
