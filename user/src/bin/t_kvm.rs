//! Virtual machines: what is answered, what is refused, and what a guest is stopped for.
//!
//! On machines that have none there is nothing to check.

use std::fs::File;
use std::process::ExitCode;
use std::sync::atomic::Ordering::SeqCst;

use shootdown_user::checks::{self, expect, must_not_lose_again};
use shootdown_user::child::{Child, End};
use shootdown_user::kvm::abi::{
    self, ClearDirtyLog, Cpuid, CpuidEntry, DirtyLog, MemoryRegion, Regs,
};
use shootdown_user::kvm::{self, Guest, MEMORY_PAGES, Machine, Stop, code, slot};
use shootdown_user::machine;
use shootdown_user::region::PAGE_BYTES;

/// A page of the guest for data.
const DATA: usize = 16 * PAGE_BYTES;

/// Where no memory is.
const DEVICE: u64 = 1 << 29;

fn device() -> File {
    kvm::open().unwrap().expect("looked for before")
}

fn guest() -> Guest {
    let device = device();
    let guest = Guest::new(&device, 0).unwrap();
    // Without it, Linux has no 64-bit mode.
    let mut cpuid = kvm::supported_cpuid(&device).unwrap();
    kvm::request_with(&guest.vcpu, abi::SET_CPUID2, &mut cpuid).unwrap();
    guest
}

fn registers(rax: u64, rdx: u64) -> Regs {
    Regs {
        rax,
        rdx,
        ..Regs::default()
    }
}

fn the_device_answers() {
    let device = device();
    let ask = |number, argument| kvm::request(&device, number, argument);
    assert_eq!(ask(abi::GET_API_VERSION, 0).unwrap(), 12);
    expect(libc::EINVAL, ask(abi::GET_API_VERSION, 1));
    expect(libc::EINVAL, ask(abi::CREATE_VM, 1 << 20));
    expect(libc::EINVAL, ask(0xaeff, 0));
    for extension in [
        abi::CAP_USER_MEMORY,
        abi::CAP_SYNC_MMU,
        abi::CAP_IMMEDIATE_EXIT,
    ] {
        assert!(ask(abi::CHECK_EXTENSION, extension).unwrap() > 0);
    }
    assert_eq!(ask(abi::CHECK_EXTENSION, 9999).unwrap(), 0);
    let manual = ask(abi::CHECK_EXTENSION, abi::CAP_MANUAL_DIRTY_LOG_PROTECT2);
    assert_eq!(manual.unwrap() & 1, 1);
}

fn slots_are_checked() {
    let guest = guest();
    let machine = &guest.machine;
    let good = slot(&guest.memory, 0);
    let change = |change: fn(&mut MemoryRegion)| {
        let mut region = MemoryRegion { slot: 1, ..good };
        region.guest_phys_addr = 1 << 30;
        change(&mut region);
        machine.set_memory(region)
    };
    expect(libc::EINVAL, change(|r| r.guest_phys_addr += 1));
    expect(libc::EINVAL, change(|r| r.memory_size += 1));
    expect(libc::EINVAL, change(|r| r.userspace_addr += 1));
    expect(libc::EINVAL, change(|r| r.userspace_addr = 1 << 63));
    expect(libc::EINVAL, change(|r| r.guest_phys_addr = !0xfff));
    expect(libc::EINVAL, change(|r| r.memory_size = 1 << 63));
    expect(libc::EINVAL, change(|r| r.flags = 1 << 31));
    expect(libc::EINVAL, change(|r| r.slot = 1 << 20));
    expect(libc::EINVAL, change(|r| r.memory_size = 0));
    expect(libc::EEXIST, change(|r| r.guest_phys_addr = 0));
    expect(libc::EEXIST, change(|r| r.guest_phys_addr = 0xff000));
    // A slot keeps its size and its place.
    let resized = MemoryRegion {
        memory_size: good.memory_size / 2,
        ..good
    };
    expect(libc::EINVAL, machine.set_memory(resized));
    let replaced = MemoryRegion {
        userspace_addr: good.userspace_addr + 4096,
        ..good
    };
    expect(libc::EINVAL, machine.set_memory(replaced));
    machine.set_memory(good).unwrap();
    change(|_| ()).unwrap();
    change(|r| r.memory_size = 0).unwrap();
}

