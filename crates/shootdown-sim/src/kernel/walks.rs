//! Walks of page tables without their lock, judged at each step; and a table of each space that only they find, which its owner gives up after a sync.

use shootdown::sim::Ordering;
use shootdown::{Capacity, FreedTables};

use crate::kernel::layout::address_of;
use crate::kernel::sightings::Sight;
use crate::kernel::theme::Draw;
use crate::kernel::{KERNEL_REGION, PAGES_PER_TABLE, Pte, Space, World};
use crate::machine::context;

impl<C: Capacity> World<C> {
    /// Reads tables of the space that is loaded here, or of any.
    pub(super) fn walk_tables(&self, draw: &mut Draw) {
        // A thread that moves would leave its space behind.
        context().preempt_disable();
        let own = self.current[context().cpu()].borrow().clone();
        match own.filter(|_| draw.random.bool()) {
            Some(space) => self.walk(&space, draw),
            None => self.with_any_space(draw, |draw, space| self.walk(space, draw)),
        }
        context().preempt_enable();
    }

    fn with_any_space(&self, draw: &mut Draw, work: impl FnOnce(&mut Draw, &Space<C>)) {
        if let Some(space) = self.get_space(draw.place()) {
            work(draw, &space);
            self.put_space(space);
        }
    }

    fn walk(&self, space: &Space<C>, draw: &mut Draw) {
        let is_elsewhere = !space
            .context()
            .cpus()
            .contains(self.numbers[context().cpu()]);
        if is_elsewhere {
            self.hardware.saw(Sight::WalkedElsewhere);
        }
        let view = space.context();
        let own = self.known_own_root(space);
        let of_region = own.and_then(|own| {
            let (reach, page) = (self.engine.user_memory().reach(), draw.page());
            let section = reach.walk(&view, own.engine.borrow().as_ref(), address_of(page))?;
            self.hardware.saw(Sight::WalkedRegion);
            Some((section, page / PAGES_PER_TABLE))
        });
        let (section, region) = match of_region {
            Some((section, region)) => (section, Some(region)),
            None => (self.engine.user_memory().walk(&view), None),
        };
        context().tell(|| format!("walks the tables of space {}", space.number));
        for _ in 0..1 + draw.below(3) {
            self.walk_a_table(space, region, draw);
        }
        if draw.once_in(4) {
            // Not by `get_space`: the holder of that lock may wait.
            let inner = self.engine.user_memory().walk(&view);
            self.walk_a_table(space, None, draw);
            drop(inner);
            self.walk_a_table(space, region, draw);
        }
        context().tell(|| format!("has walked the tables of space {}", space.number));
        drop(section);
    }

    /// Reads what an entry of the root leads to, of this region or of any, several times.
    fn walk_a_table(&self, space: &Space<C>, region: Option<usize>, draw: &mut Draw) {
        let physical = &self.hardware.physical;
        let entry = match region.unwrap_or_else(|| draw.below(KERNEL_REGION + 1)) {
            KERNEL_REGION => &space.side,
            region => physical.entry(space.root, region),
        };
        // ORDERING: acquires the contents of what the entry leads to; pairs with `write_entry`.
        let entry = Pte(entry.load(Ordering::Acquire));
        let Some(table) = entry.frame().filter(|_| !entry.is_block()) else {
            return;
        };
        let life = self.hardware.book.borrow().life_of_table(table);
        let life = self.insist(life);
        let walked = &self.walked[context().cpu()];
        walked.set(Some(table));
        for _ in 0..1 + draw.below(10) {
            match draw.below(4) {
                0 => _ = self.engine.poll(),
                // Its holder waits for nobody.
                1 => self.look_at_frames(),
                _ => context().work(1),
            }
            let leaf = physical.entry(table, draw.below(PAGES_PER_TABLE));
            leaf.load(Ordering::Relaxed);
            let outcome = self.hardware.book.borrow().check_table(table, life);
            self.insist(outcome);
        }
        walked.set(None);
    }

    /// Replaces the table that only walks find, or takes it away.
    pub(super) fn replace_side_table(&self, draw: &mut Draw) {
        let (keeps_lock, is_gone, by_flush) =
            (draw.random.bool(), draw.once_in(3), draw.once_in(4));
        self.with_any_space(draw, |_, space| {
            let fresh = (!is_gone).then(|| self.take_table()).flatten();
            let held = space.lock.take(&self.engine);
            let entry = fresh.map_or(Pte::EMPTY, |table| Pte::to(table, true));
            let before = Pte(space.side.as_core().load(Ordering::Relaxed));
            // ORDERING: as in `write_entry`.
            space.side.store(entry.0, Ordering::Release);
            let held = keeps_lock.then_some(held);
            match by_flush {
                // No range, but tables.
                true => {
                    let nothing = shootdown::FlushRanges::EMPTY;
                    let view = space.context();
                    self.wait((self.engine).submit_flush(&*view, nothing, FreedTables::Yes));
                }
                false => self.engine.user_memory().sync_walks(&space.context()),
            }
            drop(held);
            if let Some(table) = before.frame() {
                self.hardware.saw(Sight::TableSynced);
                self.release_table(table);
            }
        });
    }

    /// The space is over.
    pub(super) fn free_side_table(&self, space: &Space<C>) {
        let entry = Pte(space.side.as_core().load(Ordering::Relaxed));
        if let Some(table) = entry.frame() {
            self.release_table(table);
        }
    }
}
