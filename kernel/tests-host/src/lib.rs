//! The kernel's memory management, program loading, ready queue, sleeping lock and events of guests, compiled for the host.
//!
//! Kernel code cannot run `cargo test` itself. Here the same source files are built against a shim of
//! what they use from the rest of the kernel: physical memory is one anonymous mapping, and a CPU is whatever thread says
//! that it is one. Nobody walks the page tables but the tests, and [`witness`], which models what CPUs may have cached.

extern crate alloc;

// The kernel's files, as they are. Parts that only other kernel modules use are dead code here.
#[allow(dead_code)]
#[path = "../../src/addr.rs"]
pub mod addr;
#[path = "../../src/budget.rs"]
pub mod budget;
#[path = "../../src/cpus.rs"]
pub mod cpus;
#[allow(missing_docs)]
#[path = "../../src/vm/decode.rs"]
pub mod decode;
#[allow(dead_code)]
#[path = "../../src/errno.rs"]
pub mod errno;
#[allow(dead_code)]
#[path = "../../src/exec/mod.rs"]
pub mod exec;
#[path = "../../src/console/grid.rs"]
pub mod grid;
#[cfg(feature = "isolation")]
#[path = "../../src/isolation.rs"]
pub mod isolation;
#[allow(dead_code)]
#[path = "../../src/mm/mod.rs"]
pub mod mm;
#[path = "../../src/console/pixels.rs"]
pub mod pixels;

pub mod arch;
pub mod boot;
pub mod memory;
pub mod platform;
pub mod preempt;
pub mod sync;
pub mod task;
pub mod tlb;
pub mod vm;
pub mod witness;
