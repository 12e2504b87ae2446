//! Loads and stores of virtual programs, each of them judged.

use std::rc::Rc;

use shootdown::{Capacity, Cpus};

use crate::machine::context;
use crate::mm::kernel::kernel_page;
use crate::mm::world::KERNEL;
use crate::mm::{Leaf, Space, World};

/// A program that faults again and again after the kernel granted its access gives up.
const MOST_TRIES: usize = 3;

impl<const N: usize> World<N>
where
    Cpus<N>: Capacity,
{
    /// User code on this CPU loads from or stores to a page of its space; faults are served.
    pub(super) fn touch(&self, page: usize, writes: bool) {
        let me = context().cpu();
        for _ in 0..MOST_TRIES {
            let Some(space) = self.current[me].borrow().clone() else {
                return;
            };
            context().work(1);
            if self.access(&space, page, writes) || !writes {
                return;
            }
            if !self.copy_on_write(&space, page) {
                return;
            }
        }
    }

    /// One access at one moment; tells whether it went through.
    fn access(&self, space: &Rc<Space<N>>, page: usize, writes: bool) -> bool {
        let Some(leaf) = self.translate(page) else {
            return false;
        };
        if writes && !leaf.writable {
            let cpu = context().cpu();
            self.hardware.fault(cpu, page);
            return false;
        }
        let verb = if writes { "stores to" } else { "loads from" };
        context().tell(|| {
            format!(
                "{verb} page {page} of space {} at frame {}",
                space.number, leaf.frame
            )
        });
        let book = self.hardware.book.borrow();
        let outcome = book.check_access(space.number, page, leaf.frame, writes);
        drop(book);
        self.insist(outcome);
        self.use_frame(leaf.frame);
        true
    }

    /// The memory notes the access: it must be over before the frame is somebody else's.
    fn use_frame(&self, frame: u16) {
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
        let held = self.kernel_lock.take(&self.engine);
        let is_mapped = self.kernel_pages.borrow()[index].is_some();
        // Under the lock, so that the page does not go away meanwhile.
        if is_mapped && let Some(leaf) = self.translate(kernel_page(index)) {
            let book = self.hardware.book.borrow();
            let outcome = book.check_access(KERNEL, leaf.page, leaf.frame, true);
            drop(book);
            self.insist(outcome);
            self.use_frame(leaf.frame);
        }
        drop(held);
    }

    /// A non-maskable interrupt that would like to look at user memory, whichever root it finds loaded.
    pub fn nmi(&self) {
        let Some(space) = self.loaded_space(context().cpu()) else {
            return;
        };
        if self.engine.user_access_ok() {
            let page = context().with(|state| {
                let explore = state.explore();
                explore.map_or(0, |explore| {
                    explore
                        .chooser
                        .choose(crate::explore::Question::Workload, crate::mm::USER_PAGES)
                })
            });
            self.access(&space, page, false);
        }
    }

    /// The space whose root the hardware has loaded.
    fn loaded_space(&self, cpu: usize) -> Option<Rc<Space<N>>> {
        let root = self.hardware.tlbs.borrow()[cpu].root();
        let spaces = self.all_spaces.borrow();
        let mut latest = spaces.iter().rev();
        latest
            .find(|space| (space.root, space.life) == root)
            .cloned()
    }

    fn translate(&self, page: usize) -> Option<Leaf> {
        let outcome = context().with(|state| {
            let cpu = state.running;
            let explore = state.explore()?;
            let (memory, chooser) = (&mut explore.memory, &mut explore.chooser);
            Some(self.hardware.translate(memory, chooser, cpu, page))
        });
        self.insist(outcome?)
    }
}
