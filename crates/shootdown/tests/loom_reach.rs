//! loom models of tracked spaces: whom a flush may leave alone, because it has not taken the region, or has given it up (I2 to I5, I18).

#![cfg(loom)]

mod loom_machine;

use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::pin::Pin;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom_machine::*;
use shootdown::Cpus;
use shootdown::reach::*;
use shootdown::*;

const OLD: u64 = 0;
const NEW: u64 = 1;

/// Not retired: a model ends as it stands.
type OwnRoot<const N: usize> = ManuallyDrop<Pin<Box<ReachRoot<Cpus<N>>>>>;

/// CPU 1 has a root of its own in a tracked space; CPU 0 changes the space.
struct Scene<const N: usize>
where
    Cpus<N>: Capacity,
{
    machine: Arc<Machine<N>>,
    space: AddressSpace<Cpus<N>>,
    root: RefCell<Option<OwnRoot<N>>>,
    done: AtomicBool,
    /// CPU 1 has reached the point where the model begins.
    ready: Event,
    /// What page 0 is mapped to at first.
    frame: TablePage,
}

// SAFETY: only CPU 1 uses the root, after CPU 0 has made it.
unsafe impl<const N: usize> Sync for Scene<N> where Cpus<N>: Capacity {}
// SAFETY: as above.
unsafe impl<const N: usize> Send for Scene<N> where Cpus<N>: Capacity {}

impl<const N: usize> Scene<N>
where
    Cpus<N>: Capacity,
{
    fn new(machine: Arc<Machine<N>>) -> Arc<Self> {
        online_all(&machine, N as u32);
        let space = AddressSpace::new(&machine, tables(TABLE_OWNER));
        Arc::new(Self {
            space,
            root: RefCell::new(None),
            done: AtomicBool::new(false),
            ready: Event::new(),
            frame: TablePage::new(),
            machine,
        })
    }

    fn reach(&self) -> Reach<'_, Model<N>> {
        self.machine.user_memory().reach()
    }

    fn track(&self) {
        let regions: &[Region<_>; PAGES] =
            Box::leak(Box::new(std::array::from_fn(|_| Region::new())));
        // SAFETY: 1. they are leaked.
        unsafe { self.reach().track(&self.space, regions) };
        let root = ReachRoot::new(&self.machine, &self.space, cpu(1), tables(OWN_ROOT));
        *self.root.borrow_mut() = Some(ManuallyDrop::new(Box::pin(root)));
    }

    fn with_root<R>(&self, use_it: impl FnOnce(Pin<&ReachRoot<Cpus<N>>>) -> R) -> R {
        let root = self.root.borrow();
        use_it(root.as_ref().expect("the space is tracked").as_ref())
    }

    fn enter(&self, previous: Option<&AddressSpace<Cpus<N>>>) {
        self.with_root(|root| self.reach().switch_to(previous, &self.space, root));
    }

    fn take(&self, page: usize) {
        self.with_root(|root| self.reach().take(&self.space, root, page * PAGE));
    }

    /// CPU 1 uses what it can translate page 0 to without a fault.
    fn use_page(&self) {
        if cached(0) == Some(OLD) {
            self.frame.walk();
        }
        speculate(&self.machine.platform().table_page);
    }

    /// CPU 1 serves interrupts until CPU 0 is done, and leaves.
    fn use_to_the_end(&self) {
        self.use_page();
        let is_done = || {
            self.use_page();
            self.done.load(Ordering::Acquire)
        };
        idle_until(&self.machine, is_done);
        assert_ne!(cached(0), Some(OLD), "stale translation");
        self.machine.switch_away(&self.space, NO_USER);
    }

    fn flush(&self, number: usize, freed: FreedTables) {
        self.machine.flush(&self.space, page(number), freed);
    }

    /// Remaps page 0 and gives its frame away.
    fn remap(&self) {
        self.machine.platform().table[0].store(NEW, Ordering::Relaxed);
        self.flush(0, FreedTables::No);
        self.frame.reuse();
    }

    /// Unlinks the table of page 0 and gives it away, and the frame.
    fn unlink(&self) {
        let model = self.machine.platform();
        model.shared_top.store(false, Ordering::Relaxed);
        model.table[0].store(NEW, Ordering::Relaxed);
        self.space.top_changed();
        self.flush(0, FreedTables::Yes);
        model.table_page.reuse();
        self.frame.reuse();
    }
}

