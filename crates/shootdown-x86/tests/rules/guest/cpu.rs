//! What a hypervisor remembers of a CPU's tags, as `Slots` of the engine.

use shootdown_x86::guest::{GuestEntries, GuestTags};

use super::hypervisor::Kind;

/// Slots that the hypervisor gives a CPU, if there are as many: fewer than virtual CPUs.
const MOST_SLOTS: usize = 3;

/// The age of what a tag holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Age {
    pub generation: u64,
    pub moves: u64,
}

#[derive(Debug)]
pub struct Cpu<T> {
    pub tags: T,
    /// Whose tag it is, and how old.
    slots: Vec<Option<(usize, Age)>>,
    turn: usize,
    /// Since everything was dropped.
    pub drops: usize,
    /// Since a guest ran.
    pub drops_in_vain: usize,
}

impl<T: GuestTags> Cpu<T> {
    pub fn new<'a, K: Kind<Tags<'a> = T>>(processor: &'a K::Processor) -> Self
    where
        K::Processor: 'a,
    {
        let tags = K::tags(processor);
        let slots = vec![None; tags.slots().min(MOST_SLOTS)];
        Self {
            tags,
            slots,
            turn: 0,
            // Nobody knows how many came before.
            drops: usize::MAX,
            drops_in_vain: 0,
        }
    }

    /// A tag, and what is to be dropped. As in `Slots::choose` of the engine.
    pub fn choose(&mut self, vcpu: usize, age: Age, is_fine: bool) -> (u16, GuestEntries) {
        if self.slots.is_empty() {
            return (0, GuestEntries::Drop);
        }
        let is_its = |slot: &Option<(usize, Age)>| slot.is_some_and(|(name, _)| name == vcpu);
        let Some(found) = self.slots.iter().position(is_its) else {
            self.turn = (self.turn + 1) % self.slots.len();
            self.slots[self.turn] = None;
            return (self.turn as u16 + 1, GuestEntries::Drop);
        };
        let held = self.slots[found].map(|(_, age)| age);
        let entries = match held {
            Some(held) if held == age => GuestEntries::Keep,
            Some(held) if is_fine && held.generation == age.generation => GuestEntries::DropLinear,
            _ => GuestEntries::Drop,
        };
        (found as u16 + 1, entries)
    }

    pub fn leave(&mut self, tag: u16, vcpu: usize, age: Age) {
        if let Some(slot) = usize::from(tag).checked_sub(1) {
            self.slots[slot] = Some((vcpu, age));
        }
    }
}
