//! [`Device`]: a secondary TLB in hardware. It walks the tables of one space, of a guest or of the kernel by itself, keeps what it finds, and drops what it is told to drop some time after it
//! was told.

use std::collections::VecDeque;
use std::mem;
use std::num::NonZeroU64;

use shootdown::{FreedTables, remote::FlushRequest};

use crate::explore::{Chooser, Question, Walk, Weak};
use crate::kernel::layout::{KERNEL, KERNEL_REGION, PAGES_PER_TABLE, page_at};
use crate::kernel::sightings::Sight;
use crate::kernel::tlb::Structure;
use crate::kernel::{Leaf, SharedHardware};
use crate::oracle::Breach;

/// Whose tables it walks.
#[derive(Clone, Debug)]
pub(super) struct Bound {
    /// The space's number.
    pub(super) space: u64,
    pub(super) root: u16,
    pub(super) life: u32,
    /// What its walks know when they begin.
    pub(super) walk: Walk,
    /// Whether it may walk: not while it is being bound or let go.
    pub(super) walks: bool,
}

/// What it was told, and has not done.
#[derive(Debug)]
struct Command {
    notice: NonZeroU64,
    request: FlushRequest,
    /// What the initiator knew.
    now: Walk,
}

/// One device.
#[derive(Default, Debug)]
pub(super) struct Device {
    /// It keeps entries of the root only: what concerns it are tables that are freed.
    pub(super) keeps_tables_only: bool,
    pub(super) bound: Option<Bound>,
    leaves: Vec<Leaf>,
    structures: Vec<Structure>,
    queue: VecDeque<Command>,
}

/// What somebody waits for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Notice {
    is_done: bool,
    before: Option<NonZeroU64>,
}

/// Where a notice is: they are numbered from one.
fn place_of(notice: NonZeroU64) -> usize {
    notice.get() as usize - 1
}

/// Whether a flush names a page.
pub(super) fn names_page(request: &FlushRequest, page: usize) -> bool {
    let mut ranges = request.ranges();
    ranges.any(|range| (page_at(range.start())..=page_at(range.end() - 1)).contains(&page))
}

/// Whether it names a table, which may be free afterwards.
fn names_table(request: &FlushRequest, region: usize) -> bool {
    let first = region * PAGES_PER_TABLE;
    request.freed_tables() == FreedTables::Yes
        && (first..first + PAGES_PER_TABLE).any(|page| names_page(request, page))
}

impl Device {
    /// Whether it has anything to do with such a flush.
    pub(super) fn heeds(&self, request: &FlushRequest) -> bool {
        !self.keeps_tables_only || request.freed_tables() == FreedTables::Yes
    }

    /// Where it looks that looks in `region` of a space.
    fn region(&self, region: usize) -> usize {
        let is_kernel = |bound: &Bound| bound.space == KERNEL;
        match self.bound.as_ref().is_some_and(is_kernel) {
            true => KERNEL_REGION,
            false => region,
        }
    }

    pub(super) fn reaches_table(&self, table: u16) -> bool {
        let mut structures = self.structures.iter();
        self.bound.as_ref().is_some_and(|bound| bound.root == table)
            || structures.any(|entry| entry.table == table)
    }

    /// Drops what a flush names, and sees the change from here on.
    fn obey(&mut self, request: &FlushRequest, now: &Walk) {
        self.leaves.retain(|leaf| !names_page(request, leaf.page));
        self.structures
            .retain(|entry| !names_table(request, entry.region));
        for entry in &mut self.structures {
            entry.walk.join(now);
        }
        if let Some(bound) = &mut self.bound {
            bound.walk.join(now);
        }
    }
}

/// What a device may do by itself.
#[derive(Clone, Copy, Debug)]
pub(super) enum DeviceAct {
    /// Caches where each page of a region leads.
    Cache(usize),
    /// Caches the entry of the root for a region.
    CacheStructure(usize),
    Use,
    Evict,
    Obey,
}

