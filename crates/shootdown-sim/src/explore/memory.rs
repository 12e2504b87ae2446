//! [`Weak`]: a memory as weak as the language allows.
//!
//! Each location keeps the stores made to it, in order, each with the [`View`] that it publishes. A load
//! sees any store that is not older than what its CPU knows of that location; acquiring takes over
//! the store's view, releasing attaches the CPU's own, and a `SeqCst` fence exchanges views with all
//! earlier ones. A read-modify-write always follows the newest store and carries on what that published (a release
//! sequence). Not modelled: stores that overtake later ones of other CPUs, and loads of values not written
//! yet. The literature calls this the view-based semantics of release-acquire memory.
//!
//! `SeqCst` accesses count as acquire and release only: protocols here use fences (I12).

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::atomic::AtomicU64;

use rustc_hash::FxHashMap;
use shootdown::sim::{Operation, Ordering};

use crate::explore::View;

/// How many stores of one location are remembered. Older ones are forgotten, so nobody sees them any more.
const REMEMBERED: usize = 6;

#[derive(Clone, Debug)]
pub(super) struct Message {
    pub(super) number: u32,
    value: u64,
    publishes: Rc<View>,
}

#[derive(Clone, Debug)]
pub(super) struct Location {
    pub(super) stores: VecDeque<Message>,
}

impl Location {
    /// How many stores somebody may see who knows of store `known`.
    fn visible(&self, known: u32) -> usize {
        let newest = self.stores.len();
        let unseen = self.stores.iter().rev();
        unseen
            .take_while(|store| store.number >= known)
            .count()
            .clamp(1, newest)
    }

    fn store(&self, age: usize) -> &Message {
        let newest = self.stores.len() - 1;
        &self.stores[newest - age.min(newest)]
    }
}

/// What a page walk knows: see [`Weak::walk`].
#[derive(Clone, Debug)]
pub struct Walk(Rc<View>);

impl Walk {
    /// It goes on with what the other one knows too.
    pub fn join(&mut self, other: &Self) {
        learn_all(&mut self.0, &other.0);
    }
}

/// Learns what somebody knows. A view is shared until somebody learns something.
fn learn_all(view: &mut Rc<View>, other: &View) {
    if !view.covers(other) {
        Rc::make_mut(view).join(other);
    }
}

/// What one CPU knows.
#[derive(Clone, Default, Debug)]
pub(super) struct Knowledge {
    pub(super) view: Rc<View>,
    /// From loads that did not acquire; an acquire fence makes it known.
    unacquired: View,
    /// Known at the last release fence: what stores that do not release publish.
    released: Rc<View>,
    /// The newest store of each location that was acquired, and that was seen without: a CPU that spins sees the same ones again and again.
    acquired_at: View,
    seen_at: View,
}

/// The memory of one machine.
#[derive(Clone, Debug)]
pub struct Weak {
    pub(super) names: FxHashMap<(usize, u16), usize>,
    pub(super) locations: Vec<Location>,
    pub(super) cpus: Vec<Knowledge>,
    /// What `SeqCst` fences have exchanged.
    fenced: Rc<View>,
}

const fn acquires(order: Ordering) -> bool {
    matches!(
        order,
        Ordering::Acquire | Ordering::AcqRel | Ordering::SeqCst
    )
}

const fn releases(order: Ordering) -> bool {
    matches!(
        order,
        Ordering::Release | Ordering::AcqRel | Ordering::SeqCst
    )
}

/// The name of an atomic word; other numbers are the parts of a plain cell.
const WORD: u16 = u16::MAX;

impl Weak {
    /// Memory in which every word holds what it holds when it is first touched.
    pub fn new(cpus: usize) -> Self {
        Self {
            names: FxHashMap::default(),
            locations: Vec::new(),
            cpus: vec![Knowledge::default(); cpus],
            fenced: Rc::default(),
        }
    }

    /// How many values a load of `cell` by `cpu` may see.
    pub fn visible(&mut self, cpu: usize, cell: &AtomicU64) -> usize {
        let at = self.location(cell.as_ptr().addr(), WORD, || cell.load(Ordering::Relaxed));
        self.locations[at].visible(self.cpus[cpu].view.at(at))
    }

