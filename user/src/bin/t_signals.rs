//! Signals: frames, alternate stacks, masks, restarts, and what a handler may change.

use std::process::ExitCode;
use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use std::{mem, ptr};

use libc::{c_int, c_void, siginfo_t, ucontext_t};

use shootdown_user::child::{Child, End};
use shootdown_user::{checks, machine, realtime, signals};

type Handler = extern "C" fn(c_int, *mut siginfo_t, *mut c_void);

static HITS: AtomicUsize = AtomicUsize::new(0);
static CODE: AtomicI32 = AtomicI32::new(0);
static ADDRESS: AtomicUsize = AtomicUsize::new(0);
static STACK_AT: AtomicUsize = AtomicUsize::new(0);
static RESUME_AT: AtomicU64 = AtomicU64::new(0);

/// Installs a handler and gives back the action before.
fn install(signal: c_int, handler: Handler, flags: c_int) -> libc::sigaction {
    let handler = handler as *const () as usize;
    // SAFETY: 1. the handlers here store to atomics, and change what the kernel gives them.
    unsafe { signals::handle(signal, handler, flags | libc::SA_SIGINFO) }.unwrap()
}

fn restore(signal: c_int, old: &libc::sigaction) {
    // SAFETY: the action came from the same call.
    assert_eq!(unsafe { libc::sigaction(signal, old, ptr::null_mut()) }, 0);
}

extern "C" fn note(_: c_int, info: *mut siginfo_t, _: *mut c_void) {
    let local = 0u8;
    STACK_AT.store(&raw const local as usize, Ordering::Relaxed);
    // SAFETY: the kernel passes a valid siginfo.
    CODE.store(unsafe { (*info).si_code }, Ordering::Relaxed);
    HITS.fetch_add(1, Ordering::Relaxed);
}

/// Skips the faulting instruction by going where the test says.
extern "C" fn skip(_: c_int, info: *mut siginfo_t, context: *mut c_void) {
    note(0, info, context);
    // SAFETY: the kernel passes a valid siginfo.
    let info = unsafe { &*info };
    // SAFETY: of a fault.
    ADDRESS.store(unsafe { info.si_addr() } as usize, Ordering::Relaxed);
    let context = context.cast::<ucontext_t>();
    // SAFETY: the kernel passes a valid context.
    let registers = unsafe { &mut (*context).uc_mcontext.gregs };
    registers[libc::REG_RIP as usize] = RESUME_AT.load(Ordering::Relaxed) as i64;
    registers[libc::REG_RAX as usize] = 0x5eed;
}

/// Reads from an address nobody maps; the handler continues behind the load. Returns RAX.
fn provoke(address: usize) -> u64 {
    let result: u64;
    // SAFETY: the handler `skip` is installed, so the load is never completed but skipped.
    unsafe {
        std::arch::asm!(
            "lea {scratch}, [rip + 2f]",
            "mov [{resume}], {scratch}",
            "mov rax, [{address}]",
            "2:",
            scratch = out(reg) _,
            resume = in(reg) RESUME_AT.as_ptr(),
            address = in(reg) address,
            out("rax") result,
        );
    }
    result
}

fn a_fault_can_be_skipped() {
    let old = install(libc::SIGSEGV, skip, 0);
    for address in [0usize, 0x10, 0x0dea_d000_0000, 0xffff_8000_0000_0000] {
        let before = HITS.load(Ordering::Relaxed);
        assert_eq!(provoke(address), 0x5eed);
        assert_eq!(HITS.load(Ordering::Relaxed), before + 1);
        assert_eq!(ADDRESS.load(Ordering::Relaxed), address);
        let code = CODE.load(Ordering::Relaxed);
        assert_eq!(code, 1, "SEGV_MAPERR at {address:#x}");
    }
    restore(libc::SIGSEGV, &old);
}