fn requests_are_checked() {
    let guest = guest();
    let (machine, vcpu) = (&guest.machine, &guest.vcpu);
    expect(libc::EEXIST, machine.vcpu(0));
    expect(libc::EINVAL, machine.vcpu(1 << 20));
    expect(libc::ENOTTY, kvm::request(machine, 0xaeff, 0));
    expect(libc::EINVAL, kvm::request(vcpu, 0xaeff, 0));
    expect(libc::EINVAL, kvm::request(vcpu, abi::RUN, 1));
    for request in [abi::GET_REGS, abi::SET_REGS, abi::GET_SREGS, abi::SET_SREGS] {
        expect(libc::EFAULT, kvm::request(vcpu, request, 8));
    }
    expect(
        libc::EFAULT,
        kvm::request(machine, abi::SET_USER_MEMORY_REGION, 8),
    );
    let mut log = DirtyLog::default();
    expect(
        libc::ENOENT,
        kvm::request_with(machine, abi::GET_DIRTY_LOG, &mut log),
    );
    machine
        .set_memory(slot(&guest.memory, abi::MEM_LOG_DIRTY_PAGES))
        .unwrap();
    log.bitmap = 8;
    expect(
        libc::EFAULT,
        kvm::request_with(machine, abi::GET_DIRTY_LOG, &mut log),
    );
    for (first_page, num_pages) in [(1, 64), (0, 63), (0, 320), (256, 64), (u64::MAX << 6, 64)] {
        let mut clear = ClearDirtyLog {
            first_page,
            num_pages,
            ..ClearDirtyLog::default()
        };
        expect(
            libc::EINVAL,
            kvm::request_with(machine, abi::CLEAR_DIRTY_LOG, &mut clear),
        );
    }
    registers_are_checked(&guest);
}

fn registers_are_checked(guest: &Guest) {
    let good = guest.sregs().unwrap();
    let long_without_pae = |sregs: &mut abi::Sregs| {
        sregs.efer = 0x500;
        sregs.cr0 = 0x8000_0001;
    };
    let changes: [&dyn Fn(&mut abi::Sregs); 4] = [
        &|s| s.cr0 = 1 << 32,
        &|s| s.cr0 = 1 << 31,
        &|s| s.cr4 = 1 << 63,
        &long_without_pae,
    ];
    // Linux does not look at these.
    let more: [&dyn Fn(&mut abi::Sregs); 2] = [&|s| s.efer = 1 << 12, &|s| s.cr8 = 16];
    let more = more.iter().filter(|_| machine::is_reference_kernel());
    for change in changes.iter().chain(more) {
        let mut bad = good;
        change(&mut bad);
        expect(libc::EINVAL, guest.set_sregs(&mut bad));
    }
}

fn registers_are_kept() {
    let guest = guest();
    let mut regs = Regs {
        rflags: 2,
        ..Regs::default()
    };
    for (at, register) in [
        &mut regs.rax,
        &mut regs.rbx,
        &mut regs.rcx,
        &mut regs.rdx,
        &mut regs.rsi,
        &mut regs.rdi,
        &mut regs.rsp,
        &mut regs.rbp,
    ]
    .into_iter()
    .enumerate()
    {
        *register = 0x1111 * (at as u64 + 1);
    }
    guest.load(&[0xf4], regs);
    assert_eq!(guest.run().unwrap(), Stop::Halted);
    let rip = PAGE_BYTES as u64 + 1;
    assert_eq!(guest.regs().unwrap(), Regs { rip, ..regs });
    let mut sregs = guest.sregs().unwrap();
    assert_eq!((sregs.cs.limit, sregs.cs.db, sregs.cr0 & 1), (!0, 1, 1));
    // Of a task-state segment, which is in use whatever the VMM says.
    sregs.tr.kind = 9;
    guest.set_sregs(&mut sregs).unwrap();
    assert_eq!(guest.sregs().unwrap().tr.kind, 11);
}

