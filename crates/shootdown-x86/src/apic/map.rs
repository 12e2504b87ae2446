//! Which APIC id each CPU of the kernel has, and which CPUs can be interrupted together.

use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

use super::delivery::Delivery;
use super::error::MapError;
use super::icr::{ApicId, FLAT_CPUS, FlatId};

const MAPPED: u64 = 1 << 32;
const ONLINE: u64 = 1 << 33;

/// One CPU. Links are an index plus 1; 0 is none.
#[derive(Debug)]
struct Entry {
    /// APIC id in the low half, `MAPPED` and `ONLINE` above.
    state: AtomicU64,
    /// Nearest CPU with a lower index in the same x2APIC cluster.
    previous: AtomicU32,
    /// Nearest CPU with a higher index in the same x2APIC cluster.
    next: AtomicU32,
}

impl Entry {
    const fn new() -> Self {
        Self {
            state: AtomicU64::new(0),
            previous: AtomicU32::new(0),
            next: AtomicU32::new(0),
        }
    }
}

/// CPU index to APIC id for up to `N` CPUs, for a `static`.
///
/// Any CPU may ask at any time, from any context, without waiting. Changes are rare (boot, hotplug)
/// and come from one CPU at a time, but for those of a CPU itself that comes and goes; a CPU must be inserted before it is a target.
#[derive(Debug)]
pub struct ApicMap<const N: usize> {
    cpus: [Entry; N],
    delivery: AtomicU8,
    mapped: AtomicU32,
    online: AtomicU32,
    shorthand: AtomicBool,
    /// Guards `insert`.
    changing: AtomicBool,
}

impl<const N: usize> ApicMap<N> {
    /// An empty map with [`Delivery::XapicPhysical`].
    pub const fn new() -> Self {
        Self {
            cpus: [const { Entry::new() }; N],
            delivery: AtomicU8::new(Delivery::XapicPhysical as u8),
            mapped: AtomicU32::new(0),
            online: AtomicU32::new(0),
            shorthand: AtomicBool::new(false),
            changing: AtomicBool::new(false),
        }
    }

    /// Sets how CPUs are addressed, before the first is inserted.
    ///
    /// # Errors
    ///
    /// [`MapError::NotEmpty`] afterwards: the ids inserted were checked against the old mode.
    pub fn configure(&self, delivery: Delivery) -> Result<(), MapError> {
        if self.mapped() != 0 {
            return Err(MapError::NotEmpty);
        }
        self.delivery.store(delivery as u8, Ordering::Relaxed);
        Ok(())
    }

    /// How CPUs are addressed.
    pub fn delivery(&self) -> Delivery {
        Delivery::from_u8(self.delivery.load(Ordering::Relaxed))
    }

    /// Allows the all-but-self shorthand. It reaches CPUs that are not in the map too, a partitioned machine's other cells
    /// among them, so call this only if every CPU of the machine has been started once and handles or blocks the vectors
    /// sent; not if the kernel uses fewer CPUs than the firmware lists.
    pub fn permit_shorthand(&self) {
        self.shorthand.store(true, Ordering::Relaxed);
    }

    /// Adds a CPU, offline.
    ///
    /// # Errors
    ///
    /// See [`MapError`]; the map is as before then.
    pub fn insert(&self, cpu: usize, id: ApicId) -> Result<(), MapError> {
        // ORDERING: Acquire pairs with the Release below: two insertions see each other whole.
        if self.changing.swap(true, Ordering::Acquire) {
            return Err(MapError::Contended);
        }
        let result = self.insert_alone(cpu, id);
        // ORDERING: publishes this insertion to the next one.
        self.changing.store(false, Ordering::Release);
        result
    }

