//! The fields of a VMCB that matter to translations.

use bitflags::bitflags;

const WORDS: usize = 128;
/// Offsets in bytes (APM vol. 2, appendix B, "VMCB Layout, Control Area").
const TLB: usize = 0x58;
const NESTED: usize = 0x90;
const N_CR3: usize = 0xb0;
const CLEAN: usize = 0xc0;

/// In the word at `TLB`: bits 31:0 the ASID, 39:32 TLB_CONTROL; the others are not ours.
const ASID_MASK: u64 = 0xffff_ffff;
const CONTROL_SHIFT: u32 = 32;
const CONTROL_MASK: u64 = 0xff << CONTROL_SHIFT;
const NP_ENABLE: u64 = 1;

/// What VMRUN drops before it enters (APM vol. 2, "TLB Flush").
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum TlbControl {
    /// Nothing.
    Nothing = 0,
    /// Everything, of all ASIDs.
    All = 1,
    /// What the guest's ASID has cached. With flush-by-ASID only.
    Guest = 3,
    /// The same but global translations. With flush-by-ASID only.
    GuestNonGlobal = 7,
}

bitflags! {
    /// What VMRUN need not read again (APM vol. 2, "VMCB Clean Field"): the bits that matter to translations, and all others.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct CleanBits: u32 {
        /// The ASID.
        const ASID = 1 << 2;
        /// N_CR3 and G_PAT.
        const NESTED_PAGING = 1 << 4;
        const _ = !0;
    }
}

/// The control area of a VMCB, its first kilobyte.
#[derive(Clone, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub struct VmcbControl([u64; WORDS]);

impl VmcbControl {
    /// All zeros: nothing intercepted, nothing clean, no nested paging.
    pub const fn new() -> Self {
        Self([0; WORDS])
    }

    /// All fields; the one at offset `n` is in word `n / 8`.
    pub const fn words(&self) -> &[u64; WORDS] {
        &self.0
    }

    /// The same, to be changed: the host's own fields. Their clean bits are the host's affair.
    pub const fn words_mut(&mut self) -> &mut [u64; WORDS] {
        &mut self.0
    }

    /// The guest's ASID.
    pub const fn guest_asid(&self) -> u32 {
        self.0[TLB / 8] as u32
    }

    /// TLB_CONTROL, as VMRUN reads it.
    pub const fn tlb_control(&self) -> u8 {
        (self.0[TLB / 8] >> CONTROL_SHIFT) as u8
    }

    /// The root of the nested page tables.
    pub const fn n_cr3(&self) -> u64 {
        self.0[N_CR3 / 8]
    }

    /// Whether guest-physical addresses are translated.
    pub const fn has_nested_paging(&self) -> bool {
        self.0[NESTED / 8] & NP_ENABLE != 0
    }

    /// What VMRUN need not read again.
    pub const fn clean_bits(&self) -> CleanBits {
        CleanBits::from_bits_retain(self.0[CLEAN / 8] as u32)
    }

    /// Says what VMRUN need not read again: all after a #VMEXIT, less what the host changes from then on; nothing when the VMCB goes to another CPU.
    pub const fn set_clean_bits(&mut self, clean: CleanBits) {
        self.0[CLEAN / 8] = clean.bits() as u64;
    }

    /// Everything that decides which translations the guest uses: nested paging is on, and none of it clean.
    pub(super) const fn load(&mut self, asid: u32, control: TlbControl, n_cr3: u64) {
        self.0[TLB / 8] &= !(ASID_MASK | CONTROL_MASK);
        self.0[TLB / 8] |= asid as u64 | (control as u64) << CONTROL_SHIFT;
        self.0[NESTED / 8] |= NP_ENABLE;
        self.0[N_CR3 / 8] = n_cr3;
        // Also where the values are those of the last entry here: the processor may have kept others, from before the VMCB was elsewhere.
        let ours = CleanBits::ASID.union(CleanBits::NESTED_PAGING);
        self.set_clean_bits(self.clean_bits().difference(ours));
    }
}

impl Default for VmcbControl {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_where_the_manual_has_them_and_leave_their_neighbours_alone() {
        assert_eq!(size_of::<VmcbControl>(), 0x400);
        let mut control = VmcbControl([u64::MAX; WORDS]);
        control.load(0x1234, TlbControl::Guest, 0x5678_9000);
        let mut expected = [u64::MAX; WORDS];
        expected[0x58 / 8] = 0xffff_ff03_0000_1234;
        expected[0xb0 / 8] = 0x5678_9000;
        expected[0xc0 / 8] = 0xffff_ffeb;
        assert_eq!(control.words(), &expected);
        // The same once more, after an exit.
        control.set_clean_bits(CleanBits::all());
        control.load(0x1234, TlbControl::Guest, 0x5678_9000);
        assert!(
            !control
                .clean_bits()
                .intersects(CleanBits::ASID.union(CleanBits::NESTED_PAGING))
        );
        assert_eq!((control.guest_asid(), control.tlb_control()), (0x1234, 3));
        assert_eq!(control.n_cr3(), 0x5678_9000);

        let mut control = VmcbControl::new();
        assert!(!control.has_nested_paging());
        control.load(u32::MAX, TlbControl::GuestNonGlobal, 0);
        assert_eq!(control.words()[0x58 / 8], 0x7_ffff_ffff);
        assert_eq!(control.words()[0x90 / 8], 1);
        assert_eq!(control.clean_bits(), CleanBits::empty());
    }
}
