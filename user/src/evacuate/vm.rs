//! One virtual machine: its memory, and the log of what was written there.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering::Relaxed;

use kvm_bindings::{
    KVM_MEM_LOG_DIRTY_PAGES, kvm_clear_dirty_log, kvm_clear_dirty_log__bindgen_ty_1,
    kvm_userspace_memory_region,
};
use kvm_ioctls::{VcpuFd, VmFd};

use super::device::Device;
use super::guest::{self, CODE_PAGE, Walk};
use super::start;
use crate::machine::done;
use crate::region::{PAGE_BYTES, Region};

/// Pages before those that guests write to: code and page tables. As many as a word of the log has bits.
pub const SYSTEM_PAGES: usize = WORD_PAGES;
/// Pages that one word of a log tells of.
pub const WORD_PAGES: usize = u64::BITS as usize;

/// The only slot of memory.
const SLOT: u32 = 0;
/// `KVM_CLEAR_DIRTY_LOG`, which the crate lacks: `_IOWR(0xae, 0xc0, struct kvm_clear_dirty_log)`.
const CLEAR_DIRTY_LOG: u32 = 3 << 30 | (size_of::<kvm_clear_dirty_log>() as u32) << 16 | 0xaec0;

/// A virtual machine with memory but no virtual CPUs yet.
#[derive(Debug)]
pub struct Vm {
    // Before the memory, which it uses until it is closed.
    fd: VmFd,
    memory: Region,
    clears_by_hand: bool,
}

impl Vm {
    /// A machine for virtual CPUs with so many pages each.
    pub fn new(device: &Device, vcpus: usize, pages: usize) -> io::Result<Self> {
        let (fd, clears_by_hand) = device.create_vm()?;
        let memory = Region::new(memory_pages(vcpus, pages))?;
        for (word, bytes) in guest::code().chunks(8).enumerate() {
            let mut padded = [0; 8];
            padded[..bytes.len()].copy_from_slice(bytes);
            let value = u64::from_le_bytes(padded);
            memory.word(CODE_PAGE, word).store(value, Relaxed);
        }
        start::write_tables(&memory);
        for index in 0..vcpus {
            Walk::new(index, pages).write_first_pass(&memory);
        }
        let slot = kvm_userspace_memory_region {
            slot: SLOT,
            flags: KVM_MEM_LOG_DIRTY_PAGES,
            guest_phys_addr: 0,
            memory_size: (memory.pages() * PAGE_BYTES) as u64,
            userspace_addr: memory.address() as u64,
        };
        // SAFETY: the memory is the region's, which lives as long as the machine and is reached through atomics only.
        unsafe { fd.set_user_memory_region(slot) }?;
        Ok(Self {
            fd,
            memory,
            clears_by_hand,
        })
    }

    /// Its memory, which guests write to while they run.
    pub fn memory(&self) -> &Region {
        &self.memory
    }

    /// Whether reading the log leaves it as it is.
    pub fn clears_by_hand(&self) -> bool {
        self.clears_by_hand
    }

    /// A new virtual CPU, in the state in which it was made.
    pub fn create_vcpu(&self, index: usize) -> io::Result<VcpuFd> {
        Ok(self.fd.create_vcpu(index as u64)?)
    }

    /// What was written to since the log was cleared last: a bit a page.
    pub fn dirty_log(&self) -> io::Result<Vec<u64>> {
        let bytes = self.memory.pages() * PAGE_BYTES;
        Ok(self.fd.get_dirty_log(SLOT, bytes)?)
    }

    /// Clears the bits of `words`, which are those of the log from word `first` on. From then on a write to one of these pages is logged
    /// again. Where the log is cleared as it is read, there is nothing to do.
    pub fn clear(&self, first: usize, words: &mut [u64]) -> io::Result<()> {
        if !self.clears_by_hand {
            return Ok(());
        }
        let request = kvm_clear_dirty_log {
            slot: SLOT,
            num_pages: (words.len() * WORD_PAGES) as u32,
            first_page: (first * WORD_PAGES) as u64,
            __bindgen_anon_1: kvm_clear_dirty_log__bindgen_ty_1 {
                dirty_bitmap: words.as_mut_ptr().cast(),
            },
        };
        // SAFETY: the kernel reads the request, and of the bitmap a bit for each of the pages, all of which `words` has.
        done(unsafe { libc::ioctl(self.fd.as_raw_fd(), CLEAR_DIRTY_LOG as _, &request) })
    }
}

/// Pages of a machine's memory: whole words of the log, of which pieces are cleared.
fn memory_pages(vcpus: usize, pages: usize) -> usize {
    (SYSTEM_PAGES + vcpus * pages).next_multiple_of(WORD_PAGES)
}
