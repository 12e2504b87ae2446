//! Enters the kernel in every way that ring 3 has, with registers as bad as they can be; the kernel
//! answers each with the signal that Linux gives, and goes on.
//!
//! A case is a few bytes of machine code in a page of its own. Whether they return or fault, execution goes
//! on behind the call: the signal handler sends it there.

use std::arch::asm;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

use shootdown_user::{machine, signals};

/// Where the handler sends a case that faulted, and the stack pointer to go on with.
static RECOVER_RIP: AtomicUsize = AtomicUsize::new(0);
static RECOVER_RSP: AtomicUsize = AtomicUsize::new(0);
/// The signal of the last case; 0 if it returned.
static SIGNAL: AtomicI32 = AtomicI32::new(0);

/// The flag that is always 1, and interrupts enabled.
const PLAIN_FLAGS: i64 = 0x202;
const NON_CANONICAL: usize = 0x8000_0000_0000_0000;
/// `libc::REG_*` index into the saved registers.
const RIP: usize = libc::REG_RIP as usize;
const RSP: usize = libc::REG_RSP as usize;
const EFL: usize = libc::REG_EFL as usize;

fn main() {
    install_handlers();
    let page = code_page();
    single_instructions(page);
    software_interrupts(page);
    bad_stack_pointers(page);
    flags_survive();
    returns_are_checked();
    vector_registers_survive();
    println!("t_entry: OK");
}

/// What instructions end with which signal. (Not IRET: QEMU 7 reads its stack as the kernel, and with
/// SMAP Linux ends the program.)
fn single_instructions(page: *mut u8) {
    let cases: [(&str, &[u8], i32); 12] = [
        ("ud2", &[0x0f, 0x0b], libc::SIGILL),
        ("int3", &[0xcc], libc::SIGTRAP),
        ("hlt", &[0xf4], libc::SIGSEGV),
        ("cli", &[0xfa], libc::SIGSEGV),
        ("in al, dx", &[0xec], libc::SIGSEGV),
        ("out dx, al", &[0xee], libc::SIGSEGV),
        ("swapgs", &[0x0f, 0x01, 0xf8], libc::SIGSEGV),
        ("mov cr0, rax", &[0x0f, 0x22, 0xc0], libc::SIGSEGV),
        ("rdmsr", &[0x0f, 0x32], libc::SIGSEGV),
        ("div by zero", &[0x31, 0xc9, 0xf7, 0xf1], libc::SIGFPE),
        // mov rax, 1 << 63; jmp rax
        (
            "jump to a non-canonical address",
            &[0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0x80, 0xff, 0xe0],
            libc::SIGSEGV,
        ),
        // pushfq; or dword [rsp], 0x100; popfq; nop
        (
            "single step",
            &[0x9c, 0x81, 0x0c, 0x24, 0, 1, 0, 0, 0x9d, 0x90],
            libc::SIGTRAP,
        ),
    ];
    for (name, code, signal) in cases {
        assert_eq!(run(page, code), signal, "{name}");
    }
}

/// INT n reaches no handler that it is not meant to. (INT 0x80 is Linux's 32-bit system call.)
fn software_interrupts(page: *mut u8) {
    for vector in (0..=255).filter(|&vector| vector != 0x80) {
        let expected = [libc::SIGSEGV, libc::SIGTRAP][usize::from(vector == 3)];
        assert_eq!(run(page, &[0xcd, vector]), expected, "int {vector:#x}");
    }
}

/// System calls and interrupts with a stack pointer that points nowhere.
fn bad_stack_pointers(page: *mut u8) {
    for rsp in [0, 1, NON_CANONICAL, usize::MAX, 0xffff_8000_0000_0000] {
        // mov rsp, imm64; mov eax, 39 (getpid); syscall; then spin for some timer ticks:
        // mov ecx, imm32; 1: pause; dec ecx; jnz 1b; and touch the stack at last: push rax
        let mut code = vec![0x48, 0xbc];
        code.extend(rsp.to_le_bytes());
        code.extend([0xb8, 39, 0, 0, 0, 0x0f, 0x05]);
        code.extend([
            0xb9, 0x00, 0x00, 0x10, 0x00, 0xf3, 0x90, 0xff, 0xc9, 0x75, 0xfa, 0x50,
        ]);
        let signal = run(page, &code);
        let is_fault = signal == libc::SIGSEGV || signal == libc::SIGBUS;
        assert!(is_fault, "push at {rsp:#x} ended with signal {signal}");
    }
}

/// Direction and alignment-check flags are the program's own: kept over a system call, and no harm to
/// the kernel.
fn flags_survive() {
    const DIRECTION_AND_ALIGNMENT: u64 = 1 << 10 | 1 << 18;
    let after: u64;
    // SAFETY: flags are set, a system call without arguments is made, flags are put back; the
    // red zone is left alone because Rust's `asm!` may push.
    unsafe {
        asm!(
            "pushfq",
            "pushfq",
            "or qword ptr [rsp], {bits}",
            "popfq",
            "mov eax, 39",
            "syscall",
            "pushfq",
            "pop {after}",
            "popfq",
            bits = const DIRECTION_AND_ALIGNMENT,
            after = out(reg) after,
            out("rax") _, out("rcx") _, out("r11") _,
        );
    }
    assert_eq!(after & DIRECTION_AND_ALIGNMENT, DIRECTION_AND_ALIGNMENT);
}

