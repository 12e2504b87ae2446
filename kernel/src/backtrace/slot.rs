//! What a CPU notes when it is asked, and the hand-over to whoever asked.
//!
//! `Idle -> Asked` by the asker, `Asked -> Noting -> Noted` by the NMI handler, `Noted -> Idle` by the asker; one that gives up
//! takes `Asked` back to `Idle`, so a CPU that answers late answers nobody.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU8, Ordering};

use arrayvec::ArrayVec;
use shootdown::CpuId;

use super::walk::{FRAMES, return_addresses};
use crate::arch::percpu;
use crate::arch::trap::TrapFrame;
use crate::cpus::MAX_CPUS;

const IDLE: u8 = 0;
const ASKED: u8 = 1;
const NOTING: u8 = 2;
const NOTED: u8 = 3;

/// The interrupted state of a CPU.
#[derive(Clone, Debug, Default)]
pub(super) struct Note {
    pub frame: TrapFrame,
    pub returns: ArrayVec<usize, FRAMES>,
}

#[repr(align(128))]
struct Slot {
    state: AtomicU8,
    note: UnsafeCell<Note>,
}

// SAFETY: the note belongs to the CPU's NMI handler in state NOTING, and to the only asker in state NOTED.
unsafe impl Sync for Slot {}

static SLOTS: [Slot; MAX_CPUS] = [const {
    Slot {
        state: AtomicU8::new(IDLE),
        note: UnsafeCell::new(Note {
            frame: TrapFrame::ZERO,
            returns: ArrayVec::new_const(),
        }),
    }
}; MAX_CPUS];

/// NMI handler: notes what was interrupted, if anybody has asked.
pub fn answer(frame: &TrapFrame) {
    let slot = &SLOTS[percpu::cpu_id().index()];
    if !slot.moves(ASKED, NOTING) {
        return;
    }
    let note = Note {
        frame: *frame,
        returns: return_addresses(frame),
    };
    // SAFETY: in state NOTING it is this handler's, and NMIs do not nest.
    unsafe { *slot.note.get() = note };
    // ORDERING: publishes the note; pairs with the acquire in `moves` of the asker.
    slot.state.store(NOTED, Ordering::Release);
}

/// The next NMI on that CPU is a question. For one asker at a time, see [`ask`](super::ask).
pub(super) fn ask(cpu: CpuId) {
    SLOTS[cpu.index()].state.store(ASKED, Ordering::Relaxed);
}

/// The answer, once it is there.
pub(super) fn take(cpu: CpuId) -> Option<Note> {
    let slot = &SLOTS[cpu.index()];
    if slot.state.load(Ordering::Relaxed) != NOTED {
        return None;
    }
    // ORDERING: acquires the note; pairs with the release in `answer`.
    core::sync::atomic::fence(Ordering::Acquire);
    // SAFETY: in state NOTED it is the asker's, of whom there is one.
    let note = unsafe { (*slot.note.get()).clone() };
    slot.state.store(IDLE, Ordering::Relaxed);
    Some(note)
}

/// Gives up. False when the CPU is answering just now after all: then [`take`] has it soon.
pub(super) fn withdraw(cpu: CpuId) -> bool {
    SLOTS[cpu.index()].moves(ASKED, IDLE)
}

impl Slot {
    fn moves(&self, from: u8, to: u8) -> bool {
        // ORDERING: acquire: the note is not written before the slot is ours; release: nor after it was given back.
        self.state
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }
}