/// CPU 1 does its part; as soon as it is ready, CPU 0 makes its change.
fn race(
    preemptions: usize,
    make: fn() -> Arc<Scene<2>>,
    change: fn(&Scene<2>),
    cpu_1: fn(&Scene<2>),
) {
    check(preemptions, move || {
        let scene = make();
        let inside = scene.clone();
        let cpu_1 = on_cpu(&scene.machine, 1, move |_| cpu_1(&inside));
        scene.ready.wait();
        change(&scene);
        scene.done.store(true, Ordering::Release);
        wake(&scene.machine, 1);
        cpu_1.join().unwrap();
    });
}

fn tracked() -> Arc<Scene<2>> {
    let scene = Scene::new(machine());
    scene.track();
    scene
}

fn tracked_with_tags() -> Arc<Scene<2>> {
    let scene = Scene::new(tagged_machine());
    scene.track();
    scene
}

fn takes(scene: &Scene<2>) {
    scene.enter(None);
    scene.ready.set();
    scene.take(0);
    scene.use_to_the_end();
}

/// Who takes a region while it is flushed is found, or finds out.
#[test]
fn one_that_takes_a_region_is_found_or_finds_out() {
    race(3, tracked, Scene::remap, takes);
}

#[test]
fn one_that_takes_a_region_has_no_table_that_is_freed() {
    race(3, tracked, Scene::unlink, takes);
}

/// Reads the table of page 0 if the shared entry leads to it, twice, in a section of its region if it has taken that.
fn reads_tables(scene: &Scene<2>) {
    scene.enter(None);
    scene.ready.set();
    scene.take(0);
    scene.take(1);
    let section = scene.with_root(|root| scene.reach().walk(&scene.space, root, 0));
    let model = scene.machine.platform();
    if section.is_some() && model.shared_top.load(Ordering::Acquire) {
        model.table_page.walk();
        scene.machine.poll();
        model.table_page.walk();
    }
    drop(section);
    scene.use_to_the_end();
}

/// Who walks tables of a region that it has taken has told nobody, and is asked.
#[test]
fn one_that_walks_a_region_reads_no_table_that_is_freed() {
    race(3, tracked, Scene::unlink, reads_tables);
}

/// Nor does it give the region up as it walks.
#[test]
fn one_that_walks_a_region_does_not_give_it_up() {
    let ask_and_unlink = |scene: &Scene<2>| {
        scene.flush(0, FreedTables::No);
        scene.flush(0, FreedTables::No);
        scene.unlink();
    };
    race(2, tracked, ask_and_unlink, reads_tables);
}

fn comes_back(scene: &Scene<2>) {
    scene.enter(None);
    scene.take(0);
    scene.ready.set();
    scene.machine.switch_away(&scene.space, NO_USER);
    scene.enter(None);
    scene.use_to_the_end();
}

/// Under the tag that it had.
#[test]
fn one_that_comes_back_is_found_or_finds_out() {
    race(3, tracked_with_tags, Scene::remap, comes_back);
}

#[test]
fn one_that_comes_back_has_no_table_that_is_freed() {
    race(3, tracked_with_tags, Scene::unlink, comes_back);
}

/// The same where it has not left.
#[test]
fn one_that_was_lazy_is_found_or_finds_out() {
    race(3, tracked, Scene::remap, |scene| {
        scene.enter(None);
        scene.take(0);
        scene
            .machine
            .user_memory()
            .enter_lazy(&scene.space, NO_USER);
        scene.ready.set();
        scene.enter(Some(&scene.space));
        scene.use_to_the_end();
    });
}

/// After so many requests CPU 1 gives the region up; the last change comes meanwhile, and asks it or not.
fn gives_up(change: fn(&Scene<2>)) {
    race(2, tracked, change, |scene| {
        scene.enter(None);
        scene.take(0);
        scene.take(1);
        scene.ready.set();
        scene.use_to_the_end();
    });
}

#[test]
fn one_that_gives_a_region_up_uses_nothing_of_it() {
    gives_up(|scene| {
        scene.flush(0, FreedTables::No);
        scene.flush(0, FreedTables::No);
        scene.remap();
    });
}

