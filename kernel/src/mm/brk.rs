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
        if let Some(grown) = UserRange::from_bounds(old, new) {
            if !inner.grow_heap(grown) {
                return end;
            }
            inner.heap.1 = wanted;
            return wanted;
        }
        if new == old {
            inner.heap.1 = wanted;
            return wanted;
        }
        let mut gather = Gather::of(self);
        let removed =
            UserRange::from_bounds(new, old).map(|range| inner.remove(range, &mut gather));
        if !matches!(removed, Some(Ok(()))) {
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
