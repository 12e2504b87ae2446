//! Invalidation: the only place of this kernel that asks the engine to flush.
//!
//! Every operation that empties or weakens entries does it in this order:
//! 1. lock the address space, change entries, gather them in a [`Gather`];
//! 2. `MemorySpace::submit` still under the lock, so that the change happens before the
//!    generation bump and no other thread can install something in between (I1);
//! 3. unlock: others need not wait for what only this operation waits for;
//! 4. `Pending::finish`: wait, and only then free the frames (I5) and tables (I4).
//!
//! A fork and a copy on write wait before they unlock, because nobody may see what is between their steps; so does a stack that grows where others have just
//! unmapped something, because the thread that uses it asks for nothing; and so does
//! whoever takes a writable page of a file out of the table, because a sync relies on finding it there. That is
//! legal because the lock's waiters sleep, and is avoided where it can be. No wait is made with preemption off, but by
//! the engine itself under its policy `before`.
//!
//! Who takes pages away from many spaces whose contents nobody may rely on, as those that are cut off a file, gathers all of them in a [`Reclaim`] instead of step
//! 2: each space is locked and unlocked once, and 4 is one flush and one wait for all of them.
//!
//! Between 3 and 4 the entries are empty, and other CPUs may still use what was in them. Whoever takes the lock then and finds nothing to gather has promised
//! as much as who came first: it flushes its whole range as long as others are in flight ([`InFlight`]).
//! That covers addresses, too: who gives out what has just been unmapped (`mmap`, `mremap`, `brk`, a stack that grows) returns when nobody has its
//! former translations. Addresses of the kernel's half are never given out again: nothing there is unmapped but pages of the torture, whose owner waits first;
//! stacks and all else that is allocated lie in the direct map.
//!
//! Virtual machines that show parts of the space listen to its flushes ([`nested`](super::nested)): they lose what it loses in step 2, and step 4 has them flushed and waits
//! for that, too.
//!
//! Frames travel through the engine's batch as whole chains, so an operation of any size is one
//! flush, needs no memory, and never has to drop the lock half-way because a batch is full.
//!
//! It may not know areas and what they show: it is given entries, frames and spaces.

#[cfg(feature = "breaks")]
pub mod breaks;
mod gather;
mod guests;
mod in_flight;
mod pending;
mod reclaim;

pub use gather::Gather;
pub use guests::GuestPending;
pub use in_flight::InFlight;
pub use pending::Pending;
pub use reclaim::Reclaim;
