//! Files in memory, whose pages programs map and write to.
//!
//! A [`MemoryFile`] keeps two copies of its bytes: the pages that `read`, `write` and mappings share, and the *stored*
//! pages, which stand for a disk. A sync brings the second up to date with the first, and copies only pages that were
//! written to. So the file has to know which those are, though programs write to them without asking:
//!
//! * A page that is clean is mapped read-only, whatever the area allows. The first write faults, puts the page down as
//!   dirty, and gets the right to write.
//! * A sync takes the dirty pages of its range down as clean, takes the right to write to them away in every address space,
//!   and copies them when no CPU has that right any more: one shootdown a space, whatever the number of pages.
//!
//! No write is lost in between: one that comes before the flush is over is in memory before the copy is made, and one
//! that comes later faults and makes the page dirty again. What follows from that for the rest of `mm`: an entry of a file's
//! page is writable only while the page is dirty, and none that was writable disappears from a page table before every
//! CPU has forgotten it (`Gather::note_writer`). But a page that is cut off may: both of its copies are given up, when no CPU has it any more.
//!
//! [`area`](FileArea) is the part of a file that a mapping shows, `pages` numbers them, `contents` holds them, `dirty` which of them were
//! written to, `mappers` the address spaces to ask, `sync` and `resize` the operations that ask them, `lanes` what keeps
//! syncs apart that run at the same time, `evict` what gives pages up when memory runs out.
//!
//! Locks, from the outside in: changes of the size, the lanes of syncs, the address space, the contents.
//!
//! It may not know names and descriptors (`fs`); of a space it knows that it has areas, which show files.

mod area;
mod contents;
mod counters;
mod dirty;
mod evict;
mod lanes;
mod mappers;
mod memory_file;
mod pages;
mod quota;
mod resize;
mod space;
mod sync;

pub use area::FileArea;
pub use contents::Copy;
pub use counters::counters;
pub use evict::{evict, make_room};
pub use memory_file::MemoryFile;
#[cfg(not(target_os = "none"))]
pub use pages::MAX_BYTES;
pub use pages::PageRange;
pub use sync::sync_all;
