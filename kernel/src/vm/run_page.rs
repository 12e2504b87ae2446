//! [`RunPage`]: `struct kvm_run`, memory that kernel and VMM share. The VMM may write to it at any time, so nothing read from it is relied on.

use core::mem;

use super::abi::{exit, run};
use crate::addr::PAGE_BYTES;
use crate::arch::uaccess::Pod;
use crate::errno::Errno;
use crate::mm::SharedArea;
use crate::mm::frames::{self, Share};

/// The page, and how the VMM maps it.
#[derive(Debug)]
pub struct RunPage {
    area: SharedArea,
    share: Option<Share>,
    start: *mut u8,
}

// SAFETY: all accesses through `start` are volatile, of a page that lives as long as the value.
unsafe impl Send for RunPage {}
// SAFETY: as above.
unsafe impl Sync for RunPage {}

impl RunPage {
    /// Zeroes.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn new() -> Result<Self, Errno> {
        let area = SharedArea::new().ok_or(Errno::ENOMEM)?;
        let share = area.first_page().ok_or(Errno::ENOMEM)?;
        Ok(Self {
            start: share.address().to_direct(),
            share: Some(share),
            area,
        })
    }

    /// What a mapping of it shows.
    pub fn area(&self) -> SharedArea {
        self.area.clone()
    }

    /// Reads a value at an offset.
    pub fn read<T: Pod>(&self, offset: usize) -> T {
        assert!(offset + size_of::<T>() <= PAGE_BYTES && offset.is_multiple_of(align_of::<T>()));
        let place = self.start.wrapping_add(offset).cast::<T>();
        // SAFETY: inside the page, aligned, and any bytes are a value; a race with it tears nothing that matters.
        unsafe { place.read_volatile() }
    }

    /// Writes one.
    pub fn write<T: Pod>(&self, offset: usize, value: T) {
        assert!(offset + size_of::<T>() <= PAGE_BYTES && offset.is_multiple_of(align_of::<T>()));
        let place = self.start.wrapping_add(offset).cast::<T>();
        // SAFETY: inside the page, aligned, and nobody has a reference to it.
        unsafe { place.write_volatile(value) };
    }

    /// Whether RUN is to return at once.
    pub fn wants_exit(&self) -> bool {
        self.read::<u8>(run::IMMEDIATE_EXIT) != 0
    }

    /// Whether RUN is to return when the guest can take an interrupt.
    pub fn wants_window(&self) -> bool {
        self.read::<u8>(run::REQUEST_INTERRUPT_WINDOW) != 0
    }

    /// Why RUN returns.
    pub fn set_reason(&self, reason: u32) {
        self.write(run::EXIT_REASON, reason);
    }

    /// The guest accesses a port; it writes `value` there, or reads.
    pub fn set_io(&self, port: u16, bytes: u8, written: Option<u32>) {
        self.write(run::DETAILS, u8::from(written.is_some()));
        self.write(run::DETAILS + 1, bytes);
        self.write(run::DETAILS + 2, port);
        self.write(run::DETAILS + 4, 1u32);
        self.write(run::DETAILS + 8, run::IO_DATA as u64);
        self.write(run::IO_DATA, written.unwrap_or(0));
        self.set_reason(exit::IO);
    }

    /// What the VMM has read from the port.
    pub fn io_value(&self) -> u64 {
        self.read(run::IO_DATA)
    }

    /// The guest accesses memory that there is not.
    pub fn set_mmio(&self, address: u64, bytes: u8, written: Option<u64>) {
        self.write(run::DETAILS, address);
        self.write(run::DETAILS + 8, written.unwrap_or(0));
        self.write(run::DETAILS + 16, u32::from(bytes));
        self.write(run::DETAILS + 20, u8::from(written.is_some()));
        self.set_reason(exit::MMIO);
    }

    /// What the VMM has read from there.
    pub fn mmio_value(&self) -> u64 {
        self.read(run::DETAILS + 8)
    }

    /// The processor refuses the guest's state.
    pub fn set_fail_entry(&self, code: u64, cpu: u32) {
        self.write(run::DETAILS, code);
        self.write(run::DETAILS + 8, cpu);
        self.set_reason(exit::FAIL_ENTRY);
    }

    /// It cannot go on.
    pub fn set_internal_error(&self, error: u32, data: &[u64]) {
        self.write(run::DETAILS, error);
        self.write(run::DETAILS + 4, data.len() as u32);
        for (at, &word) in data.iter().enumerate() {
            self.write(run::DETAILS + 8 + 8 * at, word);
        }
        self.set_reason(exit::INTERNAL_ERROR);
    }
}

impl Drop for RunPage {
    fn drop(&mut self) {
        // The kernel reaches it by the direct map only.
        let last = mem::take(&mut self.share).and_then(Share::release);
        last.into_iter().for_each(frames::free);
    }
}
