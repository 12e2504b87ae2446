//! INVLPGB and TLBSYNC: dropping translations on all CPUs by one instruction (AMD, from Zen 3 on).
//!
//! APM vol. 3, "INVLPGB" and "TLBSYNC". An INVLPGB says what to drop by valid bits in RAX: an address (with a count of further pages in
//! ECX), a PCID, an ASID; what is not valid matches everything. It is carried out some time later, on all CPUs, this one too;
//! TLBSYNC waits until those of *this* CPU are. So between the first and the wait the task stays on its CPU.
//!
//! The ASID is always named: that of the host, 0, which a processor in guest mode takes for the guest's own. Without it the
//! instruction would reach other guests' translations, and a hypervisor refuses it.

use core::marker::PhantomData;

use super::invlpgb::{Depth, InvlpgbKind, InvlpgbOperands, Stride};
use super::pcid::Pcid;
use super::port::Hardware;
use crate::features::Features;

/// How [`Broadcast`] reaches the machine. [`Hardware`] is the real thing; tests emulate.
pub trait BroadcastPort {
    /// INVLPGB.
    ///
    /// # Safety
    ///
    /// 1. The processor has the instruction (else #UD), and a hypervisor that is there lets guests use it.
    /// 2. The count is not above the processor's maximum, and all addresses are canonical (else #GP).
    /// 3. A PCID other than 0 is named only while CR4.PCIDE is set (else #GP; T. Lendacky, "x86/mm: Skip global ASID broadcast TLB
    ///    flush when PCID is disabled", linux-kernel, 2026-05-13).
    unsafe fn invlpgb(&self, operands: InvlpgbOperands);
    /// TLBSYNC: returns when every INVLPGB that this CPU has issued is complete on all CPUs.
    ///
    /// # Safety
    ///
    /// 1. As for [`invlpgb`](Self::invlpgb).
    unsafe fn tlbsync(&self);
}

impl BroadcastPort for Hardware {
    #[inline]
    unsafe fn invlpgb(&self, operands: InvlpgbOperands) {
        let InvlpgbOperands { rax, ecx, edx } = operands;
        // SAFETY: CPL 0 by `new`; duties 1 to 3 are the caller's; dropping a translation never changes what memory holds. Memory
        // is clobbered, so stores to page tables come before.
        unsafe {
            core::arch::asm!(".byte 0x0f, 0x01, 0xfe", in("rax") rax, in("ecx") ecx, in("edx") edx,
                 options(nostack, preserves_flags));
        }
    }

    #[inline]
    unsafe fn tlbsync(&self) {
        // SAFETY: CPL 0 by `new`; duty 1 is the caller's.
        unsafe { core::arch::asm!(".byte 0x0f, 0x01, 0xff", options(nostack, preserves_flags)) };
    }
}

/// The translation caches of all CPUs.
#[derive(Clone, Copy, Debug)]
pub struct Broadcast<P: BroadcastPort = Hardware> {
    port: P,
    max_pages: u32,
    pcids: bool,
    /// EFER.TCE may be set.
    keeps_tables: bool,
}

impl Broadcast<Hardware> {
    /// By instructions of the processor, PCIDs off; `None` if it has none. EFER.TCE may be set where the features
    /// [have it](Features::has_tce).
    ///
    /// # Safety
    ///
    /// 1. CPL 0, on every CPU that uses the value.
    /// 2. `features` hold on all CPUs; a hypervisor that is there lets guests use INVLPGB and TLBSYNC.
    pub const unsafe fn new(features: &Features) -> Option<Self> {
        // SAFETY: 1. duty 1.
        let port = unsafe { Hardware::new() };
        // SAFETY: 1. duty 2.
        unsafe { Self::with_port(port, features) }
    }
}

impl<P: BroadcastPort + Copy> Broadcast<P> {
    /// The same through another port, for tests and simulators.
    ///
    /// # Safety
    ///
    /// 1. `features` hold on every CPU that uses the value.
    pub const unsafe fn with_port(port: P, features: &Features) -> Option<Self> {
        match features.invlpgb_max_pages() {
            0 => None,
            max_pages => Some(Self {
                port,
                max_pages,
                pcids: false,
                keeps_tables: features.has_tce(),
            }),
        }
    }

    /// The same with PCIDs on: [`Batch::pages`] and [`Batch::context`] take any.
    ///
    /// # Safety
    ///
    /// 1. CR4.PCIDE is set on every CPU that uses the value, as by [`Tlb::start`](super::Tlb::start), as long as it does.
    pub const unsafe fn with_pcids(mut self) -> Self {
        self.pcids = true;
        self
    }

    /// The same for CPUs whose EFER.TCE is clear: where tables were freed, ranges are dropped page by page, too.
    ///
    /// # Safety
    ///
    /// 1. EFER.TCE is clear on every CPU that uses the value, as long as it does: that of the CPU that executes INVLPGB counts
    ///    (APM vol. 2, "Extended Feature Enable Register (EFER)").
    pub const unsafe fn with_tce_clear(mut self) -> Self {
        self.keeps_tables = false;
        self
    }

