//! [`Costs`]: the price of everything, in picoseconds.

use crate::timed::{Distance, GuestCosts, TlbShape, Topology};

/// One price for each distance.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
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

/// How virtual CPUs share processors: a hypervisor's part of the costs. As a rule they do not.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Hosting {
    /// Virtual CPUs of a processor. With fewer than two there is no hypervisor.
    pub vcpus: usize,
    /// How long one of them runs before the host looks for another.
    pub slice_ps: u64,
    /// By how much more than that at most: until the host's next timer tick.
    pub tick_ps: u64,
    /// From the guest's last instruction into the host.
    pub exit_ps: u64,
    /// The host's own work from one virtual CPU to the next.
    pub switch_ps: u64,
    /// From the host to the guest's first instruction.
    pub entry_ps: u64,
}

/// What a machine costs. Every figure is a [parameter](crate::timed::PARAMETERS) with a name; a
/// [preset](crate::timed::Preset) names its sources.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Costs {
    /// How processors are shared.
    pub hosting: Hosting,
    /// How guests run.
    pub guest: GuestCosts,
    /// Who is near whom.
    pub topology: Topology,
    /// An access that the own cache serves.
    pub hit_ps: u64,
    /// A locked operation, beyond the access to its line.
    pub locked_ps: u64,
    /// A full fence.
    pub fence_ps: u64,
    /// Stores that wait in a CPU's buffer, at most; 0: each store waits for its line.
    pub buffered_stores: usize,
    /// The instructions around an access.
    pub instructions_ps: u64,
    /// One instruction, of operations whose instructions are counted; 0: none are.
    pub instruction_ps: u64,
    /// By how many hundredths instructions take longer while the other thread of their core executes some.
    pub shared_core_percent: usize,
    /// How far a CPU goes on behind a load that it waits for.
    pub window_ps: u64,
    /// Whether an interrupt is a flag on a line of its own, which its target looks at: 0 or 1.
    pub flags: usize,
    /// Moving a line from the cache that holds it; taking it for writing from one that shares it.
    pub transfer_ps: PerDistance,
    /// For how long a transfer for reading keeps the line from being sent to the next reader.
    pub read_occupancy_ps: u64,
    /// Issuing a prefetch.
    pub prefetch_ps: u64,
    /// One turn of a spin loop (PAUSE). An interrupt that finds its target spinning in user mode waits for the
    /// turn to end.
    pub relax_ps: u64,
    /// Reading the clock ([`Platform::now_ns`](shootdown::Platform::now_ns)).
    pub clock_ps: u64,
    /// One write of the interrupt command register: one interrupt, or one cluster.
    pub icr_ps: u64,
    /// From that write to the target's interrupt controller.
    pub delivery_ps: PerDistance,
    /// From there to the first instruction of the engine's handler (drain, IDT, stack, registers): starts when the
    /// interrupt has arrived and interrupts are on.
    pub entry_ps: u64,
    /// From the handler's last instruction to the interrupted one.
    pub exit_ps: u64,
    /// Dropping one page (INVLPG, and what else the kernel does for each page).
    pub flush_page_ps: u64,
    /// Dropping everything of the loaded root that is not global (CR3 write).
    pub flush_space_ps: u64,
    /// Dropping everything (CR4.PGE, INVPCID of all contexts).
    pub flush_all_ps: u64,
    /// Dropping everything of one tag that is not loaded (INVPCID of one context).
    pub invpcid_ps: u64,
    /// Dropping translations on all CPUs by one instruction, and waiting for it (INVLPGB, TLBSYNC); 0 where no preset gives it.
    pub broadcast_ps: u64,
    /// Loading another root and dropping what its tag has cached (CR3 write).
    pub load_root_ps: u64,
    /// Loading another root and keeping what its tag has cached (CR3 write with bit 63).
    pub load_root_kept_ps: u64,
    /// Hardware tags that a CPU uses, besides the one of untagged roots.
    pub asid_slots: usize,
    /// The data TLB.
    pub tlb: TlbShape,
    /// A translation that the second level serves.
    pub tlb_l2_hit_ps: u64,
    /// Reading one page-table entry during a walk, from the own cache.
    pub walk_step_ps: u64,
    /// Pages of its own that the kernel reads in each system call; 0: their translations are not modelled.
    pub kernel_pages: usize,
    /// Into the kernel by a system call and out again, together.
    pub syscall_ps: u64,
    /// Into the kernel by a page fault and out again, with the kernel's handling, without filling the page.
    pub fault_ps: u64,
    /// Filling a fresh page with zeros.
    pub zero_page_ps: u64,
    /// What the memory manager itself does in one madvise.
    pub madvise_ps: u64,
    /// Between two tasks, without the root.
    pub context_switch_ps: u64,
    /// The kernel's own work when a task wakes another through an eventfd and then blocks on its own.
    pub wake_ps: u64,
    /// What a client of a server does between two calls (table T2).
    pub request_ps: u64,
    /// The kernel's own work in a call that is relayed to a server, without the mapping and the switches.
    pub relay_ps: u64,
    /// What the server does with such a call besides copying.
    pub serve_ps: u64,
    /// Entering a page into the page tables of a server.
    pub map_page_ps: u64,
    /// What an ordinary unmapping does besides, so that others may go on meanwhile.
    pub gather_ps: u64,
    /// Copying a page.
    pub copy_page_ps: u64,
    /// Cache lines that every call of table T2's system writes, whichever CPU it is on.
    pub shared_lines: usize,
    /// What of such a call is done for one CPU at a time.
    pub shared_serial_ps: u64,
}
