//! A program that another starts in its place: what it is given, and that nothing else is left of the one before.

use std::arch::asm;
use std::ffi::{CString, OsString};
use std::fmt::Write as _;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::ptr;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::Relaxed;

use fastrand::Rng;

use super::Child;
use super::arena::{self, Digest};
use crate::region::PAGE_BYTES;
use crate::{fault, machine, signals};

/// The argument that says so.
pub const FRESH: &str = "fresh";

/// No kernel takes an argument that is as long as 32 pages.
const LONG: usize = 32 * 4096;
/// Numbers of descriptors that a new program may find.
const NUMBERS: [i32; 3] = [20, 21, 63];
const SIGNALS: [i32; 3] = [libc::SIGUSR1, libc::SIGUSR2, libc::SIGTERM];
/// Rounds towards zero, with all exceptions masked.
const ODD_ROUNDING: u32 = 0x7f80;

/// Memory that the file has nothing of, and memory that it has.
static ZEROES: [AtomicU8; 10_000] = [const { AtomicU8::new(0) }; 10_000];
static SEVENS: [AtomicU8; 10_000] = [const { AtomicU8::new(7) }; 10_000];

/// Starts one in a child; what it shows, or the error of its start.
pub fn start(random: &mut Rng) -> io::Result<String> {
    let path = std::env::args_os().next().unwrap_or_default();
    let mut arguments = vec![bytes(&path)?, bytes(&FRESH.into())?];
    arguments.extend(strings(random));
    let environment = strings(random);
    let (mut output, sink) = io::pipe()?;
    let seed = random.u64(..);
    let child = Child::start(|| {
        let left = leave_behind(&mut Rng::with_seed(seed), &sink);
        let error = match left {
            Ok(()) => execute(&arguments[0], &arguments, &environment),
            Err(error) => error,
        };
        error.raw_os_error().unwrap_or(0)
    })?;
    drop(sink);
    let mut text = String::new();
    output.read_to_string(&mut text)?;
    Ok(format!("fresh: {text}{:?}", child.wait()?))
}

fn bytes(string: &OsString) -> io::Result<CString> {
    Ok(CString::new(string.as_bytes())?)
}

/// Few or many, short or long.
fn strings(random: &mut Rng) -> Vec<CString> {
    let count = random.usize(..*random.clone().choice(&[2, 40]).unwrap_or(&2));
    let too_long = random.u8(..12) == 0;
    let lengths = (0..count).map(|at| match at {
        0 if too_long => LONG,
        _ => random.usize(..600),
    });
    let lengths: Vec<_> = lengths.collect();
    let letters = |length| (0..length).map(|_| random.u8(1..)).collect();
    lengths
        .into_iter()
        .map(letters)
        .filter_map(|letters: Vec<u8>| CString::new(letters).ok())
        .collect()
}

/// What a program has that its successor must not have, and some that it must, such as its output.
fn leave_behind(random: &mut Rng, output: &impl AsRawFd) -> io::Result<()> {
    let mut blocked = empty_set();
    for signal in SIGNALS {
        let handler: extern "C" fn(i32) = ignore;
        let handler = [libc::SIG_DFL, libc::SIG_IGN, handler as libc::sighandler_t];
        // SAFETY: the handler does nothing.
        unsafe { signals::handle(signal, handler[random.usize(..3)], 0) }?;
        if random.bool() {
            // SAFETY: a set and a signal's number.
            unsafe { libc::sigaddset(&mut blocked, signal) };
        }
    }
    // SAFETY: the set is ours.
    machine::done(unsafe { libc::sigprocmask(libc::SIG_BLOCK, &blocked, ptr::null_mut()) })?;
    signals::use_signal_stack()?;
    // SAFETY: both numbers are descriptors.
    machine::done(unsafe { libc::dup2(output.as_raw_fd(), 1) }.min(0))?;
    for number in NUMBERS {
        if random.bool() {
            let flags = [0, libc::O_CLOEXEC][random.usize(..2)];
            // SAFETY: nobody has the number.
            machine::done(unsafe { libc::dup3(1, number, flags) }.min(0))?;
        }
    }
    for byte in ZEROES.iter().chain(&SEVENS) {
        byte.store(1, Relaxed);
    }
    // SAFETY: rounds otherwise; nothing here counts with fractions.
    unsafe { asm!("ldmxcsr [{}]", in(reg) &ODD_ROUNDING) };
    Ok(())
}

extern "C" fn ignore(_: i32) {}

fn empty_set() -> libc::sigset_t {
    // SAFETY: a set of bits, for which zero is a valid value.
    unsafe { std::mem::zeroed() }
}