fn protection_says_so() {
    let old = install(libc::SIGSEGV, skip, 0);
    let page = machine::map(0, 4096, libc::PROT_NONE, 0).unwrap();
    provoke(page + 8);
    assert_eq!(CODE.load(Ordering::Relaxed), 2, "SEGV_ACCERR");
    assert_eq!(ADDRESS.load(Ordering::Relaxed), page + 8);
    // SAFETY: the mapping made above.
    assert_eq!(unsafe { libc::munmap(page as *mut c_void, 4096) }, 0);
    restore(libc::SIGSEGV, &old);
}

fn faults_in_many_threads() {
    let old = install(libc::SIGSEGV, count_and_skip, 0);
    let before = HITS.load(Ordering::Relaxed);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..200).for_each(|_| load_and_skip()));
        }
    });
    assert_eq!(HITS.load(Ordering::Relaxed), before + 1600);
    restore(libc::SIGSEGV, &old);
}

extern "C" fn count_and_skip(_: c_int, _: *mut siginfo_t, context: *mut c_void) {
    HITS.fetch_add(1, Ordering::Relaxed);
    // SAFETY: the kernel passes a valid context.
    let registers = unsafe { &mut (*context.cast::<ucontext_t>()).uc_mcontext.gregs };
    // The load in `load_and_skip` is three bytes long.
    registers[libc::REG_RIP as usize] += 3;
}

fn load_and_skip() {
    // SAFETY: the handler `count_and_skip` steps over the load: 48 8b 00, mov rax, [rax].
    unsafe { std::arch::asm!(".byte 0x48, 0x8b, 0x00", inout("rax") 16usize => _) };
}

fn the_alternate_stack_is_used() {
    let memory = vec![0u8; 64 << 10];
    let range = memory.as_ptr() as usize..memory.as_ptr() as usize + memory.len();
    let new = libc::stack_t {
        ss_sp: memory.as_ptr().cast_mut().cast(),
        ss_flags: 0,
        ss_size: memory.len(),
    };
    // SAFETY: a zeroed stack is a valid value to overwrite.
    let mut old: libc::stack_t = unsafe { mem::zeroed() };
    // SAFETY: the memory outlives its use as a stack.
    assert_eq!(unsafe { libc::sigaltstack(&new, &mut old) }, 0);
    let action = install(libc::SIGUSR1, note, libc::SA_ONSTACK);
    // SAFETY: the handler is installed.
    assert_eq!(unsafe { libc::raise(libc::SIGUSR1) }, 0);
    assert!(range.contains(&STACK_AT.load(Ordering::Relaxed)));
    restore(libc::SIGUSR1, &action);
    // SAFETY: the stack that was set before.
    assert_eq!(unsafe { libc::sigaltstack(&old, ptr::null_mut()) }, 0);
    let mut tiny = new;
    tiny.ss_size = 100;
    // SAFETY: refused for its size.
    assert_eq!(unsafe { libc::sigaltstack(&tiny, ptr::null_mut()) }, -1);
}

fn blocked_signals_wait() {
    let action = install(libc::SIGUSR2, note, 0);
    // SAFETY: zeroed sets are empty.
    let (mut set, mut pending): (libc::sigset_t, libc::sigset_t) = unsafe { mem::zeroed() };
    // SAFETY: a valid set and signal.
    unsafe { libc::sigaddset(&mut set, libc::SIGUSR2) };
    // SAFETY: a valid set.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set, ptr::null_mut()) };
    let before = HITS.load(Ordering::Relaxed);
    // SAFETY: the handler is installed.
    unsafe { libc::raise(libc::SIGUSR2) };
    assert_eq!(HITS.load(Ordering::Relaxed), before);
    // SAFETY: a valid set to fill.
    unsafe { libc::sigpending(&mut pending) };
    // SAFETY: a valid set.
    assert_eq!(unsafe { libc::sigismember(&pending, libc::SIGUSR2) }, 1);
    // SAFETY: a valid set.
    unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, ptr::null_mut()) };
    assert_eq!(HITS.load(Ordering::Relaxed), before + 1);
    restore(libc::SIGUSR2, &action);
}

