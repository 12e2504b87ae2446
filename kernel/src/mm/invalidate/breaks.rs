//! Deliberate ways to get it wrong, so that the tests can prove that they would notice.
//!
//! Compiled only with the feature `breaks`, and inert until `break=NAME` on the command line picks
//! one. The entries are always changed correctly; only the flush or the order is broken.

use super::gather::Gather;
use crate::arch::percpu::cpu_id;
use crate::mm::frames;
use crate::mm::layout::PhysAddr;
use crate::mm::space::MemorySpace;
use crate::platform::SHOOTDOWN;
use core::mem;
use core::sync::atomic::{AtomicU8, Ordering};
use shootdown::{LocalFlush, Platform, calls::Wait};

/// A deliberate mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Break {
    /// Flush this CPU only.
    NoRemote,
    /// Ask the other CPUs, but free and return before they have answered (against I5, I11).
    NoWait,
    /// Free the frames, to another CPU of the same process, before the flush is submitted
    /// (against I5). The lock is released in between, else nobody could take them so early.
    FreeEarly,
    /// Take the right to write away from a forking process on the CPU of the fork only: other threads go on writing to
    /// pages that are the child's too.
    ForkLocal,
    /// Take the right to write to a file's pages away on the CPU of the sync only: other threads go on writing to pages
    /// that count as clean.
    SyncLocal,
    /// Copy a file's pages before every CPU has lost the right to write to them.
    CopyEarly,
    /// Let go of an address space before the flush for a file's page that was unmapped is so much as submitted.
    UnmapLate,
    /// Take a window's pages away without a flush.
    WindowStays,
    /// Take what a space loses away from its virtual machines, too, but let their CPUs run on.
    GuestStays,
    /// Take pages that guests wrote to down as clean, and let virtual CPUs go on writing to them.
    LogStays,
    /// Say of a virtual CPU that runs again that it does not: nobody flushes it.
    StaysPreempted,
    /// Use user memory again on a CPU that has deferred flushes, without catching up.
    StayBehind,
    /// Copy from and to user memory on a CPU that has deferred flushes, without catching up. It does before user mode.
    CopyBehind,
    /// Read page tables without their lock, and without saying so.
    WalkUnprotected,
    /// Issue barriers on the CPU that was asked for them, and not on others.
    BarrierHere,
    /// Lose each 16th interrupt of the timers, as an emulator may.
    TickLost,
}

/// Every mistake with its name on the command line.
pub const ALL: [(&str, Break); 16] = [
    ("no-remote", Break::NoRemote),
    ("no-wait", Break::NoWait),
    ("free-early", Break::FreeEarly),
    ("fork-local", Break::ForkLocal),
    ("sync-local", Break::SyncLocal),
    ("copy-early", Break::CopyEarly),
    ("unmap-late", Break::UnmapLate),
    ("stay-behind", Break::StayBehind),
    ("copy-behind", Break::CopyBehind),
    ("window-stays", Break::WindowStays),
    ("guest-stays", Break::GuestStays),
    ("log-stays", Break::LogStays),
    ("stays-preempted", Break::StaysPreempted),
    ("walk-unprotected", Break::WalkUnprotected),
    ("barrier-here", Break::BarrierHere),
    ("tick-lost", Break::TickLost),
];

/// 0 for none, else one more than the index in [`ALL`].
static SELECTED: AtomicU8 = AtomicU8::new(0);

/// Selects a mistake by name, for the rest of this boot; `false` when there is none of that name.
pub fn select(name: &str) -> bool {
    let found = ALL.iter().position(|(known, _)| *known == name);
    if let Some(index) = found {
        SELECTED.store(index as u8 + 1, Ordering::Relaxed);
    }
    found.is_some()
}

/// The mistake made in this boot, if any.
pub fn selected() -> Option<Break> {
    let index = usize::from(SELECTED.load(Ordering::Relaxed)).checked_sub(1)?;
    Some(ALL[index].1)
}

