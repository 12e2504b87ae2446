//! Xen: operations that flush other vCPUs of a paravirtual guest.
//!
//! Xen, `xen/include/public/xen.h`, "MMU EXTENDED OPERATIONS" (numbers, layout); `xen/arch/x86/mm.c`, `do_mmuext_op` and
//! `vcpumask_to_pcpumask`, and `xen/arch/x86/flushtlb.c`, `flush_area_local` (what is dropped). Guest side in Linux:
//! `arch/x86/xen/mmu_pv.c`, `xen_flush_tlb_multi`.
//!
//! One hypercall takes a list of operations, and does them in order until one fails. When it returns, those that it has done are done on all
//! processors where the vCPUs' translations may be; a vCPU that runs nowhere begins with an empty TLB. What an operation drops:
//!
//! | operation | translations | cached entries of page tables |
//! |---|---|---|
//! | `TLB_FLUSH_*` | all, global too, of kernel and user mode | all |
//! | `INVLPG_*` | of one page, global too, of kernel and user mode | those that lead to the page; others perhaps |
//!
//! "Perhaps": on processors with PCIDs Xen executes INVPCID of one address where it would execute INVLPG otherwise, and that, unlike INVLPG,
//! may leave the entries of other addresses (SDM vol. 3A, "Operations that Invalidate TLBs and Paging-Structure Caches"). So where
//! page tables were freed everything is flushed, however few pages there are.
//!
//! Xen takes an address in its own part of the address space, and does nothing: no guest has translations there.

use core::mem::size_of;

use crate::tlb::Depth;

/// The number of the hypercall (`__HYPERVISOR_mmuext_op`), for [`Hypercall`].
pub const MMUEXT_OP: u32 = 26;
/// Its last argument: this guest (`DOMID_SELF`).
pub const DOMID_SELF: u32 = 0x7ff0;

/// What an operation does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
enum Command {
    FlushMulti = 8,
    InvlpgMulti = 9,
    FlushAll = 10,
    InvlpgAll = 11,
}

/// Xen gives a paravirtual guest no more (`MAX_VIRT_CPUS`).
const MOST_VCPUS: usize = 8192;
const WORD_BITS: usize = u64::BITS as usize;
const WORDS: usize = MOST_VCPUS / WORD_BITS;

/// A set of vCPUs, as long as Xen may read it: until the highest vCPU that the guest may have. Each CPU has one, and uses it with
/// interrupts off.
#[derive(Debug)]
#[repr(transparent)]
pub struct VcpuMask([u64; WORDS]);

impl VcpuMask {
    /// The empty set.
    pub const fn new() -> Self {
        Self([0; WORDS])
    }

    /// Its words, as Xen reads them: vCPU `64 * w + i` is bit `i` of word `w`.
    pub const fn words(&self) -> &[u64; WORDS] {
        &self.0
    }

    /// Makes it these. How many there are, `None` if one has no place.
    fn set(&mut self, vcpus: impl Iterator<Item = u32>) -> Option<usize> {
        self.0.fill(0);
        let mut count = 0;
        for vcpu in vcpus {
            let vcpu = vcpu as usize;
            *self.0.get_mut(vcpu / WORD_BITS)? |= 1 << (vcpu % WORD_BITS);
            count += 1;
        }
        Some(count)
    }
}

impl Default for VcpuMask {
    fn default() -> Self {
        Self::new()
    }
}

/// One operation, as Xen reads it (`struct mmuext_op`). Only [`flush`] makes any, so the mask that it points to is a whole one, which nobody
/// changes meanwhile.
#[derive(Debug)]
#[repr(C)]
pub struct Operation<'a> {
    command: Command,
    _padding: u32,
    address: usize,
    /// None is a null pointer.
    vcpus: Option<&'a VcpuMask>,
}

const _: () = assert!(size_of::<Operation<'_>>() == 24);

/// What Xen says of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// What the hypercall returned: 0, or a negative error number.
    pub result: isize,
    /// How many operations are done, which Xen writes where the third argument points.
    pub done: u32,
}

/// How [`flush`] reaches the hypervisor.
pub trait Hypercall {
    /// The hypercall [`MMUEXT_OP`]: address and length of the list, where Xen says how many are done, and [`DOMID_SELF`]. It returns when
    /// they are; none may be put off, as in a batch of hypercalls.
    fn mmuext_op(&self, operations: &[Operation<'_>]) -> Outcome;
}

/// Who is flushed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Vcpus<I> {
    /// These, by their numbers at Xen (`VCPUOP`'s, not the kernel's or the controllers').
    Some(I),
    /// All of the guest, this one too.
    All,
}

/// What is flushed on them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flushed<'a> {
    /// Ranges, in every address space, global translations too: first address and pages of 4 KiB. [`Depth::Tables`] where page tables were
    /// freed.
    Ranges(&'a [(usize, usize)], Depth),
    /// Everything.
    All,
}

/// Xen did not do it, or not all; an interrupt must.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refused {
    /// What it said; `None` if a vCPU cannot be named.
    pub outcome: Option<Outcome>,
}

/// Up to so many pages go one by one.
const MOST_PAGES: usize = 8;
const PAGE_BYTES: usize = 4096;

/// The pages of the ranges one by one; `None` where everything is to go.
struct Pages {
    addresses: [usize; MOST_PAGES],
    count: usize,
}

impl Pages {
    fn of(flushed: Flushed<'_>) -> Option<Self> {
        let Flushed::Ranges(ranges, Depth::Leaf) = flushed else {
            return None;
        };
        let (mut addresses, mut count) = ([0; MOST_PAGES], 0);
        for &(start, pages) in ranges {
            match pages {
                0 => continue,
                1 => *addresses.get_mut(count)? = start & !(PAGE_BYTES - 1),
                _ => return None,
            }
            count += 1;
        }
        Some(Self { addresses, count })
    }
}

/// Flushes vCPUs; returns when they have nothing left of it. Ranges of one page each are flushed as such, if there are few, else everything
/// is. The page tables were changed before.
///
/// # Errors
/// [`Refused`]: some or all have something left. With no vCPU, or no page, nothing is asked.
pub fn flush(
    hypercall: &impl Hypercall,
    mask: &mut VcpuMask,
    vcpus: Vcpus<impl Iterator<Item = u32>>,
    flushed: Flushed<'_>,
) -> Result<(), Refused> {
    let vcpus = match vcpus {
        Vcpus::All => None,
        Vcpus::Some(vcpus) => match mask.set(vcpus) {
            None => return Err(Refused { outcome: None }),
            Some(0) => return Ok(()),
            Some(_) => Some(&*mask),
        },
    };
    let (invlpg, whole) = match vcpus {
        Some(_) => (Command::InvlpgMulti, Command::FlushMulti),
        None => (Command::InvlpgAll, Command::FlushAll),
    };
    let operation = |command, address| Operation {
        command,
        _padding: 0,
        address,
        vcpus,
    };
    match Pages::of(flushed) {
        Some(Pages { addresses, count }) => {
            let operations = addresses.map(|address| operation(invlpg, address));
            ask(hypercall, &operations[..count])
        }
        None => ask(hypercall, &[operation(whole, 0)]),
    }
}

fn ask(hypercall: &impl Hypercall, operations: &[Operation<'_>]) -> Result<(), Refused> {
    if operations.is_empty() {
        return Ok(());
    }
    let outcome = hypercall.mmuext_op(operations);
    let Outcome { result, done } = outcome;
    match result == 0 && done as usize == operations.len() {
        true => Ok(()),
        false => Err(Refused {
            outcome: Some(outcome),
        }),
    }
}