    fn insert_alone(&self, cpu: usize, id: ApicId) -> Result<(), MapError> {
        let delivery = self.delivery();
        let flat_full = delivery == Delivery::XapicFlat && cpu >= FLAT_CPUS;
        if cpu >= N || flat_full {
            return Err(MapError::IndexTooLarge(cpu));
        }
        if id.0 >= delivery.broadcast() {
            return Err(MapError::IdTooWide(id.0));
        }
        if self.id(cpu).is_some() {
            return Err(MapError::IndexTaken(cpu));
        }
        let (mut previous, mut next) = (None, None);
        for other in 0..N {
            let Some(other_id) = self.id(other) else {
                continue;
            };
            if other_id == id {
                return Err(MapError::IdTaken(id.0));
            }
            if same_cluster(other_id, id) {
                if other < cpu {
                    previous = Some(other);
                } else if next.is_none() {
                    next = Some(other);
                }
            }
        }
        self.link(cpu, previous, next);
        // ORDERING: publishes the links; pairs with the Acquire in `state`.
        self.cpus[cpu]
            .state
            .store(u64::from(id.0) | MAPPED, Ordering::Release);
        self.mapped.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Puts a CPU between its neighbours. Plans that run meanwhile have no bit for it and walk
    /// across it or past it.
    fn link(&self, cpu: usize, previous: Option<usize>, next: Option<usize>) {
        let to_link = |cpu: Option<usize>| cpu.map_or(0, |cpu| cpu as u32 + 1);
        let entry = &self.cpus[cpu];
        entry.previous.store(to_link(previous), Ordering::Relaxed);
        entry.next.store(to_link(next), Ordering::Relaxed);
        // ORDERING: both publish this entry's own links; they pair with the Acquires in `previous`
        // and `next`.
        if let Some(previous) = previous {
            self.cpus[previous]
                .next
                .store(to_link(Some(cpu)), Ordering::Release);
        }
        if let Some(next) = next {
            self.cpus[next]
                .previous
                .store(to_link(Some(cpu)), Ordering::Release);
        }
    }

    /// Counts a CPU among those that the shorthand must equal: it has started and can take
    /// interrupts. Unknown CPUs are ignored.
    pub fn set_online(&self, cpu: usize) {
        let Some(entry) = self.cpus.get(cpu) else {
            return;
        };
        let mapped = self.state(cpu) & MAPPED != 0;
        if mapped && entry.state.fetch_or(ONLINE, Ordering::Relaxed) & ONLINE == 0 {
            self.online.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Undoes [`ApicMap::set_online`].
    pub fn set_offline(&self, cpu: usize) {
        let Some(entry) = self.cpus.get(cpu) else {
            return;
        };
        if entry.state.fetch_and(!ONLINE, Ordering::Relaxed) & ONLINE != 0 {
            self.online.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// The APIC id of a CPU.
    pub fn id(&self, cpu: usize) -> Option<ApicId> {
        let state = self.state(cpu);
        (state & MAPPED != 0).then_some(ApicId(state as u32))
    }

    /// The CPU with this APIC id. Slow: looks at every CPU.
    pub fn cpu_of(&self, id: ApicId) -> Option<usize> {
        (0..N).find(|&cpu| self.id(cpu) == Some(id))
    }

    /// What [`LocalApic::enable`](super::LocalApic::enable) needs on this CPU.
    pub fn flat_id(&self, cpu: usize) -> Option<FlatId> {
        if self.delivery() == Delivery::XapicFlat {
            FlatId::new(cpu)
        } else {
            None
        }
    }

    /// Number of CPUs inserted.
    pub fn mapped(&self) -> usize {
        self.mapped.load(Ordering::Relaxed) as usize
    }

    /// Number of CPUs online.
    pub fn online(&self) -> usize {
        self.online.load(Ordering::Relaxed) as usize
    }

    pub(super) fn shorthand_permitted(&self) -> bool {
        self.shorthand.load(Ordering::Relaxed)
    }

    pub(super) fn is_online(&self, cpu: usize) -> bool {
        self.state(cpu) & ONLINE != 0
    }

    pub(super) fn previous_in_cluster(&self, cpu: usize) -> Option<usize> {
        // ORDERING: pairs with the Release in `link`.
        (self.cpus[cpu].previous.load(Ordering::Acquire) as usize).checked_sub(1)
    }

    pub(super) fn next_in_cluster(&self, cpu: usize) -> Option<usize> {
        // ORDERING: pairs with the Release in `link`.
        (self.cpus[cpu].next.load(Ordering::Acquire) as usize).checked_sub(1)
    }

    fn state(&self, cpu: usize) -> u64 {
        // ORDERING: pairs with the Release in `insert_alone`.
        self.cpus
            .get(cpu)
            .map_or(0, |entry| entry.state.load(Ordering::Acquire))
    }
}

impl<const N: usize> Default for ApicMap<N> {
    fn default() -> Self {
        Self::new()
    }
}

/// Whether one logical x2APIC destination can name both.
fn same_cluster(a: ApicId, b: ApicId) -> bool {
    match (a.x2apic_logical(), b.x2apic_logical()) {
        (Some(a), Some(b)) => a >> 16 == b >> 16,
        _ => false,
    }
}
