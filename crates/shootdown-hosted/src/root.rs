//! Roots of this machine: they are numbers.

use shootdown::{KernelRoot, Root};

/// The root with this number: 0 has no user part, the others are entries of `Memory::roots` and begin with 1.
pub(crate) fn tables(number: u64) -> Root {
    // SAFETY: 1. a root is loaded into a software cache, which finds the kernel's part without it. 2. a machine's roots live as
    // long as its engine, and its memory looks them up by their numbers, with bounds. 3. each machine asks once for each. 4. `copy_top` alone writes the
    // shared entries of a private root; windows' tables are never replaced.
    unsafe { Root::new(number) }
}

/// The root without a user part.
// SAFETY: 1. and 2. as above. 3. it has no entries.
pub(crate) const KERNEL_ROOT: KernelRoot = unsafe { KernelRoot::new(0) };
