//! Request slots (Linux: call single data, `csd`).
//!
//! For up to 64 CPUs a slot is exactly one cache line: header, pending set, function and payload move
//! together, once to each target and once back. With more the pending set has lines of its own, so that all targets can read
//! the rest side by side while others acknowledge.
//!
//! Life of a slot, all steps of its own CPU with interrupts off except the third:
//! 1. *free*: the pending set is empty;
//! 2. *published*: the header with a new number is written, the contents, then the pending set (Release);
//! 3. each target copies what it needs and clears its own bit (I6); the last one makes the slot free.
//!
//! A waiter remembers the number: its request is complete when the set is empty *or* the slot has another
//! number, because a slot is refilled only after its set was empty. So nobody has to give a slot
//! back, a leaked ticket leaks nothing, and a waiter never waits for a later request (I11).

use crate::call::pending::PendingSet;
use crate::call::{Kind, Number, OtherSlots, Payload, Request};
use crate::capacity::Capacity;
use crate::cpu::CpuId;
use crate::sync::{AtomicU64, Ordering, PlainCell, const_fn};

/// One request slot.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Slot<C: Capacity> {
    /// [`Number`] in the upper 56 bits, [`OtherSlots`] (first slot only) in three, [`Kind`] in five.
    header: AtomicU64,
    request: PlainCell<Request>,
    /// The groups that find a broadcast in their inboxes, because their ring was full; where there are several groups.
    outside_rings: C::Wide,
    pending: PendingSet<C>,
}

impl<C: Capacity> Slot<C> {
    const_fn! {
        pub(crate) fn new() -> Self {
            Self {
                header: AtomicU64::new(0),
                request: PlainCell::new(Request::data(Payload::EMPTY)),
                #[cfg(not(loom))]
                outside_rings: C::WIDE_ZERO,
                #[cfg(loom)]
                outside_rings: crate::capacity::Array::of(|| AtomicU64::new(0)),
                pending: PendingSet::new(),
            }
        }
    }

    /// Counts on from this number; before the slot is used.
    #[cfg(feature = "sim")]
    pub(crate) fn begin(&self, number: u64) {
        // Where `Number` has it.
        self.header.store(number << 8, Ordering::Relaxed);
    }

    /// The line that a target writes (in a slot for up to 64 CPUs the only one), or the initiator for it.
    pub(crate) fn line_of(&self, target: CpuId) -> usize {
        self.pending.line_of(target)
    }

    /// Whether the slot's own CPU may fill it.
    #[inline]
    pub(crate) fn is_free(&self) -> bool {
        self.pending.is_empty()
    }

    /// Fills the slot and names its targets, as one word for each group that has some; returns the request's number.
    ///
    /// # Safety
    /// 1. The caller runs on the slot's CPU with interrupts off, and saw [`is_free`](Self::is_free) since.
    pub(crate) unsafe fn publish(
        &self,
        kind: Kind,
        request: Request,
        targets: impl Iterator<Item = (usize, u64)> + Clone,
        now_ns: Option<u64>,
        others: OtherSlots,
    ) -> Number {
        let last = Number::from_header(self.header.load(Ordering::Relaxed));
        let number = last.next(now_ns);
        // ORDERING: Release carries the acknowledgements that `is_free` acquired on to a waiter of the
        // previous request that sees only the new number; pairs with `is_done`.
        self.header.store(
            number.bits() | others.bits() | kind.bits(),
            Ordering::Release,
        );
        if let Some(outside) = self.outside_rings.as_ref().first() {
            // ORDERING: Release: a responder that sees this word sees the header before it; pairs with `kind_for`.
            outside.store(0, Ordering::Release);
        }
        // SAFETY: duty 1: targets read only while named in `pending`, which is empty, and nobody else writes.
        unsafe { self.request.write(request) };
        self.pending.name(targets);
        number
    }

    /// Says in the first slot that slot `index` holds a request. Its own CPU calls this, before it announces that request.
    pub(crate) fn note_other(&self, index: usize) {
        let mut other = OtherSlots::NONE;
        other.add(index);
        let header = self.header.load(Ordering::Relaxed);
        if header & other.bits() == 0 {
            // ORDERING: as in `publish`: a task that waits for an earlier request here may learn of its end by this store.
            self.header.store(header | other.bits(), Ordering::Release);
        }
    }

    /// Which other slots a responder has to look at; those that were announced to it are among them.
    #[inline]
    pub(crate) fn others(&self) -> OtherSlots {
        OtherSlots::from_header(self.header.load(Ordering::Relaxed))
    }

    /// The number of the request that was published last: for its age, and for reports.
    #[inline]
    pub(crate) fn number(&self) -> Number {
        Number::from_header(self.header.load(Ordering::Relaxed))
    }

    /// The targets of a group that have still to acknowledge, for reports.
    pub(crate) fn pending(&self, group: usize) -> u64 {
        self.pending.of_group(group)
    }

    /// A copy of the contents.
    ///
    /// # Safety
    /// 1. The caller runs on a target that [`kind_for`](Self::kind_for) or its ring found, and has not
    ///    acknowledged since.
    #[inline]
    pub(crate) unsafe fn contents(&self) -> Request {
        // SAFETY: duty 1: our bit is set, so the contents were published (acquired in `kind_for`, or with the ring's entry) and are not
        // rewritten before we clear it (I6).
        unsafe { self.request.read() }
    }

