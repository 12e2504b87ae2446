//! [`Vm`]: virtual machines, and how they begin and end.

use std::cell::{Cell, Ref, RefCell};
use std::rc::Rc;

use shootdown::sim::{AtomicU64, Ordering};
use shootdown::{
    Capacity,
    guest::{GuestSpace, Vcpu},
};

use crate::kernel::guest::dirty::DirtyLog;
use crate::kernel::guest::layout::{GUEST_PAGES, GUEST_REGIONS, VCPUS, VMS};
use crate::kernel::guest::tlb::OwnTables;
use crate::kernel::sightings::Sight;
use crate::kernel::{Lock, PAGES_PER_TABLE, World};
use crate::machine::{context, root_at};

/// The virtual machines of a run.
#[derive(Debug)]
pub(in crate::kernel) struct Guests<C: Capacity> {
    /// Protects `places`.
    pub(super) directory: Lock,
    pub(super) places: RefCell<[Option<Rc<Vm<C>>>; VMS]>,
    /// All that there ever were: see [`World::all_spaces`].
    all: RefCell<Vec<Rc<Vm<C>>>>,
}

impl<C: Capacity> Default for Guests<C> {
    fn default() -> Self {
        Self {
            directory: Lock::new(),
            places: RefCell::default(),
            all: RefCell::default(),
        }
    }
}

/// One guest-physical page, as the host sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct NestedPage {
    pub(super) frame: u16,
    /// What the entry allows.
    pub(super) writable: bool,
    /// Whether the guest's stores may go to this frame: the entry allows them, or forbids them for the log's sake only.
    pub(super) is_own: bool,
}

/// What the lock of a virtual machine protects.
#[derive(Clone, Default, Debug)]
pub(super) struct NestedTables {
    pub(super) pages: [Option<NestedPage>; GUEST_PAGES],
    pub(super) tables: [Option<u16>; GUEST_REGIONS],
}

impl NestedTables {
    /// Whether a region maps nothing.
    pub(super) fn is_empty(&self, region: usize) -> bool {
        let first = region * PAGES_PER_TABLE;
        let mut pages = self.pages[first..first + PAGES_PER_TABLE].iter();
        pages.all(Option::is_none)
    }
}

/// A virtual CPU. The task that holds it runs it, and no one else.
#[derive(Debug)]
pub(super) struct VirtualCpu {
    /// Its name in the oracle's book.
    pub(super) number: u64,
    held: AtomicU64,
    pub(super) engine: RefCell<Vcpu>,
    /// Its own page tables, which lead where the guest likes. The host never takes away what they lie in.
    pub(super) tables: Rc<OwnTables>,
    /// Where it has run last.
    pub(super) last: Cell<Option<usize>>,
}

impl VirtualCpu {
    /// Takes it for the running task, unless somebody has it.
    pub(super) fn hold(&self) -> bool {
        // ORDERING: Acquire sees what the one did who held it before; pairs with `put`.
        self.held.swap(1, Ordering::Acquire) == 0
    }

    pub(super) fn put(&self) {
        // ORDERING: Release publishes what was done with it; pairs with `hold`.
        self.held.store(0, Ordering::Release);
    }
}

/// One virtual machine.
#[derive(Debug)]
pub(in crate::kernel) struct Vm<C: Capacity> {
    /// Its name in the oracle's book; not the engine's.
    pub(in crate::kernel) number: u64,
    /// The engine's view of it; none once it is over.
    space: RefCell<Option<GuestSpace<C>>>,
    pub(in crate::kernel) root: u16,
    /// Which life of the root's frame it is.
    pub(in crate::kernel) life: u32,
    pub(in crate::kernel) lock: Lock,
    /// Who walks its tables besides CPUs.
    pub(in crate::kernel) listener: Cell<Option<usize>>,
    pub(super) inner: RefCell<NestedTables>,
    pub(super) log: DirtyLog,
    pub(super) vcpus: Vec<VirtualCpu>,
    /// Tasks that run or change it, and one for its place. Without any it is over.
    users: AtomicU64,
}

impl<C: Capacity> Vm<C> {
    /// The engine's view of it.
    ///
    /// # Panics
    /// When it is over.
    pub(in crate::kernel) fn space(&self) -> Ref<'_, GuestSpace<C>> {
        Ref::map(self.space.borrow(), |space| {
            space.as_ref().expect("the guest is not over")
        })
    }
}

