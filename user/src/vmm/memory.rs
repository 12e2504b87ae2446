//! The guest's memory, before the guest runs.

use std::io;

use kvm_bindings::kvm_userspace_memory_region;

use crate::region::{PAGE_BYTES, Region};

/// Memory from guest-physical 0 on.
#[derive(Debug)]
pub struct Memory(Region);

impl Memory {
    /// Zeroes, so many bytes in whole pages.
    pub fn new(bytes: u64) -> io::Result<Self> {
        Region::new(bytes as usize / PAGE_BYTES).map(Self)
    }

    /// How much there is.
    pub fn bytes(&self) -> u64 {
        (self.0.pages() * PAGE_BYTES) as u64
    }

    /// Puts bytes there; `false` where they do not fit. No guest runs yet.
    #[must_use]
    pub fn write(&mut self, at: u64, bytes: &[u8]) -> bool {
        let fits = at
            .checked_add(bytes.len() as u64)
            .is_some_and(|end| end <= self.bytes());
        if fits {
            let place = self.0.address() + at as usize;
            let place = std::ptr::with_exposed_provenance_mut::<u8>(place);
            // SAFETY: inside the region, checked above, which is borrowed exclusively; nothing else is in it.
            unsafe { place.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        }
        fits
    }

    /// All of it as the only slot.
    pub fn slot(&self) -> kvm_userspace_memory_region {
        kvm_userspace_memory_region {
            slot: 0,
            flags: 0,
            guest_phys_addr: 0,
            memory_size: self.bytes(),
            userspace_addr: self.0.address() as u64,
        }
    }
}
