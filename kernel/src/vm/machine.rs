//! [`Machine`]: a virtual machine, as its file descriptor has it.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};

use super::abi::{self, ClearDirtyLog, DirtyLog, EnableCap, MemoryRegion, cap};
use super::vcpu::Vcpu;
use crate::errno::Errno;
use crate::mm::nested::{LogRange, SlotRequest};
use crate::mm::{GuestMemory, MemorySpace};
use crate::user_memory::UserBytes;

/// Most virtual CPUs of a machine.
pub const MOST_VCPUS: usize = 16;

/// Words of a log that are copied at a time, by way of the stack.
const PIECE_WORDS: usize = 64;

/// A virtual machine. It lives as long as its descriptor or that of one of its virtual CPUs.
#[derive(Debug)]
pub struct Machine {
    pub(super) memory: GuestMemory,
    /// The numbers of virtual CPUs that were given out.
    vcpus: AtomicU64,
    /// What `KVM_CAP_MANUAL_DIRTY_LOG_PROTECT2` was enabled with.
    log_mode: AtomicU64,
}

impl Machine {
    /// A machine without memory and CPUs, of the program that runs in `space`.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn new(space: &Arc<MemorySpace>) -> Result<Arc<Self>, Errno> {
        Ok(Arc::new(Self {
            memory: GuestMemory::new(space.clone())?,
            vcpus: AtomicU64::new(0),
            log_mode: AtomicU64::new(0),
        }))
    }

    /// EIO unless the machine is that of the program: a forked one's is its parent's.
    pub fn check_owner(&self, space: &Arc<MemorySpace>) -> Result<(), Errno> {
        match self.memory.is_of(space) {
            true => Ok(()),
            false => Err(Errno::EIO),
        }
    }

    /// A new virtual CPU with that number.
    ///
    /// # Errors
    /// EINVAL for too large a number, EEXIST for one that was given out; ENOMEM.
    pub(super) fn create_vcpu(self: &Arc<Self>, number: usize) -> Result<Arc<Vcpu>, Errno> {
        if number >= MOST_VCPUS {
            return Err(Errno::EINVAL);
        }
        let bit = 1 << number;
        if self.vcpus.fetch_or(bit, Ordering::Relaxed) & bit != 0 {
            return Err(Errno::EEXIST);
        }
        Vcpu::new(self, number).inspect_err(|_| self.take_back(number))
    }

    /// The virtual CPU with that number was not given out after all.
    pub(super) fn take_back(&self, number: usize) {
        self.vcpus.fetch_and(!(1 << number), Ordering::Relaxed);
    }

    /// `KVM_SET_USER_MEMORY_REGION`.
    pub(super) fn set_memory(&self, wanted: MemoryRegion) -> Result<(), Errno> {
        if wanted.flags & !(abi::MEM_LOG_DIRTY_PAGES | abi::MEM_READONLY) != 0 {
            return Err(Errno::EINVAL);
        }
        let slot = SlotRequest {
            id: wanted.slot,
            guest: wanted.guest_phys_addr,
            bytes: wanted.memory_size,
            user: wanted.userspace_addr,
            logs: wanted.flags & abi::MEM_LOG_DIRTY_PAGES != 0,
            is_read_only: wanted.flags & abi::MEM_READONLY != 0,
        };
        let all_dirty = self.has_log_mode(abi::DIRTY_LOG_INITIALLY_SET);
        self.memory.set_slot(&slot, all_dirty)
    }

    /// `KVM_GET_DIRTY_LOG`.
    pub(super) fn read_log(&self, wanted: DirtyLog) -> Result<(), Errno> {
        let clears = !self.has_log_mode(abi::DIRTY_LOG_MANUAL_PROTECT);
        self.memory.read_log(wanted.slot, clears, |dirty| {
            let to = UserBytes::new(wanted.bitmap as usize, size_of_val(dirty))?;
            for (at, words) in dirty.chunks(PIECE_WORDS).enumerate() {
                let mut piece = [[0; 8]; PIECE_WORDS];
                for (bytes, word) in piece.iter_mut().zip(words) {
                    *bytes = word.to_le_bytes();
                }
                let bytes = piece[..words.len()].as_flattened();
                to.skip(8 * PIECE_WORDS * at).copy_from(bytes)?;
            }
            Ok(())
        })
    }

    /// `KVM_CLEAR_DIRTY_LOG`.
    pub(super) fn clear_log(&self, wanted: ClearDirtyLog) -> Result<(), Errno> {
        let range = LogRange {
            slot: wanted.slot,
            first: wanted.first_page,
            pages: u64::from(wanted.num_pages),
        };
        self.memory.clear_log(range, |bits| {
            let from = UserBytes::new(wanted.bitmap as usize, size_of_val(bits))?;
            for (at, words) in bits.chunks_mut(PIECE_WORDS).enumerate() {
                let mut piece = [[0; 8]; PIECE_WORDS];
                let bytes = piece[..words.len()].as_flattened_mut();
                from.skip(8 * PIECE_WORDS * at).copy_to(bytes)?;
                for (word, bytes) in words.iter_mut().zip(piece) {
                    *word = u64::from_le_bytes(bytes);
                }
            }
            Ok(())
        })
    }

    /// `KVM_ENABLE_CAP`.
    pub(super) fn enable(&self, wanted: EnableCap) -> Result<(), Errno> {
        const KNOWN: u64 = abi::DIRTY_LOG_MANUAL_PROTECT | abi::DIRTY_LOG_INITIALLY_SET;
        let mode = wanted.args[0];
        // All pages can be dirty at first only for who clears by hand.
        let is_odd = mode == abi::DIRTY_LOG_INITIALLY_SET;
        if wanted.cap != cap::MANUAL_DIRTY_LOG_PROTECT2
            || wanted.flags != 0
            || mode & !KNOWN != 0
            || is_odd
        {
            return Err(Errno::EINVAL);
        }
        self.log_mode.store(mode, Ordering::Relaxed);
        Ok(())
    }

    fn has_log_mode(&self, bit: u64) -> bool {
        self.log_mode.load(Ordering::Relaxed) & bit != 0
    }
}
