//! Hyper-V: hypercalls that flush other virtual processors.
//!
//! Microsoft, *Hypervisor Top-Level Functional Specification* ("TLFS"): "Hypercall Interface", "HvCallFlushVirtualAddressSpace",
//! "HvCallFlushVirtualAddressList" and their Ex forms. A request lies in a page of input: a header, the set of virtual processors, and,
//! in the list forms, ranges of up to 4096 pages in a word each. When the call returns with success every processor of the set has
//! flushed, or will before it runs again.
//!
//! The list forms repeat: the hypervisor may return before all ranges are done, says how many are, and is called again for the rest.

use core::arch::x86_64::CpuidResult;

use crate::cpuid::cpuid;

const LEAF_INTERFACE: u32 = 0x4000_0001;
const LEAF_RECOMMENDATIONS: u32 = 0x4000_0004;
/// "Hv#1".
const INTERFACE: u32 = u32::from_le_bytes(*b"Hv#1");

/// What Hyper-V recommends to its guests for flushes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HypervFeatures {
    recommendations: u32,
}

impl HypervFeatures {
    const REMOTE_FLUSH: u32 = 1 << 2;
    const EXTENDED_SETS: u32 = 1 << 11;

    /// Asks this CPU.
    pub fn detect() -> Self {
        Self::from_leaves(cpuid)
    }

    /// The same from any source of leaves: `leaves(leaf, subleaf)`. Without Hyper-V's interface there is nothing.
    pub fn from_leaves(leaves: impl Fn(u32, u32) -> CpuidResult) -> Self {
        let is_guest = leaves(1, 0).ecx >> 31 != 0;
        let recommendations = match is_guest && leaves(LEAF_INTERFACE, 0).eax == INTERFACE {
            true => leaves(LEAF_RECOMMENDATIONS, 0).eax,
            false => 0,
        };
        Self { recommendations }
    }

    /// Whether other virtual processors are to be flushed by [`flush`].
    pub const fn has_remote_flush(&self) -> bool {
        self.recommendations & Self::REMOTE_FLUSH != 0
    }

    /// Whether sets of more than 64 virtual processors may be named.
    pub const fn has_extended_sets(&self) -> bool {
        self.recommendations & Self::EXTENDED_SETS != 0
    }
}

/// How [`flush`] reaches the hypervisor.
pub trait Hypercall {
    /// A hypercall with its input in memory; the result's bits 15:0 are a status, 43:32 how many repetitions are done.
    fn call(&self, control: u64, input: &Input) -> u64;
}

const WORDS: usize = 512;

/// A page of input. Each CPU has one, and uses it with interrupts off.
#[derive(Debug)]
#[repr(C, align(4096))]
pub struct Input([u64; WORDS]);

impl Input {
    /// An empty page.
    pub const fn new() -> Self {
        Self([0; WORDS])
    }

    /// Its words, as the hypervisor reads them.
    pub const fn words(&self) -> &[u64; WORDS] {
        &self.0
    }
}

impl Default for Input {
    fn default() -> Self {
        Self::new()
    }
}

/// What is flushed on them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flushed<'a> {
    /// All of the address space with this root (CR3 without its low bits), but for global translations.
    Space(u64),
    /// Ranges of it, global translations too: first address and pages of 4 KiB.
    Ranges(u64, &'a [(usize, usize)]),
    /// Everything of every address space.
    All,
}

/// The hypervisor did not do it, or not all; an interrupt must. Its status.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refused {
    /// As in the TLFS, "Hypercall Status Codes"; `None` if the set cannot be named.
    pub status: Option<u16>,
}

const ALL_SPACES: u64 = 1 << 1;
const NON_GLOBAL_ONLY: u64 = 1 << 2;

const FLUSH_SPACE: u64 = 0x2;
const FLUSH_LIST: u64 = 0x3;
/// Added to both for the forms that take sets of more than 64.
const EXTENDED: u64 = 0x11;
/// A set of banks of 64, of which only those in a mask are there.
const SPARSE_BANKS: u64 = 0;
const BANKS: usize = 64;