impl<C: Capacity> World<C> {
    /// The virtual machine of a place, which is begun if there is none, and stays alive until it is put back. `None` when memory is full.
    pub(in crate::kernel) fn get_vm(&self, place: usize) -> Option<Rc<Vm<C>>> {
        if let Some(vm) = self.find_vm(place) {
            return Some(vm);
        }
        let fresh = self.new_vm(1 + place % VCPUS)?;
        let held = self.guests.directory.take(&self.engine);
        let mut places = self.guests.places.borrow_mut();
        let taken = places[place].is_some();
        if !taken {
            places[place] = Some(fresh.clone());
        }
        drop(places);
        drop(held);
        if taken {
            self.put_vm(fresh);
        }
        self.find_vm(place)
    }

    fn find_vm(&self, place: usize) -> Option<Rc<Vm<C>>> {
        let held = self.guests.directory.take(&self.engine);
        let vm = self.guests.places.borrow()[place].clone();
        if let Some(vm) = &vm {
            vm.users.fetch_add(1, Ordering::Relaxed);
        }
        drop(held);
        vm
    }

    fn new_vm(&self, vcpus: usize) -> Option<Rc<Vm<C>>> {
        let root = self.take_table()?;
        let life = self.hardware.book.borrow().life_of_table(root);
        let space = GuestSpace::new(&self.engine, root_at(u64::from(root)));
        let vcpus = (0..vcpus).map(|_| self.new_vcpu(&space)).collect();
        let vm = Rc::new(Vm {
            number: self.next_name(),
            space: RefCell::new(Some(space)),
            root,
            life: self.insist(life),
            lock: Lock::new(),
            listener: Cell::default(),
            inner: RefCell::default(),
            log: DirtyLog::new(),
            vcpus,
            users: AtomicU64::new(1),
        });
        self.guests.all.borrow_mut().push(vm.clone());
        Some(vm)
    }

    fn new_vcpu(&self, space: &GuestSpace<C>) -> VirtualCpu {
        let number = self.next_name();
        let tables = Rc::new(std::array::from_fn(|page| AtomicU64::new(page as u64)));
        let mut book = self.hardware.book.borrow_mut();
        for page in 0..tables.len() {
            book.promise_inside(number, page, page as u16, true);
        }
        drop(book);
        VirtualCpu {
            number,
            held: AtomicU64::new(0),
            engine: RefCell::new(Vcpu::new(&self.engine, space)),
            tables,
            last: Cell::new(None),
        }
    }

    fn next_name(&self) -> u64 {
        self.next_space.replace(self.next_space.get() + 1)
    }

    /// A user of a virtual machine is done with it. After the last one all that it had is free at once: nobody runs it, and nobody will.
    pub(in crate::kernel) fn put_vm(&self, vm: Rc<Vm<C>>) {
        // ORDERING: Release publishes what this user did to it; Acquire lets the last one see all of it.
        if vm.users.fetch_add(u64::MAX, Ordering::AcqRel) != 1 {
            return;
        }
        self.hardware.saw(Sight::GuestDestroyed);
        context().tell(|| format!("ends guest {}", vm.number));
        self.release_listener(&vm.tables(&vm.space()));
        // Where it lies: a word that moves would be another one.
        *vm.space.borrow_mut() = None;
        let inner = vm.inner.take();
        for (page, nested) in inner.pages.into_iter().enumerate() {
            if let Some(nested) = nested {
                self.strike(vm.number, page, self.mark());
                self.release_data(nested.frame);
            }
        }
        for table in inner.tables.into_iter().flatten() {
            self.release_table(table);
        }
        self.release_table(vm.root);
    }

    /// Takes a virtual machine from its place: tasks that run it go on, and the last of them takes it apart.
    pub(super) fn end_vm(&self, place: usize) {
        let held = self.guests.directory.take(&self.engine);
        let vm = self.guests.places.borrow_mut()[place].take();
        drop(held);
        if let Some(vm) = vm {
            self.put_vm(vm);
        }
    }

    /// Ends all, when all programs are over.
    pub(in crate::kernel) fn end_all_vms(&self) {
        for place in 0..VMS {
            let is_there = self.guests.places.borrow()[place].is_some();
            if is_there {
                self.end_vm(place);
            }
        }
    }
}
