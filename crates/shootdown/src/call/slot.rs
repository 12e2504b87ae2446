//! Request slots (Linux: call single data, `csd`).
//!
//! For up to 64 CPUs a slot is exactly one cache line: header, pending set, function and payload move
//! together, once to each target and once back.
//!
//! Life of a slot, all steps of its own CPU with interrupts off except the third:
//! 1. *free*: the pending set is empty;
//! 2. *published*: contents and a new sequence number are written, then the pending set (Release);
//! 3. each target copies what it needs and clears its own bit (I6); the last one makes the slot free.
//!
//! The sequence number of a call is the time at which it was published, so that all its targets agree who came first; only
//! that it grows matters otherwise.
//!
//! A waiter remembers the sequence number: its request is complete when the set is empty *or* the number
//! has moved on, because a slot is refilled only after its set was empty. So nobody has to give a slot
//! back, a leaked ticket leaks nothing, and a waiter never waits for a later request (I11).

use crate::atomic_mask::AtomicCpuMask;
use crate::call::payload::Payload;
use crate::capacity::{Capacity, Cpus};
use crate::cpu::CpuId;
use crate::mask::CpuMask;
use crate::sync::{AtomicU64, Ordering, PlainCell, const_fn};

/// Slots per CPU. Several, so that a task that waits preemptibly never blocks the next caller on its CPU; the
/// last is kept for flushes, so that a flush finds one even when functions occupy all others.
#[cfg(not(loom))]
pub(crate) const SLOTS: usize = 4;
/// Two keep the models small: one for functions, one for flushes.
#[cfg(loom)]
pub(crate) const SLOTS: usize = 2;

/// How a request is carried out and acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Kind(u8);

impl Kind {
    /// Run the function, then acknowledge.
    pub(crate) const CALL: Self = Self(0);
    /// Drop translations as the payload says, then acknowledge.
    pub(crate) const FLUSH: Self = Self(1);
    const INDIRECT: u8 = 2;
    const ACK_FIRST: u8 = 4;

    /// The description lies beside the slot, not in it.
    pub(crate) const fn indirect(self) -> Self {
        Self(self.0 | Self::INDIRECT)
    }

    /// Acknowledge once the contents are copied, then do the work.
    pub(crate) const fn ack_first(self) -> Self {
        Self(self.0 | Self::ACK_FIRST)
    }

    pub(crate) const fn is_flush(self) -> bool {
        self.0 & Self::FLUSH.0 != 0
    }

    pub(crate) const fn is_indirect(self) -> bool {
        self.0 & Self::INDIRECT != 0
    }

    pub(crate) const fn is_ack_first(self) -> bool {
        self.0 & Self::ACK_FIRST != 0
    }
}

/// Runs what a payload holds on a CPU; without a payload it runs nothing. Returns the name of what it runs, for
/// reports: a slot's line has no room for it.
pub(crate) type Run = unsafe fn(Option<&Payload>, CpuId) -> &'static str;

/// What to run, and its argument bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// Called with a copy of `payload` on the target.
    pub(crate) run: Run,
    pub(crate) payload: Payload,
}

impl Request {
    /// A request whose kind needs no function.
    pub(crate) const fn data(payload: Payload) -> Self {
        /// Never called: flush requests are interpreted by the responder.
        unsafe fn nothing(_: Option<&Payload>, _: CpuId) -> &'static str {
            ""
        }
        Self {
            run: nothing,
            payload,
        }
    }
}

/// When a request was published, as far as the host's clocks agree: responders serve in this order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Stamp(u64);

impl Stamp {
    /// No matter when.
    pub(crate) const NONE: Self = Self(0);
    /// A unit of 16 ns makes 56 bits last 36 years.
    const SHIFT: u32 = 4;

    pub(crate) const fn at_ns(now_ns: u64) -> Self {
        Self(now_ns >> Self::SHIFT)
    }
}

/// One request slot.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Slot<const N: usize>
where
    Cpus<N>: Capacity,
{
    /// Sequence number in the upper 56 bits, [`Kind`] in the lower 8.
    header: AtomicU64,
    request: PlainCell<Request>,
    /// The targets that have still to acknowledge.
    pending: AtomicCpuMask<N>,
}

