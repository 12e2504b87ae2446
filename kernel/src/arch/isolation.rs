//! Page-table isolation: user mode runs on roots that map of the kernel only what entries and exits touch before and after they have changed the root.
//!
//! Each root of a space has a second one, its *user root* ([`top::user_root`]): the same tables for the user half, whose entries the page table keeps in step,
//! and in the kernel's half [`pages`] alone, in tables that all user roots share. Where there are PCIDs a tag is a pair, which differ in the top bit, as in Linux.
//! `entry.s` has the loads of CR3. Which values it writes lies in [`EntryPage`], as does the stack that interrupts from user mode begin on.
//!
//! NMI, #DF and #MC may come anywhere in between. They compare CR3 with what exits write there: user roots are loaded by exits alone, so it is equal only on the user
//! root. Since [`note_root`](super::cr3::note_root) tells of a root before it is loaded, no value stays behind when its frame has become another root.

use core::mem::offset_of;

use super::percpu::PerCpu;
use super::stacks::Stacks;
use super::{descriptors, idt, percpu};
use crate::addr::PAGE_BYTES;

/// RIP, CS, RFLAGS, RSP, SS.
pub const IRET_FRAME_BYTES: usize = 5 * size_of::<u64>();
/// Where `entry.s` finds them, and the words of [`EntryPage`].
pub const IRET_FRAME: usize = offset_of!(PerCpu, entry) + PAGE_BYTES - IRET_FRAME_BYTES;
/// See [`IRET_FRAME`].
pub const IRET_FRAME_AT: usize = offset_of!(PerCpu, entry.iret_frame);
/// See [`IRET_FRAME`].
pub const KERNEL_CR3: usize = offset_of!(PerCpu, entry.kernel_cr3);
/// See [`IRET_FRAME`].
pub const USER_CR3: usize = offset_of!(PerCpu, entry.user_cr3);
const WORDS: usize = 4;

unsafe extern "C" {
    /// In `traps/entry.s`, at page boundaries.
    static entry_text_start: u8;
    static entry_text_end: u8;
}

/// What entries and exits of one CPU keep in memory that user roots map. Found through GS, which points at its start.
#[repr(C, align(4096))]
pub struct EntryPage {
    /// What an entry writes to CR3.
    pub kernel_cr3: u64,
    /// What an exit writes.
    pub user_cr3: u64,
    /// SYSCALL and SYSRET keep the user's stack pointer here while it is needed for CR3.
    pub user_rsp: u64,
    /// Where exits by IRET put what that takes: on top of the stack.
    pub iret_frame: usize,
    /// Entries leave it after eight words.
    stack: [u64; PAGE_BYTES / size_of::<u64>() - WORDS],
}

const _: () = assert!(size_of::<EntryPage>() == PAGE_BYTES);

impl EntryPage {
    /// For a CPU that has loaded no root.
    pub const fn new() -> Self {
        Self {
            kernel_cr3: 0,
            user_cr3: 0,
            user_rsp: 0,
            iret_frame: 0,
            stack: [0; _],
        }
    }
}

/// Where the stack of that page begins.
pub fn entry_stack_top(cpu: usize) -> usize {
    percpu::address(cpu) + PAGE_BYTES
}

/// The pages of the kernel's that user roots map, as the kernel does: the text of `entry.s`, the descriptor tables, of each CPU its TSS and GDT, its [`EntryPage`],
/// and the first page of each of the stacks of #DF, NMI and #MC.
pub fn pages(cpus: usize) -> impl Iterator<Item = usize> {
    let text = (&raw const entry_text_start).addr()..(&raw const entry_text_end).addr();
    let of_cpu = |cpu| {
        let stacks = Stacks::of(cpu).interrupt_tops();
        [descriptors::page(cpu), percpu::address(cpu)]
            .into_iter()
            .chain(stacks.map(|top| top - PAGE_BYTES))
    };
    let shared = text.step_by(PAGE_BYTES).chain([idt::page()]);
    shared.chain((0..cpus).flat_map(of_cpu))
}