impl DeviceAct {
    pub(super) const COUNT: usize = 2 * KERNEL_REGION + 3;

    fn from_number(number: usize) -> Self {
        const REGIONS: usize = 2 * KERNEL_REGION;
        match number {
            0..KERNEL_REGION => Self::Cache(number),
            KERNEL_REGION..REGIONS => Self::CacheStructure(number - KERNEL_REGION),
            REGIONS => Self::Use,
            number if number == REGIONS + 1 => Self::Evict,
            _ => Self::Obey,
        }
    }
}

impl SharedHardware {
    /// Its machine has such devices.
    pub(super) fn add_devices(&self, keep_tables_only: &[bool]) {
        let device = |only: &bool| Device {
            keeps_tables_only: *only,
            ..Device::default()
        };
        *self.devices.borrow_mut() = keep_tables_only.iter().map(device).collect();
    }

    /// Tells a device of a flush; the result is done when it has obeyed, and what came before is done.
    pub(super) fn tell_device(
        &self,
        at: usize,
        request: &FlushRequest,
        now: Walk,
        before: Option<NonZeroU64>,
    ) -> NonZeroU64 {
        let mut notices = self.notices.borrow_mut();
        notices.push(Notice {
            is_done: false,
            before,
        });
        let notice = NonZeroU64::new(notices.len() as u64).expect("there is one");
        self.devices.borrow_mut()[at].queue.push_back(Command {
            notice,
            request: *request,
            now,
        });
        notice
    }

    /// What is not done of a notice and those before it.
    pub(super) fn open_notices(&self, notice: NonZeroU64) -> Vec<NonZeroU64> {
        let notices = self.notices.borrow();
        let before = |at: &NonZeroU64| notices[place_of(*at)].before;
        let all = std::iter::successors(Some(notice), before);
        all.filter(|at| !notices[place_of(*at)].is_done).collect()
    }

    /// A device does the oldest thing that it was told; false if there is none.
    pub(super) fn have_obeyed(&self, at: usize) -> bool {
        let device = &mut self.devices.borrow_mut()[at];
        let Some(command) = device.queue.pop_front() else {
            return false;
        };
        device.obey(&command.request, &command.now);
        self.notices.borrow_mut()[place_of(command.notice)].is_done = true;
        true
    }

    /// The devices do what these notices say, and all that they were told before.
    pub(super) fn finish_notices(&self, open: &[NonZeroU64]) {
        let devices = self.devices.borrow().len();
        for at in 0..devices {
            let is_open = |command: &Command| open.contains(&command.notice);
            while self.devices.borrow()[at].queue.iter().any(is_open) {
                self.have_obeyed(at);
            }
        }
    }

    /// A device keeps nothing any more, and has done what it was told.
    pub(super) fn reset_device(&self, at: usize) {
        while self.have_obeyed(at) {}
        let device = &mut self.devices.borrow_mut()[at];
        device.leaves.clear();
        device.structures.clear();
    }

    /// A device may use all that it keeps.
    pub(super) fn check_device(&self, at: usize) -> Result<(), Breach> {
        let device = &self.devices.borrow()[at];
        let book = self.book.borrow();
        let space = device.bound.as_ref().map_or(0, |bound| bound.space);
        let mut leaves = device.leaves.iter();
        leaves.try_for_each(|leaf| book.check_access(space, leaf.page, leaf.frame, leaf.writable))
    }

    /// Does what this number says.
    pub(super) fn act_on_device_as_told(
        &self,
        memory: &mut Weak,
        chooser: &mut Chooser,
        number: usize,
    ) -> Result<(), Breach> {
        let at = number / DeviceAct::COUNT;
        let act = DeviceAct::from_number(number % DeviceAct::COUNT);
        self.act_on_device(memory, chooser, at, act)
            .map_err(|(kind, story)| (kind, format!("device {at}: {story}")))
    }

