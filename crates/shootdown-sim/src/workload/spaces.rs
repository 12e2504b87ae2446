//! [`Spaces`]: address spaces whose CPUs all flush.

use shootdown::{
    AddressSpace, Capacity, CpuId, CpuMask, FlushRange, FreedTables, KernelRoot, LocalFlush,
    PageSize, Platform,
};

use crate::machine::{Context, PLATFORM, kernel_root_at, root_at};
use crate::timed::{Timed, Translation};
use crate::workload::Built;

const KERNEL_ROOT: KernelRoot = kernel_root_at(0);
/// Where the pages are that CPUs change, one each.
const FIRST_PAGE: usize = 1;

/// Spaces of as many CPUs each, which are neighbours; CPUs that are left over have none.
pub(super) struct Spaces<'a, C: Capacity> {
    peer: &'a Built<C>,
    /// CPUs of each.
    members: usize,
    count: usize,
    /// Empty for peers, who know no spaces: all memory of a CPU is in one.
    spaces: Box<[AddressSpace<C>]>,
}

impl<'a, C: Capacity> Spaces<'a, C> {
    /// As many as there are `members` for among `cpus`.
    pub(super) fn new(peer: &'a Built<C>, members: usize, cpus: usize) -> Self {
        let count = cpus / members;
        let spaces = match peer {
            Built::Ours(engine) => (1..=count)
                .map(|number| AddressSpace::new(engine, root_at(number as u64)))
                .collect(),
            Built::Peer(_) => Box::default(),
        };
        Self {
            peer,
            members,
            count,
            spaces,
        }
    }

    /// Whether `cpu` has one.
    pub(super) fn has(&self, cpu: usize) -> bool {
        cpu < self.count * self.members
    }

    /// The running CPU loads its own.
    pub(super) fn load(&self, cpu: usize) {
        if let (Built::Ours(engine), Some(space)) = (self.peer, self.of(cpu)) {
            engine.switch_to(None, space);
        }
    }

    /// The running CPU leaves its own, and is no target any more.
    pub(super) fn leave(&self, cpu: usize) {
        if let (Built::Ours(engine), Some(space)) = (self.peer, self.of(cpu)) {
            engine.switch_away(space, KERNEL_ROOT);
        }
    }

    /// Has all CPUs of the running CPU's space forget its page. The peers' initiators know whom to call, and forget the page
    /// themselves where their originals do, between the interrupts and the wait.
    pub(super) fn flush(&self, cpu: usize, mates: &CpuMask<C>) {
        let range = FlushRange::pages(page_of(cpu) << 12, 1, PageSize::SIZE_4K);
        match self.peer {
            Built::Ours(engine) => {
                let space = self.of(cpu).expect("whoever flushes has a space");
                engine.flush(space, range, FreedTables::No);
            }
            Built::Peer(peer) => {
                let flush = LocalFlush::Pages(range, FreedTables::No);
                peer.call(mates, &|_| PLATFORM.local_flush(flush));
            }
        }
    }

    /// All CPUs of `cpu`'s space, which are returned, have a translation of its page. It costs nothing.
    pub(super) fn fill(&self, cpu: usize, context: Context<'_>) -> CpuMask<C> {
        let mates = self.mates(cpu);
        context.timed(|timed| {
            for mate in mates.iter() {
                look(timed, mate, cpu, Some(0));
            }
        });
        mates
    }

    /// On how many others of these CPUs it is gone, or will be before they may use it. It costs nothing.
    ///
    /// # Panics
    /// When `cpu` itself has it still.
    pub(super) fn reached(&self, cpu: usize, mates: &CpuMask<C>, context: Context<'_>) -> u64 {
        let owes = |mate| matches!(self.peer, Built::Ours(engine) if engine.owes_flush(mate));
        context.timed(|timed| {
            let is_reached = |mate: &CpuId| owes(*mate) || !look(timed, *mate, cpu, None);
            let reached = mates.iter().filter(is_reached);
            let reached: CpuMask<C> = reached.collect();
            assert!(
                reached.contains(CpuId::new(cpu as u32)),
                "cpu{cpu} has kept its page"
            );
            reached.len() as u64 - 1
        })
    }

    /// What the line at `address` holds, if it is one of theirs.
    pub(super) fn line_name(&self, address: usize) -> Option<&'static str> {
        let mut spaces = self.spaces.iter();
        spaces.find_map(|space| space.line_name(address))
    }

    fn of(&self, cpu: usize) -> Option<&AddressSpace<C>> {
        self.spaces.get(cpu / self.members)
    }

    /// The CPUs of `cpu`'s space.
    fn mates(&self, cpu: usize) -> CpuMask<C> {
        let first = cpu / self.members * self.members;
        let mates = first..first + self.members;
        mates.map(|mate| CpuId::new(mate as u32)).collect()
    }
}

fn page_of(cpu: usize) -> usize {
    FIRST_PAGE + cpu
}

/// Whether `cpu` has a translation of the page of `owner`; makes one if that is `mapped`.
fn look(timed: &mut Timed, cpu: CpuId, owner: usize, mapped: Option<u64>) -> bool {
    let Timed { costs, tlbs, .. } = timed;
    let (found, _) = tlbs[cpu.index()].translate(costs, page_of(owner) as u64, mapped);
    matches!(found, Translation::Cached(_))
}
