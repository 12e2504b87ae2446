//! Invalidation, tags, and loading roots.
//!
//! # What the TLB holds
//!
//! By the reference manual vol. 1, 5.4 "Memory Management of Page Table Mapping":
//!
//! * An entry is a *pair* of pages with one tag and one G bit. So a flush of one page drops its buddy, too, and ranges are rounded to [pairs](Pages::entry_count).
//! * **A pair is global only if both its pages have G**, an empty one too: [`entry::EMPTY_GLOBAL`](crate::entry::EMPTY_GLOBAL). (Linux: `pte_clear`, "Preserve global status for the
//!   pair".) Else a page that is said to be global is cached under each tag, and a flush under the loaded one leaves the others.
//! * **Invalid pages are cached**: with their buddy, or alone. A page that becomes valid takes a flush here, and elsewhere the retry of the fault that comes of it
//!   ([`Tlb::flush_faulted`]): for the kernel's accesses to the kernel's pages, too.
//! * An address that is found twice, as a page and in a huge one, is undefined behaviour (5.4.1): a page's size changes by way of an empty entry that every CPU has flushed. **And where a huge page
//!   takes the place of nothing**, the small invalid pages that nothing was cached as are flushed, too, on every CPU: the tag ([`Tlb::flush_space`]), or each small page. [`Pages`] of the huge size name one pair of them only.
//!   Between the store and the end of that flush a CPU may find both; only a host that keeps accesses away from the addresses meanwhile rules that out.
//! * Cached directory entries are nowhere mentioned. The crate assumes that, if a processor has them, they have a tag, and INVTLB drops with a page, a tag or
//!   everything what leads there. Linux frees tables on the same assumption.
//!
//! Nothing here rests on refill by software: processors with CPUCFG.2.HPTW (the 3A6000) walk whenever they like, also ahead of the program.
//!
//! # Loading a root
//!
//! The tag and the root are in two registers, and a processor that walks between the two writes fills with the one's tag from the other's tables. So [`Tlb`] keeps
//! one tag for itself, the [highest](AsidWidth::reserved):
//!
//! 1. `DBAR 0`: walks see the stores to the new tables.
//! 2. INVTLB of the reserved tag: what it has from the time before may lead to tables that are freed since.
//! 3. ASID := reserved.
//! 4. PGDL := root. What is filled from the old tables and from the new ones now is the reserved tag's, under which nothing of the lower half is used.
//! 5. INVTLB of the new tag if its entries are to be [dropped](TagEntries::Drop), whether it was loaded before or not: nothing fills it now.
//! 6. ASID := the new tag.
//!
//! Two hits under the reserved tag cannot be ruled out where the roots have pages of different sizes at one address; but in between nothing is accessed there.
//!
//! An empty table instead of the reserved tag would do for tables of one page size only: what is filled from it are invalid pages of the base size, which stay in the way of a
//! huge one. The manual says nothing of an order; Linux (`atomic_update_pgd_asid`) writes PGDL, then ASID, and accepts what is filled between.
//!
//! Where there are no tags PGDL is written first, and everything that is not global is dropped behind it; until then the CPU counts as one that walks the tables of both roots.

mod asid;
mod load;
mod ops;
mod pages;
mod port;

pub use asid::{Asid, AsidWidth, TagEntries};
pub use ops::Tlb;
pub use pages::{PageSize, Pages};
#[cfg(target_arch = "loongarch64")]
pub use port::Hardware;
pub use port::{Invtlb, Port};
