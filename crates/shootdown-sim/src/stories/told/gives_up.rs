//! The initiator waits for some time, and then goes on.

use crate::machine::context;
use crate::stories::algorithm::{Algorithm, Part, Scene};
use crate::stories::request::Request;
use crate::stories::stage::Stage;
use crate::stories::story::{Cast, Story};
use crate::stories::told::local_only::unmaps;

/// Turns of the wait before the interrupts are sent again.
const TURNS: u32 = 3;
/// How often they are sent again.
const RETRIES: u32 = 3;

pub(super) const STORY: Story = Story {
    name: "gives-up",
    title: "a wait ends after some time, and the kernel goes on",
    algorithm: "the initiator counts the turns of its wait. After so many it interrupts again the CPUs that have not answered; after \
                three such rounds it warns and goes on",
    wrong: "the target had its interrupts off for longer than that. It still has the translation when the frame has another owner",
    mending: Some("the wait has no end: nothing is freed before every target has answered"),
    source: "Nilix before its round R68 of January 2026, by its own record (https://github.com/Zero-kernel/Nilix, docs/roadmap.md, and \
             R68-5 in kernel/mm/tlb_shootdown.rs). Since then it panics instead of going on",
    cast: Cast::Parts {
        parts: &[Part::within(0, unmaps), Part::within(0, is_busy)],
        model: |is_mended| {
            Box::new(GivesUp {
                is_mended,
                request: Request::new(),
            })
        },
        has_hypervisor: false,
    },
};

/// A thread that loads, makes a system call that keeps interrupts off for a while, and loads again.
fn is_busy(scene: &Scene) {
    scene.load(1);
    scene.keep_interrupts_off(12);
    scene.load(2);
}

#[derive(Debug)]
struct GivesUp {
    is_mended: bool,
    request: Request,
}

impl GivesUp {
    /// False if it has taken too long.
    fn is_answered_in_time(&self) -> bool {
        for _ in 0..TURNS {
            if self.request.is_answered() {
                return true;
            }
            // Without the pause that others have: the machine may let it go on.
            context().work(1);
        }
        false
    }
}

impl Algorithm for GivesUp {
    fn change(&self, stage: &Stage, _: usize, write: &dyn Fn()) {
        write();
        stage.drop_page();
        self.request.send(stage, u64::MAX);
        if self.is_mended {
            return self.request.wait();
        }
        for _ in 0..RETRIES {
            if self.is_answered_in_time() {
                return;
            }
            stage.others().for_each(|target| stage.interrupt(target));
        }
        if !self.is_answered_in_time() {
            context().tell(|| "waits no longer".to_owned());
        }
    }

    fn interrupt(&self, stage: &Stage) {
        self.request.answer(stage);
    }
}
