//! [`Scenario`]: fixed stories of two CPUs, of which only the schedule is left to chance.

use std::fmt;
use std::rc::Rc;
use std::str::FromStr;

use shootdown::sim::Ordering;
use shootdown::{Capacity, FlushRanges, FreedTables, Platform};

use crate::kernel::layout::window_page;
use crate::kernel::space::Private;
use crate::kernel::window::{Change, Window, Windows};
use crate::kernel::{KERNEL_REGION, PAGES_PER_TABLE, Pte, Space, World};
use crate::machine::context;

/// A fixed story.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Scenario {
    /// A mapping is marked as one CPU's, and its unmap flushes that CPU alone. The other CPU uses the address afterwards.
    PublishedFlag,
    /// The same with a private root.
    PrivateRoots,
    /// A window shows one frame after the other while the other CPU unmaps a page of the space.
    RemapAndFlush,
    /// The same, and the other CPU unlinks a table and links another.
    RemapAndUnlink,
    /// The same while the window's CPU goes from one root to the other.
    RemapAndSwitch,
    /// Four pages become one block, in place, and the table that mapped them is flushed as a table. The block is unmapped later by its one address.
    PromoteByTable,
    /// The same, flushed as one page of the block's size: other CPUs keep the four small translations, and the unmapping leaves three of them.
    PromoteByPage,
    /// A space whose root lacks the kernel's part, under which the engine's memory is.
    BareRoot,
    /// One CPU reads page tables without their lock, and takes on the way a lock whose holder waits for freed tables.
    WalkerLocks,
    /// Both CPUs read page tables without their lock, and free a table meanwhile: each would wait for the other.
    WalkersFree,
}

impl Scenario {
    /// All of them, with their names.
    pub const NAMES: [(Self, &'static str); 10] = [
        (Self::PublishedFlag, "published-flag"),
        (Self::PrivateRoots, "private-roots"),
        (Self::RemapAndFlush, "remap-and-flush"),
        (Self::RemapAndUnlink, "remap-and-unlink"),
        (Self::RemapAndSwitch, "remap-and-switch"),
        (Self::PromoteByTable, "promote-by-table"),
        (Self::PromoteByPage, "promote-by-page"),
        (Self::BareRoot, "bare-root"),
        (Self::WalkerLocks, "walker-locks"),
        (Self::WalkersFree, "walkers-free"),
    ];
    /// Each has so many CPUs.
    pub const CPUS: usize = 2;
    /// Whether the host does what it may; if not, its schedules are to fail.
    pub const fn is_sound(self) -> bool {
        !matches!(
            self,
            Self::PublishedFlag
                | Self::PromoteByPage
                | Self::BareRoot
                | Self::WalkerLocks
                | Self::WalkersFree
        )
    }

    /// The pages that they are about: what TLBs cache by themselves.
    pub(crate) const PAGES: [usize; 3] = [window_page(0), 0, PAGES_PER_TABLE];
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = Self::NAMES.iter().find(|(scenario, _)| scenario == self);
        f.write_str(named.map_or("unknown", |(_, name)| name))
    }
}

impl FromStr for Scenario {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = Self::NAMES.iter().find(|(_, name)| *name == text);
        named.map(|(scenario, _)| *scenario).ok_or_else(|| {
            let names = Self::NAMES.map(|(_, name)| name).join(", ");
            format!("`{text}` is no scenario: there are {names}")
        })
    }
}

impl<C: Capacity> World<C> {
    /// The part of the CPU that calls this.
    pub fn play(&self, scenario: Scenario) {
        let me = context().cpu();
        self.come_online(me);
        let space = match me {
            0 => self.set_stage(scenario),
            _ => self.enter_stage(),
        };
        match (scenario, me) {
            (Scenario::PublishedFlag, 0) => self.use_flag(&space),
            (Scenario::PrivateRoots, 0) => self.use_window(&space),
            (Scenario::PublishedFlag | Scenario::PrivateRoots, _) => {
                self.await_step(3);
                self.touch(window_page(0), false);
                self.step(4);
            }
            (Scenario::RemapAndFlush, 0) => self.remap(&space),
            (Scenario::RemapAndFlush, _) => self.unmap(&space, 0, 1, false),
            (Scenario::RemapAndUnlink, 0) => {
                self.remap(&space);
                self.touch(PAGES_PER_TABLE, false);
            }
            (Scenario::RemapAndSwitch, 0) => self.remap_by_turns(&space),
            (Scenario::RemapAndUnlink | Scenario::RemapAndSwitch, _) => self.replace_table(&space),
            (Scenario::PromoteByTable | Scenario::PromoteByPage, 0) => {
                self.promote_and_unmap(&space, scenario == Scenario::PromoteByTable);
            }
            (Scenario::PromoteByTable | Scenario::PromoteByPage, _) => {
                (0..PAGES_PER_TABLE).for_each(|page| self.touch(page, false));
                self.step(3);
                self.await_step(4);
                (0..PAGES_PER_TABLE).for_each(|page| self.touch(page, false));
                self.step(5);
            }
            (Scenario::BareRoot, _) => {}
            (Scenario::WalkerLocks, 0) => self.free_tables_under_lock(&space),
            (Scenario::WalkerLocks, _) => self.lock_in_walk(&space),
            (Scenario::WalkersFree, _) => self.free_tables_in_walk(&space),
        }
        drop(space);
        self.switch(None);
        self.finish();
    }

