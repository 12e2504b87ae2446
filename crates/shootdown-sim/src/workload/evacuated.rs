//! [`Evacuation`]: the rows of `evacuate`; [`Evacuated`]: what they measured.

use shootdown_peers::Peer;

/// Who is told of what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Evacuation {
    /// As in Xen today: each first write flushes the virtual machine on all CPUs that run it, and so does each clearing of its log; one flush
    /// at a time under one lock, and each voids the tags of all virtual machines there.
    Xen,
    /// The same with the calls of the series of April 2026, which need no lock.
    Published,
    /// The engine: a first write tells nobody, because it only widens rights. A clearing kicks those that run the virtual machine, and drops its tags alone.
    Best,
}

impl Evacuation {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Xen, Self::Published, Self::Best];

    /// For tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Xen => "xen",
            Self::Published => "published",
            Self::Best => "best",
        }
    }

    /// The one with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.name() == name)
    }

    /// Whose calls tell others; none but the engine's own.
    pub(super) const fn peer(self) -> Option<Peer> {
        match self {
            Self::Xen => Some(Peer::OneLock),
            Self::Published => Some(Peer::TaskSet),
            Self::Best => None,
        }
    }

    pub(super) fn flushes_first_writes(self) -> bool {
        self != Self::Best
    }
}

/// What was counted.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counted {
    /// Writes of guests to a page.
    pub writes: u64,
    /// First writes to a page since its log was cleared.
    pub dirtied: u64,
    /// Pages that were found in a log.
    pub cleared: u64,
    /// Exits of guests.
    pub exits: u64,
    /// Flushes of a virtual machine.
    pub flushes: u64,
    /// Interrupts that were asked for.
    pub ipis: u64,
    /// Entries whose tag was dropped.
    pub tags_dropped: u64,
    /// Writes through a translation that had to be gone: they are in no log.
    pub stale: u64,
}

impl Counted {
    /// What was counted since.
    pub fn since(self, before: Self) -> Self {
        Self {
            writes: self.writes - before.writes,
            dirtied: self.dirtied - before.dirtied,
            cleared: self.cleared - before.cleared,
            exits: self.exits - before.exits,
            flushes: self.flushes - before.flushes,
            ipis: self.ipis - before.ipis,
            tags_dropped: self.tags_dropped - before.tags_dropped,
            stale: self.stale - before.stale,
        }
    }
}

/// What a row measured.
#[derive(Clone, Copy, Debug)]
pub struct Evacuated {
    /// How long it took.
    pub span_ps: u64,
    /// What happened meanwhile.
    pub counted: Counted,
}

impl Evacuated {
    /// Something a second.
    pub fn per_s(&self, count: u64) -> f64 {
        count as f64 * 1e12 / self.span_ps as f64
    }

    /// Something for each page that was dirtied.
    pub fn per_dirtied(&self, count: u64) -> f64 {
        count as f64 / self.counted.dirtied.max(1) as f64
    }
}