    /// Begins a batch. The page tables were changed before.
    ///
    /// # Safety
    ///
    /// 1. The caller stays on this CPU until the batch is finished or dropped: TLBSYNC waits for what its own CPU has issued.
    pub const unsafe fn begin(&self) -> Batch<P> {
        Batch {
            broadcast: *self,
            is_any: false,
            _on_this_cpu: PhantomData,
        }
    }
}

/// Translations that are being dropped on all CPUs. They are gone when this is [finished](Self::finish) or dropped.
#[derive(Debug)]
#[must_use = "dropping it waits"]
pub struct Batch<P: BroadcastPort> {
    broadcast: Broadcast<P>,
    is_any: bool,
    /// Not `Send`.
    _on_this_cpu: PhantomData<*const ()>,
}

impl<P: BroadcastPort> Batch<P> {
    /// Drops `pages` pages of `pcid`, `stride_bytes` each (a power of two), from the one that holds `start`: all but global translations,
    /// on all CPUs. The part beyond the end of the address space is left out. With [`Depth::Tables`] all tables that are cached for
    /// `pcid`, too: where EFER.TCE may be set, by dropping all of it as [`Batch::context`] does.
    ///
    /// # Panics
    ///
    /// Without [PCIDs](Broadcast::with_pcids), for a PCID other than [`Pcid::UNTAGGED`].
    pub fn pages(
        &mut self,
        pcid: Pcid,
        (start, stride_bytes, pages): (usize, usize, usize),
        depth: Depth,
    ) {
        self.in_steps(
            (start, stride_bytes, pages),
            depth,
            InvlpgbKind::Context(self.cached(pcid)),
            |at, count, stride| InvlpgbKind::Pages(pcid, at, count, stride, depth),
        );
    }

    /// The same of every PCID, and global translations: pages of the kernel.
    pub fn pages_of_all(
        &mut self,
        (start, stride_bytes, pages): (usize, usize, usize),
        depth: Depth,
    ) {
        self.in_steps(
            (start, stride_bytes, pages),
            depth,
            InvlpgbKind::All,
            |at, count, stride| InvlpgbKind::PagesOfAll(at, count, stride, depth),
        );
    }

    /// Drops all of `pcid` but global translations.
    ///
    /// # Panics
    ///
    /// Without [PCIDs](Broadcast::with_pcids), for a PCID other than [`Pcid::UNTAGGED`].
    pub fn context(&mut self, pcid: Pcid) {
        self.issue(InvlpgbKind::Context(self.cached(pcid)));
    }

    /// Drops everything, global translations and all PCIDs too.
    pub fn all(&mut self) {
        self.issue(InvlpgbKind::All);
    }

    /// Returns when all is dropped on all CPUs.
    pub fn finish(self) {}

    /// The PCID, under which something may be cached.
    fn cached(&self, pcid: Pcid) -> Pcid {
        assert!(
            self.broadcast.pcids || pcid == Pcid::UNTAGGED,
            "INVLPGB of {pcid:x?} faults while PCIDs are off"
        );
        pcid
    }

    /// A range in steps of what one instruction takes. What has no canonical address is dropped by `whole` instead, and so are tables
    /// if an address may leave those alone that do not lead to it.
    fn in_steps(
        &mut self,
        (start, stride_bytes, pages): (usize, usize, usize),
        depth: Depth,
        whole: InvlpgbKind,
        kind: impl Fn(usize, u32, Stride) -> InvlpgbKind,
    ) {
        if depth == Depth::Tables && self.broadcast.keeps_tables {
            return self.issue(whole);
        }
        let stride = [Stride::Small, Stride::Large]
            .into_iter()
            .find(|stride| stride.bytes() == stride_bytes);
        // Pages of another size are dropped by any address in them, one at a time.
        let (stride, most) = match stride {
            Some(stride) => (stride, self.broadcast.max_pages as usize),
            None => (Stride::Small, 1),
        };
        let (mut at, mut left) = (start & !(stride_bytes - 1), pages);
        while left > 0 {
            let room = (usize::MAX - at) / stride_bytes + 1;
            let count = left.min(most).min(room);
            let last = at + (count - 1) * stride_bytes;
            if !(is_canonical(at) && is_canonical(last)) {
                return self.issue(whole);
            }
            self.issue(kind(at, count as u32, stride));
            if count == room {
                return;
            }
            at += count * stride_bytes;
            left -= count;
        }
    }

    fn issue(&mut self, kind: InvlpgbKind) {
        self.is_any = true;
        // SAFETY: 1. the processor has it: `max_pages` is not 0. 2. `in_steps` keeps to the maximum, and to canonical addresses.
        // 3. `cached` has looked at the PCID.
        unsafe { self.broadcast.port.invlpgb(kind.encode()) };
    }
}

impl<P: BroadcastPort> Drop for Batch<P> {
    fn drop(&mut self) {
        if self.is_any {
            // SAFETY: 1. as in `issue`.
            unsafe { self.broadcast.port.tlbsync() };
        }
    }
}

/// With 48 bits of address, which are canonical with 57 too.
const fn is_canonical(address: usize) -> bool {
    let above = usize::BITS - 48;
    (address as isize) << above >> above == address as isize
}
