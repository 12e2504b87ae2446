//! CPUID, as the VMM has guests see it.

use alloc::vec::Vec;
use core::arch::x86_64::__cpuid;

use super::abi::{CPUID_SIGNIFICANT_INDEX, CpuidEntry, CpuidHeader};
use crate::budget::{Budget, Share};
use crate::errno::Errno;
use crate::user_memory::UserPtr;

/// Most entries, as on Linux.
const MOST_ENTRIES: usize = 256;

/// Most entries of all virtual CPUs: 320 KiB of kernel heap.
const MOST_OF_ALL: usize = 1 << 13;

static ENTRIES: Budget<MOST_OF_ALL> = Budget::full();

/// Leaves and what they say.
#[derive(Debug, Default)]
pub struct Cpuid {
    entries: Vec<CpuidEntry>,
    _share: Option<Share<MOST_OF_ALL>>,
}

impl Cpuid {
    /// EAX, EBX, ECX and EDX; zeroes for what nobody has given an answer to.
    pub fn answer(&self, function: u32, index: u32) -> [u32; 4] {
        let is_it = |entry: &&CpuidEntry| {
            let has_index = entry.flags & CPUID_SIGNIFICANT_INDEX != 0;
            entry.function == function && (!has_index || entry.index == index)
        };
        let found = self.entries.iter().find(is_it);
        found.map_or([0; 4], |entry| [entry.eax, entry.ebx, entry.ecx, entry.edx])
    }
}

/// Leaves of the host that guests may see, and which bits: nothing that takes registers or instructions that they do not have here.
const SUPPORTED: [(u32, [u32; 4]); 7] = [
    (0, [0, !0, !0, !0]),
    // Without local APIC, x2APIC, MONITOR, XSAVE, PCIDs and what comes from them; of the second word the size of a cache line.
    (1, [!0, 0xff00, LEAF_1_ECX, LEAF_1_EDX]),
    (KVM_SIGNATURE, [0; 4]),
    (KVM_FEATURES, [0; 4]),
    (0x8000_0000, [0, !0, !0, !0]),
    // LAHF, ABM, SSE4A, PREFETCHW; SYSCALL, NX, large pages, RDTSCP, long mode.
    (
        0x8000_0001,
        [
            !0,
            0,
            0x161,
            1 << 11 | 1 << 20 | 1 << 26 | 1 << 27 | 1 << 29,
        ],
    ),
    (0x8000_0008, [0xffff, 0, 0, 0]),
];
/// SSE3, PCLMULQDQ, SSSE3, CMPXCHG16B, SSE4.1, SSE4.2, MOVBE, POPCNT, AES, RDRAND; running on a hypervisor.
const LEAF_1_ECX: u32 =
    1 << 0 | 1 << 1 | 1 << 9 | 1 << 13 | 3 << 19 | 1 << 22 | 1 << 23 | 1 << 25 | 1 << 30;
/// FPU, VME, DE, PSE, TSC, MSR, PAE, CX8, SEP, PGE, CMOV, PAT, PSE36, CLFSH, MMX, FXSR, SSE, SSE2.
const LEAF_1_EDX: u32 = 0x078b_a97f;
/// Who offers the machine, and what (Linux, `Documentation/virt/kvm/x86/cpuid.rst`): steal time, and flushes before virtual CPUs run again.
const KVM_SIGNATURE: u32 = 0x4000_0000;
pub const KVM_FEATURES: u32 = 0x4000_0001;
pub const KVM_STEAL_TIME: u32 = 1 << 5;
const KVM_PV_TLB_FLUSH: u32 = 1 << 9;
const KVM: [u32; 3] = [
    u32::from_le_bytes(*b"KVMK"),
    u32::from_le_bytes(*b"VMKV"),
    u32::from_le_bytes(*b"M\0\0\0"),
];
const HYPERVISOR: u32 = 1 << 31;
const HIGHEST: u32 = 1;
const HIGHEST_EXTENDED: u32 = 0x8000_0008;

/// The argument of `KVM_GET_SUPPORTED_CPUID`: writes all entries to it, behind their number.
///
/// # Errors
/// E2BIG where they do not fit; EFAULT.
pub fn write_supported(address: usize) -> Result<(), Errno> {
    let place = UserPtr::new(address);
    let room: CpuidHeader = place.read()?;
    if (room.entries as usize) < SUPPORTED.len() {
        return Err(Errno::E2BIG);
    }
    let to = UserPtr::<CpuidEntry>::new(address.wrapping_add(size_of::<CpuidHeader>()));
    for (at, &(function, mask)) in SUPPORTED.iter().enumerate() {
        to.element(at).write(supported(function, mask))?;
    }
    place.write(CpuidHeader {
        entries: SUPPORTED.len() as u32,
        padding: 0,
    })
}

fn supported(function: u32, mask: [u32; 4]) -> CpuidEntry {
    let [eax, ebx, ecx, edx] = match function {
        KVM_SIGNATURE => [KVM_FEATURES, KVM[0], KVM[1], KVM[2]],
        KVM_FEATURES => [KVM_STEAL_TIME | KVM_PV_TLB_FLUSH, 0, 0, 0],
        _ => return of_host(function, mask),
    };
    CpuidEntry {
        function,
        eax,
        ebx,
        ecx,
        edx,
        ..CpuidEntry::default()
    }
}

fn of_host(function: u32, [eax, ebx, ecx, edx]: [u32; 4]) -> CpuidEntry {
    let host = __cpuid(function);
    CpuidEntry {
        function,
        eax: match function {
            0 => HIGHEST,
            0x8000_0000 => HIGHEST_EXTENDED,
            _ => host.eax & eax,
        },
        ebx: host.ebx & ebx,
        ecx: host.ecx & ecx | if function == 1 { HYPERVISOR } else { 0 },
        edx: host.edx & edx,
        ..CpuidEntry::default()
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
    let share = ENTRIES.take(count).ok_or(Errno::ENOMEM)?;
    let mut entries = Vec::new();
    entries
        .try_reserve_exact(count)
        .map_err(|_| Errno::ENOMEM)?;
    let from = UserPtr::<CpuidEntry>::new(address.wrapping_add(size_of::<CpuidHeader>()));
    for at in 0..count {
        entries.push(from.element(at).read()?);
    }
    Ok(Cpuid {
        entries,
        _share: Some(share),
    })
}
