//! The addresses that a random program works on, and accesses to them that may fault.

use std::arch::asm;
use std::fmt::Write as _;
use std::io;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use fastrand::Rng;

use super::descriptors::Descriptors;
use crate::region::PAGE_BYTES;
use crate::signals;

/// A border between two page tables of every level. Neither kernel puts anything there by itself.
const BASE: usize = 1 << 44;
/// Borders between tables of the last level, from `BASE` on.
pub const BORDERS: usize = 3;
const TABLE_BYTES: usize = 2 << 20;
/// Pages around each border.
pub const PAGES: usize = 12;

/// Page `page` of those around a border; further ones behind the last are nobody's.
pub fn page(border: usize, page: usize) -> usize {
    BASE + border * TABLE_BYTES + page * PAGE_BYTES - PAGES / 2 * PAGE_BYTES
}

/// All pages.
pub fn pages() -> impl Iterator<Item = usize> {
    (0..BORDERS).flat_map(|border| (0..PAGES).map(move |at| page(border, at)))
}

/// An address relative to the arena, or what kind of address it is: neither depends on where a kernel puts things.
pub fn name(address: usize) -> String {
    let start = page(0, 0);
    match address {
        ..4096 => address.to_string(),
        _ if (start..start + BORDERS * TABLE_BYTES).contains(&address) => {
            format!("+{:x}", address - start)
        }
        _ => "elsewhere".to_owned(),
    }
}

/// A first page and a number of pages, which may go beyond the border's.
pub fn stretch(random: &mut Rng) -> (usize, usize) {
    let first = random.usize(..PAGES);
    let most = *random.choice(&[1, 3, PAGES]).unwrap_or(&1);
    let count = 1 + random.usize(..most);
    (
        page(random.usize(..BORDERS), first),
        count.min(PAGES + 2 - first),
    )
}

/// The same in bytes; now and then odd: unaligned, empty, too long, or no address of a program's.
pub fn range(random: &mut Rng) -> (usize, usize) {
    let (mut address, pages) = stretch(random);
    let mut bytes = pages * PAGE_BYTES;
    match random.u8(..48) {
        0 => address += random.usize(1..PAGE_BYTES),
        1 => bytes = *random.choice(&[0, usize::MAX - 4095]).unwrap_or(&0),
        2 => {
            address = *random
                .choice(&[0xffff_8000_0000_0000, usize::MAX - 4095, 1 << 47])
                .unwrap_or(&0)
        }
        3..12 => bytes -= random.usize(..PAGE_BYTES),
        _ => {}
    }
    (address, bytes)
}

/// How a program uses an address.
#[derive(Debug, Clone, Copy)]
pub enum Access {
    Load,
    Store(u8),
    /// Calls what is there: a `ret`, or the program dies.
    Run,
}

/// Where to go on after a fault.
static RECOVER: AtomicUsize = AtomicUsize::new(0);
static SIGNAL: AtomicUsize = AtomicUsize::new(0);
static CODE: AtomicUsize = AtomicUsize::new(0);
static ADDRESS: AtomicUsize = AtomicUsize::new(0);

/// Has faults of [`access`] handled.
pub fn handle_faults() -> io::Result<()> {
    let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) = recover;
    for signal in [libc::SIGSEGV, libc::SIGBUS] {
        // SAFETY: the handler is of the kind that SA_SIGINFO says, and touches atomics and its own frame only.
        unsafe { signals::handle(signal, handler as libc::sighandler_t, libc::SA_SIGINFO) }?;
    }
    Ok(())
}

extern "C" fn recover(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid siginfo_t.
    let info = unsafe { &*info };
    // SAFETY: it is a fault's.
    let address = unsafe { info.si_addr() };
    SIGNAL.store(signal as usize, Relaxed);
    CODE.store(info.si_code as usize, Relaxed);
    ADDRESS.store(address.addr(), Relaxed);
    let go_on = RECOVER.swap(0, Relaxed);
    if go_on == 0 {
        // No fault of an access: it has to end the program.
        // SAFETY: sets the default action.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
        return;
    }
    // SAFETY: the kernel passes a valid context.
    let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    registers[libc::REG_RIP as usize] = go_on as i64;
}

/// Makes the access; what was loaded, or which signal came, with its code and address.
pub fn access(address: usize, how: Access) -> Result<u8, String> {
    SIGNAL.store(0, Relaxed);
    let value = match how {
        Access::Load => load(address),
        Access::Store(value) => store(address, value),
        Access::Run => run(address),
    };
    RECOVER.store(0, Relaxed);
    match SIGNAL.load(Relaxed) {
        0 => Ok(value),
        signal => Err(format!(
            "signal {signal} code {} at {}",
            CODE.load(Relaxed),
            name(ADDRESS.load(Relaxed))
        )),
    }
}

fn load(address: usize) -> u8 {
    let mut value = 0u8;
    // SAFETY: goes on behind the load, by itself or by the handler, which leaves all registers but RIP. Reads a byte that no
    // reference of Rust's leads to.
    unsafe {
        asm!(
            "lea {to}, [rip + 2f]", "mov [{recover}], {to}", "mov {value}, [{at}]", "2:",
            to = out(reg) _, recover = in(reg) RECOVER.as_ptr(), at = in(reg) address,
            value = inout(reg_byte) value,
        );
    }
    value
}

fn store(address: usize, value: u8) -> u8 {
    // SAFETY: as for `load`.
    unsafe {
        asm!(
            "lea {to}, [rip + 2f]", "mov [{recover}], {to}", "mov [{at}], {value}", "2:",
            to = out(reg) _, recover = in(reg) RECOVER.as_ptr(), at = in(reg) address,
            value = in(reg_byte) value,
        );
    }
    value
}

fn run(address: usize) -> u8 {
    // SAFETY: as for `load`; what runs there is a `ret`. The stack pointer is the same again, also where the call faults.
    unsafe {
        asm!(
            "lea r13, [rip + 2f]", "mov [r14], r13", "mov r12, rsp", "call r15", "2:", "mov rsp, r12",
            out("r12") _, out("r13") _, in("r14") RECOVER.as_ptr(), in("r15") address,
            clobber_abi("C"),
        );
    }
    0
}

/// What each page shows, four digits a page, without a fault: the kernel reads it. `-` for pages that it may not read.
pub fn contents(descriptors: &Descriptors) -> io::Result<String> {
    let mut bytes = [0; PAGE_BYTES];
    let mut text = String::new();
    for page in pages() {
        match descriptors.read_memory(page, &mut bytes)? {
            false => text.push('-'),
            true => {
                let mut digest = Digest::default();
                digest.bytes(&bytes);
                let _ = write!(text, "{:04x}", digest.0 >> 48);
            }
        }
    }
    Ok(text)
}

/// FNV-1a, a word at a time.
#[derive(Debug, Clone, Copy)]
pub struct Digest(pub u64);

impl Default for Digest {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Digest {
    /// Adds a word.
    pub fn word(&mut self, word: u64) {
        self.0 = (self.0 ^ word)
            .wrapping_mul(0x0100_0000_01b3)
            .rotate_left(29);
    }

    /// Adds bytes, in words; the rest of the last word is zeroes.
    pub fn bytes(&mut self, bytes: &[u8]) {
        for piece in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..piece.len()].copy_from_slice(piece);
            self.word(u64::from_le_bytes(word));
        }
    }
}
