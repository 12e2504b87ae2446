//! Shim of `boot`: an empty initramfs.

/// Facts from boot time.
#[derive(Debug)]
pub struct BootInfo {
    /// The initramfs.
    pub initramfs: &'static [u8],
}

/// The boot information.
pub fn info() -> &'static BootInfo {
    &BootInfo { initramfs: &[] }
}
