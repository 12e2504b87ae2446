//! KVM: the steal-time record, whose byte `preempted` says that a vCPU does not run, and asks KVM to flush it before it runs again.
//!
//! Linux, `Documentation/virt/kvm/x86/msr.rst`, "MSR_KVM_STEAL_TIME", and `x86/cpuid.rst`. Guest side there: `kvm_flush_tlb_multi`.
//!
//! The two bits are in one byte, and KVM takes both by one exchange as it enters the vCPU. So a guest that turns "preempted" into
//! "preempted, flush" by one compare-exchange knows that the vCPU has not run in between, and will not before the flush. Two tests in
//! one would lose flushes: the vCPU may be back between the look at the byte and the write (CVE-2019-3016 was that, in the host).

use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crate::cpuid::cpuid;
use crate::features::{Features, Hypervisor};
use crate::msr::{self, Msr};
use core::arch::x86_64::CpuidResult;

/// The leaf with KVM's features, where its own leaves begin at the usual place.
const LEAF_KVM_FEATURES: u32 = 0x4000_0001;

/// What KVM offers a guest for its flushes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KvmFeatures {
    eax: u32,
    edx: u32,
}

impl KvmFeatures {
    const STEAL_TIME: u32 = 1 << 5;
    const PV_TLB_FLUSH: u32 = 1 << 9;
    /// In EDX: no vCPU is ever preempted for long.
    const HINT_REALTIME: u32 = 1 << 0;

    /// Asks this CPU. `features` are its own.
    pub fn detect(features: &Features) -> Self {
        Self::from_leaves(features, cpuid)
    }

    /// The same from any source of leaves: `leaves(leaf, subleaf)`. Under another hypervisor, or none, there is nothing.
    pub fn from_leaves(features: &Features, leaves: impl Fn(u32, u32) -> CpuidResult) -> Self {
        if features.hypervisor() != Hypervisor::Kvm {
            return Self { eax: 0, edx: 0 };
        }
        let CpuidResult { eax, edx, .. } = leaves(LEAF_KVM_FEATURES, 0);
        Self { eax, edx }
    }

    /// Whether [`StealTime::flush_before_entry`] may be used, and pays.
    pub const fn has_flush_before_entry(&self) -> bool {
        let both = Self::STEAL_TIME | Self::PV_TLB_FLUSH;
        self.eax & both == both && self.edx & Self::HINT_REALTIME == 0
    }
}

/// The record of one vCPU, as KVM reads and writes it.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct StealTime {
    /// Time stolen, version, flags: KVM writes them.
    _steal: [AtomicU64; 2],
    preempted: AtomicU8,
    _rest: [AtomicU8; 47],
}

impl StealTime {
    const ENABLED: u64 = 1;

    /// A record that KVM does not know yet: nobody is preempted.
    pub const fn new() -> Self {
        Self {
            _steal: [const { AtomicU64::new(0) }; 2],
            preempted: AtomicU8::new(0),
            _rest: [const { AtomicU8::new(0) }; 47],
        }
    }

    /// Tells KVM that this is the record of this vCPU. Run it on each vCPU before it is online for flushes.
    ///
    /// # Safety
    ///
    /// 1. CPL 0, under KVM with steal time ([`KvmFeatures::has_flush_before_entry`]).
    /// 2. `physical` is the guest-physical address of `self`.
    pub unsafe fn register(&'static self, physical: u64) {
        debug_assert!(physical & 63 == 0, "{physical:#x} is not aligned");
        // SAFETY: 1. and 2. duty 1. 3. KVM writes into this record only, which is there for ever (duty 2).
        unsafe { msr::write(Msr::KVM_STEAL_TIME, physical | Self::ENABLED) };
    }

    /// Has KVM forget the record of this vCPU, before it goes offline.
    ///
    /// # Safety
    ///
    /// 1. As for [`register`](Self::register).
    pub unsafe fn unregister() {
        // SAFETY: 1. and 2. duty 1. 3. KVM writes nothing any more.
        unsafe { msr::write(Msr::KVM_STEAL_TIME, 0) };
    }

    /// If the vCPU does not run, asks KVM to drop all its translations before it runs again; true if KVM will. False: the vCPU may be
    /// running, and needs an interrupt. The page tables were changed before. Any context; does not block.
    pub fn flush_before_entry(&self) -> bool {
        ask(&self.preempted)
    }
}

impl Default for StealTime {
    fn default() -> Self {
        Self::new()
    }
}

/// The byte `preempted`. Tests have a hypervisor act between any two accesses.
pub trait Preempted {
    /// Reads it.
    fn load(&self) -> u8;
    /// Writes `new` if it is `seen` still.
    fn compare_exchange(&self, seen: u8, new: u8) -> Result<u8, u8>;
}

impl Preempted for AtomicU8 {
    #[inline]
    fn load(&self) -> u8 {
        self.load(Ordering::Relaxed)
    }

    #[inline]
    fn compare_exchange(&self, seen: u8, new: u8) -> Result<u8, u8> {
        // ORDERING: Release: KVM, which takes the bit by an exchange, enters the vCPU after the change of the page tables. Acquire: what the vCPU
        // did before KVM wrote that it does not run is over, so the frames that it used may be given away.
        self.compare_exchange(seen, new, Ordering::AcqRel, Ordering::Relaxed)
    }
}

/// The vCPU does not run (`KVM_VCPU_PREEMPTED`).
pub const PREEMPTED: u8 = 1 << 0;
/// It is flushed before it runs again (`KVM_VCPU_FLUSH_TLB`).
pub const FLUSH: u8 = 1 << 1;

/// [`StealTime::flush_before_entry`] on any byte.
#[inline]
pub fn ask(byte: &impl Preempted) -> bool {
    let mut seen = byte.load();
    loop {
        if seen & PREEMPTED == 0 {
            return false;
        }
        // Also where somebody has asked already: KVM may take that request before it sees our change.
        match byte.compare_exchange(seen, seen | FLUSH) {
            Ok(_) => return true,
            Err(now) => seen = now,
        }
    }
}
