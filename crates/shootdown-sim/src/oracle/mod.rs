//! The judge: it knows what the page tables promised, and never reads engine state.
//!
//! A translation goes through levels on its way out, and each promise of the engine's interface names one:
//!
//! | level | means | promised by |
//! |---|---|---|
//! | request seen | every target knows of the change | `submit` with `Wait::Received`, once waited for |
//! | user access closed | no load or store of a user program uses the old translation any more | the wait of a flush of user pages that freed no tables |
//! | translation gone | no TLB holds it any more | the wait of a flush of the kernel's part; `online`, on its own CPU |
//! | walker quiescent | no CPU walks, or has cached an entry that leads through, the unlinked table | the wait of a flush with freed tables |
//! | frame reusable | both of the former, for everything in a batch | the frames that a batch's ticket gives back |
//!
//! "User access closed" is less than "translation gone": a target that acknowledged early is still inside its handler, where
//! no user program runs, and may hold the entry until it has flushed.
//!
//! The [`Book`] records a promise when the virtual kernel writes an entry, and strikes it out at the moment
//! when the call whose level says so has returned. Every access of a virtual program must be covered by a
//! promise that is open at that moment; every step of every page walk must go through a frame
//! that is a table.

mod book;

pub use book::{Book, Breach, FrameKind, Mark};
