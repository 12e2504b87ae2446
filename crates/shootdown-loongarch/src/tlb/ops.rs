//! Invalidation as an engine asks for it: pages, a tag, everything.

use super::asid::{Asid, AsidWidth};
use super::pages::{PageSize, Pages};
use super::port::{Invtlb, Port};

/// The translations of whichever CPU calls.
///
/// Every flush begins with `DBAR 0`: stores to page tables that this CPU has executed, or has seen, are then seen by walks that follow the INVTLB. All may be called in any context at PLV 0;
/// those that ask for the loaded tag have interrupts off meanwhile.
#[derive(Clone, Copy, Debug)]
pub struct Tlb<P: Port> {
    pub(super) port: P,
    base: PageSize,
    width: AsidWidth,
}

impl<P: Port> Tlb<P> {
    /// Translations through `port`, which is `Hardware` on the machine. `base` is the size of pages that the kernel's tables have, and [`Walk`](crate::walk::Walk) sets; `width` is
    /// what [`Tlb::detect_width`] found, or less if the host has use for fewer tags ([`AsidWidth::NONE`]: for none).
    ///
    /// # Safety
    ///
    /// 1. No CPU that uses the value has a smaller page in its tables than `base`, nor fewer bits of tags than `width`.
    /// 2. Nobody else writes CSR.ASID and CSR.PGDL there, and each of them runs [`Tlb::start`] first.
    /// 3. `port` does what [`Port`] says, on the CPU that calls.
    pub const unsafe fn with_port(port: P, base: PageSize, width: AsidWidth) -> Self {
        Self { port, base, width }
    }

    /// How it reaches the machine.
    #[inline]
    pub const fn port(&self) -> &P {
        &self.port
    }

    /// How many bits of tags are used.
    #[inline]
    pub const fn width(&self) -> AsidWidth {
        self.width
    }

    /// The loaded tag.
    #[inline]
    pub fn loaded_asid(&self) -> Asid {
        Asid::of_register(self.port.read_asid())
    }

    /// The loaded root of the lower half.
    #[inline]
    pub fn root(&self) -> u64 {
        self.port.read_pgdl()
    }

    pub(super) fn uninterrupted<R>(&self, act: impl FnOnce() -> R) -> R {
        let before = self.port.irq_save();
        let result = act();
        // SAFETY: 1. of the `irq_save` above.
        unsafe { self.port.irq_restore(before) };
        result
    }

    /// Drops, of each of the pages and its buddy, what the loaded tag has cached, and what is global. Also for pages whose tables were freed.
    #[inline]
    pub fn flush_pages(&self, pages: Pages) {
        self.uninterrupted(|| {
            self.port.dbar();
            let asid = self.loaded_asid();
            for address in pages.entries(self.base) {
                self.port.invtlb(Invtlb::Page(asid, address));
            }
        });
    }

    /// For the handler of a page fault whose page-table entry [allows](crate::entry::Fault::is_spurious) what was tried: drops what made it fault, before it is tried again. `address` is CSR.BADV.
    ///
    /// The entry is read behind the fault, and this called behind that; so the walk that follows finds it, or what it became since.
    #[inline]
    pub fn flush_faulted(&self, address: usize) {
        self.flush_pages(Pages::one(address, self.base));
    }

    /// Drops what the loaded tag has cached that is not global.
    #[inline]
    pub fn flush_space(&self) {
        self.uninterrupted(|| {
            self.port.dbar();
            self.port.invtlb(Invtlb::Tag(self.loaded_asid()));
        });
    }

    /// Drops everything.
    pub fn flush_all(&self) {
        self.port.dbar();
        self.port.invtlb(Invtlb::All);
    }
}
