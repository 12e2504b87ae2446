//! No barrier between the change of the page tables and the look at the set of CPUs.

use shootdown::shim::{AtomicU64, Ordering};

use crate::machine::context;
use crate::stories::algorithm::{Algorithm, Part, Scene};
use crate::stories::request::Request;
use crate::stories::stage::Stage;
use crate::stories::story::{Cast, Story};
use crate::stories::told::local_only::unmaps;

pub(super) const STORY: Story = Story {
    name: "no-barrier",
    title: "no barrier between the change and the look at the set of CPUs",
    algorithm: "a CPU puts its bit into the set of the space before it loads the root. The initiator of an unmap changes the entry, reads the \
                set, interrupts the CPUs in it, and waits until they have dropped the page. There is no barrier between the change and the \
                look at the set",
    wrong: "the change is still in the initiator's store buffer when it reads the set. A CPU that comes to the space at that moment is \
            not in the set that the initiator reads, and does not see the change. Nobody interrupts it, and it keeps the old translation",
    mending: Some("a full barrier between the change and the look at the set"),
    source: "the source of a kernel in Rust, of May 2026; there is no public report of it that we know of. Linux had a bug of this form, \
             CVE-2016-2069",
    cast: Cast::Parts {
        parts: &[Part::within(0, unmaps), COMES],
        model: |is_mended| {
            Box::new(NoBarrier {
                is_mended,
                set: AtomicU64::new(0),
                request: Request::new(),
            })
        },
        has_hypervisor: false,
    },
};

/// A thread of the same program that begins to run.
const COMES: Part = Part {
    starts_in: None,
    plays: comes,
};

fn comes(scene: &Scene) {
    scene.switch(Some(0));
    scene.load(3);
}

#[derive(Debug)]
struct NoBarrier {
    is_mended: bool,
    /// The CPUs that run the space.
    set: AtomicU64,
    request: Request,
}

impl Algorithm for NoBarrier {
    fn place(&self, cpu: usize, _: usize) {
        // ORDERING: none: no CPU runs yet.
        self.set.as_core().fetch_or(1 << cpu, Ordering::Relaxed);
    }

    fn switch(&self, stage: &Stage, from: Option<usize>, to: Option<usize>) {
        let bit = 1 << context().cpu();
        if to.is_some() {
            // ORDERING: Release, as published; the barrier below orders it before the walk.
            self.set.fetch_or(bit, Ordering::Release);
            context().tell(|| "puts itself into the set of the space".to_owned());
            // ORDERING: the instruction is a locked one. The bit is set before the CPU walks; pairs with the barrier that `change` lacks.
            stage.full_barrier();
        }
        stage.load_root(to);
        if from.is_some() {
            // ORDERING: Release: the root is gone before the bit; pairs with the load in `change`.
            self.set.fetch_and(!bit, Ordering::Release);
        }
    }

    fn change(&self, stage: &Stage, _: usize, write: &dyn Fn()) {
        write();
        if self.is_mended {
            // ORDERING: the change is visible before the set is read; pairs with the barrier in `switch`.
            stage.full_barrier();
        }
        // ORDERING: Acquire, as published. It does not order the store before it.
        let set = self.set.load(Ordering::Acquire);
        let seen = match stage.others_in(set).count() {
            0 => "reads the set of the space: no other CPU is in it",
            _ => "reads the set of the space: the other CPU is in it",
        };
        context().tell(|| seen.to_owned());
        stage.drop_page();
        self.request.send(stage, set);
        self.request.wait();
    }

    fn interrupt(&self, stage: &Stage) {
        self.request.answer(stage);
    }
}
