//! Entries of page tables, as far as flushes depend on them.

use crate::features::Features;

/// Bits of an entry (Privileged, "Sv39: Page-Based 39-bit Virtual-Memory System", which has them from Sv32).
const V: u64 = 1 << 0;
const R: u64 = 1 << 1;
const W: u64 = 1 << 2;
const X: u64 = 1 << 3;
const A: u64 = 1 << 6;
const D: u64 = 1 << 7;

/// The entry that leads to the table at physical address `table`, which is a multiple of 4096. A, D and U are clear: "For non-leaf PTEs, the D, A, and U bits are reserved".
/// G is clear, too: set, it would make everything below global.
///
/// The table is filled before the entry is stored: `fence w, w` in between.
pub const fn table_entry(table: u64) -> u64 {
    debug_assert!(
        table % 4096 == 0 && table >> 56 == 0,
        "not the address of a table"
    );
    table >> 12 << 10 | V
}

/// What a page fault was about.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Access {
    /// A load.
    Read,
    /// A store, or an atomic operation.
    Write,
    /// A fetch.
    Execute,
}

impl Access {
    /// By the exception code of a page fault, as `scause` has it: 12, 13 or 15.
    pub const fn of_scause(scause: u64) -> Option<Self> {
        match scause {
            12 => Some(Self::Execute),
            13 => Some(Self::Read),
            15 => Some(Self::Write),
            _ => None,
        }
    }
}

/// Whether a leaf entry, as the tables have it *now*, allows an access on a hart with these features. Without [`SVADU`](Features::SVADU) its A, and D for a store, must be set, too.
/// Whether it may be made in the mode that made it (U, `sstatus.SUM`, and `sstatus.MXR` for loads) the host knows.
pub const fn allows(leaf: u64, access: Access, features: Features) -> bool {
    let marks = if features.has(Features::SVADU) {
        A | D
    } else {
        0
    };
    let needed = match access {
        Access::Read => V | R | A,
        Access::Write => V | R | W | A | D,
        Access::Execute => V | X | A,
    };
    (leaf | marks) & needed == needed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_leads_to_a_table_has_one_bit_set() {
        assert_eq!(table_entry(0x8020_1000), 0x2008_0401);
    }

    #[test]
    fn accesses_need_their_right_and_their_marks() {
        let all = V | R | W | X | A | D;
        let (svade, svadu) = (Features::NONE, Features::SVADU);
        for access in [Access::Read, Access::Write, Access::Execute] {
            assert!(allows(all, access, svade) && !allows(all & !A, access, svade));
            assert!(allows(all & !A & !D, access, svadu));
        }
        assert!(!allows(all & !D, Access::Write, svade));
        assert!(allows(all & !D, Access::Read, svade));
        for features in [svade, svadu] {
            let refuses = |lacks: u64, access| !allows(all & !lacks, access, features);
            assert!(refuses(V, Access::Read) && refuses(V, Access::Write));
            assert!(refuses(V, Access::Execute) && refuses(X, Access::Execute));
            assert!(refuses(W, Access::Write) && refuses(R, Access::Read));
        }
    }

    #[test]
    fn three_codes_are_page_faults() {
        let found = (0..32).filter_map(Access::of_scause);
        assert!(found.eq([Access::Execute, Access::Read, Access::Write]));
    }
}