fn guests_reach_ports() {
    let guest = guest();
    guest.load(code::OUT, registers(0x1241, 0x3f8));
    assert_eq!(guest.run().unwrap(), Stop::Out(0x3f8, 1, 0x41));
    assert_eq!(guest.run().unwrap(), Stop::Halted);
    guest.load(code::IN, registers(0x1234_5678, 0x70));
    assert_eq!(guest.run().unwrap(), Stop::In(0x70, 2));
    guest.vcpu.write(guest.io_offset(), 0xabcdu16);
    assert_eq!(guest.run().unwrap(), Stop::Halted);
    assert_eq!(guest.regs().unwrap().rax, 0x1234_abcd);
    // The VMM sends it elsewhere instead: to the second HLT.
    guest.load(&[0xee, 0xf4, 0xf4], registers(1, 0x80));
    assert_eq!(guest.run().unwrap(), Stop::Out(0x80, 1, 1));
    let mut regs = guest.regs().unwrap();
    regs.rip += 2;
    kvm::request_with(&guest.vcpu, abi::SET_REGS, &mut regs).unwrap();
    assert_eq!(guest.run().unwrap(), Stop::Halted);
    assert_eq!(guest.regs().unwrap().rip, regs.rip + 1);
}

/// Where no memory is, the VMM reads and writes for the guest.
fn guests_reach_devices() {
    let guest = guest();
    let load = |program: &[u8], rax| {
        let rdi = DEVICE + 8;
        guest.load(
            program,
            Regs {
                rax,
                rdi,
                ..Regs::default()
            },
        );
        guest.run().unwrap()
    };
    assert_eq!(
        load(code::WRITE, 0x1234_5678),
        Stop::Memory(DEVICE + 8, true)
    );
    assert_eq!(guest.accessed(), (4, 0x1234_5678));
    assert_eq!(guest.run().unwrap(), Stop::Halted);
    assert_eq!(load(code::READ, 1), Stop::Memory(DEVICE + 8, false));
    assert_eq!(guest.accessed().0, 4);
    guest.answer(0x1_8765_4321);
    assert_eq!(guest.run().unwrap(), Stop::Halted);
    assert_eq!(guest.regs().unwrap().rax, 0x8765_4321);
    // The second byte of a register.
    assert_eq!(
        load(&[0x88, 0x27, 0xf4], 0x56_1234),
        Stop::Memory(DEVICE + 8, true)
    );
    assert_eq!(guest.accessed(), (1, 0x12));
    assert_eq!(guest.run().unwrap(), Stop::Halted);
    // A byte with its sign.
    assert_eq!(load(code::READ_SIGNED, 1), Stop::Memory(DEVICE + 8, false));
    guest.answer(0x80);
    assert_eq!(guest.run().unwrap(), Stop::Halted);
    assert_eq!(guest.regs().unwrap().rax, 0xffff_ff80);
    // Linux carries out a count as well.
    if machine::is_reference_kernel() {
        assert_eq!(load(code::COUNT, 1), Stop::Other(abi::EXIT_INTERNAL_ERROR));
    }
}

