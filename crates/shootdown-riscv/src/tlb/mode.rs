//! `satp`, and how addresses are translated.

use super::asid::Asid;

/// `satp`: MODE in bits 63:60, ASID in 59:44, PPN of the root in 43:0.
const ASID_SHIFT: u32 = 44;
const MODE_SHIFT: u32 = 60;
pub(super) const SATP_ASID: u64 = 0xffff << ASID_SHIFT;
const PAGE_SHIFT: u32 = 12;
/// Address bits that a level of tables translates.
const LEVEL_BITS: u32 = 9;

/// The scheme of translation (Privileged, "Supervisor Address Translation and Protection (satp) Register").
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Mode {
    /// Three levels, 39 bits.
    Sv39 = 8,
    /// Four levels, 48 bits. A hart that has it has Sv39.
    Sv48 = 9,
    /// Five levels, 57 bits. A hart that has it has Sv48.
    Sv57 = 10,
}

impl Mode {
    /// The mode in a value of `satp`; none if nothing is translated, or otherwise.
    pub const fn of_satp(satp: u64) -> Option<Self> {
        match satp >> MODE_SHIFT {
            8 => Some(Self::Sv39),
            9 => Some(Self::Sv48),
            10 => Some(Self::Sv57),
            _ => None,
        }
    }

    /// What to write to `satp` for the table at physical address `root`, which is a multiple of 4096.
    pub const fn satp(self, root: u64, asid: Asid) -> u64 {
        debug_assert!(
            root % 4096 == 0 && root >> 56 == 0,
            "not the address of a table"
        );
        let asid = (asid.as_u16() as u64) << ASID_SHIFT;
        (self as u64) << MODE_SHIFT | asid | root >> PAGE_SHIFT
    }

    /// How many levels of tables there are.
    pub const fn levels(self) -> u32 {
        self as u32 - 5
    }

    /// How far an entry of the top table shifts: it translates `1 << top_shift()` bytes, 1 GiB under Sv39.
    pub const fn top_shift(self) -> u32 {
        PAGE_SHIFT + LEVEL_BITS * (self.levels() - 1)
    }

    /// Which entry of the top table translates `address`: 0 to 255 in the lower half, 256 to 511 in the upper. For `Platform::region_of`, if the top level is the lowest
    /// private one: counted from the lowest address, as that asks.
    pub const fn top_index(self, address: usize) -> usize {
        address >> self.top_shift() & ((1 << LEVEL_BITS) - 1)
    }
}

/// The tag in a value of `satp`.
pub(super) const fn asid_of(satp: u64) -> Asid {
    Asid::new((satp >> ASID_SHIFT & 0xffff) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn satp_has_mode_tag_and_root() {
        let satp = Mode::Sv48.satp(0x8020_1000, Asid::new(0xabc));
        assert_eq!(satp, 0x90ab_c000_0008_0201);
        assert_eq!(Mode::of_satp(satp), Some(Mode::Sv48));
        assert_eq!(asid_of(satp), Asid::new(0xabc));
        assert_eq!(Mode::of_satp(0), None);
    }

    #[test]
    fn the_top_table_translates_everything() {
        for (mode, levels, shift) in [
            (Mode::Sv39, 3, 30),
            (Mode::Sv48, 4, 39),
            (Mode::Sv57, 5, 48),
        ] {
            assert_eq!((mode.levels(), mode.top_shift()), (levels, shift));
            assert_eq!(mode.top_index(0x3 << shift | 0xfff), 3);
            assert_eq!(mode.top_index(usize::MAX), 511);
            assert_eq!(mode.top_index(usize::MAX << (shift + 8)), 256);
        }
    }
}
