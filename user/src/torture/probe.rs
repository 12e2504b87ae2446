//! An access that survives its fault, with a look at the slot's state before and after.
//!
//! The whole sequence is assembly: it is short, so that few accesses straddle a change, and the
//! addresses of the instructions that may fault are known. The handler of SIGSEGV sends exactly
//! those to a common end; any other fault kills the program as it should.
//!
//! Each probe exists in two lengths. The *long* one starts with a run of slow instructions, which
//! store the registers of the FPU. On hardware it is merely a pause. An emulator that translates blocks of
//! instructions (QEMU's TCG) looks for interrupts only between blocks, so there the state is read
//! up to some 0.1 ms after the last moment at which an interrupt was taken: a flush that was
//! requested but not waited for is then seen for certain, where a short probe would nearly always
//! be interrupted in time. Code that must not straddle a page is aligned, because blocks end at
//! page boundaries. (None of them is an x87 instruction: for threads that have values in x87 registers
//! the kernel loads these, and by that QEMU can lose guests: docs/guests.md.)

use std::io;

use super::promise::Promise;
use super::rule::{Effect, Seen, Window};
use super::state::State;
use crate::{clock, signals};

/// How long a probe takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// As short as can be.
    Short,
    /// With a pause in front, in which an emulator takes no interrupt.
    Long,
}

/// What the assembly fills in.
#[derive(Debug, Default)]
#[repr(C)]
struct Observation {
    before: u64,
    floor: u64,
    first: u64,
    second: u64,
    after: u64,
    faulted: u64,
}

std::arch::global_asm!(
    // rdi: promise, rsi: words to load or store, rdx: observation, rcx: word to store
    ".pushsection .text.shootdown_probe, \"ax\", @progbits",
    ".macro SHOOTDOWN_PAUSE",
    "mov rax, rsp",
    "sub rsp, 512",
    "and rsp, -16",
    ".rept 180",
    "fxsave64 [rsp]",
    ".endr",
    "mov rsp, rax",
    ".endm",
    ".macro SHOOTDOWN_LOAD length",
    "mov rax, [rdi]",
    "mov r11, [rdi + 8]",
    "shootdown_probe_load_\\length\\()_first:",
    "mov r8, [rsi]",
    "shootdown_probe_load_\\length\\()_second:",
    "mov r9, [rsi + 8]",
    "mov r10, [rdi]",
    "xor ecx, ecx",
    "jmp shootdown_probe_end",
    ".endm",
    ".macro SHOOTDOWN_STORE length",
    "xor r8d, r8d",
    "xor r9d, r9d",
    "mov rax, [rdi]",
    "mov r11, [rdi + 8]",
    "shootdown_probe_store_\\length\\()_only:",
    "mov [rsi], rcx",
    "mov r10, [rdi]",
    "xor ecx, ecx",
    "jmp shootdown_probe_end",
    ".endm",
    ".p2align 10",
    "shootdown_probe_load_long:",
    "SHOOTDOWN_PAUSE",
    "SHOOTDOWN_LOAD long",
    ".p2align 10",
    "shootdown_probe_store_long:",
    "SHOOTDOWN_PAUSE",
    "SHOOTDOWN_STORE long",
    ".p2align 6",
    "shootdown_probe_load_short:",
    "SHOOTDOWN_LOAD short",
    ".p2align 6",
    "shootdown_probe_store_short:",
    "SHOOTDOWN_STORE short",
    "shootdown_probe_fixup:",
    "xor r8d, r8d",
    "xor r9d, r9d",
    "mov r10, [rdi]",
    "mov ecx, 1",
    "shootdown_probe_end:",
    "mov [rdx], rax",
    "mov [rdx + 8], r11",
    "mov [rdx + 16], r8",
    "mov [rdx + 24], r9",
    "mov [rdx + 32], r10",
    "mov [rdx + 40], rcx",
    "ret",
    ".popsection",
);

unsafe extern "C" {
    fn shootdown_probe_load_short(promise: *const Promise, words: usize, out: *mut Observation);
    fn shootdown_probe_load_long(promise: *const Promise, words: usize, out: *mut Observation);
    fn shootdown_probe_store_short(
        promise: *const Promise,
        word: usize,
        out: *mut Observation,
        value: u64,
    );
    fn shootdown_probe_store_long(
        promise: *const Promise,
        word: usize,
        out: *mut Observation,
        value: u64,
    );
    fn shootdown_probe_load_short_first();
    fn shootdown_probe_load_short_second();
    fn shootdown_probe_load_long_first();
    fn shootdown_probe_load_long_second();
    fn shootdown_probe_store_short_only();
    fn shootdown_probe_store_long_only();
    fn shootdown_probe_fixup();
}

/// The instructions that may fault.
fn may_fault(rip: usize) -> bool {
    let known: [unsafe extern "C" fn(); 6] = [
        shootdown_probe_load_short_first,
        shootdown_probe_load_short_second,
        shootdown_probe_load_long_first,
        shootdown_probe_load_long_second,
        shootdown_probe_store_short_only,
        shootdown_probe_store_long_only,
    ];
    known.into_iter().any(|label| label as usize == rip)
}

