//! Calls that are given up, before their targets come, as they come, and when they have been there: each ran once, or was given up and never runs.

use std::mem;

use shootdown::{Capacity, CpuId, CpuMask, calls::CallTicket};

use crate::kernel::calls::Unshared;
use crate::kernel::sightings::Sight;
use crate::kernel::theme::Draw;
use crate::kernel::{World, calls};
use crate::machine::{FailureKind, SimPlatform, context};

/// Calls of one task that are under way at once, at most: more than a CPU has slots.
const MOST_HELD: usize = 5;
/// Events between two of them, at most.
const LONGEST_DELAY: usize = 12;
/// Events of a function, at most: some are slow.
const LONGEST_FUNCTION: usize = 24;

/// A call that was sent: its ticket and its serial number.
type Sent<'a, C> = (CallTicket<'a, SimPlatform<C>>, u64);

impl<C: Capacity> World<C> {
    pub(super) fn give_up_calls(&self, draw: &mut Draw) {
        if draw.once_in(6) {
            return self.give_up_inside_functions(draw);
        }
        let favourite = self.numbers[draw.favourite(self.numbers.len())];
        let off = draw.once_in(4);
        let mut held = Vec::new();
        for _ in 0..=draw.below(MOST_HELD) {
            let target = match draw.once_in(3) {
                true => draw.one_of(&self.numbers),
                false => favourite,
            };
            let events = draw.below(LONGEST_FUNCTION) * usize::from(draw.once_in(3));
            held.extend(self.with_interrupts(off, || self.try_submit(target, events)));
            self.rest_awhile_at_most(draw, LONGEST_DELAY);
            if draw.once_in(3) {
                // Its slot is another request's, and its neighbours may be waiting for their turn.
                self.try_post(&CpuMask::only(favourite));
            }
            if draw.random.bool() && !held.is_empty() {
                let sent = held.swap_remove(draw.below(held.len()));
                self.give_up(sent, !draw.once_in(4));
            }
        }
        while !held.is_empty() {
            let sent = held.swap_remove(draw.below(held.len()));
            self.give_up(sent, draw.random.bool());
        }
    }

    fn try_submit(&self, target: CpuId, events: usize) -> Option<Sent<'_, C>> {
        let (serial, function) = self.posted_function();
        let function = move |cpu: CpuId| {
            (0..events).for_each(|_| context().work(1));
            function(cpu);
        };
        let ticket = self.engine.control().try_submit(target, function).ok()?;
        Some((ticket, serial))
    }

    /// Gives a call up, or waits for it if it has begun.
    fn give_up(&self, (ticket, serial): Sent<'_, C>, gives_up: bool) {
        let targets = ticket.targets();
        let left = match gives_up {
            true => ticket.give_up().err(),
            false => Some(ticket),
        };
        let Some(ticket) = left else {
            return self.has_given_up(serial);
        };
        if gives_up {
            self.hardware.saw(Sight::BegunBefore);
        }
        let targets = self.note_sent(serial, &targets);
        if let Some(ticket) = self.forget(ticket, &[]) {
            ticket.wait();
            self.check_posted(serial, &targets, FailureKind::EarlyReturn);
        }
    }

    fn has_given_up(&self, serial: u64) {
        self.hardware.saw(Sight::GivenUp);
        self.note_sent(serial, &CpuMask::EMPTY);
        let runs = calls::runs_of(serial);
        if !runs.is_empty() {
            let message = format!("call {serial} was given up and has run on {runs:?}");
            context().fail(FailureKind::WrongCall, message);
        }
    }

    /// Called functions call, and do not wait.
    fn give_up_inside_functions(&self, draw: &mut Draw) {
        let wanted = self.some_cpus(draw);
        let target = draw.one_of(&self.numbers);
        let world = Unshared(self);
        self.engine.call_many(&wanted, &|_| {
            let world = &world;
            let sent = world.0.try_submit(target, 0);
            context().work(1);
            let Some((ticket, serial)) = sent else {
                return;
            };
            let targets = ticket.targets();
            match ticket.give_up() {
                Ok(()) => world.0.has_given_up(serial),
                Err(ticket) => {
                    world.0.note_sent(serial, &targets);
                    mem::forget(ticket);
                }
            }
        });
    }
}
