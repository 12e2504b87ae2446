//! What the instructions of the emulated processor do, and when they fault.

use shootdown_x86::IrqState;
use shootdown_x86::tlb::{InvpcidKind, Port};

use super::super::tables::Page;
use super::{CR3_KEEP, CR3_PCID, CR3_RESERVED, CR4_LA57, CR4_PCIDE, CR4_PGE, Processor};

fn fault_if(is_wrong: bool, what: &str) {
    assert!(!is_wrong, "#GP: {what}");
}

impl Port for &Processor {
    fn invlpg(&self, address: usize) {
        self.step();
        self.speculate();
        let tag = self.loaded_tag();
        let misses = self.invlpg_misses && self.has_pcids_on();
        let page = Page::of(address);
        self.drop_pages(|cached| {
            let reaches = cached.tag.map_or(!misses, |other| other == tag);
            Some(cached.page) == page && reaches
        });
        let region = page.map(|page| page.region);
        self.drop_tables(|cached| {
            cached.tag == tag && (!self.tce || Some(cached.region) == region)
        });
    }

    unsafe fn invpcid(&self, kind: InvpcidKind) {
        self.step();
        self.speculate();
        assert!(self.features.has_invpcid(), "#UD: no INVPCID");
        if let InvpcidKind::Page(pcid, _) | InvpcidKind::Context(pcid) = kind {
            let needs_pcids = pcid.as_u16() != 0;
            fault_if(needs_pcids && !self.has_pcids_on(), "a tag without PCIDE");
        }
        match kind {
            InvpcidKind::Page(pcid, address) => {
                let bits = if self.cr4.get() & CR4_LA57 != 0 {
                    57
                } else {
                    48
                };
                let above = (address as i64) >> (bits - 1);
                fault_if(
                    above != 0 && above != -1,
                    "an address that is not canonical",
                );
                let Some(page) = Page::of(address) else {
                    return;
                };
                let tag = pcid.as_u16();
                self.drop_pages(|cached| cached.tag == Some(tag) && cached.page == page);
                self.drop_tables(|cached| cached.tag == tag && cached.region == page.region);
            }
            InvpcidKind::Context(pcid) => self.drop_tag(pcid.as_u16()),
            InvpcidKind::All => self.drop_all(),
            InvpcidKind::AllNonGlobal => {
                self.drop_pages(|cached| cached.tag.is_some());
                self.drop_tables(|_| true);
            }
        }
    }

    fn read_cr3(&self) -> u64 {
        self.step();
        self.cr3.get()
    }

    unsafe fn write_cr3(&self, value: u64) {
        self.step();
        self.speculate();
        fault_if(value & CR3_RESERVED != 0, "reserved bits in CR3");
        let keep = value & CR3_KEEP != 0;
        fault_if(keep && !self.has_pcids_on(), "CR3 bit 63 without PCIDE");
        self.cr3.set(value & !CR3_KEEP);
        if !keep {
            self.drop_tag(self.loaded_tag());
        }
    }

    fn read_cr4(&self) -> u64 {
        self.step();
        self.cr4.get()
    }

    unsafe fn write_cr4(&self, value: u64) {
        self.step();
        self.speculate();
        assert!(!self.interrupts.get(), "CR4 changes with interrupts on");
        let changed = value ^ self.cr4.get();
        let others = changed & !(CR4_PGE | CR4_PCIDE);
        assert_eq!(others, 0, "CR4 bits that are somebody else's");
        let has = |bit| value & bit != 0;
        let lacks_pge = has(CR4_PGE) && !self.features.has_pge();
        fault_if(lacks_pge, "CR4.PGE is not supported");
        let lacks_pcid = has(CR4_PCIDE) && !self.features.has_pcid();
        fault_if(lacks_pcid, "CR4.PCIDE is not supported");
        let turns_on = changed & CR4_PCIDE & value != 0;
        let is_tagged = self.cr3.get() & CR3_PCID != 0;
        fault_if(turns_on && is_tagged, "PCIDE with CR3 bits 11:0 set");
        let turns_off = changed & CR4_PCIDE & !value != 0;
        self.cr4.set(value);
        if turns_off || changed & CR4_PGE != 0 {
            self.drop_all();
        }
    }

    fn irq_save(&self) -> IrqState {
        self.step();
        match self.interrupts.replace(false) {
            true => IrqState::Enabled,
            false => IrqState::Disabled,
        }
    }

    unsafe fn irq_restore(&self, before: IrqState) {
        self.interrupts.set(before.is_enabled());
        self.step();
    }
}
