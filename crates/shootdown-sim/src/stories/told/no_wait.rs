//! The initiator interrupts the others and does not wait for them.

use crate::stories::algorithm::Algorithm;
use crate::stories::request::Request;
use crate::stories::stage::Stage;
use crate::stories::story::{Cast, Story};
use crate::stories::told::local_only::THREADS;

pub(super) const STORY: Story = Story {
    name: "no-wait",
    title: "the initiator interrupts the others and does not wait",
    algorithm: "the initiator of an unmap changes the entry, drops the page on its own CPU, interrupts all others, which drop it too, and \
                frees the frame at once",
    wrong: "an interrupt takes its time, and longer where a CPU has interrupts off. Until the other CPU takes it, that CPU uses a frame \
            that has another owner",
    mending: Some("the initiator waits until every target has dropped the page"),
    source: "the source of two kernels, one in Rust and one in C; there is no public report of it that we know of",
    cast: Cast::Parts {
        parts: &THREADS,
        model: |is_mended| {
            Box::new(NoWait {
                is_mended,
                request: Request::new(),
            })
        },
        has_hypervisor: false,
    },
};

#[derive(Debug)]
struct NoWait {
    is_mended: bool,
    request: Request,
}

impl Algorithm for NoWait {
    fn change(&self, stage: &Stage, _: usize, write: &dyn Fn()) {
        write();
        stage.drop_page();
        self.request.send(stage, u64::MAX);
        if self.is_mended {
            self.request.wait();
        }
    }

    fn interrupt(&self, stage: &Stage) {
        self.request.answer(stage);
    }
}