/// A signal frame may hold anything; privileges do not come out of it.
fn returns_are_checked() {
    // SAFETY: `sigusr` below changes the saved flags and address only; RECOVER is set by `raise_at`.
    unsafe { set_handler(libc::SIGUSR1, corrupt_frame) };
    let signal = raise_at();
    assert_eq!(signal, libc::SIGSEGV, "return to a non-canonical address");
    // With I/O privilege (flags 12 and 13) CLI would not fault.
    let page = code_page();
    let signal = run(page, &[0xfa]);
    assert_eq!(signal, libc::SIGSEGV, "cli after a forged return");
}

extern "C" fn corrupt_frame(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let context = context.cast::<libc::ucontext_t>();
    // SAFETY: the kernel's frame of this handler.
    let registers = unsafe { &mut (*context).uc_mcontext.gregs };
    registers[RIP] = NON_CANONICAL as i64;
    registers[EFL] |= 0x3000 | 1 << 14 | 1 << 17;
}

/// Sends itself SIGUSR1; the signal that came of its return.
fn raise_at() -> i32 {
    SIGNAL.store(0, Ordering::Relaxed);
    // SAFETY: execution goes on at 2 with the stack pointer saved here; everything else is clobbered.
    unsafe {
        asm!(
            "push rbp",
            "push rbx",
            "mov [{save_rsp}], rsp",
            "lea r12, [rip + 2f]",
            "mov [{save_rip}], r12",
            // tgkill to oneself through `raise`, which needs an aligned stack.
            "and rsp, -16",
            "call {raise}",
            "2:",
            "pop rbx",
            "pop rbp",
            save_rsp = in(reg) RECOVER_RSP.as_ptr(),
            save_rip = in(reg) RECOVER_RIP.as_ptr(),
            raise = in(reg) libc::raise as *const () as usize,
            in("rdi") libc::SIGUSR1,
            out("r12") _, out("r13") _, out("r14") _, out("r15") _,
            clobber_abi("C"),
        );
    }
    SIGNAL.load(Ordering::Relaxed)
}

/// Threads that share CPUs keep their vector registers, and those of the x87, which every second one leaves alone.
fn vector_registers_survive() {
    const THREADS: u64 = 6;
    const ROUNDS: u64 = 40;
    let spin = |id| {
        for round in 0..ROUNDS {
            let pattern = id << 32 | round;
            let uses_x87 = id % 2 == 0;
            let expected = std::array::from_fn(|index| pattern + index as u64);
            let x87 = if uses_x87 { pattern } else { 0 };
            assert_eq!(spin_with(pattern, uses_x87), (expected, x87));
            assert!(uses_x87 || x87_is_untouched(), "x87 of another thread");
        }
    };
    let threads = (1..=THREADS).map(|id| std::thread::spawn(move || spin(id)));
    let threads: Vec<_> = threads.collect();
    for thread in threads {
        let found = thread.join();
        found.expect("a thread found foreign vector registers");
    }
}

/// Holds `pattern` and its successors in all vector registers for a while, with a yield in the middle; `pattern` on the stack of the x87, too, if so
/// wanted. What is there then.
fn spin_with(pattern: u64, uses_x87: bool) -> ([u64; 16], u64) {
    let before: [u64; 16] = std::array::from_fn(|index| pattern + index as u64);
    let (mut after, mut x87) = ([0u64; 16], pattern);
    // SAFETY: loads and stores of three variables, and one system call without arguments (24, sched_yield). The stack of the x87 is empty at the end.
    unsafe {
        asm!(
            "test {uses_x87:e}, {uses_x87:e}",
            "jz 2f",
            "fild qword ptr [{x87}]",
            "2:",
            "movq xmm0, [{before} + 0]",
            "movq xmm1, [{before} + 8]",
            "movq xmm2, [{before} + 16]",
            "movq xmm3, [{before} + 24]",
            "movq xmm4, [{before} + 32]",
            "movq xmm5, [{before} + 40]",
            "movq xmm6, [{before} + 48]",
            "movq xmm7, [{before} + 56]",
            "movq xmm8, [{before} + 64]",
            "movq xmm9, [{before} + 72]",
            "movq xmm10, [{before} + 80]",
            "movq xmm11, [{before} + 88]",
            "movq xmm12, [{before} + 96]",
            "movq xmm13, [{before} + 104]",
            "movq xmm14, [{before} + 112]",
            "movq xmm15, [{before} + 120]",
            "mov ecx, 20000",
            "3: pause",
            "dec ecx",
            "jnz 3b",
            "mov eax, 24",
            "syscall",
            "mov ecx, 20000",
            "4: pause",
            "dec ecx",
            "jnz 4b",
            "movq [{after} + 0], xmm0",
            "movq [{after} + 8], xmm1",
            "movq [{after} + 16], xmm2",
            "movq [{after} + 24], xmm3",
            "movq [{after} + 32], xmm4",
            "movq [{after} + 40], xmm5",
            "movq [{after} + 48], xmm6",
            "movq [{after} + 56], xmm7",
            "movq [{after} + 64], xmm8",
            "movq [{after} + 72], xmm9",
            "movq [{after} + 80], xmm10",
            "movq [{after} + 88], xmm11",
            "movq [{after} + 96], xmm12",
            "movq [{after} + 104], xmm13",
            "movq [{after} + 112], xmm14",
            "movq [{after} + 120], xmm15",
            "mov qword ptr [{x87}], 0",
            "test {uses_x87:e}, {uses_x87:e}",
            "jz 5f",
            "fistp qword ptr [{x87}]",
            "5:",
            uses_x87 = in(reg) u32::from(uses_x87),
            x87 = in(reg) &raw mut x87,
            before = in(reg) before.as_ptr(),
            after = in(reg) after.as_mut_ptr(),
            out("rax") _, out("rcx") _, out("r11") _,
            out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
            out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
            out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
            out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
            out("st(0)") _, out("st(1)") _, out("st(2)") _, out("st(3)") _, out("st(4)") _, out("st(5)") _, out("st(6)") _, out("st(7)") _,
        );
    }
    (after, x87)
}

