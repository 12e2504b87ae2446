//! What a slot carries: [`Request`] with its [`Payload`], and its [`Kind`]. Which request it is: [`RequestRef`] for its initiator, [`Found`] for a
//! responder.

use core::mem::MaybeUninit;

use crate::call::{Number, Ticket};
use crate::cpu::CpuId;
use crate::sync::OwnWord;

/// Slots per CPU. Several, so that a task that waits preemptibly never blocks the next caller on its CPU; the
/// last is kept for flushes, so that a flush finds one even when functions occupy all others.
/// Two keep the models small: one for functions, one for flushes.
pub(crate) const SLOTS: usize = if cfg!(loom) { 2 } else { 4 };

/// What fits into a request without a pointer: a 64-byte line less the header, the function and the pending
/// set of up to 64 CPUs.
pub const PAYLOAD_BYTES: usize = 40;

/// Uninterpreted bytes of some `Copy` value.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
pub(crate) struct Payload([MaybeUninit<u8>; PAYLOAD_BYTES]);

impl Payload {
    pub(crate) const EMPTY: Self = Self([MaybeUninit::uninit(); PAYLOAD_BYTES]);

    /// Stores `value`; too large or too strictly aligned a type does not compile.
    pub(crate) fn of<T: Copy>(value: T) -> Self {
        const {
            assert!(
                size_of::<T>() <= PAYLOAD_BYTES,
                "at most 40 bytes travel inline: capture less"
            );
            assert!(
                align_of::<T>() <= 8,
                "inline payloads are aligned to 8 bytes"
            );
        }
        let mut payload = Self::EMPTY;
        let bytes: *mut T = payload.0.as_mut_ptr().cast();
        // SAFETY: the assertions above make the array large enough and aligned for a T.
        unsafe { bytes.write(value) };
        payload
    }

    /// Copies the value out.
    ///
    /// # Safety
    /// 1. This payload (or a copy of it) came from [`of`](Self::of) with the same `T`.
    /// 2. `T` may be used on this thread.
    pub(crate) unsafe fn get<T: Copy>(&self) -> T {
        let bytes: *const T = self.0.as_ptr().cast();
        // SAFETY: duty 1 makes the bytes a valid, aligned T.
        unsafe { bytes.read() }
    }
}

/// Runs what a payload holds on a CPU; without a payload it runs nothing. Returns the name of what it runs, for
/// reports: a slot's line has no room for it.
pub(crate) type Run = unsafe fn(Option<&Payload>, CpuId) -> &'static str;

/// What to run, and its argument bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// Called with a copy of `payload` on the target; none for flushes, which the responder interprets.
    pub(crate) run: Option<Run>,
    pub(crate) payload: Payload,
}

impl Request {
    /// A function and its argument.
    pub(crate) const fn call(run: Run, payload: Payload) -> Self {
        Self {
            run: Some(run),
            payload,
        }
    }

    /// A request whose kind needs no function.
    pub(crate) const fn data(payload: Payload) -> Self {
        Self { run: None, payload }
    }
}

/// How a request is carried out and acknowledged: bits of its slot's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Kind(u64);

impl Kind {
    /// Run the function, then acknowledge.
    pub(crate) const CALL: Self = Self(0);
    /// Drop translations as the payload says, then acknowledge.
    pub(crate) const FLUSH: Self = Self(1);
    /// Of a flush: the description lies beside the slot, not in it.
    pub(crate) const INDIRECT: Self = Self(2);
    /// Of a function: it may be given up; whether it was stands [beside the slot](crate::call::Beside).
    pub(crate) const REVOCABLE: Self = Self::INDIRECT;
    /// Acknowledge once the contents are copied, then do the work.
    pub(crate) const ACK_FIRST: Self = Self(4);
    /// Announced in rings, but for groups whose ring was full.
    pub(crate) const BROADCAST: Self = Self(8);
    /// Names one CPU.
    pub(crate) const TO_ONE: Self = Self(16);

    pub(crate) const fn of_header(header: u64) -> Self {
        Self(header & 0x1f)
    }

    /// As in a header.
    pub(crate) const fn bits(self) -> u64 {
        self.0
    }

    /// The same, and `other` as well.
    pub(crate) const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether it is a function that may be given up.
    pub(crate) const fn is_revocable(self) -> bool {
        self.0 & (Self::FLUSH.0 | Self::REVOCABLE.0) == Self::REVOCABLE.0
    }

    /// Whether it has a bit of `other`.
    pub(crate) const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// Names one request: whose slot, which, and the number it had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RequestRef {
    pub(crate) initiator: CpuId,
    pub(crate) slot: usize,
    pub(crate) number: Number,
}

/// A request that a responder has found: in which slot of whom, of which kind, and if in the ring, under which ticket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) initiator: CpuId,
    pub(crate) slot: usize,
    pub(crate) kind: Kind,
    pub(super) ticket: Option<Ticket>,
}

/// What a CPU has acknowledged or given up last, or is about to: if it dies between two steps, others know of which.
#[derive(Debug)]
pub(crate) struct LastAnswer {
    place: OwnWord,
    number: OwnWord,
}

/// An end of a request, in whole or in part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    pub(crate) request: RequestRef,
    /// Whose bits are taken away: the CPU's own, or that of one that has died.
    pub(crate) group: usize,
    pub(crate) is_given_up: bool,
}

impl LastAnswer {
    pub(crate) const fn new() -> Self {
        Self {
            place: OwnWord::new(),
            number: OwnWord::new(),
        }
    }

    /// The acknowledgement, which releases, or the exchange by which the request is given up, follows. Interrupts are off.
    #[inline]
    pub(crate) fn set(&self, answer: Answer) {
        let Answer { request, group, .. } = answer;
        self.place
            .set((request.initiator.index() * SLOTS + request.slot) as u64);
        // A number leaves room below.
        self.number
            .set(request.number.bits() | (group as u64) << 1 | u64::from(answer.is_given_up));
    }

    pub(crate) fn get(&self) -> Answer {
        let (place, number) = (self.place.get() as usize, self.number.get());
        Answer {
            request: RequestRef {
                initiator: CpuId::from_index(place / SLOTS),
                slot: place % SLOTS,
                number: Number::of_word(number),
            },
            group: (number >> 1) as usize % u64::BITS as usize,
            is_given_up: number & 1 != 0,
        }
    }
}