/// Where 64-bit code finds the first GiB besides.
const ELSEWHERE: u64 = 1 << 40;
/// Where it finds two pages that are not side by side.
const APART: u64 = 0x3fe0_0000;
/// Those pages, and the one behind the first.
const PIECES: [usize; 3] = [30, 40, 31];
/// A guest in 64-bit mode, by page tables of its own.
fn long_guest() -> Guest {
    const TABLES: usize = 2 * PAGE_BYTES;
    let guest = guest();
    let table = |at: usize| (TABLES + at * PAGE_BYTES) as u64;
    let set = |at: usize, entry: usize, value: u64| {
        guest.memory.word(2 + at, entry).store(value, SeqCst);
    };
    set(0, 0, table(1) | 3);
    set(0, 2, table(1) | 3);
    set(1, 0, table(2) | 3);
    for large in 0..511 {
        set(2, large, (large as u64) << 21 | 0x83);
    }
    set(2, 511, table(3) | 3);
    for (at, page) in PIECES[..2].iter().enumerate() {
        set(3, at, (page * PAGE_BYTES) as u64 | 3);
    }
    let mut sregs = guest.sregs().unwrap();
    (sregs.cr0, sregs.cr3, sregs.cr4, sregs.efer) = (0x8000_0001, table(0), 1 << 5, 0x500);
    (sregs.cs.l, sregs.cs.db) = (1, 0);
    guest.set_sregs(&mut sregs).unwrap();
    guest
}

fn run_at(guest: &Guest, program: &[u8], (rax, rdi): (u64, u64)) -> Stop {
    let registers = Regs {
        rax,
        rdi,
        ..Regs::default()
    };
    guest.load(program, registers);
    guest.run().unwrap()
}

fn guests_run_64_bit_code() {
    let guest = long_guest();
    guest.put(DATA, 77);
    let stop = run_at(&guest, code::READ, (5, ELSEWHERE + DATA as u64));
    assert_eq!(stop, Stop::Halted);
    assert_eq!(guest.regs().unwrap().rax, 77);
    // Where its tables lead to no memory.
    let stop = run_at(&guest, code::WRITE, (5, ELSEWHERE + DEVICE));
    assert_eq!(stop, Stop::Memory(DEVICE, true));
    assert_eq!(guest.accessed(), (4, 5));
    assert_eq!(guest.run().unwrap(), Stop::Halted);
    // Four bytes clear the others of their register.
    let stop = run_at(&guest, code::READ, (!0, DEVICE));
    assert_eq!(stop, Stop::Memory(DEVICE, false));
    guest.answer(0x8765_4321);
    assert_eq!(guest.run().unwrap(), Stop::Halted);
    assert_eq!(guest.regs().unwrap().rax, 0x8765_4321);
    // Where they lead nowhere, it has nobody to handle that.
    let stop = run_at(&guest, code::READ, (5, 1 << 39));
    assert_eq!(stop, Stop::Other(abi::EXIT_SHUTDOWN));
}

/// An instruction whose bytes are in two pages.
fn instructions_cross_pages() {
    let guest = long_guest();
    // A store of EAX; behind the first page, what makes ECX of that.
    let last = PAGE_BYTES / 8 - 1;
    for (page, word, bytes) in [
        (PIECES[0], last, 0x89 << 56),
        (PIECES[1], 0, 0xf407),
        (PIECES[2], 0, 0xf40f),
    ] {
        guest.memory.word(page, word).store(bytes, SeqCst);
    }
    let mut registers = Regs {
        rip: APART + PAGE_BYTES as u64 - 1,
        rax: 5,
        rcx: 6,
        rdi: DEVICE,
        rflags: 2,
        ..Regs::default()
    };
    kvm::request_with(&guest.vcpu, abi::SET_REGS, &mut registers).unwrap();
    assert_eq!(guest.run().unwrap(), Stop::Memory(DEVICE, true));
    assert_eq!(guest.accessed(), (4, 5));
    assert_eq!(guest.run().unwrap(), Stop::Halted);
}

