//! Changes of page tables with their flushes, and loads that must not find what is gone.

use shootdown::{
    Capacity, Cpus, FlushRange, FlushScope, FreedTables, PageSize, Platform, windows::PinnedWindows,
};

use crate::host::Host;
use crate::memory::{Memory, Region};
use crate::operation::Operation;
use crate::pages::{NEWEST, SPACES, Wrong, judge, poison};
use crate::rng::Rng;
use crate::step::Step;
use crate::sync::Tally;
use crate::unlinked::{Batch, Changed, Gone, MOST_PAGES, Sum, Unlinked};
use crate::violation::Promise;

/// Loads in one step.
const MOST_LOADS: u64 = 8;

impl<H: Host<N>, const N: usize> Step<'_, H, N>
where
    Cpus<N>: Capacity,
{
    /// Other frames for some pages of one region, or none.
    pub(crate) fn change(&self, rng: &mut Rng) -> bool {
        match self.operation {
            Operation::ChangeKernel => self.change_kernel(rng),
            Operation::Unmap => self.change_some(rng),
            _ => {
                let index = rng.below(self.host.memory().spaces() as u64);
                self.change_space(rng, index as usize)
            }
        }
    }

    /// The same as a part of another operation; any region that the host has.
    pub(crate) fn change_some(&self, rng: &mut Rng) -> bool {
        let memory = self.host.memory();
        let index = rng.below(SPACES as u64) as usize;
        if index < memory.spaces() {
            self.change_space(rng, index)
        } else {
            memory.pages(Region::Kernel) > 0 && self.change_kernel(rng)
        }
    }

    fn change_space(&self, rng: &mut Rng, index: usize) -> bool {
        let mut changed = Changed::nothing(Region::Space(index));
        let mut batch = Batch::new(self.host.memory().space(index));
        self.remap_into(rng, &mut changed, &mut batch);
        if batch.is_empty() {
            self.disown(&changed);
            return false;
        }
        self.flush_batch(rng, index, &changed, batch);
        true
    }

    fn change_kernel(&self, rng: &mut Rng) -> bool {
        let mut changed = Changed::nothing(Region::Kernel);
        let mut gone = Gone::default();
        self.remap(rng, &mut changed, |page, frame| gone.add(page, frame));
        if gone.range.is_empty() {
            self.disown(&changed);
            return false;
        }
        let ticket = self
            .host
            .engine()
            .submit_flush(FlushScope::Kernel, gone.range, FreedTables::No)
            .hold(gone);
        self.submitted(&changed);
        self.maybe_move(rng);
        self.take_back(ticket.wait().frames());
        self.settle(&changed);
        true
    }

    /// Other frames for some of this CPU's windows, whether the private root is loaded or not.
    pub(crate) fn change_window(&self, rng: &mut Rng) -> bool {
        let here = self.here().index();
        let mut done = false;
        self.host.memory().with_windows(here, &mut |windows| {
            // The task may have moved meanwhile.
            let pinned = self.host.engine().windows().pin(windows);
            done = pinned.is_ok_and(|pinned| self.change_pinned(rng, here, &pinned));
        });
        done
    }

    fn change_pinned(
        &self,
        rng: &mut Rng,
        here: usize,
        pinned: &PinnedWindows<'_, H::Platform>,
    ) -> bool {
        let mut changed = Changed::nothing(Region::Window(here));
        let mut gone = Gone::default();
        self.remap(rng, &mut changed, |page, frame| gone.add(page, frame));
        pinned.flush(gone.range);
        self.disown(&changed);
        self.take_back(gone.frames());
        self.settle(&changed);
        !gone.range.is_empty()
    }

    /// Moves a page table, and gives some of its pages other frames.
    pub(crate) fn change_table(&self, rng: &mut Rng) -> bool {
        let memory = self.host.memory();
        let index = rng.below(memory.spaces() as u64) as usize;
        let region = Region::Space(index);
        let (first, count) = memory.table_pages(rng.below(memory.pages(region) as u64) as usize);
        let mut changed = Changed::nothing(region);
        let books = &self.torture.pages;
        let owns_all = (first..first + count).all(|page| {
            let owns = books.try_own(region, page);
            changed.owned |= u64::from(owns) << page;
            owns
        });
        let table = owns_all
            .then(|| self.with_irqs_off(|| memory.move_table(index, first)))
            .flatten();
        let Some(table) = table else {
            self.disown(&changed);
            return false;
        };
        let mut batch = Batch::new(self.host.memory().space(index));
        // The engine names regions of tables by a power of two.
        let bytes = (count * memory.page_size().bytes()).next_power_of_two();
        let covered = PageSize::from_shift(bytes.trailing_zeros() as u8);
        let kept = batch.table(
            memory.address(region, first),
            covered,
            Unlinked::Table(table),
        );
        debug_assert!(kept.is_ok(), "the batch was empty");
        changed.given.add(Unlinked::Table(table));
        self.remap_into(rng, &mut changed, &mut batch);
        self.flush_batch(rng, index, &changed, batch);
        true
    }

    fn remap_into(&self, rng: &mut Rng, changed: &mut Changed, batch: &mut Batch) {
        let mut given = changed.given;
        self.remap(rng, changed, |page, frame| match frame {
            None => batch.range(page),
            Some(frame) => {
                let kept = batch.page(page.start(), page.page_size(), Unlinked::Frame(frame));
                debug_assert!(kept.is_ok(), "there is room for every page of a change");
                given.add(Unlinked::Frame(frame));
            }
        });
        changed.given = given;
    }

    /// Gives some pages other frames, or none, those that this worker owns or can own, and hands each with the frame that it
    /// had to `unlinked`.
    fn remap(
        &self,
        rng: &mut Rng,
        changed: &mut Changed,
        mut unlinked: impl FnMut(FlushRange, Option<usize>),
    ) {
        let (memory, books) = (self.host.memory(), &self.torture.pages);
        let region = changed.region;
        let pages = memory.pages(region);
        let first = rng.below(pages as u64) as usize;
        // Mostly few pages; now and then more than the engine's ceiling.
        let most = if rng.once_in(8) { MOST_PAGES } else { 4 };
        let count = 1 + rng.below(most as u64) as usize;
        for page in first..pages.min(first + count) {
            if changed.owned >> page & 1 == 0 {
                if !books.try_own(region, page) {
                    continue;
                }
                changed.owned |= 1 << page;
            }
            let frame = match self.unmaps() {
                true => None,
                false => books.take_frame(rng.next_u64()),
            };
            let is_possible = match self.unmaps() {
                true => books.frame(region, page).is_some(),
                false => frame.is_some(),
            };
            if is_possible {
                let before = self.with_irqs_off(|| self.map(region, page, frame));
                changed.versions[page] = books.version(region, page);
                let address = memory.address(region, page);
                unlinked(FlushRange::pages(address, 1, memory.page_size()), before);
            }
        }
    }

    /// Maps an owned page to a frame, or to none; returns the one that it had. Interrupts are off.
    fn map(&self, region: Region, page: usize, frame: Option<usize>) -> Option<usize> {
        let (before, tag) = self.torture.pages.change(region, page, frame);
        let memory = self.host.memory();
        if let Some(frame) = frame {
            memory.write_frame(frame, tag.word());
        }
        memory.map(region, page, frame);
        before
    }

    /// Maps a page that is unmapped, without a flush, and makes it this worker's; returns its version. Interrupts are off.
    fn map_anew(&self, region: Region, page: usize, hint: u64) -> Option<u64> {
        let books = &self.torture.pages;
        if !books.try_own_unmapped(region, page) {
            return None;
        }
        let Some(frame) = books.take_frame(hint) else {
            books.disown(region, page);
            return None;
        };
        self.map(region, page, Some(frame));
        Some(books.version(region, page))
    }

    fn unmaps(&self) -> bool {
        self.operation == Operation::Unmap
    }

    fn flush_batch(&self, rng: &mut Rng, index: usize, changed: &Changed, batch: Batch) {
        let space = self.host.memory().space(index);
        let ticket = self.host.engine().submit_batch(space, batch);
        self.submitted(changed);
        self.maybe_move(rng);
        let back = self.take_back(ticket.wait());
        if back != changed.given {
            self.report(
                Promise::FramesBack,
                self.here(),
                changed.given.count,
                back.count,
            );
        }
        self.settle(changed);
    }

    fn disown(&self, changed: &Changed) {
        for page in changed.owned_pages() {
            self.torture.pages.disown(changed.region, page);
        }
    }

    /// The flush is on its way: others may change these pages, too. Who maps something at an address that was unmapped flushes nothing, so that
    /// it is withheld, as its frame is.
    fn submitted(&self, changed: &Changed) {
        if !self.unmaps() {
            self.disown(changed);
        }
    }

    /// The flush is over.
    fn settle(&self, changed: &Changed) {
        for (page, version) in changed.versions.iter().enumerate() {
            if *version > 0 {
                let pages = &self.torture.pages;
                pages.settle(changed.region, page, *version);
            }
        }
        if self.unmaps() {
            self.disown(changed);
        }
    }

    /// Makes what a ticket gave back useless, and free; returns what it was.
    fn take_back(&self, unlinked: impl Iterator<Item = Unlinked>) -> Sum {
        let memory = self.host.memory();
        let mut back = Sum::default();
        for it in unlinked {
            back.add(it);
            match it {
                Unlinked::Table(table) => {
                    if let Some(freed) = self.torture.freed.get(table) {
                        freed.add(1);
                    }
                    self.with_irqs_off(|| memory.free_table(table));
                }
                Unlinked::Frame(frame) => {
                    self.with_irqs_off(|| memory.write_frame(frame, poison(frame)));
                    if !self.torture.pages.give_frame(frame) {
                        self.report(Promise::FramesBack, self.here(), 0, frame as u64);
                    }
                }
            }
        }
        back
    }

    pub(crate) fn flush_whole(&self, rng: &mut Rng) -> bool {
        let memory = self.host.memory();
        let space = memory.space(rng.below(memory.spaces() as u64) as usize);
        let freed = match rng.once_in(2) {
            true => FreedTables::Yes,
            false => FreedTables::No,
        };
        self.host.engine().flush(space, FlushRange::WHOLE, freed);
        true
    }

    /// Reads which table translates a page, of a space that may be loaded elsewhere only, and sees to it that nobody frees it meanwhile.
    pub(crate) fn walk(&self, rng: &mut Rng) -> bool {
        let (memory, engine) = (self.host.memory(), self.host.engine());
        let index = rng.below(memory.spaces() as u64) as usize;
        let page = rng.below(memory.pages(Region::Space(index)) as u64) as usize;
        self.with_irqs_off(|| {
            if !engine.ready_cpus().contains(self.here()) {
                return false;
            }
            let section = engine.user_memory().walk(memory.space(index));
            let table = memory.table_of(index, page);
            let freed = table.and_then(|table| self.torture.freed.get(table));
            let before = freed.map(Tally::get);
            for _ in 0..rng.below(MOST_LOADS) {
                engine.poll();
                engine.platform().relax();
            }
            let after = freed.map(Tally::get);
            drop(section);
            if after != before {
                let name = table.unwrap_or_default() as u64;
                self.report(Promise::NotReused, self.here(), name, name);
            }
            freed.is_some()
        })
    }

    /// Loads of random pages.
    pub(crate) fn access(&self, rng: &mut Rng) -> bool {
        let mut found = false;
        for _ in 0..=rng.below(MOST_LOADS) {
            found |= self.load(rng);
        }
        found
    }

    /// One load, as one instruction: no interrupt comes between the look at the books, the translation and the use.
    fn load(&self, rng: &mut Rng) -> bool {
        let memory = self.host.memory();
        let random = rng.next_u64();
        self.load_page(|| {
            let here = self.here().index();
            let region = match memory.entered() {
                Some(0) if random & 0xc == 0 && memory.has_windows(here) => Region::Window(here),
                Some(index) if random & 3 != 0 => Region::Space(index),
                _ => Region::Kernel,
            };
            (region, random >> 8)
        })
    }

    /// What a called function does: it uses the kernel's part, also on a CPU that is going offline.
    pub(crate) fn load_in_function(&self, random: u64) {
        self.load_page(|| (Region::Kernel, random));
    }

    /// Loads the page with this number of the region, going round. One that is unmapped is mapped before.
    fn load_page(&self, choose: impl FnOnce() -> (Region, u64)) -> bool {
        let memory = self.host.memory();
        let result = self.with_irqs_off(|| {
            let (region, number) = choose();
            // Of a host with spaces, the kernel's region may have none.
            let page = number.checked_rem(memory.pages(region) as u64)? as usize;
            let books = &self.torture.pages;
            let own = self.map_anew(region, page, number);
            let versions = match own {
                Some(version) => version..=version,
                None => books.oldest(region, page)..=NEWEST,
            };
            let word = memory.load(region, page);
            if own.is_some() {
                books.disown(region, page);
            }
            word.map(|word| judge(region, page, versions, word))
        });
        let (promise, expected, found) = match result {
            None => return false,
            Some(Ok(())) => return true,
            Some(Err(Wrong::Stale(expected, found))) => (Promise::Fresh, expected, found),
            Some(Err(Wrong::Reused(expected, found))) => (Promise::NotReused, expected, found),
        };
        self.report(promise, self.here(), expected, found);
        true
    }

    /// Another space for this task, or none.
    pub(crate) fn enter(&self, rng: &mut Rng) -> bool {
        let memory = self.host.memory();
        let index = rng.below(memory.spaces() as u64 + 1) as usize;
        memory.enter((index < memory.spaces()).then_some(index));
        true
    }

    fn with_irqs_off<R>(&self, work: impl FnOnce() -> R) -> R {
        let platform = self.host.engine().platform();
        let irq = platform.irq_save();
        let result = work();
        // SAFETY: 1. saved above.
        unsafe { platform.irq_restore(irq) };
        result
    }
}
