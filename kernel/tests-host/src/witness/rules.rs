//! What must not happen, each rule where it can be broken.

use super::held::Place;
use super::{Machine, with};
use crate::addr::PhysAddr;
use crate::mm::frames::{FrameChain, is_shared};
use crate::tlb::{Entry, Tlb};
use shootdown::CpuId;
use std::collections::BTreeSet;

/// All calls have returned: no CPU has a translation that the page table does not bear out.
pub(super) fn settled(machine: &mut Machine) {
    accuse_first(machine, "after the last call has returned", |tlb| {
        tlb.stale().next()
    });
}

/// A flush is submitted: under the lock of the space, so that nobody puts something else there before (I1).
pub(super) fn submitted(machine: &mut Machine, target: CpuId, root: u64, place: &Place) {
    // A window's root is not the space's.
    let is_locked =
        place.held.as_slice().contains(&root) || place.is_locked() && machine.has_window(root);
    if !is_locked && !place.is_gathering {
        machine.accuse(format!(
            "a flush for {target} without the lock of its space"
        ));
    }
    copies_wait(machine);
}

/// Somebody waits: without spin locks, and without the lock of another space.
pub(super) fn waited(machine: &mut Machine, place: &Place) {
    if place.preempt_count > 0 {
        machine.accuse("somebody waits for other CPUs with a spin lock".to_owned());
    }
    let locked = place.held.as_slice().len();
    if locked > 1 {
        machine.accuse(format!("somebody waits with {locked} spaces locked"));
    }
    copies_wait(machine);
}

/// The lock of a space was released: whoever has something stale has been told, nobody can write to a file's page that has
/// left the page table, and nobody reads the original of a page that was copied. Not so while something is taken away from many spaces.
pub(super) fn unlocked(machine: &mut Machine, place: &Place) {
    if place.is_gathering {
        return;
    }
    let untold = machine.cpus.iter().enumerate().find_map(|(cpu, state)| {
        let stale = state.tlb.stale().next().filter(|_| !state.is_interrupted);
        stale.map(|(addr, _)| (cpu, addr))
    });
    if let Some((cpu, addr)) = untold {
        machine.accuse(format!("unlocked, and CPU {cpu} was not told of {addr:#x}"));
    }
    // Whoever intrudes may unmap what a sync is waiting for.
    if !place.is_intruding {
        writers_wait(machine);
    }
    let copies = core::mem::take(&mut machine.copies);
    accuse_first(machine, "a copied page, but the space is unlocked", |tlb| {
        let is_original = |&(addr, entry): &(usize, Entry)| {
            let now = tlb.entry(addr).map(Entry::frame);
            now.is_some_and(|now| copies.contains(&(entry.frame(), now)))
        };
        tlb.stale().find(is_original)
    });
}

/// Nobody can write to a file's page that is not in the page table any more.
fn writers_wait(machine: &mut Machine) {
    let what = "and writes to a file, but the space is unlocked";
    accuse_first(machine, what, |tlb| {
        let is_gone = |&(addr, entry): &(usize, Entry)| {
            let now = tlb.entry(addr).map(Entry::frame);
            entry.writes_to_file() && now != Some(entry.frame())
        };
        tlb.stale().find(is_gone)
    });
}

/// As long as somebody may read an original, nobody writes to the copy.
fn copies_wait(machine: &mut Machine) {
    let copies = machine.copies.clone();
    accuse_first(machine, "a page whose copy is writable", |tlb| {
        let is_outrun = |&(addr, entry): &(usize, Entry)| {
            let now = tlb.entry(addr).filter(|now| now.writes());
            now.is_some_and(|now| copies.contains(&(entry.frame(), now.frame())))
        };
        tlb.stale().find(is_outrun)
    });
}

/// Frames go back: no CPU can translate to them (I5), and none walks them (I4).
pub fn freeing(chain: &FrameChain) {
    with(|machine| {
        let freed: BTreeSet<_> = chain.addresses().collect();
        accuse_first(machine, "whose frame is being freed", |tlb| {
            tlb.cached()
                .find(|(_, entry)| freed.contains(&entry.frame()))
        });
        let walker = |frame: &&PhysAddr| machine.cpus.iter().any(|cpu| cpu.tlb.walks(**frame));
        if let Some(table) = freed.iter().find(walker) {
            machine.accuse(format!("{table:?} is freed, and a CPU may walk it (I4)"));
        }
    });
}

/// An owner gives a frame up: no CPU can translate to it because of an entry that is gone (I5). The last one has the frame then, and
/// may wait before it frees that. Whoever intrudes releases shares of its own, while somebody waits for those of the same frame.
pub fn releasing(frame: PhysAddr) {
    if !is_shared(frame) || Place::here().is_intruding {
        return;
    }
    with(|machine| {
        accuse_first(machine, "of which a share is being released", |tlb| {
            tlb.stale().find(|(_, entry)| entry.frame() == frame)
        });
    });
}

/// A page is copied: nobody can write to the original, unless it is a file's, and nobody can reach the copy.
pub fn copying(from: PhysAddr, to: PhysAddr, is_files: bool) {
    with(|machine| {
        accuse_first(machine, "writable, which is being copied", |tlb| {
            let writes = |&(_, entry): &(usize, Entry)| entry.frame() == from && entry.writes();
            tlb.cached().filter(|_| !is_files).find(writes)
        });
        accuse_first(machine, "whose copy is not made yet", |tlb| {
            tlb.cached().find(|(_, entry)| entry.frame() == to)
        });
        machine.copies.push((from, to));
    });
}

/// A file's page is stored: nobody can write to it without putting it down as dirty again. Whoever has done so since it was taken
/// down as clean may write by the page table's leave.
pub fn storing(frame: PhysAddr, is_dirty: bool) {
    with(|machine| {
        accuse_first(machine, "writable, which is being stored", |tlb| {
            let writes = |&(_, entry): &(usize, Entry)| entry.frame() == frame && entry.writes();
            if is_dirty {
                tlb.stale().find(writes)
            } else {
                tlb.cached().find(writes)
            }
        });
    });
}

/// A clean page of a file is put down as dirty: before anybody may write to it.
pub fn dirtying(frame: PhysAddr) {
    with(|machine| {
        accuse_first(machine, "writable, which still counts as clean", |tlb| {
            tlb.entries()
                .find(|(_, entry)| entry.frame() == frame && entry.writes())
        });
    });
}

impl Machine {
    /// Whether the root is a private one: a locked space has another.
    fn has_window(&self, root: u64) -> bool {
        let windows = crate::mm::layout::WINDOWS;
        let mut cpus = self.cpus.iter().filter(|cpu| cpu.tlb.root() == root);
        cpus.any(|cpu| cpu.tlb.walks_to(windows.start))
    }
}

/// Complains of the first translation that `find` finds in a TLB.
fn accuse_first(machine: &mut Machine, what: &str, find: impl Fn(&Tlb) -> Option<(usize, Entry)>) {
    let found = machine.cpus.iter().enumerate().find_map(|(cpu, state)| {
        let (addr, _) = find(&state.tlb)?;
        Some((cpu, addr))
    });
    if let Some((cpu, addr)) = found {
        machine.accuse(format!("CPU {cpu} may still translate {addr:#x}, {what}"));
    }
}