/// Loads the word at `address` and the next one.
///
/// # Safety
/// 1. `address` is that of two words in one page reserved for probing: no Rust object is there,
///    whether or not it is mapped.
/// 2. [`catch_faults`] has returned `Ok`.
pub unsafe fn load(promise: &Promise, address: usize, length: Length) -> Seen {
    let mut seen = Observation::default();
    let probe = match length {
        Length::Short => shootdown_probe_load_short,
        Length::Long => shootdown_probe_load_long,
    };
    // SAFETY: the routine keeps the C calling convention, reads the promise, writes the
    // observation, and loads from `address`, which 1. makes harmless and 2. survivable.
    unsafe { probe(promise, address, &mut seen) };
    let effect = match seen.faulted {
        0 => Effect::loaded(seen.first, seen.second),
        _ => Effect::LoadFault,
    };
    (seen.window(), effect)
}

/// Stores `value` in the word at `address`.
///
/// # Safety
/// As for [`load`], for one word.
pub unsafe fn store(promise: &Promise, address: usize, value: u64, length: Length) -> Seen {
    let mut seen = Observation::default();
    let probe = match length {
        Length::Short => shootdown_probe_store_short,
        Length::Long => shootdown_probe_store_long,
    };
    // SAFETY: as in `load`; the store goes to `address` only.
    unsafe { probe(promise, address, &mut seen, value) };
    let effect = match seen.faulted {
        0 => Effect::Stored,
        _ => Effect::StoreFault,
    };
    (seen.window(), effect)
}

impl Observation {
    fn window(&self) -> Window {
        Window {
            before: State::from_bits(self.before),
            floor: self.floor as u32,
            after: State::from_bits(self.after),
        }
    }
}

/// How long a long probe takes here, in ticks: the shortest of a few.
pub fn long_probe_ticks() -> u64 {
    const ATTEMPTS: usize = 5;
    let words = [0_u64; 2];
    let promise = Promise::new(State::ABSENT);
    let attempt = |_| {
        let start = clock::ticks();
        // SAFETY: the words are loaded only, and cannot fault.
        unsafe { load(&promise, words.as_ptr() as usize, Length::Long) };
        clock::ticks() - start
    };
    (0..ATTEMPTS).map(attempt).min().unwrap_or(0)
}

/// Makes SIGSEGV at a probe's access end the probe; call once before the first one.
pub fn catch_faults() -> io::Result<()> {
    let handler = on_fault as *const () as usize;
    let flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: 1. the handler takes what SA_SIGINFO gives, and only touches that.
    unsafe { signals::handle(libc::SIGSEGV, handler, flags) }.map(drop)
}

extern "C" fn on_fault(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let context = context.cast::<libc::ucontext_t>();
    // SAFETY: the kernel hands a handler with SA_SIGINFO a valid ucontext, its own to change.
    let registers = unsafe { &mut (*context).uc_mcontext.gregs };
    // SAFETY: likewise a valid siginfo.
    let info = unsafe { &*info };
    // SAFETY: for SIGSEGV the address is the field that is filled in.
    let address = unsafe { info.si_addr() } as u64;
    let accessed = registers[libc::REG_RSI as usize] as u64;
    let expected = accessed..=accessed.wrapping_add(8);
    if may_fault(registers[libc::REG_RIP as usize] as usize) && expected.contains(&address) {
        registers[libc::REG_RIP as usize] = shootdown_probe_fixup as *const () as i64;
        return;
    }
    // Anything else dies of it: the access is made again with the default action.
    // SAFETY: setting a default action touches no memory and is allowed in a handler.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::torture::state::Condition;

    fn page(protection: i32) -> usize {
        crate::machine::map(0, 4096, protection, 0).unwrap()
    }

    /// An FXSAVE image (SDM vol. 1, "FXSAVE Area").
    #[repr(C, align(16))]
    struct Image([u8; 512]);

    #[test]
    fn no_probe_uses_the_x87() {
        let words = [0_u64; 2];
        let promise = Promise::new(State::ABSENT);
        for length in [Length::Short, Length::Long] {
            // SAFETY: the words are loaded only, and cannot fault.
            unsafe { load(&promise, words.as_ptr() as usize, length) };
        }
        let mut image = Image([0; 512]);
        // SAFETY: 512 bytes, 16-byte aligned by the type.
        unsafe { std::arch::x86_64::_fxsave64(image.0.as_mut_ptr()) };
        let (tags, registers) = (image.0[4], &image.0[32..160]);
        assert!(
            tags == 0 && registers.iter().all(|byte| *byte == 0),
            "{tags:#x} {registers:x?}"
        );
    }

    #[test]
    fn probes_report_words_and_survive_faults() {
        catch_faults().unwrap();
        let state = State {
            sequence: 6,
            from: Condition::Live,
            to: Condition::Live,
        };
        let promise = Promise::new(state);
        promise.raise_floor(5);
        let window = Window::of(state, 5);
        let open = page(libc::PROT_READ | libc::PROT_WRITE);
        let closed = page(libc::PROT_READ);
        for length in [Length::Short, Length::Long] {
            // SAFETY: two pages mapped for this test only; faults are caught.
            let stored = unsafe { store(&promise, open + 8, 42, length) };
            assert_eq!(stored, (window, Effect::Stored));
            // SAFETY: as above.
            let loaded = unsafe { load(&promise, open, length) };
            assert_eq!(loaded, (window, Effect::loaded(0, 42)));
            // SAFETY: as above.
            let refused = unsafe { store(&promise, closed, 42, length) };
            assert_eq!(refused, (window, Effect::StoreFault));
            // SAFETY: the first page of the address space is never mapped.
            let missing = unsafe { load(&promise, 0, length) };
            assert_eq!(missing, (window, Effect::LoadFault));
        }
    }
}
