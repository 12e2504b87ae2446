//! [`World`]: the address spaces of a row, the windows of its servers, and what is counted.

use std::cell::Cell;

use shootdown::sim::AtomicU64;
use shootdown::{AddressSpace, Capacity, CpuId, Shootdown, watch::Stats, windows::WindowRoot};

use crate::machine::{Context, SimPlatform, root_at};
use crate::timed::Activity;
use crate::workload::zerocopy::shared::Shared;
use crate::workload::zerocopy::{Mapping, Served, Zerocopy};

/// Operations of a CPU before anything is measured.
const WARM_UP: u64 = 32;
/// Pages of its own that a server, and a client, uses in each operation.
pub(super) const OWN_PAGES: usize = 8;

/// Everything of a run that is not a machine.
pub(super) struct World<'a, C: Capacity> {
    pub(super) row: &'a Zerocopy,
    pub(super) engine: &'a Shootdown<SimPlatform<C>>,
    /// The clients' process, or that of each.
    clients: Vec<AddressSpace<C>>,
    /// The server's.
    pub(super) servers: AddressSpace<C>,
    pub(super) shared: Option<Shared>,
    pub(super) desks: Vec<Desk>,
    warm: Cell<usize>,
    operations: Cell<u64>,
    began: Cell<Option<Reading>>,
    ended: Cell<Option<Reading>>,
    pub(super) stale: Cell<u64>,
}

/// What a CPU has of its own: no line of it is another CPU's.
#[repr(align(4096))]
pub(super) struct Desk {
    /// The leaf entry of its window: 0, or the frame of the operation in progress.
    pub(super) window: AtomicU64,
    /// Leaf entries of the client's and the server's pages.
    pub(super) own: [[AtomicU64; OWN_PAGES]; 2],
    /// Operations, so far; also numbers the frames.
    pub(super) operations: Cell<u64>,
    /// Frames below this one must not be reached through the window any more.
    pub(super) oldest_frame: Cell<u64>,
}

impl Desk {
    fn new() -> Self {
        let own = || [const { AtomicU64::new(1) }; OWN_PAGES];
        Self {
            window: AtomicU64::new(0),
            own: [own(), own()],
            operations: Cell::new(0),
            oldest_frame: Cell::new(1),
        }
    }
}

/// What the counters said at a moment.
#[derive(Clone, Copy)]
struct Reading {
    now_ps: u64,
    operations: u64,
    stats: Stats,
    activity: Activity,
    lines: u64,
}

impl<'a, C: Capacity> World<'a, C> {
    pub(super) fn new(row: &'a Zerocopy, engine: &'a Shootdown<SimPlatform<C>>) -> Self {
        let servers = AddressSpace::new(engine, root_at(2));
        let processes = if row.clients_share_space {
            1
        } else {
            row.threads
        };
        Self {
            row,
            engine,
            clients: (0..processes)
                .map(|_| AddressSpace::new(engine, root_at(1)))
                .collect(),
            servers,
            shared: row.charges_shared.then(|| Shared::new(&row.costs)),
            desks: (0..row.busy_cpus()).map(|_| Desk::new()).collect(),
            warm: Cell::new(0),
            operations: Cell::new(0),
            began: Cell::new(None),
            ended: Cell::new(None),
            stale: Cell::new(0),
        }
    }

    /// The address space of a client thread.
    pub(super) fn client(&self, thread: usize) -> &AddressSpace<C> {
        &self.clients[thread % self.clients.len()]
    }

    /// The private root of a CPU, where pages are mapped in windows.
    pub(super) fn window_root(&self, cpu: usize) -> Option<WindowRoot> {
        let has_windows = self.row.mapping == Mapping::Windowed;
        has_windows.then(|| {
            let (name, root) = (CpuId::new(cpu as u32), root_at(3 + cpu as u64));
            WindowRoot::new(self.engine, &self.servers, name, root)
        })
    }

    /// An operation of `desk` is over. The measured time begins when every CPU is warm.
    pub(super) fn count(&self, context: Context<'_>, desk: &Desk) {
        let own = desk.operations.get() + 1;
        desk.operations.set(own);
        let operations = self.operations.get() + 1;
        self.operations.set(operations);
        if own == WARM_UP {
            self.warm.set(self.warm.get() + 1);
            if self.warm.get() == self.desks.len() {
                self.began.set(Some(self.reading(context)));
            }
        }
        let wanted = (self.row.iterations * self.desks.len()) as u64;
        if let Some(began) = self.began.get()
            && operations == began.operations + wanted
        {
            self.ended.set(Some(self.reading(context)));
        }
    }

    /// Whether operations are measured now.
    pub(super) fn is_measured(&self) -> bool {
        self.began.get().is_some() && !self.is_over()
    }

    /// Whether enough were.
    pub(super) fn is_over(&self) -> bool {
        self.ended.get().is_some()
    }

    /// The server of `desk` looks at its window through a translation: stale if the frame's operation is over.
    pub(super) fn check(&self, desk: &Desk, frame: u64) {
        if frame < desk.oldest_frame.get() {
            self.stale.set(self.stale.get() + 1);
        }
    }

    fn reading(&self, context: Context<'_>) -> Reading {
        let (activity, lines) =
            context.timed(|timed| (timed.activities(), timed.lines.transfers().sum()));
        Reading {
            now_ps: context.now_ps(),
            operations: self.operations.get(),
            stats: self.engine.watch().total_stats(),
            activity,
            lines,
        }
    }

    pub(super) fn into_served(self, calls_ps: Vec<u64>, events: u64) -> Served {
        let (began, ended) = (self.began.get(), self.ended.get());
        let (began, ended) = began.zip(ended).expect("the run was measured");
        Served {
            operations: ended.operations - began.operations,
            whole_ps: ended.now_ps - began.now_ps,
            calls_ps,
            stats: ended.stats.since(&began.stats),
            activity: ended.activity - began.activity,
            lines: ended.lines - began.lines,
            stale: self.stale.get(),
            events,
        }
    }
}
