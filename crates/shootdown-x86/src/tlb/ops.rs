//! Invalidation as an engine asks for it: pages, a space, everything; and loading roots.

use super::invlpgb::Depth;
use super::invpcid::InvpcidKind;
use super::pcid::{CR3_PCID, Pcid, TagEntries};
use super::port::{Hardware, Port};
use crate::features::Features;

/// CR4.PGE and CR4.PCIDE (SDM vol. 3A, "Control Registers").
const CR4_PGE: u64 = 1 << 7;
const CR4_PCIDE: u64 = 1 << 17;

/// The translation caches of whichever CPU calls.
#[derive(Clone, Copy, Debug)]
pub struct Tlb<P: Port = Hardware> {
    pub(super) port: P,
    pub(super) invpcid: bool,
    global_pages: bool,
    pub(super) pcids: bool,
    /// EFER.TCE may be set.
    keeps_tables: bool,
}

impl Tlb<Hardware> {
    /// The caches of CPUs with these features, PCIDs off; EFER.TCE may be set where the features [have it](Features::has_tce).
    ///
    /// # Safety
    ///
    /// 1. CPL 0, on every CPU that uses the value.
    /// 2. `features` hold on all those CPUs, and CR4.PCIDE is clear there.
    pub const unsafe fn new(features: &Features) -> Self {
        // SAFETY: duty 1 is the caller's.
        let port = unsafe { Hardware::new() };
        // SAFETY: 1. duty 2 of the caller.
        unsafe { Self::with_port(port, features) }
    }
}

impl<P: Port> Tlb<P> {
    /// The same through another port, for tests and simulators.
    ///
    /// # Safety
    ///
    /// 1. `features` hold on every CPU that uses the value, and CR4.PCIDE is clear there.
    pub const unsafe fn with_port(port: P, features: &Features) -> Self {
        Self {
            port,
            invpcid: features.has_invpcid(),
            global_pages: features.has_pge(),
            pcids: false,
            keeps_tables: features.has_tce(),
        }
    }

    /// The same for CPUs whose EFER.TCE is clear: then INVLPG drops all cached tables of the loaded PCID, and
    /// [`Tlb::flush_pages`] need not drop more than its pages where tables were freed.
    ///
    /// # Safety
    ///
    /// 1. EFER.TCE is clear on every CPU that uses the value, as long as it does.
    pub const unsafe fn with_tce_clear(mut self) -> Self {
        self.keeps_tables = false;
        self
    }

    /// The same with PCIDs on.
    ///
    /// # Safety
    ///
    /// 1. PCIDs are [usable](super::PcidSupport::Usable) on every CPU that uses the value.
    /// 2. Each of them runs [`Tlb::start`] first, and from then on no copy of the value without PCIDs:
    ///    such a one takes the tags' entries for dropped.
    pub const unsafe fn with_pcids(mut self) -> Self {
        self.pcids = true;
        self
    }

    /// Whether this value uses PCIDs.
    pub const fn has_pcids(&self) -> bool {
        self.pcids
    }

    /// Brings this CPU into the state that the value expects: CR4.PCIDE set if it uses PCIDs, else as
    /// it is. CR4.PCIDE can be set in 64-bit mode only, and only while [`Pcid::UNTAGGED`] is loaded, so
    /// it becomes that. What was cached before keeps that tag.
    ///
    /// # Safety
    ///
    /// 1. No caching attributes in CR3 bits 3 and 4 are needed for the loaded root.
    pub unsafe fn start(&self) {
        if self.pcids {
            // SAFETY: 1. only PCIDE changes. 2. PCIDs are usable by `with_pcids`; CR3 bits 11:0 are
            // clear.
            self.untagged(|cr4| unsafe { self.port.write_cr4(cr4 | CR4_PCIDE) });
        }
    }

    /// Undoes [`Tlb::start`], for CPUs that are handed to other code: [`Pcid::UNTAGGED`] loaded,
    /// CR4.PCIDE clear, everything dropped. Without PCIDs nothing happens.
    ///
    /// # Safety
    ///
    /// 1. This CPU does not use the value again before it runs [`Tlb::start`]: tags would fault.
    pub unsafe fn stop(&self) {
        if self.pcids {
            // SAFETY: 1. only PCIDE changes. 2. clearing it is always allowed.
            self.untagged(|cr4| unsafe { self.port.write_cr4(cr4 & !CR4_PCIDE) });
        }
    }

    /// Hands CR4 on with interrupts off and CR3 bits 11:0 clear.
    fn untagged(&self, change: impl FnOnce(u64)) {
        self.uninterrupted(|| {
            let loaded = self.port.read_cr3();
            if loaded & CR3_PCID != 0 {
                // SAFETY: 1. the root that is loaded. 2. bit 63 is clear.
                unsafe { self.port.write_cr3(loaded & !CR3_PCID) };
            }
            change(self.port.read_cr4());
        });
    }

    /// Runs it with interrupts off: no handler on this CPU loads a root or changes CR4 meanwhile.
    #[inline]
    pub(super) fn uninterrupted(&self, act: impl FnOnce()) {
        let before = self.port.irq_save();
        act();
        // SAFETY: 1. from `irq_save` above.
        unsafe { self.port.irq_restore(before) };
    }

