//! The x87 and SSE registers of a thread.
//!
//! The kernel itself is built without them, so they stay the program's from entry to exit and are
//! saved only when threads change. XSAVE is off (CR4.OSXSAVE clear), so programs find no AVX.

use core::arch::asm;

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

/// Saves this CPU's registers.
#[inline]
pub fn save(state: &mut FpuState) {
    // SAFETY: 512 bytes, 16-byte aligned by the type; CR4.OSFXSR is set.
    unsafe { asm!("fxsave64 [{}]", in(reg) state.0.as_mut_ptr(), options(nostack)) };
}

/// Loads this CPU's registers.
#[inline]
pub fn restore(state: &FpuState) {
    // SAFETY: as for `save`; reserved MXCSR bits are clear by construction.
    unsafe { asm!("fxrstor64 [{}]", in(reg) state.0.as_ptr(), options(nostack)) };
}
