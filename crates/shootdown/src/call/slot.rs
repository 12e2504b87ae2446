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
//!
//! With one group the pending set is one word. With several, a word of its own says which groups have targets left: so one load says whether the
//! request is complete, and a request to one CPU costs the same however many CPUs the engine is built for. A group's bit is set
//! before the bits of its CPUs, and cleared by the CPU that clears the last of these.

use crate::atomic_mask::AtomicCpuMask;
use crate::call::{Kind, Number, Payload, Request};
use crate::capacity::Capacity;
use crate::cpu::CpuId;
use crate::sync::{AtomicU64, Ordering, PlainCell, const_fn};

/// One request slot.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Slot<C: Capacity> {
    /// [`Number`] in the upper 56 bits, then three bits for the [slots in use](Self::slots_in_use) (in the first slot only), then [`Kind`] in five.
    header: AtomicU64,
    request: PlainCell<Request>,
    /// The groups that find a broadcast in their inboxes, because their ring was full; where there are several groups.
    outside_rings: C::Wide,
    /// The groups that have targets left, where there are several groups.
    pending_groups: C::Wide,
    /// The targets that have still to acknowledge.
    pending: AtomicCpuMask<C>,
}

/// What [`Slot::slots_in_use`] says where only the first may hold a request.
pub(crate) const FIRST_ONLY: u64 = 1;

