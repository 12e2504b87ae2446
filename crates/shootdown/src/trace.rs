//! What the engine tells [`Platform::on_trace`](crate::Platform::on_trace).

use crate::cpu::CpuId;
use crate::tlb::SpaceId;

/// One thing that happened, on the CPU named `cpu`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum TraceEvent {
    /// An initiator published a request to `targets` CPUs and interrupted `ipis` of them.
    Submitted {
        /// The initiator.
        cpu: CpuId,
        /// How many CPUs are to serve the request.
        targets: u32,
        /// How many of them were sent an interrupt for it.
        ipis: u32,
    },
    /// The interrupt handler was entered.
    HandlerEntered {
        /// The responder.
        cpu: CpuId,
    },
    /// The interrupt handler is about to return.
    HandlerLeft {
        /// The responder.
        cpu: CpuId,
    },
    /// Translations are about to be dropped on this CPU.
    FlushStarted {
        /// Where.
        cpu: CpuId,
        /// Of which space.
        space: SpaceId,
    },
    /// They have been.
    FlushFinished {
        /// Where.
        cpu: CpuId,
        /// Of which space.
        space: SpaceId,
    },
    /// A responder cleared its bit in a request of `initiator`.
    Acknowledged {
        /// The responder.
        cpu: CpuId,
        /// Whose request it was.
        initiator: CpuId,
    },
    /// A called function is about to run.
    FunctionStarted {
        /// The responder.
        cpu: CpuId,
        /// Whose request it is.
        initiator: CpuId,
    },
    /// It returned.
    FunctionFinished {
        /// The responder.
        cpu: CpuId,
        /// Whose request it was.
        initiator: CpuId,
    },
    /// A waiter starts to wait for its request.
    WaitStarted {
        /// Where the waiter runs now; it may move.
        cpu: CpuId,
    },
    /// Its request is complete.
    WaitFinished {
        /// Where the waiter runs now.
        cpu: CpuId,
    },
    /// A request was found complete by the one that wanted to wait for it: no wait.
    FoundDone {
        /// Whose request it was.
        initiator: CpuId,
    },
    /// Another address space was loaded.
    Switched {
        /// Where.
        cpu: CpuId,
        /// The space that is now loaded.
        space: SpaceId,
    },
    /// What a flush was to free was leaked: a [listener](crate::secondary) did not answer.
    Leaked {
        /// Where it was given up.
        cpu: CpuId,
        /// What the listener was asked about.
        token: u64,
    },
    /// A CPU has come, or gone on, in a [rendezvous](crate::control::CpuControl::rendezvous).
    Rendezvous {
        /// Which.
        cpu: CpuId,
    },
    /// The CPU became a target.
    Online {
        /// Which.
        cpu: CpuId,
    },
    /// The CPU is no target any more.
    Offline {
        /// Which.
        cpu: CpuId,
    },
}
