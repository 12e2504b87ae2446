//! Acknowledgements are counted, whoever they come from and whatever they are for.

use shootdown::shim::{AtomicU64, Ordering};

use crate::machine::context;
use crate::stories::algorithm::{Algorithm, Part, Scene};
use crate::stories::stage::{SPACES, Stage};
use crate::stories::story::{Cast, Story};

const ALGORITHM: &str = "each CPU has a flag that asks it to drop all translations, and each space has a counter of acknowledgements. The initiator \
                         sets the counter to 0. For each CPU in the set of the space it sets the flag, interrupts the CPU, looks at the set again, and \
                         counts the CPU if it is still there. Then it waits until the counter has reached that count. A CPU that finds its flag set, \
                         in the interrupt or when it leaves a space, drops all and adds 1 to the counter of the space that it runs";
const MENDING: &str = "a request has a bit for each of its targets, and a flag says for which space it was set. A target clears its own bit in the \
                       request that asked it";
const SOURCE: &str = "the source of a kernel in Rust, of August 2026; there is no public report of it that we know of";

pub(super) const LEAVER: Story = Story {
    name: "leaver-counts",
    title: "a CPU that leaves the space acknowledges, and was not counted",
    algorithm: ALGORITHM,
    wrong: "a CPU leaves the space after its flag was set and before the initiator looks again: it is not counted, and adds 1 all the \
            same. The wait for the others ends one acknowledgement early",
    mending: Some(MENDING),
    source: SOURCE,
    cast: Cast::Parts {
        parts: &[
            Part::within(0, unmaps),
            Part::within(0, leaves),
            Part::within(0, loads),
        ],
        model,
        has_hypervisor: false,
    },
};

pub(super) const LATE: Story = Story {
    name: "late-counts",
    title: "a late acknowledgement counts for the next space",
    algorithm: "that of leaver-counts: each CPU has a flag, each space a counter of acknowledgements, and a CPU that finds its flag set adds \
                1 to the counter of the space that it runs",
    wrong: "a CPU goes to another space before the initiator of an unmap in its old space sets the flag. It then adds 1 to the counter of \
            its new space. The initiator of an unmap there takes that for the answer of one of its own targets",
    mending: Some(MENDING),
    source: SOURCE,
    cast: Cast::Parts {
        parts: &[
            Part::within(0, unmaps),
            Part::within(0, moves),
            Part::within(1, unmaps_other),
            Part::within(1, loads),
        ],
        model,
        has_hypervisor: false,
    },
};

fn unmaps(scene: &Scene) {
    scene.unmap(0);
}

fn leaves(scene: &Scene) {
    scene.switch(None);
}

fn loads(scene: &Scene) {
    scene.load(4);
}

/// Goes from one space to the other.
fn moves(scene: &Scene) {
    scene.switch(Some(1));
}

fn unmaps_other(scene: &Scene) {
    scene.unmap(1);
}

/// The initiator has to find the words of the other CPU first, which takes instructions.
const STEPS_BEFORE_FLAG: usize = 4;
/// More than any story has CPUs.
const CPUS: usize = 4;

#[derive(Debug)]
struct Counted {
    is_mended: bool,
    /// Of each CPU: the spaces in which somebody waits for it.
    flags: [AtomicU64; CPUS],
    /// The space that each CPU answers for, from 1; 0 for none.
    current: [AtomicU64; CPUS],
    spaces: [Counter; SPACES],
}

/// What a space has.
#[derive(Debug)]
struct Counter {
    lock: AtomicU64,
    /// The CPUs that run it.
    used_by: AtomicU64,
    /// The acknowledgements; mended, the targets that have not answered.
    acknowledged: AtomicU64,
}

fn model(is_mended: bool) -> Box<dyn Algorithm> {
    let word = || AtomicU64::new(0);
    let counter = || Counter {
        lock: word(),
        used_by: word(),
        acknowledged: word(),
    };
    Box::new(Counted {
        is_mended,
        flags: std::array::from_fn(|_| word()),
        current: std::array::from_fn(|_| word()),
        spaces: std::array::from_fn(|_| counter()),
    })
}

impl Counted {
    /// Drops all and says so, if somebody waits for this CPU.
    fn serve(&self, stage: &Stage) {
        let me = context().cpu();
        // ORDERING: Acquire sees the change that the flag was set for.
        let asked = self.flags[me].swap(0, Ordering::AcqRel);
        if asked == 0 {
            return;
        }
        stage.drop_all();
        // Nobody else writes it.
        let current = self.current[me].load(Ordering::Relaxed) as usize;
        for (space, counter) in self.spaces.iter().enumerate() {
            if self.is_mended && asked >> space & 1 == 1 {
                // ORDERING: Release: all is dropped before; pairs with the Acquire in `is_answered`.
                counter.acknowledged.fetch_and(!(1 << me), Ordering::AcqRel);
            } else if !self.is_mended && current == space + 1 {
                // ORDERING: as above.
                counter.acknowledged.fetch_add(1, Ordering::AcqRel);
                let number = Stage::number_of(space);
                context().tell(|| format!("adds 1 to the counter of space {number}"));
            }
        }
    }

