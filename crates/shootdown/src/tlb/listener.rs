//! [`Listener`]: who is told of the flushes of one scope, and who is telling it something.

use crate::guard::no_unwind;
use crate::sync::{AtomicU64, Ordering, const_fn, fence};

/// Who listens to the flushes of one scope.
#[derive(Debug)]
pub(crate) struct Listener {
    /// [`LISTENS`](Self::LISTENS), [`CLAIMED`](Self::CLAIMED), and how many initiators are telling it something.
    state: AtomicU64,
    /// What the host knows it by.
    name: AtomicU64,
}

impl Listener {
    const LISTENS: u64 = 1 << 63;
    /// Its name is being written.
    const CLAIMED: u64 = 1 << 62;

    const_fn! {
        pub(crate) fn new() -> Self {
            Self {
                state: AtomicU64::new(0),
                name: AtomicU64::new(0),
            }
        }
    }

    /// After the barrier of I1.
    #[inline]
    pub(super) fn listens(&self) -> bool {
        // ORDERING: Acquire: where nobody does any more, what read the tables has done so; pairs with `end`.
        self.state.load(Ordering::Acquire) & Self::LISTENS != 0
    }

    /// Whether it may be told something; until the result is dropped it does not go. Where nobody listens the state stays as it is: the next one need not wait to
    /// [`begin`](Self::begin).
    pub(super) fn enter(&self) -> Option<Telling<'_>> {
        // ORDERING: Acquire: as in `listens`.
        let mut seen = self.state.load(Ordering::Acquire);
        while seen & Self::LISTENS != 0 {
            // ORDERING: Acquire sees the name, and what the host did before it began to listen; pairs with `begin`.
            let entered =
                (self.state).compare_exchange(seen, seen + 1, Ordering::Acquire, Ordering::Acquire);
            match entered {
                Ok(_) => return Some(Telling(self)),
                Err(newer) => seen = newer,
            }
        }
        None
    }

    /// Whether `name` listens from here on: not where somebody does.
    pub(super) fn begin(&self, name: u64) -> bool {
        // ORDERING: Acquire: the one before has gone (`end`).
        let claimed =
            (self.state).compare_exchange(0, Self::CLAIMED, Ordering::Acquire, Ordering::Relaxed);
        if claimed.is_err() {
            return false;
        }
        self.name.store(name, Ordering::Relaxed);
        // ORDERING: Release publishes the name; pairs with `enter`.
        (self.state).fetch_add(Self::LISTENS - Self::CLAIMED, Ordering::Release);
        // ORDERING: store state / read entries, against PTE change / read state in `submit_flush` and `Reclaim::add`.
        fence(Ordering::SeqCst);
        true
    }

    /// Nobody begins to tell it anything any more.
    pub(super) fn end(&self) {
        // ORDERING: Release: who was listening has read the tables for the last time; pairs with `listens`.
        self.state.fetch_and(!Self::LISTENS, Ordering::Release);
    }

    /// Whether those that were telling it something have.
    pub(super) fn is_told_nothing(&self) -> bool {
        // ORDERING: Acquire: those that were telling it something have; pairs with the drop of `Telling`.
        self.state.load(Ordering::Acquire) & !(Self::LISTENS | Self::CLAIMED) == 0
    }

    /// The tables are about to go.
    ///
    /// # Panics
    /// Where somebody listens. It does not unwind.
    #[inline]
    pub(super) fn must_be_gone(&self) {
        if self.listens() {
            no_unwind(
                "page tables that somebody listens to are not dropped",
                || {
                    panic!(
                        "a space or guest was dropped while somebody listens (SecondaryTlbs::release first)"
                    )
                },
            );
        }
    }
}

/// An initiator is telling it something.
pub(super) struct Telling<'a>(&'a Listener);

impl Telling<'_> {
    pub(super) fn name(&self) -> u64 {
        self.0.name.load(Ordering::Relaxed)
    }
}

impl Drop for Telling<'_> {
    fn drop(&mut self) {
        // ORDERING: Release: what was told comes before; pairs with `is_told_nothing` and `begin`.
        self.0.state.fetch_sub(1, Ordering::Release);
    }
}
