//! [`Costs`]: the price of everything, in picoseconds.

use crate::timed::Topology;

/// How far apart two CPUs are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Distance {
    /// Threads of one core: they share its caches.
    Core,
    /// Cores of one socket.
    Socket,
    /// Different sockets.
    Machine,
}

/// One price for each distance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PerDistance {
    /// Within a core.
    pub core: u64,
    /// Within a socket.
    pub socket: u64,
    /// Between sockets.
    pub machine: u64,
}

impl PerDistance {
    /// The price at `distance`.
    pub fn at(&self, distance: Distance) -> u64 {
        match distance {
            Distance::Core => self.core,
            Distance::Socket => self.socket,
            Distance::Machine => self.machine,
        }
    }
}

/// What a machine costs. Every figure is a parameter; a preset names its sources.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Costs {
    /// Who is near whom.
    pub topology: Topology,
    /// An access that the own cache serves.
    pub hit_ps: u64,
    /// A locked operation, beyond the access to its line.
    pub locked_ps: u64,
    /// A full fence.
    pub fence_ps: u64,
    /// Moving a line from the cache that holds it; taking it for writing from one that shares it.
    pub transfer_ps: PerDistance,
    /// For how long a transfer for reading keeps the line from being sent to the next reader.
    pub read_occupancy_ps: u64,
    /// Issuing a prefetch.
    pub prefetch_ps: u64,
    /// One turn of a spin loop.
    pub relax_ps: u64,
    /// One write of the interrupt command register: one interrupt, or one cluster.
    pub icr_ps: u64,
    /// From that write to the target's first handler instruction, an idle or user-mode target.
    pub delivery_ps: PerDistance,
    /// Of the delivery, what the target's own pipeline takes (drain, IDT, stack): it starts when the interrupt has
    /// arrived and interrupts are on.
    pub entry_ps: u64,
    /// From the handler's last instruction to the interrupted one.
    pub exit_ps: u64,
    /// Dropping one page (INVLPG).
    pub flush_page_ps: u64,
    /// Dropping everything that is not global (CR3 write).
    pub flush_space_ps: u64,
    /// Dropping everything.
    pub flush_all_ps: u64,
    /// Loading another root without tags.
    pub load_root_ps: u64,
}
