//! Loads and stores of virtual programs, each of them judged.

use std::rc::Rc;

use shootdown::Capacity;

use crate::explore::Question;
use crate::kernel::layout::{KERNEL, window_page};
use crate::kernel::sightings::Sight;
use crate::kernel::window::Windows;
use crate::kernel::{
    KERNEL_REGION, Leaf, PAGES_PER_TABLE, REGIONS, Space, USER_PAGES, WINDOW_REGION, World,
};
use crate::machine::{FailureKind, context};

/// Whether a page is in the region of windows.
fn is_window(page: usize) -> bool {
    page / PAGES_PER_TABLE == WINDOW_REGION
}

/// Whose promises cover a page: the space's, or those of the private root that is loaded.
fn owner<C: Capacity>(space: &Space<C>, windows: Option<&Windows>, page: usize) -> u64 {
    let windows = windows.filter(|_| is_window(page));
    windows.map_or(space.number, |windows| windows.number)
}

/// A program that faults again and again after the kernel granted its access gives up.
const MOST_TRIES: usize = 3;

/// A space, and the CPU's private root in it.
type Loaded<C> = (Rc<Space<C>>, Option<Rc<Windows>>);

impl<C: Capacity> World<C> {
    /// User code on this CPU loads from or stores to a page of its space; faults are served.
    pub(super) fn touch(&self, page: usize, writes: bool) {
        let me = context().cpu();
        self.leave_kernel();
        for _ in 0..MOST_TRIES {
            let Some(space) = self.current[me].borrow().clone() else {
                return self.touch_as_host(page);
            };
            let windows = self.windowed[me].borrow().clone();
            context().work(1);
            if self.access(&space, windows.as_deref(), page, writes) {
                return;
            }
            let own = self.own[me].borrow().clone();
            let again = match (windows, own) {
                _ if is_window(page) => false,
                (Some(windows), _) if self.refresh(&space, &windows) => true,
                (_, Some(own)) if self.take_region(&space, &own, page) => true,
                _ => writes && self.copy_on_write(&space, page),
            };
            if !again {
                return;
            }
        }
    }

    /// A page fault by a private root: perhaps it lacks what the shared one has got since. Tells whether it did.
    fn refresh(&self, space: &Space<C>, windows: &Windows) -> bool {
        let view = windows.engine.borrow();
        let Some(root) = view.as_ref() else {
            return false;
        };
        let mut is_new = self.engine.windows().refresh(&space.context(), root);
        if !is_new {
            // Nobody changes the shared root now, so nothing can be missing.
            let held = space.lock.take(&self.engine);
            is_new = self.engine.windows().refresh(&space.context(), root);
            self.check_top(space, windows);
            drop(held);
        }
        if is_new {
            self.hardware.saw(Sight::TopRefreshedAtFault);
        }
        is_new
    }

    /// The private root has what the shared one has, whose lock is held.
    fn check_top(&self, space: &Space<C>, windows: &Windows) {
        let physical = &self.hardware.physical;
        for region in (0..REGIONS).filter(|region| *region != WINDOW_REGION) {
            let (shared, own) = (space.root, windows.root);
            let (wanted, found) = (
                physical.newest(shared, region),
                physical.newest(own, region),
            );
            if found != wanted {
                let story = format!(
                    "entry {region} of table {own} is {found} after a refresh, not {wanted} as in table {shared}"
                );
                context().fail(FailureKind::Other, story);
            }
        }
    }

    /// One access at one moment, with a private root or without; tells whether it went through.
    pub(super) fn access(
        &self,
        space: &Space<C>,
        windows: Option<&Windows>,
        page: usize,
        writes: bool,
    ) -> bool {
        let Some(leaf) = self.translate(page) else {
            self.check_missed(windows, page, writes);
            return false;
        };
        if writes && !leaf.writable {
            let cpu = context().cpu();
            self.hardware.fault(cpu, page);
            return false;
        }
        self.check_usable(space, windows);
        let owner = owner(space, windows, page);
        let verb = if writes { "stores to" } else { "loads from" };
        context().tell(|| {
            format!(
                "{verb} page {page} of space {owner} at frame {}",
                leaf.frame
            )
        });
        let book = self.hardware.book.borrow();
        let outcome = book.check_access(owner, page, leaf.frame, writes);
        drop(book);
        self.insist(outcome);
        self.use_frame(leaf.frame);
        if is_window(page) {
            self.hardware.saw(Sight::WindowUsed);
        }
        true
    }

