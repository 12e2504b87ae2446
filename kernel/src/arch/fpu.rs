//! The x87 and SSE registers of a thread.

/// An FXSAVE image (SDM vol. 1, "FXSAVE Area").
#[repr(C, align(16))]
#[derive(Clone, Debug)]
pub struct FpuState([u8; 512]);

impl FpuState {
    /// What a new program finds: all exceptions masked, everything else 0.
    pub const fn initial() -> Self {
        let mut image = [0; 512];
        // FCW and MXCSR at reset of a program (System V ABI for AMD64, "Registers").
        image[0] = 0x7f;
        image[1] = 0x03;
        image[24] = 0x80;
        image[25] = 0x1f;
        Self(image)
    }

    /// The image, for a signal frame.
    pub const fn bytes(&self) -> &[u8; 512] {
        &self.0
    }

    /// An image from a signal frame. Reserved MXCSR bits are cleared, which would raise #GP.
    pub fn from_bytes(bytes: &[u8; 512]) -> Self {
        let _ = bytes;
        todo!()
    }
}

/// Saves this CPU's registers.
pub fn save(state: &mut FpuState) {
    let _ = state;
    todo!()
}

/// Loads this CPU's registers.
pub fn restore(state: &FpuState) {
    let _ = state;
    todo!()
}