/// Model-specific registers: the guest's own, and what is refused, for which it has no handler.
fn guests_have_registers_of_their_own() {
    const LSTAR: u64 = 0xc000_0082;
    const EFER: u64 = 0xc000_0080;
    const EFER_LME: u64 = 1 << 8;
    const EFER_SVME: u64 = 1 << 12;
    const PAT: u64 = 0x277;
    const NONE: u64 = 0x1234;
    let access = |program: &[u8], rcx, rax| {
        let guest = long_guest();
        let registers = Regs {
            rcx,
            rax,
            ..Regs::default()
        };
        guest.load(program, registers);
        let stop = guest.run().unwrap();
        (stop, guest.regs().unwrap().rax)
    };
    let write_and_read = [&code::WRMSR[..2], code::RDMSR].concat();
    assert_eq!(
        access(&write_and_read, LSTAR, 0x5678),
        (Stop::Halted, 0x5678)
    );
    let (stop, efer) = access(code::RDMSR, EFER, 0);
    assert_eq!(
        (stop, efer & (EFER_LME | EFER_SVME)),
        (Stop::Halted, EFER_LME)
    );
    for (program, register, value) in [
        (code::RDMSR, NONE, 0),
        (code::WRMSR, NONE, 0),
        (code::WRMSR, EFER, efer & !EFER_LME),
        // No memory type.
        (code::WRMSR, PAT, 2),
    ] {
        let (stop, _) = access(program, register, value);
        assert_eq!(stop, Stop::Other(abi::EXIT_SHUTDOWN), "{register:x}");
    }
}

/// A page table where no memory is. On Linux the guest looks for it for ever.
fn tables_that_are_nowhere_are_no_access() {
    if !machine::is_reference_kernel() {
        return;
    }
    let guest = long_guest();
    guest.memory.word(2, 3).store(DEVICE | 3, SeqCst);
    let stop = run_at(&guest, code::READ, (0, 3 << 39));
    assert_eq!(stop, Stop::Other(abi::EXIT_INTERNAL_ERROR));
}

/// Nobody answers: `-KVM_ENOSYS`.
fn hypercalls_are_answered() {
    let guest = guest();
    guest.load(&[0x0f, 0x01, 0xd9, 0xf4], registers(99, 0));
    assert_eq!(guest.run().unwrap(), Stop::Halted);
    assert_eq!(guest.regs().unwrap().rax as i32, -1000);
}

/// Of 16-bit code, as after a reset.
fn guests_run_16_bit_code() {
    let guest = guest();
    let mut sregs = guest.sregs().unwrap();
    (sregs.cs.base, sregs.cs.selector, sregs.cs.db) = (0, 0, 0);
    sregs.cr0 &= !1;
    guest.set_sregs(&mut sregs).unwrap();
    guest.load(code::IN, registers(0x1234_5678, 0x70));
    // The prefix makes four bytes of the two.
    assert_eq!(guest.run().unwrap(), Stop::In(0x70, 4));
    guest.vcpu.write(guest.io_offset(), 0xffff_eeeeu32);
    assert_eq!(guest.run().unwrap(), Stop::Halted);
    assert_eq!(guest.regs().unwrap().rax, 0xffff_eeee);
    // By the bases of its segments: a store of AX to DS:DI.
    sregs.cs.base = PAGE_BYTES as u64;
    sregs.ds.base = DEVICE;
    guest.set_sregs(&mut sregs).unwrap();
    guest.load(&[0x89, 0x05, 0xf4], Regs::default());
    let mut registers = Regs {
        rax: 0x1234,
        rdi: 8,
        rflags: 2,
        ..Regs::default()
    };
    kvm::request_with(&guest.vcpu, abi::SET_REGS, &mut registers).unwrap();
    assert_eq!(guest.run().unwrap(), Stop::Memory(DEVICE + 8, true));
    assert_eq!(guest.accessed(), (2, 0x1234));
    assert_eq!(guest.run().unwrap(), Stop::Halted);
}

