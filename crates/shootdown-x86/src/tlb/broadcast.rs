//! INVLPGB and TLBSYNC: dropping translations on all CPUs by one instruction (AMD, from Zen 3 on).
//!
//! APM vol. 3, "INVLPGB" and "TLBSYNC". An INVLPGB says what to drop by valid bits in RAX: an address (with a count of further pages in
//! ECX), a PCID, an ASID; what is not valid matches everything. It is carried out some time later, on all CPUs, this one too;
//! TLBSYNC waits until those of *this* CPU are. So between the first and the wait the task stays on its CPU.
//!
//! The ASID is always named: that of the host, 0, which a processor in guest mode takes for the guest's own. Without it the
//! instruction would reach other guests' translations, and a hypervisor refuses it.

use core::marker::PhantomData;

use super::pcid::Pcid;
use super::port::Hardware;
use crate::features::Features;

/// How far the pages of one INVLPGB are apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Stride {
    /// 4 KiB.
    Small,
    /// 2 MiB.
    Large,
}

impl Stride {
    const fn bytes(self) -> usize {
        match self {
            Self::Small => 1 << 12,
            Self::Large => 1 << 21,
        }
    }
}

/// Which cached entries of a page go.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Depth {
    /// The translation only: no page table was unlinked.
    Leaf,
    /// The entries of page tables that lead to it, too.
    Tables,
}

/// What one INVLPGB drops, of the host.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum InvlpgbKind {
    /// Pages of one PCID, not global translations: the first address, so many pages (at least one, at most
    /// [`Features::invlpgb_max_pages`]), so far apart.
    Pages(Pcid, usize, u32, Stride, Depth),
    /// Pages of every PCID, and global translations.
    PagesOfAll(usize, u32, Stride, Depth),
    /// One PCID, not global translations.
    Context(Pcid),
    /// Every PCID, not global translations.
    AllNonGlobal,
    /// Every PCID, and global translations.
    All,
}

/// The operands of an INVLPGB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InvlpgbOperands {
    /// RAX: bits 63:12 the address, below it what is valid and what is meant.
    pub rax: u64,
    /// ECX: bits 15:0 the pages beyond the first, bit 31 the stride.
    pub ecx: u32,
    /// EDX: bits 15:0 the ASID, 27:16 the PCID.
    pub edx: u32,
}

impl InvlpgbKind {
    const HAS_ADDRESS: u64 = 1 << 0;
    const HAS_PCID: u64 = 1 << 1;
    const HAS_ASID: u64 = 1 << 2;
    const WITH_GLOBAL: u64 = 1 << 3;
    const LEAF_ONLY: u64 = 1 << 4;
    const PAGE_MASK: u64 = !0xfff;
    const LARGE: u32 = 1 << 31;

    /// As the instruction takes it.
    pub const fn encode(self) -> InvlpgbOperands {
        let (mut rax, mut ecx, mut edx) = (Self::HAS_ASID, 0, 0);
        if let Self::Pages(_, address, pages, stride, depth)
        | Self::PagesOfAll(address, pages, stride, depth) = self
        {
            rax |= Self::HAS_ADDRESS | address as u64 & Self::PAGE_MASK;
            ecx = pages - 1;
            if let Stride::Large = stride {
                ecx |= Self::LARGE;
            }
            if let Depth::Leaf = depth {
                rax |= Self::LEAF_ONLY;
            }
        }
        match self {
            Self::Pages(pcid, ..) | Self::Context(pcid) => {
                rax |= Self::HAS_PCID;
                edx = (pcid.as_u16() as u32) << 16;
            }
            Self::PagesOfAll(..) | Self::All => rax |= Self::WITH_GLOBAL,
            Self::AllNonGlobal => {}
        }
        InvlpgbOperands { rax, ecx, edx }
    }
}

/// How [`Broadcast`] reaches the machine. [`Hardware`] is the real thing; tests emulate.
pub trait BroadcastPort {
    /// INVLPGB.
    ///
    /// # Safety
    ///
    /// 1. The processor has the instruction (else #UD), and a hypervisor that is there lets guests use it.
    /// 2. The count is not above the processor's maximum, and an address is canonical (else #GP).
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
        // SAFETY: CPL 0 by `new`; duties 1 and 2 are the caller's; dropping a translation never changes what memory holds. Memory
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
}

impl Broadcast<Hardware> {
    /// By instructions of the processor; `None` if it has none.
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
            max_pages => Some(Self { port, max_pages }),
        }
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
    /// on all CPUs. The part beyond the end of the address space is left out.
    pub fn pages(
        &mut self,
        pcid: Pcid,
        (start, stride_bytes, pages): (usize, usize, usize),
        depth: Depth,
    ) {
        let context = InvlpgbKind::Context(pcid);
        self.in_steps(
            (start, stride_bytes, pages),
            context,
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
            InvlpgbKind::All,
            |at, count, stride| InvlpgbKind::PagesOfAll(at, count, stride, depth),
        );
    }

    /// Drops all of `pcid` but global translations.
    pub fn context(&mut self, pcid: Pcid) {
        self.issue(InvlpgbKind::Context(pcid));
    }

    /// Drops everything, global translations and all PCIDs too.
    pub fn all(&mut self) {
        self.issue(InvlpgbKind::All);
    }

    /// Returns when all is dropped on all CPUs.
    pub fn finish(self) {}

    /// A range in steps of what one instruction takes. What has no canonical address is dropped by `whole` instead.
    fn in_steps(
        &mut self,
        (start, stride_bytes, pages): (usize, usize, usize),
        whole: InvlpgbKind,
        kind: impl Fn(usize, u32, Stride) -> InvlpgbKind,
    ) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operands_are_the_manuals() {
        let pcid = Pcid::new(0xabc).unwrap();
        let encoded = |kind: InvlpgbKind| {
            let InvlpgbOperands { rax, ecx, edx } = kind.encode();
            (rax, ecx, edx)
        };
        for (kind, operands) in [
            (
                InvlpgbKind::Pages(pcid, 0x7123, 3, Stride::Small, Depth::Leaf),
                (0x7017, 2, 0xabc_0000),
            ),
            (
                InvlpgbKind::Pages(pcid, 0x20_0000, 1, Stride::Large, Depth::Tables),
                (0x20_0007, 1 << 31, 0xabc_0000),
            ),
            (
                InvlpgbKind::PagesOfAll(0x7000, 1, Stride::Small, Depth::Leaf),
                (0x701d, 0, 0),
            ),
            (InvlpgbKind::Context(pcid), (0b110, 0, 0xabc_0000)),
            (InvlpgbKind::AllNonGlobal, (0b100, 0, 0)),
            (InvlpgbKind::All, (0b1100, 0, 0)),
        ] {
            assert_eq!(encoded(kind), operands, "{kind:?}");
        }
    }
}
