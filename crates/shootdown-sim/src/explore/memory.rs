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
use shootdown::sim::{Operation, Ordering, Plain};

use crate::explore::View;

/// How many stores of one location are remembered. Older ones are forgotten, so nobody sees them any more.
const REMEMBERED: usize = 6;

#[derive(Clone, Debug)]
struct Message {
    number: u32,
    value: u64,
    publishes: Rc<View>,
}

#[derive(Clone, Debug)]
struct Location {
    stores: VecDeque<Message>,
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

/// What one CPU knows.
#[derive(Clone, Default, Debug)]
struct Knowledge {
    view: Rc<View>,
    /// From loads that did not acquire; an acquire fence makes it known.
    unacquired: View,
    /// Known at the last release fence: what stores that do not release publish.
    released: Rc<View>,
}

/// The memory of one machine.
#[derive(Clone, Debug)]
pub struct Weak {
    names: FxHashMap<(usize, u16), usize>,
    locations: Vec<Location>,
    cpus: Vec<Knowledge>,
    /// What `SeqCst` fences have exchanged.
    fenced: View,
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

/// The name of an atomic word, or of the writer of a plain cell.
const WORD: u16 = u16::MAX;
/// The writes of a plain cell; its readers are named by their CPU.
const WRITES: u16 = u16::MAX - 1;

impl Weak {
    /// Memory in which every word holds what it holds when it is first touched.
    pub fn new(cpus: usize) -> Self {
        Self {
            names: FxHashMap::default(),
            locations: Vec::new(),
            cpus: vec![Knowledge::default(); cpus],
            fenced: View::default(),
        }
    }

    /// How many values a load of `cell` by `cpu` may see.
    pub fn visible(&mut self, cpu: usize, cell: &AtomicU64) -> usize {
        let at = self.location(cell.as_ptr().addr(), WORD, || cell.load(Ordering::Relaxed));
        self.locations[at].visible(self.cpus[cpu].view.at(at))
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
        let view = Rc::make_mut(&mut walk.0);
        view.learn(at, seen.number);
        view.join(&seen.publishes);
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
            let carried = operation
                .is_read_modify_write()
                .then(|| seen.publishes.clone());
            self.store(cpu, at, value, order, carried);
            cell.store(value, Ordering::Relaxed);
        }
        seen.value
    }

    fn learn(&mut self, cpu: usize, at: usize, seen: &Message, order: Ordering) {
        let knowledge = &mut self.cpus[cpu];
        let view = Rc::make_mut(&mut knowledge.view);
        view.learn(at, seen.number);
        if acquires(order) {
            view.join(&seen.publishes);
        } else {
            knowledge.unacquired.join(&seen.publishes);
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
        let mut publishes = if releases(order) {
            knowledge.view.clone()
        } else {
            let mut view = knowledge.released.clone();
            Rc::make_mut(&mut view).learn(at, number);
            view
        };
        if let Some(carried) = carried {
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
        let view = Rc::make_mut(&mut knowledge.view);
        if acquires(order) {
            view.join(&knowledge.unacquired);
        }
        if order == Ordering::SeqCst {
            view.join(&self.fenced);
            self.fenced.join(view);
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
        Rc::make_mut(&mut self.cpus[cpu].view).join(view);
    }

    /// A plain access to the cell at `address`.
    ///
    /// # Errors
    /// Who it races with: a write that this CPU need not have seen, or a read that need not be over.
    pub fn plain(&mut self, cpu: usize, address: usize, access: Plain) -> Result<(), String> {
        let writes = self.location(address, WRITES, || 0);
        self.check_known(cpu, writes, "a write of the same cell")?;
        match access {
            Plain::Read => self.read_translated(cpu, address),
            Plain::Write => {
                for reader in 0..self.cpus.len() {
                    if let Some(&reads) = self.names.get(&(address, reader as u16)) {
                        self.check_known(
                            cpu,
                            reads,
                            &format!("a read of the cell by cpu{reader}"),
                        )?;
                    }
                }
                self.store(cpu, writes, 0, Ordering::Relaxed, None);
            }
        }
        Ok(())
    }

    /// A plain read or write through a translation: it comes after whatever the walk has seen, so only its end
    /// matters. A plain write that follows must know of it.
    pub fn read_translated(&mut self, cpu: usize, address: usize) {
        let reads = self.location(address, cpu as u16, || 0);
        self.store(cpu, reads, 0, Ordering::Relaxed, None);
    }

    fn check_known(&self, cpu: usize, location: usize, what: &str) -> Result<(), String> {
        let newest = self.locations[location]
            .stores
            .back()
            .map_or(0, |store| store.number);
        if self.cpus[cpu].view.at(location) < newest {
            return Err(format!("plain access not ordered after {what}"));
        }
        Ok(())
    }

    fn location(&mut self, address: usize, part: u16, value: impl FnOnce() -> u64) -> usize {
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

    use shootdown::sim::{Operation, Ordering, Plain};

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
    fn an_unpublished_plain_write_is_a_race() {
        let mut memory = Weak::new(2);
        let flag = AtomicU64::new(0);
        memory.plain(0, 0x100, Plain::Write).unwrap();
        assert!(memory.plain(1, 0x100, Plain::Read).is_err());
        memory.access(0, &flag, STORE, Ordering::Release, 0);
        memory.access(1, &flag, Operation::Load, Ordering::Acquire, 0);
        memory.plain(1, 0x100, Plain::Read).unwrap();
        // The reader has not told that it is done.
        assert!(memory.plain(0, 0x100, Plain::Write).is_err());
        memory.access(1, &flag, Operation::Store(2), Ordering::Release, 0);
        memory.access(0, &flag, Operation::Load, Ordering::Acquire, 0);
        memory.plain(0, 0x100, Plain::Write).unwrap();
    }
}
