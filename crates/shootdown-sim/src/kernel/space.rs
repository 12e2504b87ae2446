//! [`Space`]: address spaces, and how CPUs come to have one loaded.

use std::cell::{Cell, Ref, RefCell};
use std::rc::Rc;

use shootdown::reach::Region;
use shootdown::sim::{AtomicU64, Ordering};
use shootdown::{AddressSpace, Capacity, Platform, SpaceId};

use crate::kernel::layout::SPACES;
use crate::kernel::reach::OwnRoot;
use crate::kernel::window::Windows;
use crate::kernel::{KERNEL_REGION, Lock, PAGES_PER_TABLE, Pte, Sight, USER_PAGES, World};
use crate::machine::{FailureKind, context, kernel_root_at, root_at};

/// First generations of spaces are so far apart, up to so far.
const GENERATIONS_APART: u64 = 5;
const GENERATIONS: u64 = 8;

/// One mapped page, as its space's owner sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Mapped {
    pub(super) frame: u16,
    /// What the entry allows.
    pub(super) writable: bool,
    /// Whether a store to it may be granted by copying.
    pub(super) copy_on_write: bool,
}

/// What the lock of a space protects.
#[derive(Clone, Debug)]
pub(super) struct Tables {
    pub(super) pages: [Option<Mapped>; USER_PAGES],
    pub(super) tables: [Option<u16>; KERNEL_REGION],
}

impl Tables {
    /// Whether a region maps nothing.
    pub(super) fn is_empty(&self, region: usize) -> bool {
        let first = region * PAGES_PER_TABLE;
        self.pages[first..first + PAGES_PER_TABLE]
            .iter()
            .all(Option::is_none)
    }
}

/// One address space.
#[derive(Debug)]
pub struct Space<C: Capacity> {
    /// Its name in the oracle's book; not the engine's.
    pub(super) number: u64,
    /// Its name there.
    pub(super) name: SpaceId,
    /// The engine's view of it; none once it is over.
    context: RefCell<Option<AddressSpace<C>>>,
    pub(super) root: u16,
    pub(super) lock: Lock,
    pub(super) inner: RefCell<Tables>,
    /// Which life of the root's frame it is.
    pub(super) life: u32,
    /// CPUs that run it or are about to, those that change it, and one for its place among the spaces. Without any,
    /// nothing is mapped any more.
    pub(super) users: AtomicU64,
    /// Private roots, also those that were given up.
    pub(super) windows: RefCell<Vec<Rc<Windows>>>,
    /// Of which the engine knows once it is tracked, which the lock protects.
    pub(super) regions: [Region<C>; KERNEL_REGION],
    pub(super) is_tracked: Cell<bool>,
    /// CPUs' own roots, also those that were given up.
    pub(super) own_roots: RefCell<Vec<Rc<OwnRoot<C>>>>,
    /// CPUs that are lazy in it, and one for all users together. Without any, the root is free.
    pub(super) keepers: AtomicU64,
    /// An entry that leads to a table as those of the root do, but for the hardware.
    pub(super) side: AtomicU64,
    /// Who listens to its flushes.
    pub(super) listener: Cell<Option<usize>>,
}

impl<C: Capacity> Space<C> {
    /// The engine's view of a space that has a user, or is kept.
    ///
    /// # Panics
    /// When the space is over.
    pub(super) fn context(&self) -> Ref<'_, AddressSpace<C>> {
        Ref::map(self.context.borrow(), |context| {
            context.as_ref().expect("the space is not over")
        })
    }

    /// What the line at an address holds, if it is one of the engine's view of it.
    pub(super) fn line_name(&self, address: usize) -> Option<&'static str> {
        let context = self.context.try_borrow().ok()?;
        context.as_ref()?.line_name(address)
    }

    /// No CPU has it loaded, and none will: its tag may be another's.
    pub(super) fn end(&self) {
        let holders = self.context().cpus();
        if !holders.is_empty() {
            let message = format!("space {} is over, and loaded on {holders:?}", self.number);
            context().fail(FailureKind::Other, message);
        }
        // Where it is: its words are in no other place.
        *self.context.borrow_mut() = None;
    }
}

/// By which root a space is loaded.
#[derive(Clone, Debug)]
pub(super) enum Private<C: Capacity> {
    /// The shared one.
    None,
    /// One with windows.
    Windows(Rc<Windows>),
    /// The CPU's own of a tracked space.
    Own(Rc<OwnRoot<C>>),
}

impl<C: Capacity> World<C> {
    /// An empty space, or `None` when memory is full. Nobody knows of it yet.
    pub(super) fn new_space(&self) -> Option<Rc<Space<C>>> {
        let root = self.take_table()?;
        self.write_entry(root, KERNEL_REGION, Pte::to(Self::kernel_table(), true));
        let life = self.hardware.book.borrow().life_of_table(root);
        let number = self.next_space.replace(self.next_space.get() + 1);
        let context = AddressSpace::new(&self.engine, root_at(u64::from(root)));
        let name = context.id();
        let context = RefCell::new(Some(context));
        let space = Rc::new(Space {
            number,
            name,
            context,
            root,
            lock: Lock::new(),
            inner: RefCell::new(Tables {
                pages: [None; USER_PAGES],
                tables: [None; KERNEL_REGION],
            }),
            life: self.insist(life),
            users: AtomicU64::new(1),
            windows: RefCell::default(),
            regions: Default::default(),
            is_tracked: Cell::new(false),
            own_roots: RefCell::default(),
            keepers: AtomicU64::new(1),
            side: AtomicU64::new(0),
            listener: Cell::default(),
        });
        // Not all at the same: what one space's generation means must not be taken for another's. And where it stays: memory knows
        // its words by their addresses, and where a stack has its temporaries depends on the compiler.
        let generation = self.first_generation + number * GENERATIONS_APART % GENERATIONS;
        space.context().begin_at(generation);
        self.all_spaces.borrow_mut().push(space.clone());
        Some(space)
    }

