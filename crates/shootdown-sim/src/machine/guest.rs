//! What a CPU needs to run guests.

use shootdown::tags::AsidSlot;

use crate::machine::{Context, Model, State};

impl<'a> Context<'a> {
    /// What a virtual CPU remembers of its tags for guests.
    pub(crate) fn guest_slots(self, cpu: usize) -> &'a [AsidSlot] {
        &self.machine().guest_slots[cpu]
    }

    /// Whether an interrupt ends the guest that this CPU runs, with interrupts off: it stays pending. In exploration, which may have it come
    /// late.
    pub(crate) fn interrupt_ends_guest(self) -> bool {
        self.with(State::interrupt_has_come)
    }
}

impl State {
    /// Whether an interrupt has come to the running CPU, which takes it or not.
    fn interrupt_has_come(&mut self) -> bool {
        let now_ps = self.me().now_ps;
        let pending = &mut self.processors[self.running].pending;
        match (pending, &mut self.model) {
            (Some(pending), Model::Explore(explore)) => explore.interrupt_arrives(pending),
            (Some(pending), Model::Timed(_)) => pending.arrival_ps <= now_ps,
            _ => false,
        }
    }
}