    /// The number of a word, in the order in which they are first touched.
    pub fn number_of(&mut self, cell: &AtomicU64) -> usize {
        self.location(cell.as_ptr().addr(), WORD, || cell.load(Ordering::Relaxed))
    }

    /// A page walk by `cpu`, which may see whatever a load there may see now.
    pub fn walk(&self, cpu: usize) -> Walk {
        Walk(self.cpus[cpu].view.clone())
    }

    /// How many values `walk` may find in `cell`.
    pub fn walk_visible(&mut self, walk: &Walk, cell: &AtomicU64) -> usize {
        let at = self.location(cell.as_ptr().addr(), WORD, || cell.load(Ordering::Relaxed));
        self.locations[at].visible(walk.0.at(at))
    }

    /// The value of `cell` that is `age` stores old. The walk goes on from there: what that store published is
    /// known to the steps that follow (they depend on its address), though not to the CPU.
    pub fn walk_step(&mut self, walk: &mut Walk, cell: &AtomicU64, age: usize) -> u64 {
        let at = self.location(cell.as_ptr().addr(), WORD, || cell.load(Ordering::Relaxed));
        let seen = self.locations[at].store(age);
        if walk.0.at(at) < seen.number || !walk.0.covers(&seen.publishes) {
            // Views are shared until somebody learns something.
            let view = Rc::make_mut(&mut walk.0);
            view.learn(at, seen.number);
            view.join(&seen.publishes);
        }
        seen.value
    }

    /// One atomic access. A load sees the value that is `age` stores old.
    pub fn access(
        &mut self,
        cpu: usize,
        cell: &AtomicU64,
        operation: Operation,
        order: Ordering,
        age: usize,
    ) -> u64 {
        let at = self.location(cell.as_ptr().addr(), WORD, || cell.load(Ordering::Relaxed));
        let age = if operation == Operation::Load { age } else { 0 };
        let seen = self.locations[at].store(age).clone();
        if !matches!(operation, Operation::Store(_)) {
            self.learn(cpu, at, &seen, order);
        }
        if operation.writes() {
            let value = operation.result(seen.value);
            // Who acquires and releases publishes that anyway.
            let is_carried = !(acquires(order) && releases(order));
            let carried =
                (operation.is_read_modify_write() && is_carried).then(|| seen.publishes.clone());
            self.store(cpu, at, value, order, carried);
            cell.store(value, Ordering::Relaxed);
        }
        seen.value
    }

    fn learn(&mut self, cpu: usize, at: usize, seen: &Message, order: Ordering) {
        let knowledge = &mut self.cpus[cpu];
        if knowledge.view.at(at) < seen.number {
            Rc::make_mut(&mut knowledge.view).learn(at, seen.number);
        }
        let last = match acquires(order) {
            true => &mut knowledge.acquired_at,
            false => &mut knowledge.seen_at,
        };
        if last.at(at) == seen.number {
            return;
        }
        last.learn(at, seen.number);
        match acquires(order) {
            true => learn_all(&mut knowledge.view, &seen.publishes),
            false => knowledge.unacquired.join(&seen.publishes),
        }
    }

    fn store(
        &mut self,
        cpu: usize,
        at: usize,
        value: u64,
        order: Ordering,
        carried: Option<Rc<View>>,
    ) {
        let stores = &mut self.locations[at].stores;
        let number = stores[stores.len() - 1].number + 1;
        let knowledge = &mut self.cpus[cpu];
        Rc::make_mut(&mut knowledge.view).learn(at, number);
        // Whoever sees the store learns its number from itself.
        let mut publishes = match releases(order) {
            true => knowledge.view.clone(),
            false => knowledge.released.clone(),
        };
        if let Some(carried) = carried
            && !publishes.covers(&carried)
        {
            Rc::make_mut(&mut publishes).join(&carried);
        }
        stores.push_back(Message {
            number,
            value,
            publishes,
        });
        if stores.len() > REMEMBERED {
            stores.pop_front();
        }
    }

