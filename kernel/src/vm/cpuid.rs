//! CPUID, as the VMM has guests see it.

use alloc::vec::Vec;

use super::abi::{CPUID_SIGNIFICANT_INDEX, CpuidEntry, CpuidHeader};
use crate::errno::Errno;
use crate::user_memory::UserPtr;

/// Most entries, as on Linux.
const MOST_ENTRIES: usize = 256;

/// Leaves and what they say.
#[derive(Debug, Default)]
pub struct Cpuid(Vec<CpuidEntry>);

impl Cpuid {
    /// EAX, EBX, ECX and EDX; zeroes for what nobody has given an answer to.
    pub fn answer(&self, function: u32, index: u32) -> [u32; 4] {
        let is_it = |entry: &&CpuidEntry| {
            let has_index = entry.flags & CPUID_SIGNIFICANT_INDEX != 0;
            entry.function == function && (!has_index || entry.index == index)
        };
        let found = self.0.iter().find(is_it);
        found.map_or([0; 4], |entry| [entry.eax, entry.ebx, entry.ecx, entry.edx])
    }
}

/// The argument of `KVM_SET_CPUID2`.
///
/// # Errors
/// E2BIG for too many entries; EFAULT; ENOMEM.
pub fn read_entries(address: usize) -> Result<Cpuid, Errno> {
    let header: CpuidHeader = UserPtr::new(address).read()?;
    let count = header.entries as usize;
    if count > MOST_ENTRIES {
        return Err(Errno::E2BIG);
    }
    let mut entries = Vec::new();
    entries
        .try_reserve_exact(count)
        .map_err(|_| Errno::ENOMEM)?;
    let from = UserPtr::<CpuidEntry>::new(address.wrapping_add(size_of::<CpuidHeader>()));
    for at in 0..count {
        entries.push(from.element(at).read()?);
    }
    Ok(Cpuid(entries))
}