const HEADER_SHIFT: u32 = 17;
const REPETITIONS_SHIFT: u32 = 32;
const START_SHIFT: u32 = 48;
const REPETITIONS_MASK: u64 = 0xfff;
/// Pages beyond the first in a word of a list.
const MOST_MORE: usize = 0xfff;
const PAGE_BYTES: usize = 4096;

/// Flushes virtual processors, by their indexes at the hypervisor; returns when they have, or will before they run again. The page
/// tables were changed before. Interrupts are off.
///
/// # Errors
/// [`Refused`]: some or all have not. With none, nothing is asked.
pub fn flush(
    hypercall: &impl Hypercall,
    features: HypervFeatures,
    input: &mut Input,
    processors: impl Iterator<Item = u32>,
    flushed: Flushed<'_>,
) -> Result<(), Refused> {
    let mut banks = [0u64; BANKS];
    for index in processors {
        let bank = banks.get_mut(index as usize / 64);
        *bank.ok_or(Refused { status: None })? |= 1 << (index % 64);
    }
    let valid = (0..BANKS).fold(0, |valid, bank| valid | u64::from(banks[bank] != 0) << bank);
    if valid == 0 {
        return Ok(());
    }
    let (space, flags) = match flushed {
        Flushed::Space(root) => (root, NON_GLOBAL_ONLY),
        Flushed::Ranges(root, _) => (root, 0),
        Flushed::All => (0, ALL_SPACES),
    };
    input.0[..2].copy_from_slice(&[space, flags]);
    let mut code = 0;
    let (mut at, mut header) = (3, 0);
    if valid == 1 {
        input.0[2] = banks[0];
    } else if !features.has_extended_sets() {
        return Err(Refused { status: None });
    } else {
        code = EXTENDED;
        input.0[2..4].copy_from_slice(&[SPARSE_BANKS, valid]);
        at = 4;
        for bank in banks.into_iter().filter(|bank| *bank != 0) {
            input.0[at] = bank;
            at += 1;
        }
        header = (at - 4) as u64;
    }
    let control = header << HEADER_SHIFT;
    let count = match flushed {
        Flushed::Ranges(_, ranges) => input.list(at, ranges),
        Flushed::Space(_) | Flushed::All => None,
    };
    if let Some(count) = count {
        return repeat(hypercall, control | (FLUSH_LIST + code), input, count);
    }
    // Also where ranges do not fit: then global translations go too.
    match hypercall.call(control | (FLUSH_SPACE + code), input) as u16 {
        0 => Ok(()),
        status => Err(Refused {
            status: Some(status),
        }),
    }
}

impl Input {
    /// Writes ranges from word `at` on; how many words, `None` if they do not fit.
    fn list(&mut self, at: usize, ranges: &[(usize, usize)]) -> Option<u64> {
        let mut end = at;
        for &(start, pages) in ranges {
            let mut start = start & !(PAGE_BYTES - 1);
            // The part beyond the end of the address space is left out.
            let mut left = pages.min((usize::MAX - start) / PAGE_BYTES + 1);
            while left > 0 {
                let now = left.min(MOST_MORE + 1);
                *self.0.get_mut(end)? = (start | (now - 1)) as u64;
                end += 1;
                left -= now;
                start = start.wrapping_add(now * PAGE_BYTES);
            }
        }
        Some((end - at) as u64)
    }
}

/// Calls until all repetitions are done.
fn repeat(
    hypercall: &impl Hypercall,
    control: u64,
    input: &Input,
    count: u64,
) -> Result<(), Refused> {
    let mut done = 0;
    while done < count {
        let control = control | count << REPETITIONS_SHIFT | done << START_SHIFT;
        let result = hypercall.call(control, input);
        let now = result >> REPETITIONS_SHIFT & REPETITIONS_MASK;
        // A hypervisor that goes back, or says success without a step, would be called for ever.
        if result as u16 != 0 || now <= done || now > count {
            return Err(Refused {
                status: Some(result as u16),
            });
        }
        done = now;
    }
    Ok(())
}