    /// One fence.
    pub fn fence(&mut self, cpu: usize, order: Ordering) {
        let knowledge = &mut self.cpus[cpu];
        if acquires(order) {
            let unacquired = std::mem::take(&mut knowledge.unacquired);
            learn_all(&mut knowledge.view, &unacquired);
        }
        if order == Ordering::SeqCst {
            learn_all(&mut knowledge.view, &self.fenced);
            self.fenced = knowledge.view.clone();
        }
        if releases(order) {
            knowledge.released = knowledge.view.clone();
        }
    }

    /// What `cpu` tells by an interrupt: all it knows.
    pub fn tell(&self, cpu: usize) -> Rc<View> {
        self.cpus[cpu].view.clone()
    }

    /// `cpu` takes an interrupt that tells this.
    pub fn hear(&mut self, cpu: usize, view: &View) {
        learn_all(&mut self.cpus[cpu].view, view);
    }

    /// The number of a location, which holds `value` when it is first touched.
    pub(super) fn location(
        &mut self,
        address: usize,
        part: u16,
        value: impl FnOnce() -> u64,
    ) -> usize {
        let next = self.locations.len();
        let at = *self.names.entry((address, part)).or_insert(next);
        if at == next {
            self.locations.push(Location {
                stores: VecDeque::from([Message {
                    number: 0,
                    value: value(),
                    publishes: Rc::default(),
                }]),
            });
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use shootdown::sim::{Operation, Ordering};

    use super::Weak;

    const STORE: Operation = Operation::Store(1);

    #[test]
    fn relaxed_store_and_load_may_miss_each_other_and_fences_forbid_it() {
        for fenced in [false, true] {
            let mut memory = Weak::new(2);
            let (x, y) = (AtomicU64::new(0), AtomicU64::new(0));
            for (cpu, mine) in [&x, &y].into_iter().enumerate() {
                memory.access(cpu, mine, STORE, Ordering::Relaxed, 0);
                if fenced {
                    memory.fence(cpu, Ordering::SeqCst);
                }
            }
            // The second to fence knows the first one's store; the first may miss the second's.
            assert_eq!(memory.visible(0, &y), 2);
            assert_eq!(memory.visible(1, &x), if fenced { 1 } else { 2 });
        }
    }

    #[test]
    fn acquiring_what_was_released_knows_what_came_before() {
        for (order, visible) in [(Ordering::Release, 1), (Ordering::Relaxed, 2)] {
            let mut memory = Weak::new(2);
            let (data, flag) = (AtomicU64::new(0), AtomicU64::new(0));
            memory.access(0, &data, STORE, Ordering::Relaxed, 0);
            memory.access(0, &flag, STORE, order, 0);
            assert_eq!(
                memory.access(1, &flag, Operation::Load, Ordering::Acquire, 0),
                1
            );
            assert_eq!(memory.visible(1, &data), visible);
        }
    }

    #[test]
    fn a_read_modify_write_carries_on_what_was_released() {
        let mut memory = Weak::new(3);
        let (data, flag) = (AtomicU64::new(0), AtomicU64::new(0));
        memory.access(0, &data, STORE, Ordering::Relaxed, 0);
        memory.access(0, &flag, STORE, Ordering::Release, 0);
        memory.access(1, &flag, Operation::Or(2), Ordering::Relaxed, 0);
        assert_eq!(
            memory.access(2, &flag, Operation::Load, Ordering::Acquire, 0),
            3
        );
        assert_eq!(memory.visible(2, &data), 1);
    }

    #[test]
    fn what_was_seen_without_acquiring_is_known_when_it_is_acquired() {
        for fenced in [false, true] {
            let mut memory = Weak::new(2);
            let (data, flag) = (AtomicU64::new(0), AtomicU64::new(0));
            for round in 1..3 {
                memory.access(0, &data, Operation::Store(round), Ordering::Relaxed, 0);
                memory.access(0, &flag, Operation::Store(round), Ordering::Release, 0);
                for _ in 0..2 {
                    memory.access(1, &flag, Operation::Load, Ordering::Relaxed, 0);
                }
                assert_eq!(memory.visible(1, &data), 2);
                match fenced {
                    true => memory.fence(1, Ordering::Acquire),
                    false => {
                        memory.access(1, &flag, Operation::Load, Ordering::Acquire, 0);
                    }
                }
                assert_eq!(memory.visible(1, &data), 1);
            }
        }
    }
}
