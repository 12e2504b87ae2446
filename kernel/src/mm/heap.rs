//! The kernel heap.

use talc::TalcLock;
use talc::source::Manual;

use crate::sync::Mutex;

#[global_allocator]
static HEAP: TalcLock<Mutex<()>, Manual> = TalcLock::new(Manual);
