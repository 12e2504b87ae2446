//! [`MemorySpace`]: the address space of one process.

use super::barrier::Barriers;
use super::error::MapError;
use super::invalidate::InFlight;
use super::layout::PhysAddr;
use super::nested::Machines;
use super::page_table::PageTable;
use super::reach::OwnRoots;
use super::shared::SharedPlace;
use super::vma::{Area, AreaKind, Areas};
use super::witness;
use crate::arch::paging::kernel_root;
use crate::cpus::{Cpus, MAX_CPUS};
use crate::platform::SHOOTDOWN;
use crate::sync::{PassedMutex, PassedMutexGuard};
use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::AtomicUsize;
use shootdown::{AddressSpace, Root};
use spin::Once;

/// The address space of one process: its areas, its page table, and the engine's side of it.
///
/// Lock order: this lock, then that of shared memory or of a file, then the frame allocator. It is never held over an
/// access to user memory, and over a ticket's wait only where others must not see the space in between (`fork`,
/// `cow`, a stack that grows): whoever wants it meanwhile sleeps, and whoever holds it may be preempted. Faults that fill an empty entry
/// pass it.
#[derive(Debug)]
pub struct MemorySpace {
    // Dropped first: if some CPU still has the root loaded, the engine ends the kernel before the page table behind it is freed.
    pub(super) engine: AddressSpace<Cpus>,
    /// Threads that run in it, see [`SpaceUse`](super::SpaceUse).
    pub(super) users: AtomicUsize,
    /// For the files that it maps.
    pub(super) this: Weak<Self>,
    pub(super) inner: PassedMutex<Inner>,
    /// Submitted under the lock, and not over.
    pub(super) in_flight: InFlight,
    /// Virtual machines that show parts of it.
    pub(super) machines: Machines,
    /// Once threads share it. Behind the engine's side of the space, which looks there.
    pub(super) reach: Once<Box<OwnRoots>>,
    /// Which barriers its threads may ask for.
    pub(super) barriers: Barriers,
}

/// What the lock protects.
#[derive(Debug)]
pub struct Inner {
    pub(super) areas: Areas,
    pub(super) table: PageTable,
    /// Start and present end of the heap that `brk` moves; equal when there is none.
    pub(super) heap: (usize, usize),
    /// Which region was given last to a thread that had none.
    pub(super) last_home: usize,
    /// Where each CPU placed a stack last; 0 is nowhere.
    pub(super) stacks: [u8; MAX_CPUS],
}

impl MemorySpace {
    /// An address space without any user mapping.
    ///
    /// # Errors
    /// [`MapError::NoMemory`].
    pub fn new() -> Result<Arc<Self>, MapError> {
        let table = PageTable::new().ok_or(MapError::NoMemory)?;
        // SAFETY: 1. `PageTable::new` has copied the kernel's half, which never changes. 2. the table is this space's until the
        // engine's side of it has been dropped, and tables below leave it through a flush only. 3. it is no window root.
        let root = unsafe { Root::new(table.root().as_u64()) };
        let engine = AddressSpace::new(&SHOOTDOWN, root);
        let inner = Inner {
            areas: Areas::new(),
            table,
            heap: (0, 0),
            last_home: 0,
            stacks: [0; MAX_CPUS],
        };
        Ok(Arc::new_cyclic(|this| Self {
            engine,
            users: AtomicUsize::new(0),
            this: this.clone(),
            inner: PassedMutex::new(inner),
            in_flight: InFlight::none(),
            machines: Machines::new(),
            reach: Once::new(),
            barriers: Barriers::none(),
        }))
    }

    /// Loads this address space on this CPU in place of `previous`, or of the kernel's own root, or ends what
    /// [`rest`](Self::rest) began if it is `previous` itself. Interrupts or preemption must be off, and the caller keeps the space alive until this CPU has
    /// left it.
    pub fn activate(&self, previous: Option<&Self>) {
        let previous = previous.map(|space| &space.engine);
        if !self.activate_own(previous) {
            SHOOTDOWN.switch_to(previous, &self.engine);
        }
    }

    /// This CPU keeps the address space loaded, but uses no user memory until [`activate`](Self::activate): flushes leave
    /// it alone. Interrupts or preemption must be off, and the caller keeps the space alive.
    pub fn rest(&self) {
        SHOOTDOWN
            .user_memory()
            .enter_lazy(&self.engine, kernel_root());
    }

    /// Leaves this address space, which this CPU has loaded, for the kernel's own root. The last
    /// reference may be dropped afterwards.
    pub fn deactivate(&self) {
        SHOOTDOWN.switch_away(&self.engine, kernel_root());
    }

    /// Physical address of the root table.
    #[allow(dead_code, reason = "not for the tests on the host")]
    pub fn root(&self) -> PhysAddr {
        self.lock().table.root()
    }

    /// The engine's handle.
    pub fn engine(&self) -> &AddressSpace<Cpus> {
        &self.engine
    }

    /// A copy of all areas, lowest first, for `/proc/self/maps`.
    ///
    /// # Errors
    /// [`MapError::NoMemory`] when the kernel heap cannot hold the copy.
    pub fn areas(&self) -> Result<Vec<Area>, MapError> {
        self.lock().areas.to_list()
    }

    /// Which word of shared memory is at `addr`, if it is one.
    pub fn shared_place(&self, addr: usize) -> Option<SharedPlace> {
        let inner = self.lock();
        match &inner.areas.find(addr)?.kind {
            AreaKind::Shared(shared) => Some(shared.place(addr)),
            AreaKind::SharedFile(shown) => Some(shown.place(addr)),
            _ => None,
        }
    }

    #[track_caller]
    pub(super) fn lock(&self) -> Locked<'_> {
        Locked {
            space: self,
            inner: self.inner.lock(),
            _held: witness::Held::of(self.engine.root()),
        }
    }

    /// Tells private roots of changes of the root table, if there were any: see [`Window`](super::Window).
    pub(super) fn publish_top(&self, inner: &Inner) {
        if inner.table.take_top_change() {
            self.engine.top_changed();
        }
    }
}

impl Drop for MemorySpace {
    fn drop(&mut self) {
        self.reach.get().inspect(|roots| roots.retire(&self.engine));
    }
}

/// The lock of an address space. Releasing it publishes what changed in the root table.
#[derive(Debug)]
pub(super) struct Locked<'a> {
    space: &'a MemorySpace,
    inner: PassedMutexGuard<'a, Inner>,
    // Dropped last.
    _held: witness::Held,
}

impl Deref for Locked<'_> {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.inner
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut Inner {
        &mut self.inner
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.space.publish_top(&self.inner);
    }
}