fn execute(path: &CString, arguments: &[CString], environment: &[CString]) -> io::Error {
    let pointers = |strings: &[CString]| -> Vec<_> {
        let all = strings.iter().map(|string| string.as_ptr());
        all.chain([ptr::null()]).collect()
    };
    let (arguments, environment) = (pointers(arguments), pointers(environment));
    // SAFETY: strings that end with NUL, in arrays that end with a null pointer.
    unsafe { libc::execve(path.as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
    io::Error::last_os_error()
}

/// Writes what such a program finds to standard output.
pub fn show() -> io::Result<()> {
    fault::handle()?;
    let mut text = String::new();
    let environment = std::env::vars_os().map(|(name, value)| [name, value].concat_with_equals());
    let _ = write!(text, "arguments {}", digest(std::env::args_os().skip(1)));
    let _ = write!(text, " environment {}", digest(environment));
    let _ = write!(text, " {}", signals_found()?);
    let _ = write!(text, " {}", leftovers());
    let sum = |bytes: &[AtomicU8]| {
        bytes
            .iter()
            .map(|byte| u64::from(byte.load(Relaxed)))
            .sum::<u64>()
    };
    let _ = write!(text, " memory {} {}", sum(&ZEROES), sum(&SEVENS));
    let mut rounding = 0u32;
    // SAFETY: stores a register to a variable of our own.
    unsafe { asm!("stmxcsr [{}]", in(reg) &mut rounding) };
    let _ = write!(text, " rounding {rounding:x}");
    let _ = write!(text, " {}", auxiliary());
    println!("{text}");
    Ok(())
}

trait Assignment {
    fn concat_with_equals(self) -> OsString;
}

impl Assignment for [OsString; 2] {
    fn concat_with_equals(self) -> OsString {
        let [name, value] = self.map(OsStringExt::into_vec);
        OsString::from_vec([name, value].join(&b'='))
    }
}

fn digest(strings: impl Iterator<Item = OsString>) -> String {
    let mut digest = Digest::default();
    let count = strings
        .map(|string| digest.bytes(string.as_bytes()))
        .count();
    format!("{count} {:x}", digest.0)
}

/// What is left of memory and descriptors.
fn leftovers() -> String {
    let pages = arena::pages()
        .filter(|&page| fault::load(page).is_ok())
        .count();
    // SAFETY: only asks.
    let is_open = |&number: &i32| unsafe { libc::fcntl(number, libc::F_GETFD) } >= 0;
    let open = NUMBERS.into_iter().filter(is_open).count();
    format!("{pages} pages, {open} descriptors")
}

/// How signals are handled, which are blocked, and whether there is a stack for handlers.
fn signals_found() -> io::Result<String> {
    let mut text = String::from("signals");
    let mut blocked = empty_set();
    // SAFETY: only asks.
    machine::done(unsafe { libc::sigprocmask(libc::SIG_BLOCK, ptr::null(), &mut blocked) })?;
    for signal in SIGNALS {
        // SAFETY: sets what is the default, in a program that has no use for it.
        let old = unsafe { signals::handle(signal, libc::SIG_DFL, 0) }?.sa_sigaction;
        // SAFETY: a set and a signal's number.
        let is_blocked = unsafe { libc::sigismember(&blocked, signal) };
        let _ = write!(text, " {old} {is_blocked}");
    }
    // SAFETY: made of a pointer and integers, for which zero is a valid value.
    let mut stack: libc::stack_t = unsafe { std::mem::zeroed() };
    // SAFETY: only asks.
    machine::done(unsafe { libc::sigaltstack(ptr::null(), &mut stack) })?;
    let _ = write!(text, " stack {}", stack.ss_flags);
    Ok(text)
}

/// The auxiliary vector: what the kernel chooses, and whether the rest is what the program's own header says.
fn auxiliary() -> String {
    // SAFETY: only asks.
    let value = |kind| unsafe { libc::getauxval(kind) };
    let numbers = [
        libc::AT_PAGESZ,
        libc::AT_CLKTCK,
        libc::AT_SECURE,
        libc::AT_FLAGS,
    ];
    let mut text = format!("auxiliary {:?}", numbers.map(value));
    let header = value(libc::AT_PHDR) as usize / PAGE_BYTES * PAGE_BYTES;
    // As `Elf64_Ehdr` has them.
    let [kind, entry, size, count] =
        [(16, 2), (24, 8), (54, 2), (56, 2)].map(|(at, bytes)| field(header + at, bytes));
    // A program that may be anywhere counts from its header.
    let base = if kind == u64::from(libc::ET_DYN) {
        header as u64
    } else {
        0
    };
    let found = [libc::AT_ENTRY, libc::AT_PHENT, libc::AT_PHNUM].map(value);
    let _ = write!(text, " {}", found == [base + entry, size, count]);
    let random = value(libc::AT_RANDOM) as usize;
    let is_there = (0..16).all(|at| fault::load(random + at).is_ok());
    let _ = write!(text, " random {is_there}");
    text
}

/// A little-endian number somewhere in memory; 0 where nothing is.
fn field(address: usize, bytes: usize) -> u64 {
    let digits = (0..bytes).map(|at| fault::load(address + at).unwrap_or(0));
    digits
        .rev()
        .fold(0, |number, digit| number << 8 | u64::from(digit))
}
