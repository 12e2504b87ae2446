//! What programs do with calls, kicks and flushes that nothing depends on: whom they name, how they wait, how many are under way.

use shootdown::{
    Capacity, CpuId, CpuMask, FlushRange, FlushScope, FlushTicket, FreedTables, PageSize,
    calls::{CallTicket, Wait},
    control::KickTicket,
};

use crate::kernel::World;
use crate::kernel::calls::Call;
use crate::kernel::layout::{address_of, kernel_page};
use crate::kernel::theme::Draw;
use crate::machine::{FailureKind, SimPlatform, context};

/// Requests of one task that are under way at once, at most: more than a CPU has slots.
const MOST_HELD: usize = 6;
/// Further ones to one CPU between two of them, at most.
const MOST_PESTERED: usize = 6;
/// Events between two looks at them, at most.
const LONGEST_DELAY: usize = 12;

/// A request that was sent and not waited for.
enum Sent<'a, C: Capacity> {
    /// A posted function: its serial number, its targets, and how far it must have come.
    Call(CallTicket<'a, SimPlatform<C>>, (u64, Vec<usize>, Wait)),
    Flush(FlushTicket<'a, SimPlatform<C>>),
    Kick(KickTicket<'a, SimPlatform<C>>),
}

/// One that is under way, and whether it was found done.
struct Held<'a, C: Capacity> {
    sent: Sent<'a, C>,
    was_done: bool,
}

impl<C: Capacity> World<C> {
    /// Some CPUs, online or not.
    pub(super) fn some_cpus(&self, draw: &mut Draw) -> CpuMask<C> {
        let all = self.numbers.iter().copied();
        match draw.below(6) {
            0 => CpuMask::only(draw.one_of(&self.numbers)),
            1 => all.collect(),
            2 => all.filter(|_| !draw.once_in(4)).collect(),
            _ => {
                let named = all.enumerate().filter(|(cpu, _)| draw.names(*cpu));
                named.map(|(_, number)| number).collect()
            }
        }
    }

    pub(super) fn call_somebody(&self, draw: &mut Draw) {
        let wanted = self.some_cpus(draw);
        let off = draw.once_in(4);
        let wait = draw.one_of(&[Wait::None, Wait::Received, Wait::Done]);
        match draw.below(11) {
            0..4 => {
                let call = draw.one_of(&[Call::All, Call::Many, Call::One, Call::Any]);
                self.with_interrupts(off, || self.call(call, &wanted));
            }
            4 => {
                let locks = wait == Wait::Done;
                self.with_interrupts(off, || self.call_and_flush(&wanted, locks));
            }
            5..7 => {
                let drops = draw.random.bool();
                self.with_interrupts(off, || self.submit(&wanted, wait, drops));
            }
            7 => self.with_interrupts(off, || self.kick(&wanted)),
            8 => self.try_post(&wanted),
            _ => self.post_data(draw),
        }
    }

    /// Has several requests under way at once, until no slot is free and beyond, and waits for them in any order. One that is found
    /// done stays done: its slot's next request is another one.
    pub(super) fn hold_requests(&self, draw: &mut Draw) {
        let mut held: Vec<Held<'_, C>> = Vec::new();
        let favourite = CpuMask::only(self.numbers[draw.favourite(self.numbers.len())]);
        for _ in 0..=draw.below(MOST_HELD) {
            held.push(Held {
                sent: self.send_something(draw),
                was_done: false,
            });
            self.look_at(&mut held);
            if draw.is_storm() {
                self.pester(&favourite, draw);
            }
            if draw.once_in(3) {
                (0..draw.below(LONGEST_DELAY)).for_each(|_| context().work(1));
                self.look_at(&mut held);
            }
        }
        while !held.is_empty() {
            let Held { sent, .. } = held.swap_remove(draw.below(held.len()));
            self.end(sent, draw.random.bool());
            self.look_at(&mut held);
        }
    }

    /// Has one CPU look at this CPU's slots again and again, while others have still to acknowledge what is there.
    fn pester(&self, favourite: &CpuMask<C>, draw: &mut Draw) {
        for _ in 0..draw.below(MOST_PESTERED) {
            self.try_post(favourite);
            (0..draw.below(4)).for_each(|_| context().work(1));
        }
    }

    fn send_something(&self, draw: &mut Draw) -> Sent<'_, C> {
        let wanted = self.some_cpus(draw);
        match draw.below(8) {
            0..4 => {
                let wait = draw.one_of(&[Wait::None, Wait::Received, Wait::Done, Wait::Done]);
                let (serial, function) = self.posted_function();
                let ticket = self.engine.submit(&wanted, function, wait);
                let targets = self.note_sent(serial, &ticket.targets());
                Sent::Call(ticket, (serial, targets, wait))
            }
            4..6 => Sent::Kick(self.engine.control().kick(&wanted)),
            _ => {
                let range = FlushRange::pages(address_of(kernel_page(0)), 1, PageSize::SIZE_4K);
                let freed = match draw.once_in(3) {
                    true => FreedTables::Yes,
                    false => FreedTables::No,
                };
                Sent::Flush(self.engine.submit_flush(FlushScope::Kernel, range, freed))
            }
        }
    }

    /// Asks for each whether it is done, and holds it to what it has said before.
    fn look_at(&self, held: &mut [Held<'_, C>]) {
        for Held { sent, was_done } in held {
            let is_done = match sent {
                Sent::Call(ticket, _) => ticket.is_done(),
                Sent::Flush(ticket) => ticket.is_done(),
                Sent::Kick(ticket) => ticket.is_done(),
            };
            if *was_done && !is_done {
                let message = "a ticket was done and is not any more".into();
                context().fail(FailureKind::Other, message);
            }
            if let Sent::Call(_, (serial, targets, Wait::Done)) = sent
                && is_done
            {
                self.check_posted(*serial, targets, FailureKind::EarlyReturn);
            }
            *was_done = is_done;
        }
    }

    /// Waits, or drops the ticket, which is as good, or forgets it.
    fn end(&self, sent: Sent<'_, C>, drops: bool) {
        let Some(sent) = self.forget(sent, &[]) else {
            return;
        };
        match sent {
            Sent::Call(ticket, (serial, targets, wait)) => {
                if drops {
                    drop(ticket);
                } else {
                    ticket.wait();
                }
                if wait == Wait::Done {
                    self.check_posted(serial, &targets, FailureKind::EarlyReturn);
                }
            }
            Sent::Flush(ticket) if drops => drop(ticket),
            Sent::Flush(ticket) => self.wait(ticket),
            Sent::Kick(_) if drops => {}
            Sent::Kick(ticket) => ticket.wait(),
        }
    }

    /// The virtual CPUs of a set.
    pub(super) fn indexes(&self, cpus: &CpuMask<C>) -> Vec<usize> {
        let mut indexes: Vec<usize> = cpus
            .iter()
            .map(|cpu: CpuId| context().index_of(cpu))
            .collect();
        indexes.sort_unstable();
        indexes
    }
}