/// Whether this thread finds the x87 as new threads do, with nothing in its registers.
fn x87_is_untouched() -> bool {
    #[repr(align(16))]
    struct Image([u8; 512]);
    let mut image = Image([0; 512]);
    // SAFETY: 512 bytes, aligned.
    unsafe { asm!("fxsave64 [{}]", in(reg) image.0.as_mut_ptr(), options(nostack)) };
    let (control, tags) = (&image.0[..4], image.0[4]);
    control == [0x7f, 3, 0, 0] && tags == 0 && image.0[32..160] == [0; 128]
}

/// Runs `code`, then RET; the signal that ended it, or 0.
fn run(page: *mut u8, code: &[u8]) -> i32 {
    const RET: u8 = 0xc3;
    assert!(code.len() < 4096);
    // SAFETY: the page is writable and this thread's; `code` is shorter.
    unsafe { page.copy_from_nonoverlapping(code.as_ptr(), code.len()) };
    // SAFETY: as above.
    let end = unsafe { page.add(code.len()) };
    // SAFETY: as above.
    unsafe { end.write(RET) };
    SIGNAL.store(0, Ordering::Relaxed);
    // SAFETY: whatever the code does to registers, stack pointer and flags, execution goes on at 2
    // with the stack pointer saved here; everything else is clobbered.
    unsafe {
        asm!(
            "push rbp",
            "push rbx",
            "pushfq",
            "mov [{save_rsp}], rsp",
            "lea r12, [rip + 2f]",
            "mov [{save_rip}], r12",
            "call {page}",
            "2:",
            "popfq",
            "pop rbx",
            "pop rbp",
            save_rsp = in(reg) RECOVER_RSP.as_ptr(),
            save_rip = in(reg) RECOVER_RIP.as_ptr(),
            page = in(reg) page,
            out("r12") _, out("r13") _, out("r14") _, out("r15") _,
            clobber_abi("C"),
        );
    }
    SIGNAL.load(Ordering::Relaxed)
}

/// Notes the signal and goes on behind the case.
extern "C" fn recover(signal: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    SIGNAL.store(signal, Ordering::Relaxed);
    let context = context.cast::<libc::ucontext_t>();
    // SAFETY: the kernel's frame of this handler.
    let registers = unsafe { &mut (*context).uc_mcontext.gregs };
    registers[RIP] = RECOVER_RIP.load(Ordering::Relaxed) as i64;
    registers[RSP] = RECOVER_RSP.load(Ordering::Relaxed) as i64;
    registers[EFL] = PLAIN_FLAGS;
}

type Handler = extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void);

fn install_handlers() {
    signals::use_signal_stack().unwrap();
    let by_address = [libc::SIGSEGV, libc::SIGBUS];
    for signal in by_address
        .into_iter()
        .chain([libc::SIGILL, libc::SIGTRAP, libc::SIGFPE])
    {
        // SAFETY: `recover` touches its frame and atomics only.
        unsafe { set_handler(signal, recover) };
    }
}

/// # Safety
///
/// 1. `handler` is fit for running at any instruction.
unsafe fn set_handler(signal: i32, handler: Handler) {
    let flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
    // SAFETY: 1. is the caller's.
    unsafe { signals::handle(signal, handler as *const () as usize, flags) }.unwrap();
}

/// A page to write code to and run it.
fn code_page() -> *mut u8 {
    let rights = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
    let page = machine::map(0, 4096, rights, 0).expect("a page");
    std::ptr::with_exposed_provenance_mut(page)
}