    /// User code on this CPU could use any translation that is cached here, instead of the one that it does use.
    fn check_usable(&self, space: &Space<C>, windows: Option<&Windows>) {
        let tlbs = self.hardware.tlbs.borrow();
        let of_user = |leaf: &Leaf| leaf.page / PAGES_PER_TABLE != KERNEL_REGION;
        for leaf in tlbs[context().cpu()].usable().filter(of_user) {
            let owner = owner(space, windows, leaf.page);
            let book = self.hardware.book.borrow();
            self.insist(book.check_access(owner, leaf.page, leaf.frame, leaf.writable));
        }
    }

    /// A page fault. What a window shows is there whenever its root is loaded: only its CPU changes it.
    fn check_missed(&self, windows: Option<&Windows>, page: usize, writes: bool) {
        if !is_window(page) {
            return;
        }
        self.hardware.saw(Sight::WindowMissed);
        let shown = windows.and_then(|windows| windows.shown(page % PAGES_PER_TABLE));
        if shown.is_none_or(|shown| writes && !shown.writable) {
            return;
        }
        // A walk that began before the window was shown may miss it, but not after a fault, which drops what it began with.
        self.hardware.fault(context().cpu(), page);
        if self.translate(page).is_none() {
            let story = format!("window {page} shows {shown:?}, and an access finds nothing");
            context().fail(FailureKind::Other, story);
        }
    }

    /// The memory notes the access: it must be over before the frame is somebody else's.
    pub(super) fn use_frame(&self, frame: u16) {
        let address = self.hardware.physical.content(frame);
        context().with(|state| {
            let cpu = state.running;
            if let Some(explore) = state.explore() {
                explore.memory.read_translated(cpu, address);
            }
        });
    }

    /// Kernel code on this CPU uses a kernel page, if it believes that it is mapped.
    pub(super) fn touch_kernel(&self, index: usize) {
        self.check_under_host_root();
        let held = self.kernel_lock.take(&self.engine);
        // Under the lock, so that the page does not go away meanwhile.
        self.use_kernel_page(index % self.kernel_addresses);
        drop(held);
    }

    /// A non-maskable interrupt that would like to look at user memory, whichever root it finds loaded.
    pub fn nmi(&self) {
        let was_quiet = self.leave_quiet();
        self.look_at_user_memory();
        if was_quiet {
            self.enter_quiet();
        }
    }

    fn look_at_user_memory(&self) {
        let Some((space, windows)) = self.loaded_on(context().cpu()) else {
            return;
        };
        if self.engine.user_memory().access_ok(space.context().id()) {
            let page = context().with(|state| {
                let explore = state.explore();
                explore.map_or(0, |explore| {
                    explore
                        .chooser
                        .choose(Question::Workload, USER_PAGES + PAGES_PER_TABLE)
                })
            });
            let page = match page.checked_sub(USER_PAGES) {
                None => page,
                Some(index) => window_page(index),
            };
            self.access(&space, windows.as_deref(), page, false);
        }
    }

    /// The space whose root the hardware of a CPU has loaded, and which private root if it is one.
    fn loaded_on(&self, cpu: usize) -> Option<Loaded<C>> {
        let root = self.hardware.tlbs.borrow()[cpu].root();
        let spaces = self.all_spaces.borrow();
        for space in spaces.iter().rev() {
            if (space.root, space.life) == root {
                return Some((space.clone(), None));
            }
            let own_roots = space.own_roots.borrow();
            if own_roots.iter().any(|own| (own.root, own.life) == root) {
                return Some((space.clone(), None));
            }
            let windows = space.windows.borrow();
            let mut windows = windows.iter();
            if let Some(own) = windows.find(|own| (own.root, own.life) == root) {
                return Some((space.clone(), Some(own.clone())));
            }
        }
        None
    }

    /// Whose promises cover a page where `cpu` is.
    pub(super) fn owner_on(&self, cpu: usize, page: usize) -> u64 {
        let loaded = self.loaded_on(cpu);
        loaded.map_or(KERNEL, |(space, windows)| {
            owner(&space, windows.as_deref(), page)
        })
    }

    pub(super) fn translate(&self, page: usize) -> Option<Leaf> {
        let outcome = context().with(|state| {
            let cpu = state.running;
            let explore = state.explore()?;
            let (memory, chooser) = (&mut explore.memory, &mut explore.chooser);
            Some(self.hardware.translate(memory, chooser, cpu, page))
        });
        self.insist(outcome?)
    }
}
