//! Invalidation as an engine asks for it: pages, a space, everything.

use super::invpcid::InvpcidKind;
use super::port::{Hardware, Port};
use crate::features::Features;

/// The translation caches of whichever CPU calls.
#[derive(Clone, Copy, Debug)]
pub struct Tlb<P: Port = Hardware> {
    port: P,
    invpcid: bool,
    global_pages: bool,
}

impl Tlb<Hardware> {
    /// The caches of CPUs with these features.
    ///
    /// # Safety
    ///
    /// 1. CPL 0, on every CPU that uses the value.
    /// 2. `features` hold on all those CPUs.
    pub const unsafe fn new(features: &Features) -> Self {
        // SAFETY: duty 1 is the caller's.
        let port = unsafe { Hardware::new() };
        Self::with_port(port, features)
    }
}

impl<P: Port> Tlb<P> {
    /// The same through another port, for tests and simulators.
    pub const fn with_port(port: P, features: &Features) -> Self {
        Self {
            port,
            invpcid: features.has_invpcid(),
            global_pages: features.has_pge(),
        }
    }

    /// Drops one page, global or not, for the loaded PCID, and with it all of the loaded PCID's
    /// paging-structure caches, so page tables that were unlinked are dropped too. Any address in
    /// the page will do, whatever its size.
    #[inline]
    pub fn flush_page(&self, address: usize) {
        self.port.invlpg(address);
    }

    /// Drops `pages` pages of `stride_bytes` each, as [`Tlb::flush_page`], from the one that
    /// holds `start`. The range must not wrap around the end of the address space; the part beyond
    /// is left out.
    #[inline]
    pub fn flush_pages(&self, start: usize, stride_bytes: usize, pages: usize) {
        let mut address = start;
        for _ in 0..pages {
            self.port.invlpg(address);
            match address.checked_add(stride_bytes) {
                Some(next) => address = next,
                None => return,
            }
        }
    }

    /// Drops all translations of the loaded PCID that are not global, by loading CR3 with itself.
    #[inline]
    pub fn flush_non_global(&self) {
        let root = self.port.read_cr3();
        // SAFETY: 1. the root that is loaded.
        unsafe { self.port.write_cr3(root) };
    }

    /// Drops everything, global translations and all PCIDs too: by INVPCID, else by changing
    /// CR4.PGE twice, for which interrupts are off for a moment, else by CR3.
    pub fn flush_all(&self) {
        if self.invpcid {
            self.port.invpcid(InvpcidKind::All);
        } else if self.global_pages {
            let before = self.port.irq_save();
            self.port.toggle_global_pages();
            self.port.irq_restore(before);
        } else {
            // No translation is global, and PCIDs came later than global pages.
            self.flush_non_global();
        }
    }

    /// INVPCID, where the processor has it.
    ///
    /// # Panics
    ///
    /// Without INVPCID ([`Features::has_invpcid`]).
    #[inline]
    pub fn invpcid(&self, kind: InvpcidKind) {
        assert!(self.invpcid, "this processor has no INVPCID");
        self.port.invpcid(kind);
    }

    /// The loaded root: CR3.
    #[inline]
    pub fn root(&self) -> u64 {
        self.port.read_cr3()
    }

    /// Loads a root, dropping all translations that are not global (with PCIDs: of the PCID in
    /// its low bits).
    ///
    /// # Safety
    ///
    /// 1. `root` maps the code, the stack and everything else that this CPU goes on using.
    #[inline]
    pub unsafe fn load_root(&self, root: u64) {
        // SAFETY: 1. the caller's.
        unsafe { self.port.write_cr3(root) };
    }
}
