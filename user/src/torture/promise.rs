//! The two words in which a slot publishes what it promises.

use std::sync::atomic::{AtomicU64, Ordering};

use super::state::State;

/// What a slot publishes; two words that the assembly loads in this order.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct Promise {
    /// A [`State`].
    state: AtomicU64,
    /// The version below which contents are gone.
    floor: AtomicU64,
}

impl Promise {
    /// A promise of `state`, with no content yet.
    pub fn new(state: State) -> Self {
        Self {
            state: AtomicU64::new(state.to_bits()),
            floor: AtomicU64::new(0),
        }
    }

    /// The state now.
    pub fn state(&self) -> State {
        // ORDERING: keeps what follows after this look; pairs with `set_state`.
        State::from_bits(self.state.load(Ordering::Acquire))
    }

    /// Publishes `state`.
    pub fn set_state(&self, state: State) {
        // ORDERING: SeqCst, so that the state is visible before the system call or the store that
        // follows begins; pairs with the probes' loads, which x86 keeps in order.
        self.state.store(state.to_bits(), Ordering::SeqCst);
    }

    /// Publishes that contents older than `version` are gone.
    pub fn raise_floor(&self, version: u32) {
        // ORDERING: after the change is done, before its end is published; pairs as above.
        self.floor.store(u64::from(version), Ordering::SeqCst);
    }
}