    /// A space that both CPUs run, the first by its private root where the story has one.
    fn set_stage(&self, scenario: Scenario) -> Rc<Space<C>> {
        let space = self.new_space().expect("memory for a space");
        assert!(self.publish_space(space.clone()).is_ok(), "the first space");
        // The table that the next owner of a window's frame needs, or the page that the other CPU unmaps.
        let pages = match scenario {
            Scenario::PublishedFlag | Scenario::PrivateRoots => 1..2,
            Scenario::PromoteByTable | Scenario::PromoteByPage => 0..PAGES_PER_TABLE,
            _ => 0..1,
        };
        pages.for_each(|page| self.map(&space, page, true));
        if scenario == Scenario::BareRoot {
            self.write_entry(space.root, KERNEL_REGION, Pte::EMPTY);
        }
        let entered = self.get_space(0).expect("it was published");
        match scenario {
            Scenario::PublishedFlag
            | Scenario::PromoteByTable
            | Scenario::PromoteByPage
            | Scenario::BareRoot
            | Scenario::WalkerLocks
            | Scenario::WalkersFree => self.switch(Some(entered)),
            _ => self.switch_to_windows(entered),
        }
        self.step(1);
        self.await_step(2);
        space
    }

    fn enter_stage(&self) -> Rc<Space<C>> {
        self.await_step(1);
        let space = self.get_space(0).expect("it was published");
        self.switch(Some(space.clone()));
        self.step(2);
        space
    }

    fn step(&self, number: u64) {
        // ORDERING: Release publishes what was done before the step; pairs with `await_step`.
        self.stage.store(number, Ordering::Release);
    }

    fn await_step(&self, number: u64) {
        // ORDERING: Acquire: see `step`.
        while self.stage.load(Ordering::Acquire) < number {
            self.engine.platform().relax();
        }
    }

    fn fresh(&self) -> Window {
        let frame = self.take_data().expect("memory for a page");
        Window {
            frame,
            writable: true,
        }
    }

    fn promote_and_unmap(&self, space: &Space<C>, by_table: bool) {
        self.await_step(3);
        self.promote(space, by_table);
        self.unmap_block(space);
        self.step(4);
        self.await_step(5);
    }

    fn free_tables_under_lock(&self, space: &Space<C>) {
        let held = space.lock.take(&self.engine);
        self.step(3);
        self.await_step(4);
        (self.engine).flush(&*space.context(), FlushRanges::WHOLE, FreedTables::Yes);
        drop(held);
    }

    fn lock_in_walk(&self, space: &Space<C>) {
        self.await_step(3);
        let view = space.context();
        let section = self.engine.user_memory().walk(&view);
        self.step(4);
        drop(space.lock.take(&self.engine));
        drop(section);
    }

    fn free_tables_in_walk(&self, space: &Space<C>) {
        let view = space.context();
        let section = self.engine.user_memory().walk(&view);
        (self.engine).flush(&*view, FlushRanges::WHOLE, FreedTables::Yes);
        drop(section);
    }

    fn use_flag(&self, space: &Space<C>) {
        let window = self.fresh();
        let table = self.map_flagged(space, window);
        self.touch(window_page(0), true);
        self.unmap_flagged(space, table, window.frame);
        // The frame's next owner.
        self.map(space, 0, true);
        self.step(3);
        self.await_step(4);
        self.unlink_flagged(space, table);
    }

    fn use_window(&self, space: &Space<C>) {
        let windows = self.windows_here(space).expect("they are loaded");
        self.show_first(&windows, Some(self.fresh()));
        self.touch(window_page(0), true);
        self.show_first(&windows, None);
        self.map(space, 0, true);
        self.step(3);
        self.await_step(4);
    }

    fn show_first(&self, windows: &Windows, wanted: Option<Window>) {
        let change: Change = (0, wanted);
        self.change_windows(windows, &[change], false, false);
    }

    /// Each time the frame shown before is free, and the next one to be taken.
    fn remap(&self, space: &Space<C>) {
        let windows = self.windows_here(space).expect("they are loaded");
        self.show_first(&windows, Some(self.fresh()));
        self.touch(window_page(0), true);
        self.show_first(&windows, Some(self.fresh()));
        self.touch(0, false);
        self.touch(window_page(0), true);
        self.show_first(&windows, None);
        self.map(space, 1, true);
        self.touch(window_page(0), false);
    }

    fn remap_by_turns(&self, space: &Rc<Space<C>>) {
        let windows = self.windows_here(space).expect("they are loaded");
        self.show_first(&windows, Some(self.fresh()));
        self.touch(window_page(0), true);
        self.change_to(space, None);
        self.show_first(&windows, Some(self.fresh()));
        self.touch(window_page(0), false);
        self.touch(0, false);
        self.change_to(space, Some(windows));
        self.touch(window_page(0), true);
        self.touch(PAGES_PER_TABLE, false);
    }

    fn change_to(&self, space: &Rc<Space<C>>, windows: Option<Rc<Windows>>) {
        assert!(self.revive(space), "it has its place");
        let root = windows.map_or(Private::None, Private::Windows);
        self.switch_by(Some(space.clone()), root);
    }

    /// The table of one region becomes that of another.
    fn replace_table(&self, space: &Space<C>) {
        self.unmap(space, 0, 1, true);
        self.map(space, PAGES_PER_TABLE, true);
        self.touch(PAGES_PER_TABLE, true);
    }
}
