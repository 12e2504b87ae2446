//! What is dropped: the words of a payload.

use crate::tlb::{Depth, Pcid};

/// One request: what is dropped on its targets. Only valid ones can be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Payload {
    operation: u64,
    pcid: u64,
    address: u64,
}

/// `RAR_TYPE_INVPCID`, in bits 15:8.
const INVPCID: u64 = 2 << 8;
/// Subtypes, in bits 34:32.
const ADDRESSES: u64 = 0 << 32;
const ONE_PCID: u64 = 1 << 32;
const ALL: u64 = 2 << 32;
const ALL_NON_GLOBAL: u64 = 3 << 32;
/// How far pages are apart, in bits 36:35: by the shift of their size.
const SIZES: [(u32, u64); 3] = [(12, 0 << 35), (21, 1 << 35), (30, 2 << 35)];
/// How many pages, in bits 42:37.
const PAGES_SHIFT: u32 = 37;
const MOST_PAGES: usize = 63;

impl Payload {
    pub(super) const WORDS: usize = 8;

    /// `pages` pages of `pcid`, `stride_bytes` each, from the one that holds `start`: all but global translations. Everything of the PCID
    /// where one request cannot say that: too many pages (over 63), another size, no canonical address; and where page tables were
    /// freed, because INVPCID of one address may leave cached entries that lead to a table by other addresses.
    ///
    /// The sources do not say whether a processor takes the number for that of all pages, or of those beyond the first. It is that of all
    /// here: a processor that means the other drops a page too many.
    pub fn pages(
        pcid: Pcid,
        (start, stride_bytes, pages): (usize, usize, usize),
        depth: Depth,
    ) -> Self {
        let whole = Self::context(pcid);
        let size = SIZES
            .into_iter()
            .find(|(shift, _)| 1 << shift == stride_bytes);
        let (Some((_, size)), Depth::Leaf, 1..=MOST_PAGES) = (size, depth, pages) else {
            return whole;
        };
        let first = start & !(stride_bytes - 1);
        let Some(last) = first.checked_add((pages - 1) * stride_bytes) else {
            return whole;
        };
        if !(is_canonical(first) && is_canonical(last)) {
            return whole;
        }
        Self {
            operation: INVPCID | ADDRESSES | size | (pages as u64) << PAGES_SHIFT,
            address: first as u64,
            ..whole
        }
    }

    /// All of `pcid` but global translations.
    pub const fn context(pcid: Pcid) -> Self {
        Self {
            operation: INVPCID | ONE_PCID,
            pcid: pcid.as_u16() as u64,
            address: 0,
        }
    }

    /// Every PCID, and global translations.
    pub const fn all() -> Self {
        Self {
            operation: INVPCID | ALL,
            pcid: 0,
            address: 0,
        }
    }

    /// Every PCID, not global translations.
    pub const fn all_non_global() -> Self {
        Self {
            operation: INVPCID | ALL_NON_GLOBAL,
            ..Self::all()
        }
    }

    /// As it is in the table.
    pub const fn words(&self) -> [u64; Self::WORDS] {
        [self.operation, 0, self.pcid, self.address, 0, 0, 0, 0]
    }
}

/// With 48 bits of address, which are canonical with 57 too.
const fn is_canonical(address: usize) -> bool {
    let above = usize::BITS - 48;
    (address as isize) << above >> above == address as isize
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: usize = 1 << 12;
    /// The lowest canonical address of the upper half.
    const UPPER: usize = 0xffff_8000_0000_0000;

    #[test]
    fn words_are_the_sources() {
        let pcid = Pcid::new(0xabc).unwrap();
        let pages = |range| Payload::pages(pcid, range, Depth::Leaf);
        for (payload, operation, pcid, address) in [
            (pages((0x7123, SMALL, 3)), 0x60_0000_0200, 0xabc, 0x7000),
            (pages((0x7000, SMALL, 63)), 0x7e0_0000_0200, 0xabc, 0x7000),
            (pages((0, 1 << 21, 1)), 0x28_0000_0200, 0xabc, 0),
            (pages((0, 1 << 30, 2)), 0x50_0000_0200, 0xabc, 0),
            (Payload::context(pcid), 0x1_0000_0200, 0xabc, 0),
            (Payload::all(), 0x2_0000_0200, 0, 0),
            (Payload::all_non_global(), 0x3_0000_0200, 0, 0),
        ] {
            let words = [operation, 0, pcid, address, 0, 0, 0, 0];
            assert_eq!(payload.words(), words, "{payload:x?}");
        }
    }

    #[test]
    fn what_one_request_cannot_say_is_everything_of_the_tag() {
        let pcid = Pcid::new(7).unwrap();
        let top = usize::MAX & !(SMALL - 1);
        for (range, depth) in [
            ((0, SMALL, 1), Depth::Tables),
            ((0, SMALL, 64), Depth::Leaf),
            ((0, SMALL, 0), Depth::Leaf),
            ((0, 1 << 13, 1), Depth::Leaf),
            ((1 << 47, SMALL, 1), Depth::Leaf),
            (((1 << 47) - SMALL, SMALL, 2), Depth::Leaf),
            ((UPPER - SMALL, SMALL, 2), Depth::Leaf),
            ((top, SMALL, 2), Depth::Leaf),
        ] {
            let payload = Payload::pages(pcid, range, depth);
            assert_eq!(payload, Payload::context(pcid), "{range:x?} {depth:?}");
        }
        for start in [0, (1 << 47) - SMALL, UPPER, top] {
            let payload = Payload::pages(pcid, (start, SMALL, 1), Depth::Leaf);
            assert_ne!(payload, Payload::context(pcid), "{start:x}");
        }
    }
}
