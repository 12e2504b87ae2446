//! The addresses that a random program works on, and accesses to them that may fault.

use std::fmt::Write as _;
use std::io;

use fastrand::Rng;

use super::descriptors::Descriptors;
use crate::fault::{self, Fault};
use crate::region::PAGE_BYTES;

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

/// Makes the access; what was loaded or stored, or which signal came, with its code and address.
pub fn access(address: usize, how: Access) -> Result<u8, String> {
    let done = match how {
        Access::Load => fault::load(address),
        Access::Store(value) => fault::store(address, value).map(|()| value),
        Access::Run => fault::call(address).map(|()| 0),
    };
    done.map_err(|fault| {
        let Fault {
            signal,
            code,
            address,
        } = fault;
        format!("signal {signal} code {code} at {}", name(address))
    })
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

/// As FNV-1a, but for words, which are rotated as well.
#[derive(Debug, Clone, Copy)]
pub struct Digest(pub u64);

impl Default for Digest {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Digest {
    fn word(&mut self, word: u64) {
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