/// A signal to a thread that sleeps, and to one that computes, on whatever CPU.
fn threads_are_reached() {
    let action = install(libc::SIGUSR1, note, libc::SA_RESTART);
    for sleeps in [true, false] {
        let before = HITS.load(Ordering::Relaxed);
        let target = thread::spawn(move || {
            let start = Instant::now();
            while HITS.load(Ordering::Relaxed) == before {
                assert!(start.elapsed() < Duration::from_secs(20), "no signal came");
                if sleeps {
                    // It ends early for a signal, unlike std's sleep.
                    let _signal = realtime::sleep_for(Duration::from_secs(15));
                }
                std::hint::spin_loop();
            }
            start.elapsed()
        });
        thread::sleep(Duration::from_millis(20));
        use std::os::unix::thread::JoinHandleExt;
        let thread = target.as_pthread_t() as libc::pthread_t;
        // SAFETY: the thread has not been joined.
        let result = unsafe { libc::pthread_kill(thread, libc::SIGUSR1) };
        assert_eq!(result, 0);
        assert!(target.join().unwrap() < Duration::from_secs(10));
        assert_eq!(HITS.load(Ordering::Relaxed), before + 1);
    }
    restore(libc::SIGUSR1, &action);
}

/// SSE registers survive a handler that uses them.
fn floating_point_survives_handlers() {
    extern "C" fn scribble(_: c_int, _: *mut siginfo_t, _: *mut c_void) {
        // SAFETY: overwrites registers that a handler may use.
        unsafe {
            std::arch::asm!("pxor xmm7, xmm7", "pxor xmm12, xmm12", out("xmm7") _, out("xmm12") _)
        };
    }
    let action = install(libc::SIGUSR1, scribble, 0);
    // SAFETY: no arguments.
    let pid = unsafe { libc::getpid() };
    // SAFETY: no arguments.
    let tid = unsafe { libc::syscall(libc::SYS_gettid) };
    for value in [1u64, u64::MAX, 0x4009_21fb_5444_2d18] {
        let (low, high): (u64, u64);
        // SAFETY: tgkill to this thread; the handler runs before the instruction behind it.
        unsafe {
            std::arch::asm!(
                "movq xmm7, {value}", "movq xmm12, {value}",
                "syscall",
                "movq {low}, xmm7", "movq {high}, xmm12",
                value = in(reg) value, low = lateout(reg) low, high = lateout(reg) high,
                inout("rax") libc::SYS_tgkill => _, in("rdi") pid, in("rsi") tid,
                in("rdx") libc::SIGUSR1, out("rcx") _, out("r11") _,
                out("xmm7") _, out("xmm12") _,
            );
        }
        assert_eq!((low, high), (value, value));
    }
    restore(libc::SIGUSR1, &action);
}

fn divisions_by_zero_are_caught() {
    let old = install(libc::SIGFPE, skip_division, 0);
    // SAFETY: the handler steps over the division: 48 f7 f1, div rcx.
    unsafe {
        std::arch::asm!(".byte 0x48, 0xf7, 0xf1", inout("rax") 1usize => _, inout("rdx") 0usize => _, in("rcx") 0usize)
    };
    assert_eq!(CODE.load(Ordering::Relaxed), 1, "FPE_INTDIV");
    restore(libc::SIGFPE, &old);
}

extern "C" fn skip_division(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    note(signal, info, context);
    // SAFETY: the kernel passes a valid context.
    let registers = unsafe { &mut (*context.cast::<ucontext_t>()).uc_mcontext.gregs };
    registers[libc::REG_RIP as usize] += 3;
}

/// Raises `signal` in this thread while the stack pointer is `rsp`.
fn raise_at(signal: c_int, rsp: usize) {
    // SAFETY: no arguments.
    let pid = unsafe { libc::getpid() };
    // SAFETY: no arguments.
    let tid = unsafe { libc::gettid() };
    // SAFETY: tgkill to this thread; only handlers use a stack before the stack pointer is back.
    unsafe {
        std::arch::asm!(
            "mov {saved}, rsp", "mov rsp, {rsp}",
            "syscall",
            "mov rsp, {saved}",
            saved = out(reg) _, rsp = in(reg) rsp,
            inout("rax") libc::SYS_tgkill => _, in("rdi") pid, in("rsi") tid, in("rdx") signal,
            out("rcx") _, out("r11") _,
        );
    }
}

