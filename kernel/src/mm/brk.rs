//! The heap of `brk`.

use super::invalidate::Gather;
use super::layout::{STACK_GUARD, page_ceil};
use super::prot::Prot;
use super::range::UserRange;
use super::space::{Inner, MemorySpace};
use super::vma::{Area, AreaKind};

impl MemorySpace {
    /// Says where the heap starts; once, by the program loader. `start` is page-aligned.
    pub fn set_heap_start(&self, start: usize) {
        self.lock().heap = (start, start);
    }

    /// Moves the end of the heap to `wanted` if possible; the end as it is then. As Linux, a request
    /// that cannot be met changes nothing and is answered with the present end.
    pub fn brk(&self, wanted: usize) -> usize {
        let mut inner = self.lock();
        let (start, end) = inner.heap;
        let borders = page_ceil(end).zip(page_ceil(wanted));
        let Some((old, new)) = borders.filter(|_| wanted >= start) else {
            return end;
        };
        let Some(range) = UserRange::from_bounds(old.min(new), old.max(new)) else {
            inner.heap.1 = wanted;
            return wanted;
        };
        let mut gather = Gather::of(self, range);
        let is_done = match old < new {
            true => inner.grow_heap(range),
            false => inner.remove(range, &mut gather).is_ok(),
        };
        if !is_done {
            return end;
        }
        inner.heap.1 = wanted;
        let pending = self.submit(&mut inner, gather);
        drop(inner);
        pending.finish();
        wanted
    }
}

impl Inner {
    fn grow_heap(&mut self, grown: UserRange) -> bool {
        // Keep clear of a stack that may still grow, as of anything else.
        let guarded =
            UserRange::from_bounds(grown.start(), grown.end().saturating_add(STACK_GUARD));
        if !guarded.is_some_and(|range| self.areas.is_free(range)) {
            return false;
        }
        let area = Area {
            range: grown,
            prot: Prot::READ_WRITE,
            kind: AreaKind::Heap,
        };
        self.areas.replace(area).is_ok()
    }
}