#[test]
fn one_that_gives_a_region_up_does_not_walk_its_tables() {
    gives_up(|scene| {
        scene.flush(0, FreedTables::No);
        scene.flush(0, FreedTables::No);
        scene.unlink();
    });
}

/// A CPU loads the shared root while the space becomes tracked: it is found among those that have it loaded, or finds that it is tracked.
#[test]
fn one_that_loads_the_shared_root_is_in_every_set() {
    let track_and_remap = |scene: &Scene<2>| {
        scene.track();
        scene.remap();
    };
    race(
        3,
        || Scene::new(tagged_machine()),
        track_and_remap,
        |scene| {
            scene.machine.switch_to(None, &scene.space);
            scene.machine.switch_away(&scene.space, NO_USER);
            scene.ready.set();
            scene.machine.switch_to(None, &scene.space);
            scene.use_to_the_end();
        },
    );
}

/// The same in a space that is tracked already.
#[test]
fn one_that_loads_the_shared_root_of_a_tracked_space_is_found_or_finds_out() {
    race(3, tracked, Scene::remap, |scene| {
        scene.enter(None);
        scene.ready.set();
        scene.machine.switch_to(Some(&scene.space), &scene.space);
        scene.use_to_the_end();
    });
}

/// From the shared root to its own: whoever leaves it alone after that may free what it had.
#[test]
fn one_that_leaves_the_shared_root_uses_nothing_of_it() {
    race(3, tracked, Scene::unlink_shared, |scene| {
        scene.machine.switch_to(None, &scene.space);
        scene.ready.set();
        scene.enter(Some(&scene.space));
        scene.use_to_the_end();
    });
}

impl Scene<2> {
    /// The shared root is walked up to the moment that another is loaded, whatever its entry.
    fn unlink_shared(&self) {
        self.machine.platform().table[0].store(NEW, Ordering::Relaxed);
        self.flush(0, FreedTables::Yes);
        self.machine.platform().table_page.reuse();
        self.frame.reuse();
    }
}

/// A flush of several regions makes up for all that are counted one by one, but for what comes after it.
#[test]
fn one_that_drops_everything_makes_up_for_what_it_has_read() {
    check(2, || {
        let scene = Scene::<3>::new(machine());
        scene.track();
        let inside = scene.clone();
        let cpu_1 = on_cpu(&scene.machine, 1, move |_| {
            inside.enter(None);
            inside.take(0);
            inside.ready.set();
            inside.use_to_the_end();
        });
        scene.ready.wait();
        let inside = scene.clone();
        let cpu_2 = on_cpu(&scene.machine, 2, move |_| {
            inside
                .machine
                .flush(&inside.space, FlushRange::WHOLE, FreedTables::No);
        });
        scene.remap();
        cpu_2.join().unwrap();
        scene.done.store(true, Ordering::Release);
        wake(&scene.machine, 1);
        cpu_1.join().unwrap();
    });
}

/// Software that makes tables of ours has read an entry while it listened, stops, and listens again: what it installs then is not old, though the
/// region's change may have been told to nobody.
#[test]
fn software_that_listens_again_installs_nothing_old() {
    let remaps = |scene: &Scene<2>| {
        scene.machine.platform().table[0].store(NEW, Ordering::Relaxed);
        scene.flush(0, FreedTables::No);
    };
    let listens_again = |scene: &Scene<2>| {
        let (listeners, space) = (scene.machine.secondary_tlbs(), &scene.space);
        listeners.listen(space, 1);
        scene.ready.set();
        let generation = space.generation();
        let entry = scene.machine.platform().table[0].load(Ordering::Relaxed);
        listeners.unlisten(space);
        listeners.listen(space, 1);
        let mut tables = scene.machine.platform().device.lock().unwrap();
        if space.generation() == generation {
            *tables = Some(entry);
        }
        drop(tables);
        idle_until(&scene.machine, || scene.done.load(Ordering::Acquire));
        let kept = *scene.machine.platform().device.lock().unwrap();
        assert_ne!(kept, Some(OLD), "a stale entry in a secondary TLB");
        listeners.unlisten(space);
    };
    race(3, tracked, remaps, listens_again);
}