static RSP_BEFORE: AtomicUsize = AtomicUsize::new(0);

/// Notes what stack pointer and blocked set it comes back to.
extern "C" fn note_context(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    note(signal, info, context);
    // SAFETY: the kernel passes a valid context.
    let context = unsafe { &*context.cast::<ucontext_t>() };
    let rsp = context.uc_mcontext.gregs[libc::REG_RSP as usize];
    RSP_BEFORE.store(rsp as usize, Ordering::Relaxed);
    // SAFETY: a valid set.
    let blocked = unsafe { libc::sigismember(&context.uc_sigmask, libc::SIGUSR1) };
    assert_eq!(blocked, 0, "of a handler that has not run");
}

/// Stack pointers at which no frame has room: nothing mapped, nothing writable, outside of user memory.
fn bad_stacks() -> [usize; 3] {
    let page = machine::map(0, 8192, libc::PROT_READ, 0).unwrap();
    [0x10_0000_0000, page + 8192, 0xffff_8000_0000_1000]
}

/// A handler whose frame has no room does not run; that of SIGSEGV does, where it has room.
fn no_room_for_a_frame_is_a_fault() {
    signals::use_signal_stack().unwrap();
    let old = [
        install(libc::SIGSEGV, note_context, libc::SA_ONSTACK),
        install(libc::SIGUSR1, scream, 0),
    ];
    for rsp in bad_stacks() {
        let before = HITS.load(Ordering::Relaxed);
        raise_at(libc::SIGUSR1, rsp);
        assert_eq!(HITS.load(Ordering::Relaxed), before + 1);
        assert_eq!(CODE.load(Ordering::Relaxed), 0x80, "SI_KERNEL");
        assert_eq!(RSP_BEFORE.load(Ordering::Relaxed), rsp);
    }
    // The signal is not pending any more, and not blocked.
    assert!(!is_blocked(libc::SIGUSR1));
    // One with room still comes.
    let handled = install(libc::SIGUSR1, note, 0);
    let before = HITS.load(Ordering::Relaxed);
    // SAFETY: the handler is installed.
    assert_eq!(unsafe { libc::raise(libc::SIGUSR1) }, 0);
    assert_eq!(HITS.load(Ordering::Relaxed), before + 1);
    restore(libc::SIGUSR1, &handled);
    restore(libc::SIGUSR1, &old[1]);
    restore(libc::SIGSEGV, &old[0]);
}

extern "C" fn scream(_: c_int, _: *mut siginfo_t, _: *mut c_void) {
    checks::fail("t_signals", "a handler ran without a frame");
}

fn is_blocked(signal: c_int) -> bool {
    // SAFETY: a zeroed set is empty.
    let mut set: libc::sigset_t = unsafe { mem::zeroed() };
    // SAFETY: a valid set to fill.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), &mut set) };
    // SAFETY: a valid set.
    unsafe { libc::sigismember(&set, signal) == 1 }
}

/// Without a handler of SIGSEGV that can run the process ends.
fn no_room_for_any_frame_is_the_end() {
    let ends = |prepare: fn(), signal: c_int| {
        let child = Child::start(|| {
            signals::use_signal_stack().unwrap();
            install(libc::SIGUSR1, note, 0);
            prepare();
            raise_at(signal, 0x10_0000_0000);
            0
        });
        assert_eq!(child.unwrap().wait().unwrap(), End::Killed(libc::SIGSEGV));
    };
    let without_handler = || {
        // SAFETY: the default is no function. (The standard library has a handler of its own.)
        unsafe { signals::handle(libc::SIGSEGV, libc::SIG_DFL, 0) }.unwrap();
    };
    ends(without_handler, libc::SIGUSR1);
    // Its frame has no room, either.
    let without_room = || {
        install(libc::SIGSEGV, note, 0);
    };
    ends(without_room, libc::SIGUSR1);
    ends(without_room, libc::SIGSEGV);
    ends(
        || {
            install(libc::SIGSEGV, note, libc::SA_ONSTACK);
            // SAFETY: a zeroed set is empty.
            let mut set: libc::sigset_t = unsafe { mem::zeroed() };
            // SAFETY: a valid set and signal.
            unsafe { libc::sigaddset(&mut set, libc::SIGSEGV) };
            // SAFETY: a valid set.
            unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set, ptr::null_mut()) };
        },
        libc::SIGUSR1,
    );
}

