//! Request slots (Linux: call single data, `csd`).
//!
//! For up to 64 CPUs a slot is exactly one cache line: header, pending set, function and payload move
//! together, once to each target and once back. With more the pending set has lines of its own, so that all targets can read
//! the rest side by side while others acknowledge.
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

/// Which slots of a CPU but the first may hold a request. The first one's header says it, so that a responder, which reads that
/// anyway, need not fetch the others' lines to find them empty.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Others(u8);

impl Others {
    pub(crate) const NONE: Self = Self(0);
    /// Above the bits of [`Kind`].
    const SHIFT: u32 = 4;
    const MASK: u64 = 0xe << Self::SHIFT;

    /// Adds slot `index`, which is not the first.
    pub(crate) fn add(&mut self, index: usize) {
        self.0 |= 1 << index;
    }

    /// The first slot and these.
    pub(crate) fn with_first(self) -> impl Iterator<Item = usize> {
        let mut left = self.0 | 1;
        core::iter::from_fn(move || {
            let index = (left != 0).then(|| left.trailing_zeros() as usize);
            left &= left.wrapping_sub(1);
            index
        })
    }

    /// As in a header. Bit 0 would be the first slot, and is never set.
    const fn bits(self) -> u64 {
        (self.0 as u64) << Self::SHIFT
    }
}

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
    const BROADCAST: u8 = 8;
    /// In the place of the first slot among [`Others`].
    const MERGE: u8 = 16;
    /// The bits of a header that are a kind's.
    const MASK: u64 = 0x1f;

    /// The description lies beside the slot, not in it.
    pub(crate) const fn indirect(self) -> Self {
        Self(self.0 | Self::INDIRECT)
    }

    /// Acknowledge once the contents are copied, then do the work.
    pub(crate) const fn ack_first(self) -> Self {
        Self(self.0 | Self::ACK_FIRST)
    }

    /// A borrowed function that may run once for several callers who lend the same.
    pub(crate) const fn merge(self) -> Self {
        Self(self.0 | Self::MERGE)
    }

    pub(crate) const fn merges(self) -> bool {
        self.0 & Self::MERGE != 0
    }

    /// Announced in rings, and there only.
    pub(crate) const fn broadcast(self) -> Self {
        Self(self.0 | Self::BROADCAST)
    }

    pub(crate) const fn is_broadcast(self) -> bool {
        self.0 & Self::BROADCAST != 0
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

impl Request {
    /// Whether both lend one function. Both are of a kind that [merges](Kind::merges): their payloads are pointers.
    pub(crate) fn lends_the_same(&self, other: &Self) -> bool {
        let lent = |request: &Self| {
            // SAFETY: 1. `call_idempotent` made it of a thin pointer. 2. Only its address is used.
            unsafe { request.payload.get::<*const ()>() }
        };
        // Equal code on an object at one address, while both are lent, does the same, whatever its type is called.
        core::ptr::fn_addr_eq(self.run, other.run) && lent(self) == lent(other)
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
    /// Sequence number in the upper 56 bits, [`Others`] (first slot only) in three, [`Kind`] in five.
    header: AtomicU64,
    request: PlainCell<Request>,
    /// The groups of 64 CPUs that hear of a broadcast by their ring, where there are several.
    rings: <Cpus<N> as Capacity>::Spare,
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
                #[cfg(not(loom))]
                rings: <Cpus<N> as Capacity>::SPARE,
                #[cfg(loom)]
                rings: <Cpus<N> as Capacity>::spare(),
                pending: AtomicCpuMask::new(),
            }
        }
    }

    /// The lines that a target writes (in a slot for up to 64 CPUs the only one), or the initiator for it.
    pub(crate) fn line_of(&self, target: CpuId) -> usize {
        self.pending.address_of(target)
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
        (now, others): (Stamp, Others),
    ) -> u64 {
        let next = (self.header.load(Ordering::Relaxed) >> 8).wrapping_add(1);
        let sequence = next.max(now.0) & (u64::MAX >> 8);
        // ORDERING: Release carries the acknowledgements that `is_free` acquired on to a waiter of the
        // previous request that sees only the new number; pairs with `is_done`.
        self.header.store(
            sequence << 8 | others.bits() | u64::from(kind.0),
            Ordering::Release,
        );
        for rings in self.rings.as_ref() {
            rings.store(u64::MAX, Ordering::Relaxed);
        }
        // SAFETY: duty 1: targets read only while named in `pending`, which is empty, and nobody else writes.
        unsafe { self.request.write(request) };
        // ORDERING: publishes header and contents; pairs with the Acquire in `kind_for`, also for a
        // responder that looks here because of another slot's inbox bit.
        self.pending.store(targets, Ordering::Release);
        sequence
    }

    /// Says in the first slot that slot `index` holds a request. Its own CPU calls this, before it announces that request.
    pub(crate) fn note_other(&self, index: usize) {
        let mut other = Others::NONE;
        other.add(index);
        let header = self.header.load(Ordering::Relaxed);
        if header & other.bits() == 0 {
            // ORDERING: as in `publish`: whoever waits for an earlier request here may learn of its end by this store.
            self.header.store(header | other.bits(), Ordering::Release);
        }
    }

    /// Which other slots a responder has to look at; those that were announced to it are among them.
    pub(crate) fn others(&self) -> Others {
        let header = self.header.load(Ordering::Relaxed);
        Others(((header & Others::MASK) >> Others::SHIFT) as u8)
    }

    /// The number of the request that was published last: for reports, and for its age.
    pub(crate) fn sequence(&self) -> u64 {
        self.header.load(Ordering::Relaxed) >> 8
    }

    /// The targets that have still to acknowledge, for reports.
    pub(crate) fn pending(&self) -> CpuMask<N> {
        self.pending.snapshot()
    }

    /// A copy of the contents.
    ///
    /// # Safety
    /// 1. The caller runs on a target that [`kind_for`](Self::kind_for) or its ring found, and has not
    ///    acknowledged since.
    pub(crate) unsafe fn contents(&self) -> Request {
        // SAFETY: duty 1: our bit is set, so the contents were published (acquired in `kind_for`, or with the ring's entry) and are not
        // rewritten before we clear it (I6).
        unsafe { self.request.read() }
    }

    /// The kind, when the pending set names `target`.
    pub(crate) fn kind_for(&self, target: CpuId) -> Option<Kind> {
        // ORDERING: Acquire: a bit of an earlier request, which another CPU cleared for the whole leaf, cannot be seen after the
        // header of a later one; pairs with `publish`, which acquired the clearing.
        let header = self.header.load(Ordering::Acquire);
        // ORDERING: acquires header and contents; pairs with `publish`.
        if !self.pending.contains(target, Ordering::Acquire) {
            return None;
        }
        let again = self.header.load(Ordering::Relaxed);
        // If another request has come between, it is announced after this.
        let is_same = (header ^ again) & !Others::MASK == 0;
        is_same.then_some(Kind((again & Kind::MASK) as u8))
    }

    /// The kind of the request, which names the running CPU: the ring said so, and it has not acknowledged.
    pub(crate) fn kind(&self) -> Kind {
        Kind((self.header.load(Ordering::Relaxed) & Kind::MASK) as u8)
    }

    /// Has the targets among the 64 CPUs of `group` find a broadcast in their inboxes. Its own CPU calls this, before it
    /// writes there.
    pub(crate) fn leave_ring(&self, group: usize) {
        if let [rings] = self.rings.as_ref() {
            let others = rings.load(Ordering::Relaxed) & !(1 << group);
            rings.store(others, Ordering::Relaxed);
        } else {
            let header = self.header.load(Ordering::Relaxed);
            let broadcast = u64::from(Kind::BROADCAST);
            // ORDERING: as in `note_other`.
            self.header.store(header & !broadcast, Ordering::Release);
        }
    }

    /// Whether the request, of this kind, is to be found in the ring of `target`, and only there.
    pub(crate) fn is_in_ring_of(&self, target: CpuId, kind: Kind) -> bool {
        kind.is_broadcast()
            && self
                .rings
                .as_ref()
                .iter()
                .all(|rings| rings.load(Ordering::Relaxed) & 1 << (target.index() / 64) != 0)
    }

    /// Clears the bit of `target`; only `target` itself calls this (I6), and only when the request was not broadcast to it.
    pub(crate) fn acknowledge(&self, target: CpuId) {
        // ORDERING: Release publishes what the target did (and that its copy is complete); pairs with the
        // Acquire in `is_done` and `is_free`. As a locked operation it also orders an early
        // acknowledgement before the flush that follows (T1).
        self.pending.remove(target, Ordering::AcqRel);
    }

    /// Clears the bits `targets` of the 64 CPUs of `group`, which have all done it. The last of them calls this.
    pub(crate) fn acknowledge_all(&self, group: usize, targets: u64) {
        // ORDERING: as in `acknowledge`; what the others did was acquired in their leaf.
        self.pending.remove_all(group, targets, Ordering::AcqRel);
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
    use crate::cpu::CpuId;

    /// What `docs/protocol.md` says of the lines that move.
    #[test]
    fn a_request_is_one_line_up_to_64_cpus() {
        assert_eq!((size_of::<Slot<1>>(), align_of::<Slot<1>>()), (64, 64));
        assert_eq!(size_of::<Slot<64>>(), 64);
        assert_eq!(size_of::<Slot<128>>(), 128);
        assert_eq!(size_of::<Slot<512>>(), 128);
        let slot = Slot::<128>::new();
        let line = |address: usize| address / 64;
        let header = line(core::ptr::from_ref(&slot).addr());
        assert_eq!(
            [0, 127].map(|cpu| line(slot.line_of(CpuId::new(cpu)))),
            [header + 1; 2],
            "with more, acknowledgements leave the line alone that all targets read"
        );
    }
}
