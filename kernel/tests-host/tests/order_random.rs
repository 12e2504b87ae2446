//! Random operations on a few processes that other CPUs have loaded, while another thread does something whenever the lock of a space is
//! free. Nothing is compared: the witness judges. A failure names its seed.

mod support;

use shootdown_kernel_tests::mm::{Advice, AreaKind, Destination, FaultAccess, MapRequest};
use shootdown_kernel_tests::mm::{MemoryFile, MemorySpace, PAGE_SIZE, Populate, Prot};
use shootdown_kernel_tests::mm::{SharedArea, SyncWhen};
use shootdown_kernel_tests::witness::{Intruder, intrude};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use support::random::Random;
use support::watched::Watched;
use support::*;

const SEEDS: u64 = 50;
const STEPS: usize = 60;
/// Pages on both sides of the border between two tables, and those of the file.
const FIRST: usize = 506;
const PAGES: usize = 12;
const MOST_SPACES: usize = 3;

trait Places {
    fn range(&mut self) -> (usize, usize);
}

impl Places for Random {
    /// An address and a length.
    fn range(&mut self) -> (usize, usize) {
        let first = self.below(PAGES);
        let pages = 1 + self.below(PAGES - first);
        (at(FIRST + first), pages * PAGE_SIZE)
    }
}

/// What all operations are about.
struct World {
    spaces: Rc<RefCell<Vec<Arc<MemorySpace>>>>,
    file: Arc<MemoryFile>,
    shared: SharedArea,
}

impl World {
    fn new() -> Self {
        let spaces = vec![MemorySpace::new().unwrap(), MemorySpace::new().unwrap()];
        Self {
            spaces: Rc::new(RefCell::new(spaces)),
            file: file_of(PAGES),
            shared: SharedArea::new().unwrap(),
        }
    }

    fn space(&self, random: &mut Random) -> Arc<MemorySpace> {
        random.pick(&self.spaces.borrow()).clone()
    }

    /// Touches a page, if that is allowed.
    fn touch(space: &MemorySpace, random: &mut Random, access: FaultAccess) {
        let page = FIRST + random.below(PAGES);
        let done = space.fault(at(page), access);
        if access.write && done.is_ok() && may_write(space, page) {
            write(space, page, random.next());
        }
    }

    fn map(&self, space: &MemorySpace, random: &mut Random) {
        let (addr, len) = random.range();
        let kind = match random.below(4) {
            0 | 1 => AreaKind::Anonymous,
            2 => AreaKind::Shared(self.shared.clone()),
            _ => shown(&self.file, (addr - at(FIRST)) / PAGE_SIZE),
        };
        let request = MapRequest {
            populate: *random.pick(&[Populate::OnDemand, Populate::Now]),
            kind,
            ..request(addr, len / PAGE_SIZE)
        };
        space.map(request).unwrap();
    }

    fn remap(space: &MemorySpace, random: &mut Random) {
        let (addr, len) = random.range();
        let (to, new_len) = random.range();
        let to = match random.below(3) {
            0 => Destination::Stay,
            1 => Destination::MayMove,
            _ => Destination::Fixed(to),
        };
        let _may_fail = space.remap(addr, len, new_len, to);
    }

    fn fork(&self, space: &MemorySpace) {
        let child = space.fork().unwrap();
        let mut spaces = self.spaces.borrow_mut();
        if spaces.len() == MOST_SPACES {
            spaces.pop();
        }
        spaces.push(child);
    }

    fn step(&self, random: &mut Random) {
        let space = self.space(random);
        let (addr, len) = random.range();
        match random.below(20) {
            0..3 => self.map(&space, random),
            3 => space.unmap(addr, len).unwrap(),
            4..7 => {
                let prot = Prot::from_linux(random.below(8)).unwrap();
                let _may_fail = space.protect(addr, len, prot);
            }
            7 => drop(space.advise(addr, len, Advice::Discard)),
            8..10 => Self::remap(&space, random),
            10 | 11 => self.fork(&space),
            12..17 => {
                let access = *random.pick(&[READ, WRITE, WRITE]);
                Self::touch(&space, random, access);
            }
            17 => drop(space.sync(addr, len, SyncWhen::Now)),
            18 => sync(&self.file),
            _ => {
                resize(&self.file, len / PAGE_SIZE);
                resize(&self.file, PAGES);
            }
        }
    }

    /// Another thread, of any process.
    fn intruder(&self, seed: u64) -> Intruder {
        let (spaces, mut random) = (self.spaces.clone(), Random::new(seed));
        intrude(move || {
            // While a fork adds its child there is nobody to be another thread of it.
            let Ok(spaces) = spaces.try_borrow() else {
                return;
            };
            let space = random.pick(&spaces).clone();
            drop(spaces);
            let (addr, len) = random.range();
            match random.below(8) {
                0 => drop(space.unmap(addr, len)),
                1 => drop(space.protect(addr, len, Prot::READ)),
                2 => drop(space.fork()),
                3..7 => Self::touch(&space, &mut random, WRITE),
                _ => {}
            }
        })
    }
}

/// All steps of one seed; with another thread, or without.
fn run(seed: u64, is_disturbed: bool) {
    let _turn = Turn::new();
    let (world, mut random) = (World::new(), Random::new(seed | 1 << 40));
    let [one, other] = [0, 1].map(|index| world.spaces.borrow()[index].clone());
    let watched = Watched::new(&[&one, &other]);
    drop((one, other));
    if seed % 4 == 3 {
        watched.watch.be_prompt();
    }
    let intruder = is_disturbed.then(|| world.intruder(seed | 1 << 41));
    for step in 0..STEPS {
        world.step(&mut random);
        let what = watched.watch.broken();
        assert_eq!(what, None, "seed {seed}, step {step}");
    }
    drop(intruder);
    watched.watch.settle();
}

#[test]
fn nothing_is_out_of_order() {
    (0..SEEDS).for_each(|seed| run(seed, false));
}

#[test]
fn nothing_is_out_of_order_among_threads() {
    (0..SEEDS).for_each(|seed| run(seed, true));
}
