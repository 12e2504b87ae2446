//! [`CallData`]: calls whose data the caller owns (Linux: `call_single_data_t`).
//!
//! A request slot is the CPU's, and there are few. What must be posted in any number, and under any lock, brings memory of its own:
//! it is pushed onto a list of its target, with one exchange, and nobody waits. A responder takes the whole list with another one,
//! and runs it in the order in which it came; what it has taken stays in memory ([`TakenLinks`]).
//!
//! I7: the CPU that pushes onto an empty list sends the interrupt; a list that is not empty has one on its way.

use core::fmt;
use core::ptr::NonNull;

use crate::call::{Payload, Request, SLOTS};
use crate::cpu::CpuId;
use crate::sync::{AtomicU64, Ordering, PlainCell, array_of, const_fn};

/// A function in memory of its caller's, which can be [posted](crate::Shootdown::post_data) to one CPU at a time.
#[repr(C)]
pub struct CallData<F> {
    /// At the start, so that its address is that of the whole.
    pub(super) link: Link,
    /// What the link runs.
    pub(super) function: F,
}

/// What a list of posted functions is made of.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Link {
    /// 0 when it is on no list; else [which CPU](CpuId::as_mark) has posted it, or is about to, or has [taken](taken_by) it and not begun it.
    pub(super) mark: AtomicU64,
    /// The one that was posted before it, or 0.
    pub(super) next: PlainCell<u64>,
    /// Runs the [`CallData`] that this is a part of; none for a CPU's own post, so that its memory is zero at the start.
    pub(super) run: Option<unsafe fn(NonNull<Link>, CpuId)>,
}

impl Link {
    const_fn! {
        /// One that is on no list.
        pub(super) fn new(run: Option<unsafe fn(NonNull<Self>, CpuId)>) -> Self {
            Self { mark: AtomicU64::new(0), next: PlainCell::new(0), run }
        }
    }
}

impl<F> fmt::Debug for CallData<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallData")
            .field("is_posted", &self.is_posted())
            .finish_non_exhaustive()
    }
}

impl<F> CallData<F> {
    /// Whether it waits for its CPU; a hint, as it may begin to run meanwhile. Any context; does not block.
    pub fn is_posted(&self) -> bool {
        self.mark() != 0
    }

    /// See [`Link::mark`].
    pub(crate) fn mark(&self) -> u64 {
        self.link.mark.load(Ordering::Relaxed)
    }
}

impl<F: Fn(CpuId) + Sync> CallData<F> {
    const_fn! {
        /// A function that is posted nowhere.
        pub fn new(function: F) -> Self {
            /// # Safety
            /// 1. The link is that of a `CallData<F>` that lives for ever.
            unsafe fn run<F: Fn(CpuId)>(link: NonNull<Link>, cpu: CpuId) {
                // SAFETY: duty 1, and `link` is its first field.
                let data = unsafe { link.cast::<CallData<F>>().as_ref() };
                (data.function)(cpu);
            }
            Self { link: Link::new(Some(run::<F>)), function }
        }
    }
}

/// The functions that a CPU posts to itself: places for as many as it has slots for functions.
///
/// No CPU is a target of its own requests. A copy of the function lies here, in memory of the CPU's, and runs as call data do: in the next
/// interrupt, or where a task waits for functions (I14), after what was posted before.
#[derive(Debug)]
pub(crate) struct OwnPosts([OwnPost; SLOTS - 1]);

/// One of them.
pub(super) type OwnPost = CallData<PlainCell<Request>>;

/// What a CPU has posted to itself. A copy: the function may post to this CPU again.
///
/// # Safety
/// 1. The link is that of an [`OwnPost`] of this CPU, which holds interrupts off.
pub(super) unsafe fn own_request(link: NonNull<Link>) -> Request {
    // SAFETY: duty 1, and it is the first field.
    let post = unsafe { link.cast::<OwnPost>().as_ref() };
    // SAFETY: 1. only this CPU writes there, where it posts.
    unsafe { post.function.read() }
}

impl OwnPosts {
    const_fn! {
        pub(crate) fn new() -> Self {
            const EMPTY: Request = Request::data(Payload::EMPTY);
            Self(array_of!(CallData { link: Link::new(None), function: PlainCell::new(EMPTY) }; SLOTS - 1))
        }
    }

    /// Their CPU has stopped for good, and they are on no list.
    pub(crate) fn give_back(&self) {
        self.0
            .iter()
            .for_each(|post| post.link.mark.store(0, Ordering::Relaxed));
    }

