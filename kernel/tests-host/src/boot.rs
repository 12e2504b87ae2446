//! Shim of `boot`: an empty initramfs, and the kernel's reader of ACPI tables on memory that a test lays out.

#[path = "../../src/boot/acpi.rs"]
pub mod acpi;

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

/// Shim of `boot::physical`: what firmware has left in memory.
pub mod physical {
    use std::cell::Cell;

    thread_local! {
        /// From address 0 on, as this thread sees it.
        pub static MEMORY: Cell<&'static [u8]> = const { Cell::new(&[]) };
    }

    /// `len` bytes at a physical address, if there is memory.
    pub fn bytes(at: u64, len: usize) -> Option<&'static [u8]> {
        let at = usize::try_from(at).ok().filter(|&at| at != 0)?;
        MEMORY.get().get(at..at.checked_add(len)?)
    }

    /// As in the kernel.
    pub fn read<T: From<u16>>(at: u64) -> Option<T> {
        let bytes = bytes(at, 2)?;
        Some(T::from(u16::from_le_bytes([bytes[0], bytes[1]])))
    }
}

/// Shim of `boot::fail`: a boot that ends is a panic.
pub mod fail {
    macro_rules! boot_fail {
        ($($argument:tt)*) => { panic!($($argument)*) };
    }
    pub(crate) use boot_fail;
}