    /// The kind, when the pending set names `target` and the request is to be found by its inbox. (One in its ring is found there,
    /// and by its inbox would be found twice.)
    #[inline]
    pub(crate) fn kind_for(&self, target: CpuId) -> Option<Kind> {
        // ORDERING: Acquire: a bit of an earlier request, which another CPU cleared for the whole leaf, cannot be seen after the
        // header of a later one; pairs with `publish`, which acquired the clearing.
        let header = self.header.load(Ordering::Acquire);
        if !self.pending.contains(target) {
            return None;
        }
        let kind = Kind::from_header(header);
        if kind.is_broadcast() && !self.is_outside_ring(C::group(target)) {
            return None;
        }
        let again = self.header.load(Ordering::Relaxed);
        // If another request has come between, it is announced after this.
        let is_same = (header ^ again) & !OtherSlots::MASK == 0;
        is_same.then_some(kind)
    }

    /// Whether a broadcast is found by the inboxes of `group`; a later request's word brings the header of that one along.
    #[cold]
    fn is_outside_ring(&self, group: usize) -> bool {
        let outside = self.outside_rings.as_ref().first();
        // ORDERING: Acquire: see above; pairs with `publish` and `leave_ring`.
        outside.is_some_and(|outside| outside.load(Ordering::Acquire) & 1 << group != 0)
    }

    /// The kind of the request, which names the running CPU: the ring said so, and it has not acknowledged.
    #[inline]
    pub(crate) fn kind(&self) -> Kind {
        Kind::from_header(self.header.load(Ordering::Relaxed))
    }

    /// Has the targets of `group` find a broadcast in their inboxes. Its own CPU calls this, before it
    /// writes there.
    pub(crate) fn leave_ring(&self, group: usize) {
        match self.outside_rings.as_ref().first() {
            Some(outside) => {
                let groups = outside.load(Ordering::Relaxed) | 1 << group;
                // ORDERING: as in `publish`.
                outside.store(groups, Ordering::Release);
            }
            None => {
                let header = self.header.load(Ordering::Relaxed);
                let kept = header & !u64::from(Kind::BROADCAST);
                // ORDERING: as in `note_other`.
                self.header.store(kept, Ordering::Release);
            }
        }
    }

    /// Whether the request, a broadcast or not, is to be found in the ring of `group`; for reports.
    pub(crate) fn is_in_ring_of(&self, group: usize) -> bool {
        self.kind().is_broadcast() && !self.is_outside_ring(group)
    }

    /// Clears the bit of `target`; only `target` itself calls this (I6), and only when the request was not broadcast to it.
    #[inline]
    pub(crate) fn acknowledge(&self, target: CpuId) {
        self.pending.remove(C::group(target), C::bit(target));
    }

    /// Clears the bits `targets` of `group`, which have all done it. The last of them calls this.
    pub(crate) fn acknowledge_all(&self, group: usize, targets: u64) {
        self.pending.remove(group, targets);
    }

    /// Whether request `number` of this slot is complete.
    #[inline]
    pub(crate) fn is_done(&self, number: Number) -> bool {
        self.pending.is_empty()
            // ORDERING: acquires the acknowledgements through the later request's header; pairs with `publish`.
            || Number::from_header(self.header.load(Ordering::Acquire)) != number
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::Slot;
    use crate::cpu::CpuId;

    /// What `docs/protocol.md` says of the lines that move.
    #[test]
    fn a_request_is_one_line_up_to_64_cpus() {
        assert_eq!(
            (
                size_of::<Slot<crate::Cpus<1>>>(),
                align_of::<Slot<crate::Cpus<1>>>()
            ),
            (64, 64)
        );
        assert_eq!(size_of::<Slot<crate::Cpus<64>>>(), 64);
        assert_eq!(size_of::<Slot<crate::Cpus<128>>>(), 128);
        assert_eq!(size_of::<Slot<crate::Cpus<448>>>(), 128);
        let slot = Slot::<crate::Cpus<128>>::new();
        let line = |address: usize| address / 64;
        let header = line(core::ptr::from_ref(&slot).addr());
        assert_eq!(
            [0, 127].map(|cpu| line(slot.line_of(CpuId::new(cpu)))),
            [header + 1; 2],
            "with more, acknowledgements leave the line alone that all targets read"
        );
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::{OtherSlots, Slot};
    use crate::call::{Kind, Payload, Request};
    use crate::cpu::CpuId;
    use loom::sync::Arc;

    /// A CPU that was named by a broadcast in its ring looks here because of another slot, while the next broadcast, which names its
    /// neighbour, finds the ring full: it takes neither for its own.
    #[test]
    fn a_request_that_leaves_its_ring_is_not_taken_for_the_one_before() {
        const GROUP: usize = 1;
        loom::model(|| {
            let slot = Arc::new(Slot::<crate::Cpus<5>>::new());
            let publish = |lane: u64| {
                let request = Request::data(Payload::EMPTY);
                let kind = Kind::CALL.broadcast();
                let targets = [(GROUP, 1 << lane)].into_iter();
                // SAFETY: 1. this thread is the slot's CPU, and the slot is free.
                unsafe { slot.publish(kind, request, targets, None, OtherSlots::NONE) };
            };
            publish(0);
            let looks = {
                let slot = slot.clone();
                loom::thread::spawn(move || slot.kind_for(CpuId::new(2)))
            };
            // The last of its leaf.
            slot.acknowledge_all(GROUP, 1);
            publish(1);
            slot.leave_ring(GROUP);
            let found = looks.join().unwrap();
            assert_eq!(found, None, "it is not named here, or in its ring");
            assert!(slot.kind_for(CpuId::new(3)).is_some());
        });
    }
}
