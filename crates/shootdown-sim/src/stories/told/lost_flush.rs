//! A hypervisor takes a request and clears it in two steps.

use shootdown::Platform;
use shootdown::shim::{AtomicU64, Ordering};

use crate::machine::{PLATFORM, context};
use crate::stories::algorithm::{Algorithm, Part, Scene};
use crate::stories::request::Request;
use crate::stories::stage::Stage;
use crate::stories::story::{Cast, Story};
use crate::stories::told::local_only::unmaps;

pub(super) const STORY: Story = Story {
    name: "lost-flush",
    title: "a hypervisor reads a request to flush and clears it in two steps",
    algorithm: "a hypervisor and its guest share a word for each virtual CPU. While a virtual CPU does not run, the hypervisor says so in the \
                word, and the guest adds a request to flush it instead of an interrupt. Before the hypervisor runs the virtual CPU again, it \
                copies the word, carries out the request that the copy has, and then writes that the virtual CPU runs",
    wrong: "the guest adds a request between the copy and the write, which overwrites it. The guest counts the virtual CPU as flushed, \
            and it is not",
    mending: Some("the hypervisor exchanges the word in one atomic operation"),
    source: "CVE-2019-3016 (KVM), by the text of its repair, Linux commit b043138246a4 \"x86/KVM: Make sure KVM_VCPU_FLUSH_TLB flag is not \
             missed\" (https://git.kernel.org/pub/scm/linux/kernel/git/torvalds/linux.git/commit/?id=b043138246a4)",
    cast: Cast::Parts {
        parts: &[Part::within(0, unmaps), Part::within(0, is_taken_away)],
        model: |is_mended| {
            Box::new(LostFlush {
                is_mended,
                word: AtomicU64::new(0),
                request: Request::new(),
            })
        },
        has_hypervisor: true,
    },
};

/// The virtual CPU does not run.
const PREEMPTED: u64 = 1 << 0;
/// It is to be flushed before it does.
const FLUSH: u64 = 1 << 1;

/// A thread that loads, loses its processor, and loads again.
fn is_taken_away(scene: &Scene) {
    scene.load(1);
    scene.lose_processor();
    scene.load(2);
}

#[derive(Debug)]
struct LostFlush {
    is_mended: bool,
    /// Of virtual CPU 1, the only one that the hypervisor takes away.
    word: AtomicU64,
    request: Request,
}

impl LostFlush {
    /// The guest asks the hypervisor; false if the virtual CPU runs.
    fn is_taken(&self, stage: &Stage) -> bool {
        // ORDERING: the exchange reads what was written last.
        let seen = self.word.load(Ordering::Relaxed);
        // ORDERING: Release publishes the change to the hypervisor, which flushes after it.
        let ask = || {
            let asked = (self.word).compare_exchange(
                seen,
                seen | FLUSH,
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
            asked.is_ok()
        };
        let is_taken = seen & PREEMPTED != 0 && ask();
        if is_taken {
            stage.full_barrier();
            context().tell(|| "asks the hypervisor to flush cpu1, which does not run".to_owned());
        }
        is_taken
    }

    /// The hypervisor is about to run the virtual CPU.
    fn enter(&self, stage: &Stage) {
        // ORDERING: Acquire: the change that the guest wants flushed.
        let seen = match self.is_mended {
            true => self.word.swap(0, Ordering::AcqRel),
            false => self.word.load(Ordering::Acquire),
        };
        let is_asked = seen & FLUSH != 0;
        context().tell(|| match is_asked {
            true => "its hypervisor finds a request to flush it".to_owned(),
            false => "its hypervisor finds no request".to_owned(),
        });
        if is_asked {
            stage.drop_all();
        }
        if !self.is_mended {
            // ORDERING: Release, as any store on x86.
            self.word.store(0, Ordering::Release);
            context()
                .tell(|| "its hypervisor writes that it runs, over whatever is there".to_owned());
        }
    }
}

impl Algorithm for LostFlush {
    fn change(&self, stage: &Stage, _: usize, write: &dyn Fn()) {
        write();
        stage.drop_page();
        if !self.is_taken(stage) {
            self.request.send(stage, u64::MAX);
            self.request.wait();
        }
    }

    fn interrupt(&self, stage: &Stage) {
        self.request.answer(stage);
    }

    fn lose_processor(&self, stage: &Stage) {
        // It takes no interrupt, and its TLB does nothing by itself.
        let state = PLATFORM.irq_save();
        stage.set_runs(false);
        // ORDERING: Release, as any store on x86.
        self.word.store(PREEMPTED, Ordering::Release);
        context().tell(|| "is taken off its processor".to_owned());
        for _ in 0..4 {
            context().work(1);
        }
        self.enter(stage);
        stage.set_runs(true);
        // SAFETY: 1. saved above.
        unsafe { PLATFORM.irq_restore(state) };
    }
}
