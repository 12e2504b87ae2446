//! [`Fact`]: one thing that a machine holds, by its name.

use std::fmt;

use crate::oracle::FrameKind;

/// What a fact is about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Key {
    /// The root that a CPU has loaded.
    Root(usize),
    /// A cached translation of a CPU, of a tag or global.
    Leaf(usize, u64, Option<u16>),
    /// A cached entry of the root table of a CPU, by its region and tag.
    Structure(usize, usize, u16),
    /// The nested root that a CPU's guest runs on.
    GuestRoot(usize),
    /// A cached guest-virtual page of a CPU, and its tag.
    GuestPage(usize, usize, u16),
    /// A cached guest-physical page of a CPU, and its tag.
    GuestLeaf(usize, usize, u16),
    /// A cached entry of a nested root of a CPU, by its region and tag.
    GuestStructure(usize, usize, u16),
    /// A page-table entry, by its table and index.
    Entry(u16, usize),
    /// What the oracle holds the page tables to have promised: a space, its page, the frame.
    Promise(u64, usize, u16),
    /// A frame.
    Frame(u16),
    /// A cache line, by its number among those that were named.
    Line(usize),
}

/// What it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Value {
    /// It leads to a frame.
    Frame {
        /// Which.
        frame: u64,
        /// Whether stores are allowed.
        writable: bool,
    },
    /// It leads to a table.
    Table(u16),
    /// A table, under a tag.
    Tagged(u16, u16),
    /// A frame is used so.
    Used(FrameKind),
    /// One CPU has written it since.
    Written(usize),
    /// These CPUs have read it since it was written, by one of them or before.
    Read(u64),
}

impl Value {
    /// The frame that it leads to, a table's too.
    pub fn frame(self) -> Option<u64> {
        match self {
            Self::Frame { frame, .. } => Some(frame),
            Self::Table(table) | Self::Tagged(table, _) => Some(table.into()),
            Self::Used(_) | Self::Written(_) | Self::Read(_) => None,
        }
    }
}

/// One thing that a machine holds.
pub type Fact = (Key, Value);

/// A fact that becomes another, or ends.
pub type Change = (Key, Option<Value>);

/// What a broken promise was about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Subject {
    /// A page of a space leads to a frame.
    Page {
        /// The page.
        page: usize,
        /// The frame.
        frame: u16,
    },
    /// A table may be walked.
    Table(u16),
}

impl Key {
    /// The CPU whose hardware holds it.
    pub fn cpu(self) -> Option<usize> {
        match self {
            Self::Root(cpu)
            | Self::Leaf(cpu, ..)
            | Self::Structure(cpu, ..)
            | Self::GuestRoot(cpu)
            | Self::GuestPage(cpu, ..)
            | Self::GuestLeaf(cpu, ..)
            | Self::GuestStructure(cpu, ..) => Some(cpu),
            Self::Entry(..) | Self::Promise(..) | Self::Frame(_) | Self::Line(_) => None,
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Root(_) => f.write_str("root"),
            Self::Leaf(_, page, None) => write!(f, "page {page}, global"),
            Self::Leaf(_, page, Some(0)) => write!(f, "page {page}"),
            Self::Leaf(_, page, Some(tag)) => write!(f, "page {page}, tag {tag}"),
            Self::Structure(_, region, 0) => write!(f, "root's entry {region}"),
            Self::Structure(_, region, tag) => write!(f, "root's entry {region}, tag {tag}"),
            Self::GuestRoot(_) => f.write_str("nested root"),
            Self::GuestPage(_, page, tag) => write!(f, "guest-virtual page {page}, tag {tag}"),
            Self::GuestLeaf(_, page, tag) => write!(f, "guest-physical page {page}, tag {tag}"),
            Self::GuestStructure(_, region, tag) => {
                write!(f, "nested root's entry {region}, tag {tag}")
            }
            Self::Entry(table, index) => write!(f, "table {table}, entry {index}"),
            Self::Promise(0, page, frame) => write!(f, "kernel's page {page} at frame {frame}"),
            Self::Promise(space, page, frame) => {
                write!(f, "page {page} of space {space} at frame {frame}")
            }
            Self::Frame(frame) => write!(f, "frame {frame}"),
            Self::Line(line) => write!(f, "line {line}"),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Frame { frame, writable } => {
                let rights = if writable { "writable" } else { "read-only" };
                write!(f, "frame {frame}, {rights}")
            }
            Self::Table(table) | Self::Tagged(table, 0) => write!(f, "table {table}"),
            Self::Tagged(table, tag) => write!(f, "table {table}, tag {tag}"),
            Self::Used(kind) => write!(f, "{}", format!("{kind:?}").to_lowercase()),
            Self::Written(cpu) => write!(f, "modified by {cpu}"),
            Self::Read(cpus) => {
                let readers = (0..64).filter(|cpu| cpus >> cpu & 1 == 1);
                let readers: Vec<_> = readers.map(|cpu| cpu.to_string()).collect();
                write!(f, "shared by {}", readers.join(" "))
            }
        }
    }
}