    /// Takes one that is free for `me`, whose they are. Interrupts are off.
    pub(super) fn claim(&self, me: CpuId) -> Option<&OwnPost> {
        let free = self.0.iter().find(|post| !post.is_posted())?;
        free.link.mark.store(me.as_mark(), Ordering::Relaxed);
        Some(free)
    }
}

/// The one that pushed last may not have sent an interrupt: whoever pushes next sends one. A list's own CPU, which the platform may refuse one for long, or one that defers to a
/// [quiet](crate::control::CpuControl::enter_quiet) CPU.
const UNSENT: u64 = 1;

/// The functions that were posted to one CPU.
#[derive(Debug)]
pub(crate) struct PostedList(AtomicU64);

impl PostedList {
    const_fn! {
        pub(crate) fn new() -> Self {
            Self(AtomicU64::new(0))
        }
    }

    /// Whether there is none; a hint.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }

    /// Whether what is on it waits for an interrupt that nobody has sent; a hint, but on its own CPU. After a barrier.
    #[inline]
    pub(crate) fn is_unsent(&self) -> bool {
        self.0.load(Ordering::Relaxed) & UNSENT != 0
    }

    /// Adds a link; true if an interrupt is to be sent, which the caller may not do if it `is_unsent`.
    ///
    /// # Safety
    /// 1. It is on no list, and lives as long as the list; the pointer leads to the whole that it is a part of.
    pub(super) unsafe fn push(&self, link: NonNull<Link>, is_unsent: bool) -> bool {
        let link_address = address(Some(link));
        // SAFETY: duty 1.
        let cell = unsafe { &link.as_ref().next };
        let mut first = self.0.load(Ordering::Relaxed);
        loop {
            // SAFETY: 1. they are on no list, so no other CPU reads the link.
            unsafe { cell.write(first & !UNSENT) };
            let sends = first == 0 || first & UNSENT != 0;
            let unsent = if is_unsent && sends { UNSENT } else { 0 };
            // ORDERING: Release publishes the link and what its caller wrote; pairs with `take`. The others keep the chain.
            let pushed = self.0.compare_exchange(
                first,
                link_address | unsent,
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
            match pushed {
                Ok(_) => return sends,
                Err(other) => first = other,
            }
        }
    }

    /// The platform has accepted the interrupt for what its own CPU pushed last. On that CPU.
    pub(crate) fn note_sent(&self) {
        // Relaxed: nothing is published. An exchange, so that `take` still pairs with the `push` before it.
        self.0.fetch_and(!UNSENT, Ordering::Relaxed);
    }

    /// Whether the link at `address` is on it; while nobody changes it.
    #[cfg(feature = "sim")]
    pub(crate) fn has(&self, address: usize) -> bool {
        is_chained(self.0.load(Ordering::Relaxed) & !UNSENT, address)
    }

    /// `cpu`, whose list and links these are, has stopped for good: what was posted to it, and what it has taken and not begun, is posted no more. Returns how many they
    /// are. Nobody posts to it meanwhile.
    pub(crate) fn take_back(&self, taken: &TakenLinks, cpu: CpuId) -> usize {
        // ORDERING: Acquire sees the links; pairs with `push`.
        let listed = self.0.swap(0, Ordering::AcqRel) & !UNSENT;
        // ORDERING: Acquire, as for all words of `taken`: see `take`.
        let [newest, in_hand, oldest] =
            [&taken.newest, &taken.in_hand, &taken.oldest].map(|word| word.load(Ordering::Acquire));
        // Before the exchange that takes a list, it is on both.
        let is_listed = is_chained(listed, newest as usize);
        let is_taken = |link: &NonNull<Link>| {
            // SAFETY: links live for ever.
            let cell = unsafe { link.as_ref() };
            // ORDERING: Acquire: see `take`.
            cell.mark.load(Ordering::Acquire) == taken_by(cpu)
        };
        let mut count = 0;
        let mut free = |link: NonNull<Link>| {
            // SAFETY: links live for ever.
            let cell = unsafe { link.as_ref() };
            // ORDERING: Release: we have read the link; pairs with `post_data`.
            cell.mark.store(0, Ordering::Release);
            count += 1;
        };
        chain(listed).for_each(&mut free);
        (!is_listed).then(|| chain(newest).for_each(&mut free));
        chain(oldest).filter(is_taken).for_each(&mut free);
        pointer(in_hand)
            .filter(is_taken)
            .into_iter()
            .for_each(&mut free);
        for word in [&taken.newest, &taken.in_hand, &taken.oldest] {
            word.store(0, Ordering::Relaxed);
        }
        count
    }

    /// Takes all, the oldest first. `taken` is its own CPU's, `me`, and has it all the time. As many turns as are pushed meanwhile: nothing is pushed twice
    /// before it is taken.
    pub(super) fn take(&self, me: CpuId, taken: &TakenLinks) -> Option<NonNull<Link>> {
        let mut first = self.0.load(Ordering::Relaxed);
        loop {
            if first == 0 {
                return None;
            }
            // ORDERING: Release, as for all words of `taken`: whoever completes what this CPU has begun sees them in this order.
            taken.newest.store(first & !UNSENT, Ordering::Release);
            // ORDERING: Acquire sees the links; pairs with `push`.
            match (self.0).compare_exchange(first, 0, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => break,
                Err(other) => first = other,
            }
        }
        let (mut newest, mut oldest) = (pointer(first & !UNSENT), None);
        while let Some(link) = newest {
            // SAFETY: links live for ever.
            let cell = unsafe { link.as_ref() };
            taken.in_hand.store(address(Some(link)), Ordering::Release);
            // ORDERING: Release: who sees it sees that it is in hand.
            cell.mark.store(taken_by(me), Ordering::Release);
            // SAFETY: 1. what is on a list is nobody else's.
            newest = pointer(unsafe { cell.next.read() });
            taken.newest.store(address(newest), Ordering::Release);
            // SAFETY: 1. as above.
            unsafe { cell.next.write(address(oldest)) };
            oldest = Some(link);
            taken.oldest.store(address(oldest), Ordering::Release);
        }
        oldest
    }
}

/// What a CPU has taken off its list, which is nowhere else: in its memory, not in registers, because it may stop for good between any two steps, and what
/// others have posted must be found then.
#[derive(Debug)]
pub(crate) struct TakenLinks {
    /// Those that are still in the list's order, the newest first.
    newest: AtomicU64,
    /// The one that changes from one order to the other, or is begun; an old one if its mark is not this CPU's.
    in_hand: AtomicU64,
    /// The others, the oldest first.
    oldest: AtomicU64,
}

impl TakenLinks {
    const_fn! {
        pub(crate) fn new() -> Self {
            Self {
                newest: AtomicU64::new(0),
                in_hand: AtomicU64::new(0),
                oldest: AtomicU64::new(0),
            }
        }
    }

