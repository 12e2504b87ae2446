//! [`Deeds`]: what the engine had its platform do, counted.

use shootdown::{FreedTables, LocalFlush, tags::TagEntries};

/// Something that the engine has its platform do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Deed {
    /// An interrupt for one CPU.
    Interrupt,
    /// A flush of this CPU's entries.
    Flush(LocalFlush),
    /// A root is loaded.
    Load(TagEntries),
    /// Top-level entries are taken over into a private root.
    CopyTop,
}

/// Kinds of deeds.
const KINDS: usize = 8;

impl Deed {
    /// Of each kind, as [`Deed::kind`] numbers them.
    const NAMES: [&str; KINDS] = [
        "platform: interrupts",
        "platform: flushes of pages",
        "platform: flushes of pages and tables",
        "platform: flushes of a space",
        "platform: flushes of everything",
        "platform: roots loaded, entries kept",
        "platform: roots loaded, entries dropped",
        "platform: top-level entries copied",
    ];

    /// What tells one flush from another of its kind: its pages, both ends folded into one number.
    pub(crate) fn pages(operation: LocalFlush) -> usize {
        match operation {
            LocalFlush::Pages(range, _) => range.start().rotate_left(20) ^ range.end(),
            LocalFlush::Space | LocalFlush::All => 0,
        }
    }

    const fn kind(self) -> usize {
        match self {
            Self::Interrupt => 0,
            Self::Flush(LocalFlush::Pages(_, FreedTables::No)) => 1,
            Self::Flush(LocalFlush::Pages(_, FreedTables::Yes)) => 2,
            Self::Flush(LocalFlush::Space) => 3,
            Self::Flush(LocalFlush::All) => 4,
            Self::Load(TagEntries::Keep) => 5,
            Self::Load(TagEntries::Drop) => 6,
            Self::CopyTop => 7,
        }
    }
}

/// How many of each kind, and their order.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Deeds {
    counts: [u64; KINDS],
    order: u64,
}

impl Deeds {
    /// `about` is the target, the tag, the pages.
    pub(crate) fn add(&mut self, cpu: usize, deed: Deed, about: usize) {
        self.counts[deed.kind()] += 1;
        let word = (cpu << 8 | deed.kind()) as u64 ^ (about as u64).rotate_left(16);
        // One step of FNV-1a, a word at a time.
        self.order = (self.order ^ word).wrapping_mul(0x0100_0000_01b3);
    }

    /// Each kind with its name.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        Deed::NAMES.into_iter().zip(self.counts)
    }

    /// A number that differs, as good as always, when the deeds, their CPUs or their order differ.
    pub fn order(&self) -> u64 {
        self.order
    }
}