    /// Drops one page, global or not, for the loaded PCID, and with it what the loaded PCID's paging-structure
    /// caches have of the tables that lead to it: *all* that they have where EFER.TCE is clear (SDM vol. 3A,
    /// "Operations that Invalidate TLBs and Paging-Structure Caches"), no more where it is set (APM vol. 2,
    /// "Extended Feature Enable Register (EFER)"). Any address in the page will do, whatever its size.
    ///
    /// Not for tables that were freed: [`Tlb::flush_pages`].
    #[inline]
    pub fn flush_page(&self, address: usize) {
        self.port.invlpg(address);
    }

    /// Drops `pages` pages (at least one) of `stride_bytes` each, as [`Tlb::flush_page`], from the one that holds
    /// `start`. With [`Depth::Tables`] also all tables that are cached for the loaded PCID, whatever they lead to: where
    /// EFER.TCE may be set, by dropping all that the PCID has but global translations.
    ///
    /// The range must not wrap around the end of the address space; the part beyond is left out.
    #[inline]
    pub fn flush_pages(&self, start: usize, stride_bytes: usize, pages: usize, depth: Depth) {
        addresses(start, stride_bytes, pages).for_each(|address| self.port.invlpg(address));
        // A page that is larger than 4 KiB, or one of several whose tables were freed, does not lead to all of them.
        if depth == Depth::Tables && self.keeps_tables {
            self.flush_non_global();
        }
    }

    /// Drops all translations of the loaded PCID that are not global, by loading CR3 with itself: it
    /// never reads with bit 63 set, so the write drops. Interrupts are off for a moment: a handler
    /// that loads another root in between would have the old one put back, which may be freed by then.
    #[inline]
    pub fn flush_non_global(&self) {
        self.uninterrupted(|| {
            let loaded = self.port.read_cr3();
            // SAFETY: 1. the root that is loaded. 2. bit 63 is clear.
            unsafe { self.port.write_cr3(loaded) };
        });
    }

    /// Drops everything, global translations and all PCIDs too: by INVPCID, else by changing
    /// CR4.PGE twice, for which interrupts are off for a moment, else by CR3.
    pub fn flush_all(&self) {
        if self.invpcid {
            // SAFETY: 1. CPUID has it. 2. and 3. it names nothing.
            unsafe { self.port.invpcid(InvpcidKind::All) };
        } else if self.global_pages {
            self.uninterrupted(|| {
                let cr4 = self.port.read_cr4();
                // SAFETY: 1. only PGE changes. 2. the processor has it. Each change drops everything,
                // whichever comes first.
                unsafe { self.port.write_cr4(cr4 ^ CR4_PGE) };
                // SAFETY: 1. and 2. the value that was there.
                unsafe { self.port.write_cr4(cr4) };
            });
        } else {
            // No translation is global, and PCIDs are not used (`PcidSupport::NoFlushAll`).
            self.flush_non_global();
        }
    }

    /// The loaded root: CR3, the tag in its low bits if PCIDs are on.
    #[inline]
    pub fn root(&self) -> u64 {
        self.port.read_cr3()
    }

    /// The loaded tag; [`Pcid::UNTAGGED`] without PCIDs.
    pub fn loaded_pcid(&self) -> Pcid {
        if self.pcids {
            Pcid::of_cr3(self.port.read_cr3())
        } else {
            Pcid::UNTAGGED
        }
    }

    /// Loads a root under [`Pcid::UNTAGGED`], dropping all translations of that tag that are not
    /// global: without PCIDs all that are not global.
    ///
    /// # Safety
    ///
    /// 1. `root` maps the code, the stack and everything else that this CPU goes on using, until
    ///    another one is loaded.
    /// 2. It is a physical address; with PCIDs at a page boundary.
    #[inline]
    pub unsafe fn load_root(&self, root: u64) {
        debug_assert!(
            !self.pcids || root & CR3_PCID == 0,
            "{root:#x} would load a tag"
        );
        // SAFETY: 1. the caller's. 2. bit 63 is clear by the caller's duty 2, so nothing is kept.
        unsafe { self.port.write_cr3(root) };
    }

    /// Loads a root under a tag. Afterwards this CPU uses translations of that tag and global ones
    /// only; other tags keep what they have. Without PCIDs the tag means nothing, and everything
    /// that is not global is dropped, as by [`Tlb::load_root`].
    ///
    /// # Safety
    ///
    /// 1. `root` maps the code, the stack and everything else that this CPU goes on using, until
    ///    another one is loaded.
    /// 2. It is a physical address at a page boundary.
    /// 3. What `pcid` has cached on this CPU, if it is kept, is true of `root`.
    #[inline]
    pub unsafe fn load_tagged_root(&self, root: u64, pcid: Pcid, entries: TagEntries) {
        let value = self.cr3_of(root, pcid, entries);
        // SAFETY: 1. duties 1 and 2 of the caller. 2. duty 3.
        unsafe { self.port.write_cr3(value) };
    }

    /// What [`Tlb::load_tagged_root`] writes to CR3, for code that loads a root between kernel and user mode, where no function can be called. Such code owes what
    /// that says.
    #[inline]
    pub fn cr3_of(&self, root: u64, pcid: Pcid, entries: TagEntries) -> u64 {
        debug_assert!(root & CR3_PCID == 0, "{root:#x} is not a root");
        if self.pcids {
            pcid.to_cr3(root, entries)
        } else {
            root
        }
    }
}

/// The first addresses of pages so far apart; those beyond the end of the address space are left out.
pub(super) fn addresses(
    start: usize,
    stride_bytes: usize,
    pages: usize,
) -> impl Iterator<Item = usize> {
    (0..pages).map_while(move |page| start.checked_add(page.checked_mul(stride_bytes)?))
}