    /// Puts a space where others find it, or gives it back when there is no place.
    pub(super) fn publish_space(&self, space: Rc<Space<C>>) -> Result<(), Rc<Space<C>>> {
        let held = self.directory.take(&self.engine);
        let mut spaces = self.spaces.borrow_mut();
        let outcome = match spaces.iter_mut().find(|place| place.is_none()) {
            Some(place) => {
                *place = Some(space);
                Ok(())
            }
            None => Err(space),
        };
        drop(spaces);
        drop(held);
        outcome
    }

    /// A space to use, which stays alive until it is put back.
    pub(super) fn get_space(&self, place: usize) -> Option<Rc<Space<C>>> {
        let held = self.directory.take(&self.engine);
        let space = self.spaces.borrow()[place % SPACES].clone();
        if let Some(space) = &space {
            space.users.fetch_add(1, Ordering::Relaxed);
        }
        drop(held);
        space
    }

    /// Takes a space from its place: whoever has it loaded goes on, and the last of them takes it apart.
    pub(super) fn exit(&self, place: usize) {
        let held = self.directory.take(&self.engine);
        let space = self.spaces.borrow_mut()[place % SPACES].take();
        drop(held);
        if let Some(space) = space {
            self.put_space(space);
        }
    }

    /// Loads `next` here, or nothing; gives back what was loaded. Not from an interrupt handler.
    pub(super) fn switch(&self, next: Option<Rc<Space<C>>>) {
        self.switch_by(next, Private::None);
    }

    /// As a host whose context switch loads the root: the engine is told before and after.
    fn switch_in_halves(
        &self,
        previous: Option<&Rc<Space<C>>>,
        next: Option<&Rc<Space<C>>>,
        kernel_root: u16,
    ) {
        let (previous, next) = (previous.map(|it| it.context()), next.map(|it| it.context()));
        let (previous, next) = (previous.as_deref(), next.as_deref());
        let platform = self.engine.platform();
        let irq = platform.irq_save();
        if self.engine.host_roots().begin_switch(previous, next) {
            self.hardware.saw(Sight::SwitchedInHalves);
            let root = next.map_or(kernel_root.into(), |space| space.root());
            // SAFETY: 1. roots are numbers here; the load is what the second half is told of.
            unsafe { platform.load_root(root) };
            // SAFETY: 1. loaded just now.
            unsafe { self.engine.host_roots().end_switch(previous, next) };
        }
        // SAFETY: 1. saved above.
        unsafe { platform.irq_restore(irq) };
    }

    /// The same, by a private root of this CPU if there is one.
    pub(super) fn switch_by(&self, next: Option<Rc<Space<C>>>, root: Private<C>) {
        let me = context().cpu();
        let previous = self.current[me].borrow_mut().take();
        self.windowed[me].borrow_mut().take();
        self.own[me].borrow_mut().take();
        let number = |space: &Option<Rc<Space<C>>>| space.as_ref().map_or(0, |space| space.number);
        context().tell(|| {
            format!(
                "switches from space {} to {}",
                number(&previous),
                number(&next)
            )
        });
        let kernel_root = match next {
            Some(_) => Self::KERNEL_ROOT,
            None => self.some_kernel_root(),
        };
        match (&previous, &next) {
            _ if self.host_loads => {
                self.switch_in_halves(previous.as_ref(), next.as_ref(), kernel_root);
            }
            (previous, Some(next)) => {
                let previous = previous.as_ref().map(|space| space.context());
                let (previous, next) = (previous.as_deref(), next.context());
                match &root {
                    Private::None => self.engine.switch_to(previous, &next),
                    Private::Windows(windows) => {
                        let view = windows.engine.borrow();
                        let view = view.as_ref().expect("it is not retired");
                        self.engine.windows().switch_to(previous, &next, view);
                    }
                    Private::Own(own) => {
                        let view = own.engine.borrow();
                        let reach = self.engine.user_memory().reach();
                        reach.switch_to(previous, &next, view.as_ref());
                    }
                }
            }
            (Some(previous), None) => {
                let root = kernel_root_at(kernel_root.into());
                self.engine.switch_away(&previous.context(), root);
            }
            (None, None) => {}
        }
        match (&previous, &next) {
            (_, Some(_)) => self.leave_trampoline(),
            (Some(_), None) => self.check_loaded(kernel_root),
            (None, None) => {}
        }
        *self.current[me].borrow_mut() = next;
        match root {
            Private::None => {}
            Private::Windows(windows) => *self.windowed[me].borrow_mut() = Some(windows),
            Private::Own(own) => *self.own[me].borrow_mut() = Some(own),
        }
        let was_lazy = self.is_lazy[me].replace(false);
        match previous {
            Some(previous) if was_lazy => self.put_keeper(&previous),
            Some(previous) => self.put_space(previous),
            None => {}
        }
    }
}