fn guests_ask_cpuid() {
    let guest = guest();
    let leaf = CpuidEntry {
        function: 0x4000_0000,
        eax: 1,
        ebx: 2,
        ecx: 3,
        edx: 4,
        ..CpuidEntry::default()
    };
    let cache = |index| CpuidEntry {
        function: 4,
        index,
        flags: 1,
        eax: 10 + index,
        ..CpuidEntry::default()
    };
    let mut cpuid = Cpuid {
        entries: 3,
        padding: 0,
        entry: [leaf, cache(0), cache(1)],
    };
    kvm::request_with(&guest.vcpu, abi::SET_CPUID2, &mut cpuid).unwrap();
    guest.load(code::CPUID, registers(0x4000_0000, 9));
    assert_eq!(guest.run().unwrap(), Stop::Halted);
    let regs = guest.regs().unwrap();
    assert_eq!((regs.rax, regs.rbx, regs.rcx, regs.rdx), (1, 2, 3, 4));
    // Of a leaf that has more than one answer, that of ECX.
    let registers = Regs {
        rax: 4,
        rcx: 1,
        ..Regs::default()
    };
    guest.load(code::CPUID, registers);
    assert_eq!(guest.run().unwrap(), Stop::Halted);
    assert_eq!(guest.regs().unwrap().rax, 11);
    what_cpuid_may_say();
    cpuid.entries = 1 << 20;
    expect(
        libc::E2BIG,
        kvm::request_with(&guest.vcpu, abi::SET_CPUID2, &mut cpuid),
    );
}

fn what_cpuid_may_say() {
    let device = device();
    let mut few = Cpuid {
        entries: 1,
        padding: 0,
        entry: [CpuidEntry::default(); 1],
    };
    expect(
        libc::E2BIG,
        kvm::request_with(&device, abi::GET_SUPPORTED_CPUID, &mut few),
    );
    let all = kvm::supported_cpuid(&device).unwrap();
    let entries = &all.entry[..all.entries as usize];
    let extended = entries.iter().find(|entry| entry.function == 0x8000_0001);
    let has_long_mode = extended.is_some_and(|entry| entry.edx & 1 << 29 != 0);
    assert!(has_long_mode, "{extended:?}");
}

fn wrong_guests_are_stopped() {
    let guest = guest();
    guest.load(code::FAULT, Regs::default());
    assert_eq!(guest.run().unwrap(), Stop::Other(abi::EXIT_SHUTDOWN));
    // As after a reset.
    assert_eq!(guest.regs().unwrap().rip, 0xfff0);
    // 64-bit and 32-bit code at the same time.
    let mut sregs = guest.sregs().unwrap();
    (sregs.cr0, sregs.cr4, sregs.efer) = (0x8000_0001, 1 << 5, 0x500);
    (sregs.cs.l, sregs.cs.db) = (1, 1);
    guest.set_sregs(&mut sregs).unwrap();
    assert_eq!(guest.run().unwrap(), Stop::Other(abi::EXIT_FAIL_ENTRY));
    let (regs, after) = (guest.regs().unwrap(), guest.sregs().unwrap());
    // Linux shows what QEMU leaves: registers of the host.
    if machine::is_reference_kernel() {
        assert_eq!((regs.rip, regs.rsp, after.cr3), (0xfff0, 0, 0));
        assert_eq!((after.cs.l, after.cs.db), (1, 1));
    }
    // Page tables at no address, and at one that is beyond this processor, at which Linux looks itself.
    sregs.cs.db = 0;
    sregs.cr3 = 1 << 52;
    expect(libc::EINVAL, guest.set_sregs(&mut sregs));
    if machine::is_reference_kernel() {
        sregs.cr3 = 1 << 51;
        guest.set_sregs(&mut sregs).unwrap();
        assert_eq!(guest.run().unwrap(), Stop::Other(abi::EXIT_FAIL_ENTRY));
        let (regs, after) = (guest.regs().unwrap(), guest.sregs().unwrap());
        assert_eq!((regs.rip, regs.rsp, after.cr3), (0xfff0, 0, 0));
    }
}

