//! The initiator changes the entry and flushes its own CPU only.

use crate::stories::algorithm::{Algorithm, Part, Scene};
use crate::stories::request::Request;
use crate::stories::stage::Stage;
use crate::stories::story::{Cast, Story};

pub(super) const STORY: Story = Story {
    name: "local-only",
    title: "an unmap is flushed on one CPU only",
    algorithm: "the initiator of an unmap changes the entry, drops the page on its own CPU, and frees the frame",
    wrong: "nobody tells the other CPU that runs the same space: it goes on with the old translation, in a frame that has another owner",
    mending: Some(
        "the initiator interrupts the other CPUs, and frees the frame once all have dropped the page",
    ),
    source: "RuxOS issue #104 of 2024, whose comment says that #114 mends it (https://github.com/syswonder/ruxos/issues/104). Microsoft's \
             litebox reports the same of itself in #671 of 2026, open (https://github.com/microsoft/litebox/issues/671), Nanvix in #368, \
             open (https://github.com/nanvix/kernel/issues/368); for ArceOS there is a change that adds the rest, not merged in the copy \
             that was read (https://github.com/arceos-org/page_table_multiarch/pull/32)",
    cast: Cast::Parts {
        parts: &THREADS,
        model: |is_mended| {
            Box::new(LocalOnly {
                is_mended,
                request: Request::new(),
            })
        },
        has_hypervisor: false,
    },
};

/// Two threads of one program.
pub(super) const THREADS: [Part; 2] = [Part::within(0, unmaps), Part::within(0, loads)];

/// This one unmaps a page.
pub(super) fn unmaps(scene: &Scene) {
    scene.unmap(0);
}

/// This one uses it.
pub(super) fn loads(scene: &Scene) {
    scene.load(3);
}

#[derive(Debug)]
struct LocalOnly {
    is_mended: bool,
    request: Request,
}

impl Algorithm for LocalOnly {
    fn change(&self, stage: &Stage, _: usize, write: &dyn Fn()) {
        write();
        stage.drop_page();
        if self.is_mended {
            self.request.send(stage, u64::MAX);
            self.request.wait();
        }
    }

    fn interrupt(&self, stage: &Stage) {
        self.request.answer(stage);
    }
}
