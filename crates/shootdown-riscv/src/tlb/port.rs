//! The few machine operations that invalidation is made of.

use super::asid::Asid;

/// What an SFENCE.VMA names ([the table](super)).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Fence {
    /// Everything.
    All,
    /// One tag, all levels of its tables.
    Tag(Asid),
    /// The leaf entry of the page that holds the address, under every tag. Nothing, if the address is not valid.
    Page(usize),
}

/// How [`Tlb`](super::Tlb) reaches the machine. `Hardware` (on `riscv64` targets) is the real thing; tests emulate. All methods act on the hart that calls them.
///
/// Safe code can read `satp` and drop translations; it can load no root:
///
/// ```compile_fail,E0133
/// fn load(port: &impl shootdown_riscv::tlb::Port, satp: u64) {
///     port.write_satp(satp);
/// }
/// ```
pub trait Port {
    /// SFENCE.VMA: stores to page tables that this hart has seen before are ordered before its later walks, and cached entries are dropped, both as far as `what` says.
    fn sfence_vma(&self, what: Fence);
    /// SFENCE.W.INVAL: stores that this hart has seen before are ordered before later SINVAL.VMA.
    ///
    /// # Safety
    ///
    /// 1. The hart has Svinval (else an illegal instruction).
    unsafe fn sfence_w_inval(&self);
    /// SINVAL.VMA of an address, without an ASID: as [`Fence::Page`], but ordered with nothing except by the other two.
    ///
    /// # Safety
    ///
    /// 1. As for [`Port::sfence_w_inval`].
    unsafe fn sinval_vma(&self, address: usize);
    /// SFENCE.INVAL.IR: earlier SINVAL.VMA are ordered before later walks.
    ///
    /// # Safety
    ///
    /// 1. As for [`Port::sfence_w_inval`].
    unsafe fn sfence_inval_ir(&self);
    /// Reads `satp`.
    fn read_satp(&self) -> u64;
    /// Writes `satp`. It drops nothing, and orders nothing (Privileged, "Supervisor Address Translation and Protection (satp) Register").
    ///
    /// # Safety
    ///
    /// 1. The root maps the code, the stack and everything else that this hart goes on using.
    /// 2. What the tag has cached is true of the root, or dropped before anything relies on it.
    unsafe fn write_satp(&self, value: u64);
}