    /// Sets the flag of another CPU and interrupts it. While it is set already, that answer must come first.
    fn ask(&self, stage: &Stage, space: usize, target: usize) {
        for _ in 0..STEPS_BEFORE_FLAG {
            context().work(1);
        }
        let flag = &self.flags[target];
        let bit = 1 << space;
        // ORDERING: Release publishes the change.
        while flag.fetch_or(bit, Ordering::AcqRel) != 0 && !self.is_mended {
            while flag.load(Ordering::Relaxed) != 0 {
                self.serve(stage);
                Stage::spin();
            }
        }
        stage.interrupt(target);
    }

    /// As it was described: how many acknowledgements to wait for.
    fn ask_and_count(&self, stage: &Stage, space: usize) -> u64 {
        let counter = &self.spaces[space];
        // ORDERING: SeqCst, as published. It does not keep a late answer from counting.
        counter.acknowledged.store(0, Ordering::SeqCst);
        let mut count = 0;
        for target in stage.others() {
            // ORDERING: Acquire, as published; pairs with the Release in `switch`.
            let is_there = || counter.used_by.load(Ordering::Acquire) >> target & 1 == 1;
            if is_there() {
                context().tell(|| format!("sees cpu{target} in the set"));
                self.ask(stage, space, target);
                // ORDERING: the flag is set before the set is read; pairs with the barrier of a CPU that leaves.
                stage.full_barrier();
                let is_counted = is_there();
                count += u64::from(is_counted);
                context().tell(|| match is_counted {
                    true => "sees it there again: counts it".to_owned(),
                    false => "sees it gone: does not count it".to_owned(),
                });
            }
        }
        context().tell(|| format!("waits until the counter is {count}"));
        count
    }

    fn ask_each(&self, stage: &Stage, space: usize) {
        let counter = &self.spaces[space];
        // ORDERING: as in `ask_and_count`.
        let set = counter.used_by.load(Ordering::Acquire);
        let targets = stage.others_in(set).fold(0, |bits, cpu| bits | 1 << cpu);
        // ORDERING: Release: the bits are there before any flag.
        counter.acknowledged.store(targets, Ordering::Release);
        stage
            .others_in(set)
            .for_each(|target| self.ask(stage, space, target));
    }

    fn lock(&self, stage: &Stage, space: usize) {
        // ORDERING: Acquire: what was done under the lock before.
        while self.spaces[space].lock.swap(1, Ordering::Acquire) != 0 {
            self.serve(stage);
            Stage::spin();
        }
    }

    fn unlock(&self, space: usize) {
        // ORDERING: Release: see `lock`.
        self.spaces[space].lock.store(0, Ordering::Release);
    }
}

impl Algorithm for Counted {
    fn place(&self, cpu: usize, space: usize) {
        // ORDERING: none: no CPU runs yet.
        let used_by = self.spaces[space].used_by.as_core();
        used_by.fetch_or(1 << cpu, Ordering::Relaxed);
        let current = self.current[cpu].as_core();
        current.store(space as u64 + 1, Ordering::Relaxed);
    }

    fn switch(&self, stage: &Stage, from: Option<usize>, to: Option<usize>) {
        let me = context().cpu();
        if let Some(to) = to {
            self.lock(stage, to);
        }
        if let Some(from) = from {
            // ORDERING: Release: its uses of the space are over; pairs with the looks at the set.
            self.spaces[from]
                .used_by
                .fetch_and(!(1 << me), Ordering::Release);
            // ORDERING: the bit is cleared before the flag is read; pairs with the barrier in `ask_and_count`.
            stage.full_barrier();
            self.serve(stage);
        }
        let current = to.map_or(0, |to| to as u64 + 1);
        // ORDERING: none: only this CPU reads it.
        self.current[me].store(current, Ordering::Relaxed);
        if let Some(to) = to {
            // ORDERING: Release, as published; the lock of the space keeps initiators out until the root is loaded.
            self.spaces[to].used_by.fetch_or(1 << me, Ordering::Release);
        }
        stage.load_root(to);
        if let Some(to) = to {
            self.unlock(to);
        }
    }

    fn change(&self, stage: &Stage, space: usize, write: &dyn Fn()) {
        self.lock(stage, space);
        write();
        let is_answered = |count: u64| {
            // ORDERING: Acquire: what the targets dropped.
            let acknowledged = self.spaces[space].acknowledged.load(Ordering::Acquire);
            match self.is_mended {
                true => acknowledged == 0,
                false => acknowledged >= count,
            }
        };
        let count = match self.is_mended {
            true => {
                self.ask_each(stage, space);
                0
            }
            false => self.ask_and_count(stage, space),
        };
        stage.drop_all();
        while !is_answered(count) {
            self.serve(stage);
            Stage::spin();
        }
        self.unlock(space);
    }

    fn interrupt(&self, stage: &Stage) {
        self.serve(stage);
    }
}