/// A signal of the process that all threads block waits for the first that takes it, whichever that is.
fn the_first_to_look_gets_it() {
    // SAFETY: a zeroed set is empty.
    let mut set: libc::sigset_t = unsafe { mem::zeroed() };
    // SAFETY: a valid set and signal.
    unsafe { libc::sigaddset(&mut set, libc::SIGUSR2) };
    let mask = |how| {
        // SAFETY: a valid set.
        unsafe { libc::pthread_sigmask(how, &set, ptr::null_mut()) };
    };
    let is_pending = || {
        // SAFETY: a zeroed set is empty.
        let mut pending: libc::sigset_t = unsafe { mem::zeroed() };
        // SAFETY: a valid set.
        unsafe { libc::sigpending(&mut pending) };
        // SAFETY: a valid set and signal.
        unsafe { libc::sigismember(&pending, libc::SIGUSR2) == 1 }
    };
    mask(libc::SIG_BLOCK);
    for takes_by_waiting in [true, false] {
        let before = HITS.load(Ordering::Relaxed);
        let old = install(libc::SIGUSR2, note, 0);
        signals::send_self(libc::SIGUSR2).unwrap();
        assert!(is_pending());
        let other = thread::spawn(move || {
            assert!(is_pending());
            if takes_by_waiting {
                let mut taken = 0;
                // SAFETY: a valid set, and a number of our own.
                assert_eq!(unsafe { libc::sigwait(&set, &mut taken) }, 0);
                return taken;
            }
            // SAFETY: a valid set.
            unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, ptr::null_mut()) };
            libc::SIGUSR2
        });
        assert_eq!(other.join().unwrap(), libc::SIGUSR2);
        assert!(!is_pending());
        let handled = HITS.load(Ordering::Relaxed) - before;
        assert_eq!(handled, usize::from(!takes_by_waiting));
        restore(libc::SIGUSR2, &old);
    }
    mask(libc::SIG_UNBLOCK);
}

/// Whoever sends a signal with a value says where it comes from, but not that it comes from the kernel.
fn values_come_with_signals() {
    let old = install(libc::SIGUSR2, note, 0);
    let words = |code: i32| {
        let mut words = [0u32; 32];
        (words[2], words[4], words[6]) = (code as u32, std::process::id(), 77);
        words
    };
    let send = |pid: i32, code| {
        let words = words(code);
        // SAFETY: a valid `siginfo_t`.
        let status =
            unsafe { libc::syscall(libc::SYS_rt_sigqueueinfo, pid, libc::SIGUSR2, &words) };
        checks::error_of(machine::done(status as i32))
    };
    let own = std::process::id() as i32;
    assert_eq!(send(own, libc::SI_QUEUE), None);
    assert_eq!(CODE.load(Ordering::Relaxed), libc::SI_QUEUE);
    let child = Child::start(|| 0).unwrap();
    assert_eq!(send(child.pid(), libc::SI_USER), Some(libc::EPERM));
    assert_eq!(send(child.pid(), libc::SI_TKILL), Some(libc::EPERM));
    assert_eq!(child.wait().unwrap(), End::Exited(0));
    assert_eq!(send(1 << 21, libc::SI_QUEUE), Some(libc::ESRCH));
    restore(libc::SIGUSR2, &old);
}

fn main() -> ExitCode {
    checks::run(
        "t_signals",
        &checks::named![
            a_fault_can_be_skipped,
            protection_says_so,
            faults_in_many_threads,
            the_alternate_stack_is_used,
            blocked_signals_wait,
            threads_are_reached,
            the_first_to_look_gets_it,
            values_come_with_signals,
            floating_point_survives_handlers,
            divisions_by_zero_are_caught,
            no_room_for_a_frame_is_a_fault,
            no_room_for_any_frame_is_the_end,
        ],
    )
}
