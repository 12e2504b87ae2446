//! A mapping is said to be one CPU's.

use crate::kernel::Scenario;
use crate::stories::story::{Cast, Story};

pub(super) const STORY: Story = Story {
    name: "local-flag",
    title: "a flag says that one CPU alone uses a mapping",
    algorithm: "a mapping has a flag that says that one CPU alone uses it, and an unmap drops it on that CPU only. The mapping lies in page \
                tables that other CPUs have loaded too",
    wrong: "a processor does not ask which CPU uses a mapping before it caches the translation. Another CPU has cached it speculatively, \
            and reaches the frame's next owner through it",
    mending: None,
    source: "the patch \"mm: Add new vma flag VM_LOCAL_CPU\" of May 2018, which was not merged \
             (https://lore.kernel.org/linux-mm/0efb5547-9250-6b6c-fe8e-cf4f44aaa5eb@netapp.com/). P. Zijlstra answered that a program can \
             fill the TLB of another CPU and use the page through it once it is reused \
             (https://lore.kernel.org/linux-mm/20180515120939.GA12217@hirez.programming.kicks-ass.net/)",
    cast: Cast::Scenarios {
        described: Scenario::PublishedFlag,
        engine: Scenario::PrivateRoots,
    },
};
