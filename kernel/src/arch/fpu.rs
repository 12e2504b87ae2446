//! The x87 and SSE registers of a thread.
//!
//! The kernel itself is built without them, so they stay the program's from entry to exit and are
//! saved only when threads change. XSAVE is off (CR4.OSXSAVE clear), so programs find no AVX.
//!
//! x87 registers are loaded only where others are in them. FXRSTOR on any CPU has QEMU (7.2: `cpu_clear_ignne`) change flags of
//! the first CPU, not atomically: where that CPU leaves a guest meanwhile, it may go on with the guest's nested paging (docs/guests.md).

use core::arch::asm;
use core::ops::Range;

/// Where the registers of the x87 and of SSE are in the image; before the former what is about all of them.
const X87: Range<usize> = 32..160;
const XMM: usize = 160;
/// Where MXCSR and the mask of its valid bits are in the image (SDM vol. 1, "FXSAVE Area").
const MXCSR: usize = 24;
const MXCSR_MASK: usize = 28;
/// The mask of processors that write 0 there (SDM vol. 1, "Guidelines for Writing to the MXCSR
/// Register").
const DEFAULT_MXCSR_MASK: u32 = 0xffbf;

/// An FXSAVE image (SDM vol. 1, "FXSAVE Area").
#[repr(C, align(16))]
#[derive(Clone, Debug)]
pub struct FpuState([u8; 512]);

impl FpuState {
    /// What a new program finds: all exceptions masked, everything else 0.
    pub const fn initial() -> Self {
        let mut image = [0; 512];
        // FCW and MXCSR at process entry (System V ABI for AMD64, "Special Registers").
        image[0] = 0x7f;
        image[1] = 0x03;
        image[MXCSR] = 0x80;
        image[MXCSR + 1] = 0x1f;
        Self(image)
    }

    /// The image, for a signal frame.
    pub const fn bytes(&self) -> &[u8; 512] {
        &self.0
    }

    /// What it has of the x87.
    fn x87(&self) -> (&[u8], &[u8]) {
        (&self.0[..MXCSR], &self.0[X87])
    }

    /// An image from a signal frame. Reserved MXCSR bits, which would raise #GP, are cleared.
    pub fn from_bytes(bytes: &[u8; 512]) -> Self {
        let mut state = Self(*bytes);
        let field = &mut state.0[MXCSR..MXCSR + 4];
        let wanted = u32::from_le_bytes([field[0], field[1], field[2], field[3]]);
        field.copy_from_slice(&(wanted & mxcsr_mask()).to_le_bytes());
        state
    }
}

/// Valid MXCSR bits of this processor.
fn mxcsr_mask() -> u32 {
    let mut image = FpuState::initial();
    save(&mut image);
    let field = &image.0[MXCSR_MASK..MXCSR_MASK + 4];
    match u32::from_le_bytes([field[0], field[1], field[2], field[3]]) {
        0 => DEFAULT_MXCSR_MASK,
        mask => mask,
    }
}

/// Saves this CPU's registers, and loads others.
pub fn exchange(saved: &mut FpuState, loaded: &FpuState) {
    save(saved);
    if saved.x87() == loaded.x87() {
        restore_sse(loaded);
    } else {
        // SAFETY: as for `save`; reserved MXCSR bits are clear by construction.
        unsafe { asm!("fxrstor64 [{}]", in(reg) loaded.0.as_ptr(), options(nostack)) };
    }
}

/// Saves this CPU's registers.
#[inline]
pub fn save(state: &mut FpuState) {
    // SAFETY: 512 bytes, 16-byte aligned by the type; CR4.OSFXSR is set.
    unsafe { asm!("fxsave64 [{}]", in(reg) state.0.as_mut_ptr(), options(nostack)) };
}

/// Loads this CPU's registers, whatever is in them.
pub fn restore(loaded: &FpuState) {
    exchange(&mut FpuState::initial(), loaded);
}

fn restore_sse(loaded: &FpuState) {
    // SAFETY: the registers' place in 512 bytes, 16-byte aligned by the type; reserved MXCSR bits are clear by construction. Nothing that is compiled
    // here uses them.
    unsafe {
        asm!(
            "ldmxcsr [{image} + {mxcsr}]",
            "movaps xmm0, [{image} + {xmm}]",
            "movaps xmm1, [{image} + {xmm} + 0x10]",
            "movaps xmm2, [{image} + {xmm} + 0x20]",
            "movaps xmm3, [{image} + {xmm} + 0x30]",
            "movaps xmm4, [{image} + {xmm} + 0x40]",
            "movaps xmm5, [{image} + {xmm} + 0x50]",
            "movaps xmm6, [{image} + {xmm} + 0x60]",
            "movaps xmm7, [{image} + {xmm} + 0x70]",
            "movaps xmm8, [{image} + {xmm} + 0x80]",
            "movaps xmm9, [{image} + {xmm} + 0x90]",
            "movaps xmm10, [{image} + {xmm} + 0xa0]",
            "movaps xmm11, [{image} + {xmm} + 0xb0]",
            "movaps xmm12, [{image} + {xmm} + 0xc0]",
            "movaps xmm13, [{image} + {xmm} + 0xd0]",
            "movaps xmm14, [{image} + {xmm} + 0xe0]",
            "movaps xmm15, [{image} + {xmm} + 0xf0]",
            image = in(reg) loaded.0.as_ptr(),
            mxcsr = const MXCSR,
            xmm = const XMM,
            options(nostack, readonly, preserves_flags),
        );
    }
}
