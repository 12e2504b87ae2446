//! What the flushes are about: memory that is reached through translations.

use shootdown::{AddressSpace, Capacity, Cpus, PageSize, windows::WindowRoot};

/// A set of pages that share a page table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Region {
    /// The user part of a space.
    Space(usize),
    /// The kernel's part, which all spaces share.
    Kernel,
    /// The windows of the CPU with this number, in space 0.
    Window(usize),
}

/// Page tables, frames and loads. [`map`](Self::map), [`load`](Self::load), [`write_frame`](Self::write_frame), [`move_table`](Self::move_table) and
/// [`free_table`](Self::free_table) change or use them, with interrupts off, and must not wait for flushes or functions. A short lock
/// is allowed, also one that polls. The others are called in any state, [`enter`](Self::enter) with interrupts on.
///
/// Numbers that do well: two to four spaces, 16 to 64 pages, and more frames than all regions have pages together, or changes find none free.
///
/// The torture owns which frame is used for what; the host maps, loads and stores. Frames hold one word each that is
/// looked at.
pub trait Memory<const N: usize>: Sync
where
    Cpus<N>: Capacity,
{
    /// How many spaces, at most [`SPACES`](crate::SPACES); none where nothing can be mapped.
    fn spaces(&self) -> usize;

    /// The engine's view of space `index`.
    fn space(&self, index: usize) -> &AddressSpace<Cpus<N>>;

    /// How many pages each region has, at most [`PAGES`](crate::PAGES), and of windows
    /// [`WINDOW_PAGES`](crate::WINDOW_PAGES); all are unmapped at the beginning. A region may have none.
    fn pages(&self, region: Region) -> usize;

    /// Where page number `page` of the region is.
    fn address(&self, region: Region, page: usize) -> usize;

    /// The size of all pages.
    fn page_size(&self) -> PageSize {
        PageSize::SIZE_4K
    }

    /// How many frames, at most [`FRAMES`](crate::FRAMES).
    fn frames(&self) -> usize;

    /// Stores `word` in a frame, not by way of the page tables under test.
    fn write_frame(&self, frame: usize, word: u64);

    /// Changes the page-table entry of a page, or empties it, and flushes nothing. Only one CPU at a time does that to a page. An address that was
    /// emptied is given out again when its flush is over, to whichever CPU loads it next, which maps another frame there.
    fn map(&self, region: Region, page: usize, frame: Option<usize>);

    /// Loads the word at a page as the running CPU's translations have it, with the space of the running task loaded;
    /// `None` if there is no translation, or if the processor still takes it so: that is never a violation. Called with interrupts off. Where the CPU
    /// has windows, a fault in space 0 calls [`Windows::refresh`](shootdown::windows::Windows::refresh) and tries again.
    fn load(&self, region: Region, page: usize) -> Option<u64>;

    /// The space of the running task.
    fn entered(&self) -> Option<usize>;

    /// Gives the running task another space, or none; task context, interrupts on. Without a space pages of spaces are not loaded, so
    /// [`enter_lazy`](shootdown::user_memory::UserMemory::enter_lazy) will do. Where interrupts do steps, none may come between the switch and the note for
    /// [`entered`](Self::entered): keep them off, or note `None` before the switch.
    fn enter(&self, space: Option<usize>);

    /// Whether the CPU with this number has a private root in space 0. The torture changes its windows, but never loads it: [`enter`](Self::enter) of
    /// space 0 does, every other time, by [`Windows::switch_to`](shootdown::windows::Windows::switch_to). If `window_flushes` stays 0 in the summary, it
    /// does not.
    fn has_windows(&self, cpu: usize) -> bool {
        let _ = cpu;
        false
    }

    /// Hands that root to `work`.
    fn with_windows(&self, cpu: usize, work: &mut dyn FnMut(&WindowRoot)) {
        let _ = (cpu, work);
    }

    /// Replaces the page table that translates `page` by a copy of it elsewhere, and flushes nothing; returns the name of the
    /// old one, or `None` if that cannot be done now. Other CPUs may change entries meanwhile, which must not be lost:
    /// the lock that [`map`](Self::map) takes will do.
    fn move_table(&self, space: usize, page: usize) -> Option<usize> {
        let _ = (space, page);
        None
    }

    /// The name of the page table that translates `page` now, read without a lock; `None` if the host cannot say. Names are below [`TABLES`](crate::TABLES), or are
    /// looked at no more. Interrupts are off.
    fn table_of(&self, space: usize, page: usize) -> Option<usize> {
        let _ = (space, page);
        None
    }

    /// The pages that the table of `page` translates: the first, and how many; for a flush after
    /// [`move_table`](Self::move_table).
    fn table_pages(&self, page: usize) -> (usize, usize) {
        (page, 1)
    }

    /// No CPU can walk this table any more: it may be overwritten and used again. Fill it with entries that lead to a frame whose word the torture did
    /// not write: a walk through it is a violation then, which a fault would hide. (Processors that cache no tables, such as QEMU's, cannot fail here.)
    fn free_table(&self, table: usize) {
        let _ = table;
    }
}

/// For hosts without translations: calls only.
#[derive(Clone, Copy, Debug)]
pub struct NoMemory;

impl<const N: usize> Memory<N> for NoMemory
where
    Cpus<N>: Capacity,
{
    fn spaces(&self) -> usize {
        0
    }

    fn space(&self, _: usize) -> &AddressSpace<Cpus<N>> {
        unreachable!("there are no spaces")
    }

    fn pages(&self, _: Region) -> usize {
        0
    }

    fn address(&self, _: Region, _: usize) -> usize {
        0
    }

    fn frames(&self) -> usize {
        0
    }

    fn write_frame(&self, _: usize, _: u64) {}

    fn map(&self, _: Region, _: usize, _: Option<usize>) {}

    fn load(&self, _: Region, _: usize) -> Option<u64> {
        None
    }

    fn entered(&self) -> Option<usize> {
        None
    }

    fn enter(&self, _: Option<usize>) {}
}