impl<const N: usize> Slot<N>
where
    Cpus<N>: Capacity,
{
    const_fn! {
        pub(crate) fn new() -> Self {
            Self {
                header: AtomicU64::new(0),
                request: PlainCell::new(Request::data(Payload::EMPTY)),
                pending: AtomicCpuMask::new(),
            }
        }
    }

    /// Whether the slot's own CPU may fill it.
    pub(crate) fn is_free(&self) -> bool {
        // ORDERING: acquires every target's acknowledgement, so their reads of the old contents are over.
        self.pending.is_empty(Ordering::Acquire)
    }

    /// Fills the slot and names its targets; returns the request's sequence number: the time `now`, or the number
    /// after the last one if that is larger.
    ///
    /// # Safety
    /// 1. The caller runs on the slot's CPU with interrupts off, and saw [`is_free`](Self::is_free) since.
    pub(crate) unsafe fn publish(
        &self,
        kind: Kind,
        request: Request,
        targets: &CpuMask<N>,
        now: Stamp,
    ) -> u64 {
        let next = (self.header.load(Ordering::Relaxed) >> 8).wrapping_add(1);
        let sequence = next.max(now.0) & (u64::MAX >> 8);
        // ORDERING: Release carries the acknowledgements that `is_free` acquired on to a waiter of the
        // previous request that sees only the new number; pairs with `is_done`.
        self.header
            .store(sequence << 8 | u64::from(kind.0), Ordering::Release);
        // SAFETY: duty 1: targets read only while named in `pending`, which is empty, and nobody else writes.
        unsafe { self.request.write(request) };
        // ORDERING: publishes header and contents; pairs with the Acquire in `request_for`, also for a
        // responder that looks here because of another slot's inbox bit.
        self.pending.store(targets, Ordering::Release);
        sequence
    }

    /// The number of the request that was published last: for reports, and for its age.
    pub(crate) fn sequence(&self) -> u64 {
        self.header.load(Ordering::Relaxed) >> 8
    }

    /// The targets that have still to acknowledge, for reports.
    pub(crate) fn pending(&self) -> CpuMask<N> {
        self.pending.snapshot()
    }

    /// The kind and a copy of the contents, when `target` has still to acknowledge.
    pub(crate) fn request_for(&self, target: CpuId) -> Option<(Kind, Request)> {
        let kind = self.kind_for(target)?;
        // SAFETY: 1. just seen, by the target itself.
        let request = unsafe { self.contents() };
        Some((kind, request))
    }

    /// A copy of the contents.
    ///
    /// # Safety
    /// 1. The caller runs on a target that [`kind_for`](Self::kind_for) found, and has not acknowledged since.
    pub(crate) unsafe fn contents(&self) -> Request {
        // SAFETY: duty 1: our bit is set, so the contents were published (acquired in `kind_for`) and are not
        // rewritten before we clear it (I6).
        unsafe { self.request.read() }
    }

    /// The kind alone.
    pub(crate) fn kind_for(&self, target: CpuId) -> Option<Kind> {
        // ORDERING: acquires header and contents; pairs with `publish`.
        if !self.pending.contains(target, Ordering::Acquire) {
            return None;
        }
        Some(Kind((self.header.load(Ordering::Relaxed) & 0xff) as u8))
    }

    /// Clears the bit of `target`; only `target` itself calls this (I6).
    pub(crate) fn acknowledge(&self, target: CpuId) {
        // ORDERING: Release publishes what the target did (and that its copy is complete); pairs with the
        // Acquire in `is_done` and `is_free`. As a locked operation it also orders an early
        // acknowledgement before the flush that follows (T1).
        self.pending.remove(target, Ordering::AcqRel);
    }

    /// Whether request number `sequence` of this slot is complete.
    pub(crate) fn is_done(&self, sequence: u64) -> bool {
        // ORDERING: acquires the acknowledgements, directly or through the later request's header.
        self.pending.is_empty(Ordering::Acquire)
            || self.header.load(Ordering::Acquire) >> 8 != sequence
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::Slot;

    /// What `docs/protocol.md` says of the lines that move.
    #[test]
    fn a_request_is_one_line_up_to_64_cpus() {
        assert_eq!((size_of::<Slot<1>>(), align_of::<Slot<1>>()), (64, 64));
        assert_eq!(size_of::<Slot<64>>(), 64);
        assert_eq!(size_of::<Slot<512>>(), 128);
    }
}
