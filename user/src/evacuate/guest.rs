//! What runs in a virtual machine: code without a stack, an interrupt or a call, and the order in which it writes to pages.
//!
//! The guest goes through a sequence that visits every page once in each pass ([`Walk`]). A visit writes how many there
//! were, so the page must hold that number less a pass: the guest needs no memory to know what it wrote.

use std::arch::global_asm;

use super::vm::SYSTEM_PAGES;
use crate::region::{PAGE_BYTES, PAGE_WORDS, Region};

/// Where the guest says by OUT that a page had something else than it wrote.
pub const ERROR_PORT: u16 = 0x10;
/// The first page of the code.
pub const CODE_PAGE: usize = 0;

/// Of the sequence of pages: any multiplier that is 1 modulo 4, with an odd increment, visits all numbers of a power of two.
const MULTIPLIER: u64 = 0x5851_f42d_4c95_7f2d;
const INCREMENT: u64 = 0x1405_7b7e_f767_814f;

global_asm!(
    ".pushsection .rodata.evacuate_guest, \"a\"",
    ".globl evacuate_guest_begin",
    ".globl evacuate_guest_end",
    "evacuate_guest_begin:",
    "20:",
    "imul rcx, r9",
    "add rcx, r11",
    "and rcx, rsi",
    "cmp rcx, r8",
    "jae 20b",
    "mov rdx, rcx",
    "shl rdx, 12",
    "inc r10",
    "mov rax, r10",
    "sub rax, r8",
    "mov rbx, [rdi + rdx]",
    "cmp rbx, rax",
    "jne 21f",
    "mov [rdi + rdx], r10",
    "jmp 20b",
    "21:",
    "out {port}, al",
    "jmp 21b",
    "evacuate_guest_end:",
    ".popsection",
    port = const ERROR_PORT,
);

unsafe extern "C" {
    static evacuate_guest_begin: u8;
    static evacuate_guest_end: u8;
}

/// The machine code, which runs wherever it lies.
pub fn code() -> &'static [u8] {
    let (begin, end) = (
        &raw const evacuate_guest_begin,
        &raw const evacuate_guest_end,
    );
    let length = end.addr() - begin.addr();
    // SAFETY: both symbols are of one piece of read-only data, the end behind the begin.
    unsafe { std::slice::from_raw_parts(begin, length) }
}

/// The order in which a virtual CPU visits its pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Walk {
    /// Pages.
    pub pages: usize,
    /// Its first page in the machine's memory.
    pub first: usize,
}

/// Registers with which a virtual CPU begins, by what they are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Registers {
    /// RDI: its pages.
    pub base: u64,
    /// RSI: what is left of a number of the sequence.
    pub mask: u64,
    /// R8: how many pages.
    pub pages: u64,
    /// R9.
    pub multiplier: u64,
    /// R10: visits so far.
    pub visits: u64,
    /// R11.
    pub increment: u64,
}

impl Walk {
    /// The walk of virtual CPU `index` with so many pages.
    pub fn new(index: usize, pages: usize) -> Self {
        Self {
            pages,
            first: SYSTEM_PAGES + index * pages,
        }
    }

    /// As if there had been one pass: numbers 1, 2, ... in the order of visits.
    pub fn write_first_pass(&self, memory: &Region) {
        for (visit, page) in self.pass().enumerate() {
            let value = visit as u64 + 1;
            for word in 0..PAGE_WORDS {
                memory.page(self.first + page)[word]
                    .store(value, std::sync::atomic::Ordering::Relaxed);
            }
        }
    }

    /// What the registers hold behind that pass.
    pub fn registers(&self) -> Registers {
        Registers {
            base: (self.first * PAGE_BYTES) as u64,
            mask: self.mask(),
            pages: self.pages as u64,
            multiplier: MULTIPLIER,
            visits: self.pages as u64,
            increment: INCREMENT,
        }
    }

    /// One pass, from and to the number 0.
    fn pass(&self) -> impl Iterator<Item = usize> + use<> {
        let (mask, pages) = (self.mask(), self.pages as u64);
        let numbers = (0..=mask).scan(0_u64, move |number, _| {
            *number = number.wrapping_mul(MULTIPLIER).wrapping_add(INCREMENT) & mask;
            Some(*number)
        });
        numbers
            .filter(move |&number| number < pages)
            .map(|number| number as usize)
    }

    fn mask(&self) -> u64 {
        self.pages.next_power_of_two() as u64 - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_visits_every_page_once_and_ends_where_it_began() {
        for pages in [1, 2, 3, 64, 100, 256] {
            let walk = Walk::new(0, pages);
            let mut seen: Vec<usize> = walk.pass().collect();
            seen.sort_unstable();
            assert_eq!(seen, (0..pages).collect::<Vec<_>>());
            let all = Walk::new(0, pages.next_power_of_two());
            assert_eq!(all.pass().last(), Some(0));
        }
    }

    #[test]
    fn the_code_is_short_and_ends_with_a_jump_back() {
        let code = code();
        assert!(code.len() < 128, "{} bytes", code.len());
        let out = [0xe6, ERROR_PORT as u8, 0xeb, 0xfc];
        assert_eq!(code[code.len() - 4..], out);
    }
}