    fn act_on_device(
        &self,
        memory: &mut Weak,
        chooser: &mut Chooser,
        at: usize,
        act: DeviceAct,
    ) -> Result<(), Breach> {
        match act {
            DeviceAct::Cache(region) => {
                let first = self.devices.borrow()[at].region(region) * PAGES_PER_TABLE;
                for page in first..first + PAGES_PER_TABLE {
                    let found = self.walk_by_device(memory, chooser, at, page)?;
                    let leaves = &mut self.devices.borrow_mut()[at].leaves;
                    leaves.retain(|known| found.is_none() || known.page != page);
                    leaves.extend(found);
                }
            }
            DeviceAct::CacheStructure(region) => {
                let region = self.devices.borrow()[at].region(region);
                if let Some(entry) = self.structure_of_device(memory, chooser, at, region)? {
                    let structures = &mut self.devices.borrow_mut()[at].structures;
                    structures.retain(|known| known.region != region);
                    structures.push(entry);
                }
            }
            DeviceAct::Use => {
                self.check_device(at)?;
                if !self.devices.borrow()[at].leaves.is_empty() {
                    self.saw(Sight::DeviceUsed);
                }
            }
            DeviceAct::Evict => {
                let device = &mut self.devices.borrow_mut()[at];
                device.leaves.truncate(1);
                device.structures.truncate(1);
            }
            DeviceAct::Obey => _ = self.have_obeyed(at),
        }
        Ok(())
    }

    fn walk_by_device(
        &self,
        memory: &mut Weak,
        chooser: &mut Chooser,
        at: usize,
        page: usize,
    ) -> Result<Option<Leaf>, Breach> {
        let region = page / PAGES_PER_TABLE;
        if self.devices.borrow()[at].keeps_tables_only {
            return Ok(None);
        }
        let Some(mut entry) = self.structure_of_device(memory, chooser, at, region)? else {
            return Ok(None);
        };
        let index = page % PAGES_PER_TABLE;
        let pte = self.read(memory, chooser, &mut entry.walk, entry.table, index);
        Ok(pte.frame().map(|frame| Leaf {
            page,
            frame,
            writable: pte.is_writable(),
            is_block: false,
        }))
    }

    /// The entry of the root for a region: one that it keeps, or one read now.
    fn structure_of_device(
        &self,
        memory: &mut Weak,
        chooser: &mut Chooser,
        at: usize,
        region: usize,
    ) -> Result<Option<Structure>, Breach> {
        let device = &self.devices.borrow()[at];
        let known = device.structures.iter().find(|it| it.region == region);
        if let Some(known) = known
            && chooser.choose(Question::Tlb, 2) == 0
        {
            self.book.borrow().check_table(known.table, known.life)?;
            return Ok(Some(known.clone()));
        }
        let Some(bound) = device.bound.clone().filter(|bound| bound.walks) else {
            return Ok(None);
        };
        self.book.borrow().check_table(bound.root, bound.life)?;
        let mut walk = bound.walk;
        let pte = self.read(memory, chooser, &mut walk, bound.root, region);
        let Some(table) = pte.frame().filter(|_| !pte.is_block()) else {
            return Ok(None);
        };
        let life = self.book.borrow().life_of_table(table)?;
        Ok(Some(Structure {
            region,
            table,
            life,
            walk,
            is_block: false,
        }))
    }

    /// A device may not walk any more, and keeps nothing.
    pub(super) fn stop_device(&self, at: usize) {
        if let Some(bound) = &mut self.devices.borrow_mut()[at].bound {
            bound.walks = false;
        }
        self.reset_device(at);
    }

    /// A device that has been stopped, and is told nothing, is free.
    pub(super) fn free_device(&self, at: usize) {
        self.reset_device(at);
        mem::take(&mut self.devices.borrow_mut()[at].bound);
    }
}
