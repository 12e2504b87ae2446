//! [`Vmcb`]: what the processor reads and writes of a virtual CPU (APM vol. 2, appendix B, "VMCB Layout").

use core::mem;

use shootdown_x86::svm::VmcbControl;

use crate::addr::PhysAddr;
use crate::mm::frames::{self, Frame};

/// Both areas, as words.
const SAVE_WORDS: usize = 384;

#[repr(C, align(4096))]
struct Page {
    control: VmcbControl,
    save: [u64; SAVE_WORDS],
}

const CONTROL_BYTES: usize = size_of::<VmcbControl>();
const _: () = assert!(size_of::<Page>() == 4096);

/// A word of the VMCB, by its offset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Field(usize);

#[allow(missing_docs, reason = "the names are the manual's")]
impl Field {
    /// Intercepts of control registers, in the upper half those of debug registers.
    pub const INTERCEPT_REGISTERS: Self = Self(0x00);
    /// Intercepts of exceptions, in the upper half those of instructions and events.
    pub const INTERCEPT_EVENTS: Self = Self(0x08);
    /// Intercepts of more instructions.
    pub const INTERCEPT_MORE: Self = Self(0x10);
    pub const IOPM: Self = Self(0x40);
    pub const MSRPM: Self = Self(0x48);
    pub const V_INTR: Self = Self(0x60);
    pub const INTERRUPT_SHADOW: Self = Self(0x68);
    pub const EXIT_CODE: Self = Self(0x70);
    pub const EXIT_INFO_1: Self = Self(0x78);
    pub const EXIT_INFO_2: Self = Self(0x80);
    pub const EXIT_INT_INFO: Self = Self(0x88);
    pub const EVENT_INJ: Self = Self(0xa8);

    pub const ES: Self = Self::saved(0x00);
    pub const CS: Self = Self::saved(0x10);
    pub const SS: Self = Self::saved(0x20);
    pub const DS: Self = Self::saved(0x30);
    pub const FS: Self = Self::saved(0x40);
    pub const GS: Self = Self::saved(0x50);
    pub const GDTR: Self = Self::saved(0x60);
    pub const LDTR: Self = Self::saved(0x70);
    pub const IDTR: Self = Self::saved(0x80);
    pub const TR: Self = Self::saved(0x90);
    /// The CPL is its fourth byte.
    pub const CPL: Self = Self::saved(0xc8);
    pub const EFER: Self = Self::saved(0xd0);
    pub const CR4: Self = Self::saved(0x148);
    pub const CR3: Self = Self::saved(0x150);
    pub const CR0: Self = Self::saved(0x158);
    pub const DR7: Self = Self::saved(0x160);
    pub const DR6: Self = Self::saved(0x168);
    pub const RFLAGS: Self = Self::saved(0x170);
    pub const RIP: Self = Self::saved(0x178);
    pub const RSP: Self = Self::saved(0x1d8);
    pub const RAX: Self = Self::saved(0x1f8);
    pub const CR2: Self = Self::saved(0x240);
    pub const G_PAT: Self = Self::saved(0x268);

    const fn saved(offset: usize) -> Self {
        Self(CONTROL_BYTES + offset)
    }

    /// The word behind it.
    pub const fn next(self) -> Self {
        Self(self.0 + 8)
    }
}

/// A VMCB, in a frame of its own.
#[derive(Debug)]
pub struct Vmcb(Option<Frame>);

impl Vmcb {
    /// All zeroes; `None` without memory.
    pub fn new() -> Option<Self> {
        frames::alloc_zeroed().map(|frame| Self(Some(frame)))
    }

    /// Where the processor finds it.
    pub fn address(&self) -> PhysAddr {
        let Some(frame) = &self.0 else {
            unreachable!("the frame stays until it is dropped");
        };
        frame.address()
    }

    /// What decides on translations.
    pub fn control(&mut self) -> &mut VmcbControl {
        &mut self.page_mut().control
    }

    /// A word.
    pub fn get(&self, field: Field) -> u64 {
        let page = self.page();
        match field.0.checked_sub(CONTROL_BYTES) {
            Some(offset) => page.save[offset / 8],
            None => page.control.words()[field.0 / 8],
        }
    }

    /// Changes it.
    pub fn set(&mut self, field: Field, value: u64) {
        let page = self.page_mut();
        match field.0.checked_sub(CONTROL_BYTES) {
            Some(offset) => page.save[offset / 8] = value,
            None => page.control.words_mut()[field.0 / 8] = value,
        }
    }

    fn page(&self) -> &Page {
        let page = self.address().to_direct().cast::<Page>();
        // SAFETY: the frame is this value's own, aligned, and any words are valid; the processor writes it only during `svm::enter`, while
        // nobody has a reference.
        unsafe { &*page }
    }

    fn page_mut(&mut self) -> &mut Page {
        let page = self.address().to_direct().cast::<Page>();
        // SAFETY: as in `page`; borrowed exclusively.
        unsafe { &mut *page }
    }
}

impl Drop for Vmcb {
    fn drop(&mut self) {
        if let Some(frame) = mem::take(&mut self.0) {
            frames::free(frame);
        }
    }
}
