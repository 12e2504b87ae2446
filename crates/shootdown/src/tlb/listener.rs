//! [`Listener`]: who is told of the flushes of one scope, and who is telling it something.

use crate::guard::no_unwind;
use crate::sync::{AtomicU64, Ordering, const_fn, fence};

/// Who listens to the flushes of one scope.
#[derive(Debug)]
pub(crate) struct Listener {
    /// [`LISTENS`](Self::LISTENS), [`CLAIMED`](Self::CLAIMED), and how many are telling it something that have not said so by a word.
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
        // ORDERING: Acquire: who listens has said by what name, and what it did before; where nobody does any more, what read the tables has done so. Pairs with `begin` and `end`.
        self.state.load(Ordering::Acquire) & Self::LISTENS != 0
    }

    /// Whether it may be told something; until the result is dropped it does not go. Where nobody listens the state stays as it is: the next one need not wait to
    /// [`begin`](Self::begin). Who says so by a word of its CPU's, with interrupts off, leaves nothing behind that others wait for if that CPU dies.
    pub(super) fn enter<'a>(&'a self, by: Option<&'a AtomicU64>) -> Option<Telling<'a>> {
        let free = |word: &&AtomicU64| word.load(Ordering::Relaxed) == 0;
        let Some(word) = by.filter(free) else {
            return self.enter_counted();
        };
        word.store(self.address(), Ordering::Relaxed);
        let telling = Telling {
            listener: self,
            by: Some(word),
        };
        // ORDERING: store word / read state, against end / read words in `unlisten`.
        fence(Ordering::SeqCst);
        self.listens().then_some(telling)
    }

    fn address(&self) -> u64 {
        core::ptr::from_ref(self).addr() as u64
    }

    fn enter_counted(&self) -> Option<Telling<'_>> {
        // ORDERING: Acquire: as in `listens`.
        let mut seen = self.state.load(Ordering::Acquire);
        while seen & Self::LISTENS != 0 {
            // ORDERING: Acquire sees the name, and what the host did before it began to listen; pairs with `begin`.
            let entered =
                (self.state).compare_exchange(seen, seen + 1, Ordering::Acquire, Ordering::Acquire);
            match entered {
                Ok(_) => {
                    return Some(Telling {
                        listener: self,
                        by: None,
                    });
                }
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
        // ORDERING: see `enter`.
        fence(Ordering::SeqCst);
    }

    /// Whether a CPU with this word is telling it something.
    pub(super) fn is_told_by(&self, word: &AtomicU64) -> bool {
        // ORDERING: Acquire: as in `is_told_nothing`.
        word.load(Ordering::Acquire) == self.address()
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
pub(super) struct Telling<'a> {
    listener: &'a Listener,
    /// The word that says so; none if it is counted.
    by: Option<&'a AtomicU64>,
}

impl Telling<'_> {
    pub(super) fn name(&self) -> u64 {
        self.listener.name.load(Ordering::Relaxed)
    }
}

impl Drop for Telling<'_> {
    fn drop(&mut self) {
        match self.by {
            // ORDERING: Release: what was told comes before; pairs with `is_told_by`.
            Some(word) => word.store(0, Ordering::Release),
            // ORDERING: as above; pairs with `is_told_nothing` and `begin`.
            None => _ = self.listener.state.fetch_sub(1, Ordering::Release),
        }
    }
}