/// Slot `index`, which is not the first, stands in the first one's header as `1 << index << IN_USE_SHIFT`.
const IN_USE_SHIFT: u32 = 4;
/// The bits of a header that stand for slots. The first slot needs none, and its bit would be one of the [`Kind`].
const IN_USE: u64 = 0b1110 << IN_USE_SHIFT;

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
                #[cfg(not(loom))]
                pending_groups: C::WIDE_ZERO,
                #[cfg(loom)]
                pending_groups: crate::capacity::Array::of(|| AtomicU64::new(0)),
                pending: AtomicCpuMask::new(),
            }
        }
    }

    /// Counts on from this number; before the slot is used.
    #[cfg(feature = "sim")]
    pub(crate) fn begin(&self, number: Number) {
        self.header.store(number.bits(), Ordering::Relaxed);
    }

    /// The line that a target writes (in a slot for up to 64 CPUs the only one), or the initiator for it.
    pub(crate) fn line_of(&self, target: CpuId) -> usize {
        self.pending.address_of(target)
    }

    fn pending_groups(&self) -> Option<&AtomicU64> {
        self.pending_groups.as_ref().first()
    }

    /// Whether the slot's own CPU may fill it: all targets have acknowledged.
    #[inline]
    pub(crate) fn is_free(&self) -> bool {
        // ORDERING: acquires what every target did before it acknowledged; pairs with `acknowledge`.
        match self.pending_groups() {
            Some(groups) => groups.load(Ordering::Acquire) == 0,
            None => self.pending.is_empty(Ordering::Acquire),
        }
    }

    /// Fills the slot and names its targets, as one word for each group that has some; returns the request's number. The header of the first slot
    /// says which other slots are `in_use`.
    ///
    /// # Safety
    /// 1. The caller runs on the slot's CPU with interrupts off, and saw [`is_free`](Self::is_free) since.
    pub(crate) unsafe fn publish(
        &self,
        kind: Kind,
        request: Request,
        targets: impl Iterator<Item = (usize, u64)> + Clone,
        now_ns: Option<u64>,
        in_use: u64,
    ) -> Number {
        let number = self.number().next(now_ns);
        let header = number.bits() | in_use << IN_USE_SHIFT | kind.bits();
        // ORDERING: Release carries the acknowledgements that `is_free` acquired on to a waiter of the
        // previous request that sees only the new number; pairs with `is_done`.
        self.header.store(header, Ordering::Release);
        if let Some(outside) = self.outside_rings.as_ref().first() {
            // ORDERING: Release: a responder that sees this word sees the header before it; pairs with `kind_for`.
            outside.store(0, Ordering::Release);
        }
        // SAFETY: duty 1: targets read only while named in `pending`, which is empty, and nobody else writes.
        unsafe { self.request.write(request) };
        if let Some(groups) = self.pending_groups() {
            let all = targets.clone().fold(0, |all, (group, _)| all | 1 << group);
            // A target that finds its bit below sees this too, and clears its group's bit afterwards.
            // ORDERING: Release: who ends a request in place of a dead CPU sees the header before it; pairs with `end_group` and `is_done`.
            groups.store(all, Ordering::Release);
        }
        for (group, word) in targets {
            // ORDERING: publishes header and contents of the slot; pairs with `kind_for`, also for a
            // responder that looks here because of another slot's inbox bit.
            self.pending.group(group).store(word, Ordering::Release);
        }
        number
    }

    /// Says in the first slot that slot `index` holds a request. Its own CPU calls this, before it announces that request.
    pub(crate) fn note_other(&self, index: usize) {
        let header = self.header.load(Ordering::Relaxed);
        let noted = header | 1 << index << IN_USE_SHIFT;
        if noted != header {
            // ORDERING: as in `publish`: a task that waits for an earlier request here may learn of its end by this store.
            self.header.store(noted, Ordering::Release);
        }
    }

    /// Which of its CPU's slots a responder has to look at, as bits. The first slot's header says it, so that a responder, which reads that
    /// anyway, need not fetch the others' lines to find them empty; those that were announced to it are among them.
    #[inline]
    pub(crate) fn slots_in_use(&self) -> u64 {
        FIRST_ONLY | (self.header.load(Ordering::Relaxed) & IN_USE) >> IN_USE_SHIFT
    }

    /// The number of the request that was published last: for its age, and for reports.
    #[inline]
    pub(crate) fn number(&self) -> Number {
        Number::of_word(self.header.load(Ordering::Relaxed))
    }

    /// The targets of a group that have still to acknowledge, for reports.
    pub(crate) fn pending(&self, group: usize) -> u64 {
        self.pending.group(group).load(Ordering::Relaxed)
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
        // ORDERING: Acquire: what the initiator wrote before it named the target; pairs with `publish`.
        if !self.pending.contains(target, Ordering::Acquire) {
            return None;
        }
        let kind = Kind::of_header(header);
        if kind.has(Kind::BROADCAST) && !self.is_outside_ring(C::group(target)) {
            return None;
        }
        let again = self.header.load(Ordering::Relaxed);
        // If another request has come between, it is announced after this.
        let is_same = (header ^ again) & !IN_USE == 0;
        is_same.then_some(kind)
    }

    /// Whether a broadcast is found by the inboxes of `group`; a later request's word brings the header of that one along.
    #[cold]
    fn is_outside_ring(&self, group: usize) -> bool {
        let outside = self.outside_rings.as_ref().first();
        // ORDERING: Acquire: see above; pairs with `publish` and `leave_ring`.
        outside.is_some_and(|outside| outside.load(Ordering::Acquire) & 1 << group != 0)
    }

    /// `None` if no request names `named`; otherwise the kind of the one that does, or of a later one if somebody has taken the bit away meanwhile.
    pub(crate) fn kind_of(&self, named: CpuId) -> Option<Kind> {
        // ORDERING: as in `kind_for`.
        (self.pending.contains(named, Ordering::Acquire)).then(|| self.kind())
    }

    /// The kind of the request, which names the running CPU: the ring said so, and it has not acknowledged.
    #[inline]
    pub(crate) fn kind(&self) -> Kind {
        Kind::of_header(self.header.load(Ordering::Relaxed))
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
                let kept = self.header.load(Ordering::Relaxed) & !Kind::BROADCAST.bits();
                // ORDERING: as in `note_other`.
                self.header.store(kept, Ordering::Release);
            }
        }
    }

    /// Whether the request, a broadcast or not, is to be found in the ring of `group`; for reports.
    pub(crate) fn is_in_ring_of(&self, group: usize) -> bool {
        self.kind().has(Kind::BROADCAST) && !self.is_outside_ring(group)
    }

    /// Clears the bits `targets` of a group; only these CPUs do (I6), each its own, or the last of their leaf for all of them.
    #[inline]
    pub(crate) fn acknowledge(&self, group: usize, targets: u64) {
        let word = self.pending.group(group);
        // ORDERING: Release publishes what the targets did (and that their copies are complete), Acquire what the others of the
        // group did, for the group's bit; pairs with `is_free`. As a locked operation it also orders an early
        // acknowledgement before the flush that follows (T1).
        let before = word.fetch_and(!targets, Ordering::AcqRel);
        if before & !targets != 0 {
            return;
        }
        self.end_groups(1 << group);
    }

    /// Nobody in these groups is left.
    #[inline]
    fn end_groups(&self, ended: u64) {
        if let Some(groups) = self.pending_groups() {
            // ORDERING: Release: as in `acknowledge`, for whole groups; pairs with `is_free`.
            groups.fetch_and(!ended, Ordering::Release);
        }
    }

    /// As [`acknowledge`](Self::acknowledge), in place of one that has stopped for good, and whose bit `dead` is one of `targets`: only as long as that is there, because
    /// then it is still the request that named it.
    pub(crate) fn acknowledge_for(&self, group: usize, targets: u64, dead: u64) {
        let word = self.pending.group(group);
        let mut seen = word.load(Ordering::Relaxed);
        while seen & dead != 0 {
            let left = seen & !targets;
            // ORDERING: as in `acknowledge`.
            match word.compare_exchange(seen, left, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) if left == 0 => return self.end_groups(1 << group),
                Ok(_) => return,
                Err(newer) => seen = newer,
            }
        }
    }

    /// Ends request `number` for a group of which nobody is left, if it still waits for that: who cleared the last bit has died. No other CPU does the same.
    pub(crate) fn end_group(&self, group: usize, number: Number) {
        // ORDERING: Acquire: the header is read after it; pairs with `publish`.
        let waits = (self.pending_groups())
            .is_some_and(|all| all.load(Ordering::Acquire) >> group & 1 != 0);
        // It is the same request until we end it.
        if waits && self.pending(group) == 0 && self.number() == number {
            self.end_groups(1 << group);
        }
    }

    /// Whether request `number` of this slot is complete.
    #[inline]
    pub(crate) fn is_done(&self, number: Number) -> bool {
        self.is_free()
            // ORDERING: acquires the acknowledgements through the later request's header; pairs with `publish`.
            || Number::of_word(self.header.load(Ordering::Acquire)) != number
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
    use super::Slot;
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
                let kind = Kind::BROADCAST;
                let targets = [(GROUP, 1 << lane)].into_iter();
                // SAFETY: 1. this thread is the slot's CPU, and the slot is free.
                unsafe { slot.publish(kind, request, targets, None, 0) };
            };
            publish(0);
            let looks = {
                let slot = slot.clone();
                loom::thread::spawn(move || slot.kind_for(CpuId::new(2)))
            };
            // The last of its leaf.
            slot.acknowledge(GROUP, 1);
            publish(1);
            slot.leave_ring(GROUP);
            let found = looks.join().unwrap();
            assert_eq!(found, None, "it is not named here, or in its ring");
            assert!(slot.kind_for(CpuId::new(3)).is_some());
        });
    }
}
