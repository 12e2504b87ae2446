//! Passes bad pointers, lengths and numbers to common system calls, and checks that each is
//! refused with the right error while program and kernel go on.

use std::io;
use std::process::ExitCode;
use std::ptr;

use libc::{c_long, c_void};
use shootdown_user::report;

/// In the user half of the address space, mapped by nobody.
const UNMAPPED: *mut c_void = ptr::without_provenance_mut(0x0dea_d000_0000);
/// In the kernel's half.
const KERNEL: *mut c_void = ptr::without_provenance_mut(0xffff_8000_0000_0000);
/// No canonical address.
const NON_CANONICAL: *mut c_void = ptr::without_provenance_mut(0x8000_0000_0000_0000);
/// Misaligned for anything but bytes.
const ODD: *mut c_void = ptr::without_provenance_mut(0x1001);
const PAGE: usize = 4096;

/// Counts the calls that did not fail as they should.
#[derive(Default)]
struct Checker {
    calls: u32,
    wrong: u32,
}

impl Checker {
    /// `result` must be -1 with one of `allowed` as the error.
    fn refused(&mut self, what: &str, result: c_long, allowed: &[i32]) {
        let error = io::Error::last_os_error();
        self.calls += 1;
        let code = error.raw_os_error().unwrap_or(0);
        if result != -1 {
            println!("badcalls: {what}: returned {result}, must fail with one of {allowed:?}");
        } else if !allowed.contains(&code) {
            println!("badcalls: {what}: failed with {error}, must be one of {allowed:?}");
        } else {
            return;
        }
        self.wrong += 1;
    }
}

/// Makes system call `number`; the callers below pass nothing that the kernel could use to reach
/// this program's memory.
fn call(number: c_long, arguments: [usize; 6]) -> c_long {
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: every caller's pointers are to memory that does not exist or may be overwritten,
    // so the kernel either refuses the call or changes nothing that Rust relies on.
    unsafe { libc::syscall(number, a, b, c, d, e, f) }
}

fn pointers(checker: &mut Checker) {
    for bad in [UNMAPPED, KERNEL, NON_CANONICAL] {
        let at = bad as usize;
        let name = |call: &str| format!("{call} with pointer {at:#x}");
        let fault = &[libc::EFAULT];
        let write = call(libc::SYS_write, [1, at, 16, 0, 0, 0]);
        checker.refused(&name("write"), write, fault);
        let clock = libc::CLOCK_MONOTONIC as usize;
        let gettime = call(libc::SYS_clock_gettime, [clock, at, 0, 0, 0, 0]);
        checker.refused(&name("clock_gettime"), gettime, fault);
        let random = call(libc::SYS_getrandom, [at, 16, 0, 0, 0, 0]);
        checker.refused(&name("getrandom"), random, fault);
        let sleep = call(libc::SYS_nanosleep, [at, 0, 0, 0, 0, 0]);
        checker.refused(&name("nanosleep"), sleep, fault);
        let wait = libc::FUTEX_WAIT as usize;
        let futex = call(libc::SYS_futex, [at, wait, 0, 0, 0, 0]);
        checker.refused(&name("futex wait"), futex, fault);
        let cwd = libc::AT_FDCWD as isize as usize;
        let open = call(libc::SYS_openat, [cwd, at, 0, 0, 0, 0]);
        checker.refused(&name("openat"), open, fault);
        let signal = libc::SIGUSR1 as usize;
        let action = call(libc::SYS_rt_sigaction, [signal, at, 0, 8, 0, 0]);
        checker.refused(&name("rt_sigaction"), action, fault);
        let name_call = call(libc::SYS_uname, [at, 0, 0, 0, 0, 0]);
        checker.refused(&name("uname"), name_call, fault);
        let affinity = call(libc::SYS_sched_setaffinity, [0, 128, at, 0, 0, 0]);
        checker.refused(&name("sched_setaffinity"), affinity, fault);
    }
}