/// What is left to be done properly after a mistake.
pub(super) enum Rest<'a> {
    /// Flush it now.
    Flush(Gather<'a>),
    /// Flush it after the lock is released.
    FlushLater(Gather<'a>),
    /// All is done, badly.
    Nothing,
}

/// Makes the selected mistake.
pub(super) fn apply<'a>(space: &MemorySpace, mut gather: Gather<'a>) -> Rest<'a> {
    match selected() {
        None
        | Some(
            Break::ForkLocal
            | Break::SyncLocal
            | Break::CopyEarly
            | Break::StayBehind
            | Break::CopyBehind
            | Break::WindowStays
            | Break::GuestStays
            | Break::LogStays
            | Break::StaysPreempted
            | Break::WalkUnprotected
            | Break::BarrierHere
            | Break::TickLost,
        ) => return Rest::Flush(gather),
        Some(Break::UnmapLate) if gather.lost_writers => return Rest::FlushLater(gather),
        Some(Break::UnmapLate) => return Rest::Flush(gather),
        Some(Break::FreeEarly) => {
            free_to_neighbour(space, &mut gather);
            return Rest::FlushLater(gather);
        }
        Some(Break::NoRemote) => flush_here(),
        Some(Break::NoWait) => {
            let mut others = space.engine.cpus();
            others.remove(cpu_id());
            _ = SHOOTDOWN.submit(&others, |_| flush_here(), Wait::None);
            flush_here();
        }
    }
    frames::free_chain(gather.frames);
    frames::free_chain(gather.shares.release());
    // Tables freed too early would bring the kernel down before the program can say what it saw:
    // they are leaked.
    drop(gather.tables);
    Rest::Nothing
}

/// Makes the mistake of [`Break::ForkLocal`], if it is selected.
pub(super) fn forgets_forks() -> bool {
    let selected = selected() == Some(Break::ForkLocal);
    if selected {
        flush_here();
    }
    selected
}

/// Makes the mistake of [`Break::SyncLocal`], if it is selected.
pub(super) fn forgets_syncs() -> bool {
    let selected = selected() == Some(Break::SyncLocal);
    if selected {
        flush_here();
    }
    selected
}

/// Makes the mistake of [`Break::StayBehind`], if it is selected.
pub fn stays_behind() -> bool {
    selected() == Some(Break::StayBehind)
}

/// Makes the mistake of [`Break::CopyBehind`], if it is selected.
pub fn copies_behind() -> bool {
    selected() == Some(Break::CopyBehind)
}

/// Makes the mistake of [`Break::WindowStays`], if it is selected.
pub fn keeps_windows() -> bool {
    selected() == Some(Break::WindowStays)
}

/// Makes the mistake of [`Break::GuestStays`], if it is selected.
pub(super) fn keeps_guests() -> bool {
    selected() == Some(Break::GuestStays)
}

/// Makes the mistake of [`Break::LogStays`], if it is selected.
pub(super) fn keeps_writers() -> bool {
    selected() == Some(Break::LogStays)
}

/// Makes the mistake of [`Break::StaysPreempted`], if it is selected.
pub fn keeps_preempted() -> bool {
    selected() == Some(Break::StaysPreempted)
}

/// Whether the interrupt of a timer that has come gets lost, by [`Break::TickLost`].
pub fn loses_tick() -> bool {
    static TICKS: AtomicU8 = AtomicU8::new(0);
    selected() == Some(Break::TickLost) && TICKS.fetch_add(1, Ordering::Relaxed) % 16 == 15
}

/// Takes a while between two steps in the wrong order, for the mistakes that only a short race shows.
pub fn dawdle() {
    /// Long enough for some writes of another CPU, short enough for many tries.
    const TURNS: usize = 1000;
    if matches!(
        selected(),
        Some(Break::CopyEarly | Break::UnmapLate | Break::WalkUnprotected)
    ) {
        (0..TURNS).for_each(|_| core::hint::spin_loop());
    }
}

/// Whether barriers reach no other CPU.
pub fn issues_barriers_here() -> bool {
    selected() == Some(Break::BarrierHere)
}

/// Whether the mistake of [`Break::WalkUnprotected`] is to be made.
pub fn walks_unprotected() -> bool {
    selected() == Some(Break::WalkUnprotected)
}

/// A page table is about to be read, perhaps without its lock.
///
/// # Panics
/// When it has been freed.
pub fn reads_table(table: PhysAddr) {
    // Every fault and every unmapping reads tables: no other mistake is to slow them down.
    if !walks_unprotected() {
        return;
    }
    dawdle();
    assert!(
        !frames::is_free(table),
        "a page table was freed under a reader: {table:?}"
    );
}

/// Whether the mistake of [`Break::CopyEarly`] is to be made.
pub fn copies_early() -> bool {
    selected() == Some(Break::CopyEarly)
}

fn flush_here() {
    SHOOTDOWN.platform().local_flush(LocalFlush::Space);
}

/// Frees to the next CPU that runs this space: this CPU is about to flush and would hide the mistake.
fn free_to_neighbour(space: &MemorySpace, gather: &mut Gather<'_>) {
    let frames = mem::take(&mut gather.frames);
    let own = cpu_id();
    let cpus = space.engine.cpus();
    let above = cpus.iter().find(|cpu| cpu.index() > own.index());
    let neighbour = above.or_else(|| cpus.iter().next()).unwrap_or(own);
    frames::donate(neighbour, frames);
}