    /// `link` is about to be begun, and `next` follows it.
    pub(super) fn begin(&self, link: NonNull<Link>, next: Option<NonNull<Link>>) {
        // ORDERING: as in `take`.
        self.in_hand.store(address(Some(link)), Ordering::Release);
        self.oldest.store(address(next), Ordering::Release);
    }

    /// Whether the link at `address`, which has this mark, is among those of `cpu`; while nobody changes them.
    #[cfg(feature = "sim")]
    pub(crate) fn have(&self, address: usize, mark: u64, cpu: CpuId) -> bool {
        let [newest, oldest, in_hand] =
            [&self.newest, &self.oldest, &self.in_hand].map(|word| word.load(Ordering::Relaxed));
        in_hand == address as u64 && mark == taken_by(cpu)
            || is_chained(newest, address)
            || is_chained(oldest, address)
    }
}

/// `first` and the links that follow it, while nobody else changes them. A link is not read any more when it has been returned.
fn chain(first: u64) -> impl Iterator<Item = NonNull<Link>> {
    core::iter::successors(pointer(first), |link| {
        // SAFETY: links live for ever.
        let cell = unsafe { &link.as_ref().next };
        // SAFETY: 1. nobody changes the list.
        pointer(unsafe { cell.read() })
    })
}

/// Whether the link at `address` is `first` or follows it.
fn is_chained(first: u64, address: usize) -> bool {
    chain(first).any(|link| link.addr().get() == address)
}

/// The mark of what `cpu` has taken off its list.
fn taken_by(cpu: CpuId) -> u64 {
    cpu.as_mark() | 1 << 32
}

pub(super) fn pointer(address: u64) -> Option<NonNull<Link>> {
    NonNull::new(core::ptr::with_exposed_provenance_mut(address as usize))
}

fn address(link: Option<NonNull<Link>>) -> u64 {
    link.map_or(0, |link| link.as_ptr().expose_provenance() as u64)
}
