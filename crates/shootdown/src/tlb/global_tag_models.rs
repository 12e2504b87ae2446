//! loom models of what a CPU knows that sees a settled tag.

extern crate std;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use super::TagSet;
use crate::tlb::{LazyMark, SpaceId};

/// What was used before, and is not used any more when the other side has said so.
struct Used(UnsafeCell<u64>);

// SAFETY: loom checks that uses do not overlap.
unsafe impl Sync for Used {}
// SAFETY: as above.
unsafe impl Send for Used {}

impl Used {
    fn new() -> Self {
        Self(UnsafeCell::new(0))
    }

    fn use_it(&self) {
        // SAFETY: loom reports a use that overlaps another.
        self.0.with_mut(|value| unsafe { *value += 1 });
    }
}

const SPACE: SpaceId = SpaceId(5);

/// One CPU changes its tag, another one sees that and settles it, a third one sees that it is settled: the first one uses nothing under its old
/// tag any more.
#[test]
fn who_sees_a_settled_tag_comes_after_all_that_changed_theirs() {
    loom::model(|| {
        let all = Arc::new((TagSet::new(), LazyMark::new(), Used::new()));
        all.0.give(SPACE);
        let changes = {
            let all = all.clone();
            thread::spawn(move || {
                all.2.use_it();
                all.1.set_tagged(SPACE);
            })
        };
        let settles = {
            let all = all.clone();
            thread::spawn(move || {
                if all.1.tagged() == SPACE {
                    all.0.owners[0].settle(SPACE);
                }
            })
        };
        thread::yield_now();
        if all.0.owners[0].is(SPACE) == Some(true) {
            all.2.use_it();
        }
        changes.join().unwrap();
        settles.join().unwrap();
    });
}