fn a_forked_process_has_no_machine() {
    let guest = guest();
    let child = Child::start(|| {
        let is_eio = |result| checks::error_of(result) == Some(libc::EIO);
        let refused = is_eio(kvm::request(&guest.vcpu, abi::RUN, 0))
            && is_eio(kvm::request(&guest.machine, abi::CREATE_VCPU, 1));
        i32::from(!refused)
    });
    assert_eq!(child.unwrap().wait().unwrap(), End::Exited(0));
    assert_eq!(guest.write(DATA, 7).unwrap(), Stop::Halted);
}

fn nothing_is_left_of_machines() {
    let once = || {
        for _ in 0..40 {
            let guest = guest();
            guest.write(DATA, 1).unwrap();
            let others: Vec<_> = (1..4).map(|at| guest.machine.vcpu(at).unwrap()).collect();
            drop(others);
        }
    };
    once();
    must_not_lose_again(5, 64, once);
}

fn there_are_only_so_many() {
    let device = device();
    let machines: Vec<_> = std::iter::repeat_with(|| Machine::new(&device))
        .take(100)
        .collect();
    let made = machines.iter().filter(|machine| machine.is_ok()).count();
    assert!(made > 3);
    assert!(made < 100 || !machine::is_reference_kernel(), "no bound");
    drop(machines);
    let guest = guest();
    assert_eq!(guest.memory.pages(), MEMORY_PAGES);
}

fn there_is_only_so_much_cpuid() {
    let device = device();
    let mut most = Cpuid {
        entries: 256,
        padding: 0,
        entry: [CpuidEntry::default(); 256],
    };
    let mut refused = 0;
    let machines: Vec<_> = (0..4).map(|_| Machine::new(&device).unwrap()).collect();
    let vcpus: Vec<_> = machines
        .iter()
        .flat_map(|machine| (0..16).map(|at| machine.vcpu(at).unwrap()))
        .collect();
    for vcpu in &vcpus {
        if let Err(error) = kvm::request_with(vcpu, abi::SET_CPUID2, &mut most) {
            assert_eq!(error.raw_os_error(), Some(libc::ENOMEM));
            refused += 1;
        }
    }
    assert!(refused < vcpus.len());
    assert!(
        refused > 0 || !machine::is_reference_kernel(),
        "there is no bound"
    );
    drop((vcpus, machines));
    kvm::request_with(&guest().vcpu, abi::SET_CPUID2, &mut most).unwrap();
}

fn a_number_stays_free_where_there_is_no_descriptor() {
    let (device, guest) = (device(), guest());
    let mut others = Vec::new();
    while let Ok(other) = device.try_clone() {
        others.push(other);
    }
    expect(libc::EMFILE, guest.machine.vcpu(5));
    drop(others);
    guest.machine.vcpu(5).unwrap();
    expect(libc::EEXIST, guest.machine.vcpu(5));
}

fn main() -> ExitCode {
    kvm::check("t_kvm", || {
        // As in t_kvm_run.
        let _kept = guest();
        checks::run(
            "t_kvm",
            &checks::named![
                the_device_answers,
                slots_are_checked,
                requests_are_checked,
                registers_are_kept,
                guests_reach_ports,
                guests_reach_devices,
                guests_run_64_bit_code,
                instructions_cross_pages,
                guests_have_registers_of_their_own,
                tables_that_are_nowhere_are_no_access,
                hypercalls_are_answered,
                guests_run_16_bit_code,
                guests_ask_cpuid,
                wrong_guests_are_stopped,
                a_forked_process_has_no_machine,
                nothing_is_left_of_machines,
                there_are_only_so_many,
                there_is_only_so_much_cpuid,
                a_number_stays_free_where_there_is_no_descriptor,
            ],
        )
    })
}
