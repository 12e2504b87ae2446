//! The caches of a processor that runs guests, whatever they are tagged with.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use super::super::tables::{Page, REGIONS, Tables};

/// Virtual pages of a guest.
pub const VIRTUAL: usize = 3;
/// This one is global in each guest's own tables.
pub const GLOBAL: usize = 0;

/// All of memory that holds tables.
#[derive(Debug)]
pub struct Memory {
    /// Roots are those of the guests' nested tables.
    pub nested: Tables,
    /// What each virtual CPU's own page tables say: a guest-physical page for each virtual one.
    pub own: Vec<[Page; VIRTUAL]>,
}

impl Memory {
    pub fn new(guests: usize, vcpus: usize) -> Self {
        let own = core::array::from_fn(|index| Page { region: 0, index });
        Self {
            nested: Tables::new(guests),
            own: vec![own; vcpus],
        }
    }
}

/// Whom a cached thing belongs to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Tag {
    /// ASID or VPID. None: under all VPIDs.
    pub own: Option<u32>,
    /// EP4TA. None: under an ASID alone.
    pub nested: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum What {
    /// Of the host.
    Host,
    /// A virtual page's frame, of both kinds of tables.
    Combined(usize, u32),
    /// A guest-physical page's frame.
    Nested(Page, u32),
    /// Where a region's table of pages is.
    Table(usize, usize),
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Cached {
    pub tag: Tag,
    pub what: What,
}

impl Cached {
    pub fn is_combined(&self) -> bool {
        matches!(self.what, What::Combined(..))
    }

    /// Whether it is what a guest's own tables call global.
    pub fn is_global(&self) -> bool {
        matches!(self.what, What::Combined(GLOBAL, _))
    }
}

/// What the processor runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Running {
    pub vcpu: usize,
    /// The guest whose tables the root is.
    pub root: usize,
    /// What combined things are tagged with, and what nested ones.
    pub combined: Tag,
    pub nested: Tag,
}

impl Running {
    pub fn may_use(&self, cached: &Cached) -> bool {
        match cached.what {
            What::Host => false,
            What::Combined(..) => cached.tag == self.combined,
            What::Nested(..) | What::Table(..) => cached.tag == self.nested,
        }
    }
}

/// When something was cached, in entries of guests.
pub type Born = u32;

#[derive(Debug)]
pub struct Caches {
    now: Cell<Born>,
    running: Cell<Option<Running>>,
    cached: RefCell<BTreeMap<Cached, Born>>,
}

impl Caches {
    pub fn new() -> Self {
        let new = Self {
            now: Cell::new(0),
            running: Cell::new(None),
            cached: RefCell::default(),
        };
        new.run_host();
        new
    }

    /// The host caches something of its own, under 0.
    fn run_host(&self) {
        let tag = Tag {
            own: Some(0),
            nested: None,
        };
        let what = What::Host;
        self.insert(Cached { tag, what });
    }

    pub fn running(&self) -> Option<Running> {
        self.running.get()
    }

    pub fn all(&self) -> BTreeMap<Cached, Born> {
        self.cached.borrow().clone()
    }

    /// What is cached from now on is younger.
    pub fn begin(&self) -> Born {
        self.now.set(self.now.get() + 1);
        self.now.get()
    }

    /// Guest mode begins.
    pub fn enter(&self, running: Running) {
        assert_eq!(self.running.get(), None);
        self.running.set(Some(running));
    }

    /// Guest mode ends: it has cached all that it could.
    pub fn exit(&self, memory: &Memory) {
        self.speculate(memory);
        self.running.set(None);
        self.run_host();
    }

    /// All that the guest may use now.
    pub fn usable(&self, memory: &Memory) -> Vec<(Cached, Born)> {
        self.speculate(memory);
        let running = self.running.get();
        let may_use = |cached: &Cached| running.is_some_and(|running| running.may_use(cached));
        let all = self.all().into_iter();
        all.filter(|(cached, _)| may_use(cached)).collect()
    }

    /// Caches whatever a walk of the running guest could, through what is cached too.
    pub fn speculate(&self, memory: &Memory) {
        let Some(running) = self.running.get() else {
            return;
        };
        let tag = running.nested;
        for region in 0..REGIONS {
            if let Some(table) = memory.nested.table_of(running.root, region) {
                let what = What::Table(region, table);
                self.insert(Cached { tag, what });
            }
        }
        for what in self.nested_things(tag) {
            let What::Table(region, table) = what else {
                continue;
            };
            for (index, leaf) in memory.nested.table(table).iter().enumerate() {
                if let Some(leaf) = leaf {
                    let what = What::Nested(Page { region, index }, leaf.frame);
                    self.insert(Cached { tag, what });
                }
            }
        }
        let tag = running.combined;
        for what in self.nested_things(running.nested) {
            let What::Nested(page, frame) = what else {
                continue;
            };
            for (virtual_page, physical) in memory.own[running.vcpu].iter().enumerate() {
                if *physical == page {
                    let what = What::Combined(virtual_page, frame);
                    self.insert(Cached { tag, what });
                }
            }
        }
    }

    fn nested_things(&self, tag: Tag) -> Vec<What> {
        let cached = self.cached.borrow();
        let of_tag = cached.keys().filter(|cached| cached.tag == tag);
        of_tag.map(|cached| cached.what).collect()
    }

    fn insert(&self, cached: Cached) {
        let now = self.now.get();
        self.cached.borrow_mut().entry(cached).or_insert(now);
    }

    pub fn drop_if(&self, is_dropped: impl Fn(&Cached) -> bool) {
        self.cached
            .borrow_mut()
            .retain(|cached, _| !is_dropped(cached));
    }

    /// The guest changes where one of its virtual pages leads, and drops what it has of it: INVLPG.
    pub fn guest_maps(&self, memory: &mut Memory, virtual_page: usize, page: Page) {
        let running = self.running.get().expect("a guest that runs");
        self.speculate(memory);
        memory.own[running.vcpu][virtual_page] = page;
        let own = running.combined.own;
        self.drop_if(|cached| {
            let is_page = matches!(cached.what, What::Combined(page, _) if page == virtual_page);
            is_page && cached.tag.own == own
        });
    }
}