fn memory(checker: &mut Checker) {
    let unmapped = UNMAPPED as usize;
    let (dontneed, read) = (libc::MADV_DONTNEED as usize, libc::PROT_READ as usize);
    let private = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as usize;
    let invalid = &[libc::EINVAL];
    let odd = ODD as usize;

    let mmap = |at, bytes, flags| call(libc::SYS_mmap, [at, bytes, read, flags, usize::MAX, 0]);
    let result = mmap(0, 0, private);
    checker.refused("mmap of no bytes", result, invalid);
    let result = mmap(0, usize::MAX - PAGE, private);
    checker.refused("mmap of all memory", result, &[libc::ENOMEM]);
    let fixed = private | libc::MAP_FIXED as usize;
    let result = mmap(odd, PAGE, fixed);
    checker.refused("mmap at a misaligned address", result, invalid);
    let result = mmap(KERNEL as usize, PAGE, fixed);
    let either = &[libc::EINVAL, libc::ENOMEM];
    checker.refused("mmap in the kernel's half", result, either);
    let result = call(libc::SYS_munmap, [odd, PAGE, 0, 0, 0, 0]);
    checker.refused("munmap at a misaligned address", result, invalid);
    let result = call(libc::SYS_munmap, [unmapped, 0, 0, 0, 0, 0]);
    checker.refused("munmap of no bytes", result, invalid);
    let result = call(libc::SYS_munmap, [KERNEL as usize, PAGE, 0, 0, 0, 0]);
    checker.refused("munmap in the kernel's half", result, invalid);
    let result = call(libc::SYS_mprotect, [unmapped, PAGE, read, 0, 0, 0]);
    checker.refused("mprotect of a hole", result, &[libc::ENOMEM]);
    let result = call(libc::SYS_mprotect, [odd, PAGE, read, 0, 0, 0]);
    checker.refused("mprotect at a misaligned address", result, invalid);
    let result = call(libc::SYS_madvise, [unmapped, PAGE, dontneed, 0, 0, 0]);
    checker.refused("madvise of a hole", result, &[libc::ENOMEM]);
    let result = call(libc::SYS_madvise, [odd, PAGE, dontneed, 0, 0, 0]);
    checker.refused("madvise at a misaligned address", result, invalid);
    let most = usize::MAX - PAGE;
    let result = call(libc::SYS_madvise, [unmapped, most, dontneed, 0, 0, 0]);
    checker.refused("madvise over the end of memory", result, either);
}

fn numbers(checker: &mut Checker) {
    const NO_SUCH_CALL: c_long = 0x7fff;
    const NO_SUCH_FILE: usize = 9999;
    let mut byte = 0_u8;
    let buffer = &raw mut byte as usize;

    let result = call(NO_SUCH_CALL, [0; 6]);
    checker.refused("an unknown system call", result, &[libc::ENOSYS]);
    let result = call(libc::SYS_write, [NO_SUCH_FILE, buffer, 1, 0, 0, 0]);
    checker.refused("write to a closed file", result, &[libc::EBADF]);
    let result = call(libc::SYS_read, [NO_SUCH_FILE, buffer, 1, 0, 0, 0]);
    checker.refused("read from a closed file", result, &[libc::EBADF]);
    let result = call(libc::SYS_close, [NO_SUCH_FILE, 0, 0, 0, 0, 0]);
    checker.refused("close of a closed file", result, &[libc::EBADF]);
    let result = call(libc::SYS_clock_gettime, [NO_SUCH_FILE, buffer, 0, 0, 0, 0]);
    checker.refused("clock_gettime of an unknown clock", result, &[libc::EINVAL]);
    let result = call(libc::SYS_rt_sigaction, [NO_SUCH_FILE, 0, 0, 8, 0, 0]);
    checker.refused("rt_sigaction of an unknown signal", result, &[libc::EINVAL]);
    let empty_mask = [0_u64; 16];
    let (mask, bytes) = (empty_mask.as_ptr() as usize, size_of_val(&empty_mask));
    let result = call(libc::SYS_sched_setaffinity, [0, bytes, mask, 0, 0, 0]);
    checker.refused("sched_setaffinity to no CPU", result, &[libc::EINVAL]);
}

fn main() -> ExitCode {
    let mut checker = Checker::default();
    pointers(&mut checker);
    memory(&mut checker);
    numbers(&mut checker);
    let Checker { calls, wrong } = checker;
    match wrong {
        0 => println!("badcalls: OK, {calls} bad calls refused"),
        _ => println!("badcalls: FAILED, {wrong} of {calls} bad calls had a wrong result"),
    }
    report::drain();
    ExitCode::from(u8::from(wrong != 0))
}
