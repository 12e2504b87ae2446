//! Copied functions: posted ones that nobody waits for, and submitted ones with a ticket.

use shootdown::{
    CallTargets, Capacity, CpuId, CpuMask, Cpus, Platform,
    calls::{CallTicket, Wait},
};

use crate::host::Host;
use crate::mail::{Letter, LetterKind};
use crate::rng::Rng;
use crate::step::{Context, Step};
use crate::sync::fence_between;
use crate::torture::Torture;
use crate::violation::{Promise, Violation};

/// Tickets that one step holds at once: as many as there are slots for functions.
const TICKETS: usize = 3;
/// Rounds of calls to all CPUs until posts that are still missing count as lost. Each round lets every responder look at
/// its inbox once at least; more than one is needed only for those that serve a part and interrupt themselves.
const LAST_ROUNDS: usize = 64;

impl<H: Host<N>, const N: usize> Step<'_, H, N>
where
    Cpus<N>: Capacity,
{
    pub(crate) fn post(&self, rng: &mut Rng) -> bool {
        let (targets, letter) = self.letter(rng);
        let torture = self.torture;
        let steady = self.steady(&targets);
        let function = move |cpu| torture.deliver(&letter, cpu);
        let engine = self.host.engine();
        let ran = engine.submit(&targets, function, Wait::None).targets();
        self.check_targets(&targets, &ran, steady);
        torture.enter_letter(&letter, &ran);
        !ran.is_empty()
    }

    pub(crate) fn try_post(&self, rng: &mut Rng) -> bool {
        let (targets, letter) = self.letter(rng);
        self.try_send(&targets, letter)
    }

    /// A post inside a called function; the worker that wrote the letter's number is elsewhere.
    pub(crate) fn post_from_function(&self, rng: &mut Rng) {
        let letter = Letter::new(self.worker, LetterKind::Function, rng.next_u64());
        self.try_send(&self.some_cpus(rng), letter);
    }

    /// A call that is waited for until every target has its copy.
    pub(crate) fn submit_received(&self, rng: &mut Rng) -> bool {
        let (targets, letter) = self.letter(rng);
        let torture = self.torture;
        let steady = self.steady(&targets);
        let function = move |cpu| torture.deliver(&letter, cpu);
        let engine = self.host.engine();
        let ticket = engine.submit(&targets, function, Wait::Received);
        let ran = ticket.targets();
        torture.enter_letter(&letter, &ran);
        self.maybe_move(rng);
        self.check_back(&ran, Some(&ticket.wait()));
        self.check_targets(&targets, &ran, steady);
        !ran.is_empty()
    }

    /// Several calls at once, waited for in any order.
    pub(crate) fn submit_done(&self, rng: &mut Rng) -> bool {
        let engine = self.host.engine();
        let (torture, worker, operation) = (self.torture, self.worker, self.operation);
        let sequence = self.record().open();
        let count = 1 + rng.below(TICKETS as u64) as usize;
        let mut tickets: [Option<CallTicket<'_, H::Platform>>; TICKETS] = [const { None }; TICKETS];
        let mut masks = [CpuMask::<Cpus<N>>::EMPTY; TICKETS];
        for (ticket, mask) in tickets.iter_mut().zip(&mut masks).take(count) {
            let targets = self.some_cpus(rng);
            let steady = self.steady(&targets);
            let function = move |cpu| {
                torture.check_section(Some(operation), cpu);
                let record = torture.record(worker);
                if let Err(seen) = record.sees(sequence) {
                    torture.ledger.enter(Violation {
                        promise: Promise::WriteSeen,
                        operation: Some(operation),
                        cpu,
                        expected: sequence,
                        found: seen,
                    });
                }
                record.reply(cpu, sequence);
            };
            let submitted = engine.submit(&targets, function, Wait::Done);
            *mask = submitted.targets();
            *ticket = Some(submitted);
            self.check_targets(&targets, mask, steady);
            self.maybe_move(rng);
        }
        let first = rng.below(TICKETS as u64) as usize;
        for index in (0..TICKETS).map(|index| (first + index) % TICKETS) {
            let back = tickets[index].take().map(CallTicket::wait);
            self.check_back(&masks[index], back.as_ref());
        }
        let mut ran = CpuMask::EMPTY;
        masks.iter().for_each(|mask| ran.unite(mask));
        self.check_answers(&ran, sequence, |cpu| {
            masks.iter().filter(|mask| mask.contains(cpu)).count() as u64
        });
        !ran.is_empty()
    }

    /// A wait returns the targets that its ticket named.
    fn check_back(&self, ran: &CpuMask<Cpus<N>>, back: Option<&CpuMask<Cpus<N>>>) {
        if back.is_some_and(|back| back != ran) {
            self.report(Promise::TargetsNamed, self.here(), 0, 1);
        }
    }

    /// A ticket need not be waited for where it was made.
    pub(crate) fn maybe_move(&self, rng: &mut Rng) {
        if self.context == Context::Task && rng.once_in(4) {
            self.host.preempt();
        }
    }

    fn letter(&self, rng: &mut Rng) -> (CpuMask<Cpus<N>>, Letter) {
        let sequence = self.record().open_post();
        let letter = Letter::new(self.worker, LetterKind::Worker, sequence);
        (self.some_cpus(rng), letter)
    }

    fn try_send(&self, targets: &CpuMask<Cpus<N>>, letter: Letter) -> bool {
        let torture = self.torture;
        let steady = self.steady(targets);
        let function = move |cpu| torture.deliver(&letter, cpu);
        match self.host.engine().try_post(targets, function) {
            Ok(ran) => {
                self.check_targets(targets, &ran, steady);
                torture.enter_letter(&letter, &ran);
                !ran.is_empty()
            }
            Err(_) => false,
        }
    }
}

impl<const N: usize> Torture<N>
where
    Cpus<N>: Capacity,
{
    /// A posted function.
    fn deliver(&self, letter: &Letter, cpu: CpuId) {
        let broken = |promise, expected, found| {
            self.ledger.enter(Violation {
                promise,
                operation: None,
                cpu,
                expected,
                found,
            });
        };
        self.check_section(None, cpu);
        self.mail[cpu.index()].receive(letter.token());
        let Some(worker) = letter.worker() else {
            return broken(Promise::PostKept, 0, letter.token());
        };
        if letter.kind() == LetterKind::Worker {
            let seen = self.record(worker).posted();
            if seen < letter.sequence {
                broken(Promise::WriteSeen, letter.sequence, seen);
            }
        }
    }

    fn enter_letter(&self, letter: &Letter, ran: &CpuMask<Cpus<N>>) {
        for cpu in ran.iter() {
            self.mail[cpu.index()].send(letter.token());
        }
    }

    /// Closes the books after the last step: every post must have run. All tasks have ended but the caller, who has interrupts
    /// on; steps in interrupt context do nothing from now on. The engine keeps the policy that the last step set.
    pub fn finish<H: Host<N>>(&self, host: &H) {
        self.closed.set(1);
        fence_between();
        for record in self.records.as_flattened() {
            while record.is_busy() {
                host.engine().poll();
                host.engine().platform().relax();
            }
        }
        // Once at least: what comes twice may come now.
        for _ in 0..LAST_ROUNDS {
            host.engine().call_many(CallTargets::Online, &|_| ());
            if self.gap().is_none() {
                break;
            }
        }
        self.close();
    }

    /// What was sent has come, and nothing else: neither a post nor a function of a call that is over.
    fn close(&self) {
        let enter = |promise, cpu, expected, found| {
            self.ledger.enter(Violation {
                promise,
                operation: None,
                cpu,
                expected,
                found,
            });
        };
        if let Some((index, (sent, got))) = self.gap() {
            enter(Promise::PostKept, crate::mail::cpu(index), sent, got);
        }
        for record in self.records.as_flattened() {
            if let Some(late) = record.check_runs(|_| 0) {
                enter(Promise::RunsOnce, late.cpu, late.expected, late.found);
            }
        }
    }

    fn gap(&self) -> Option<(usize, (u64, u64))> {
        let gap = |(index, mail): (usize, &crate::mail::Mail)| Some((index, mail.gap()?));
        self.mail.iter().enumerate().find_map(gap)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    #[test]
    fn what_comes_after_the_end_of_a_call_is_found_at_the_end() {
        let torture = std::boxed::Box::<Torture<2>>::default();
        torture.close();
        assert_eq!(torture.first_violation(), None);
        torture.record(3).reply(CpuId::new(1), 1);
        torture.close();
        let late = torture.first_violation().unwrap();
        assert_eq!((late.promise, late.cpu), (Promise::RunsOnce, CpuId::new(1)));
    }

    #[test]
    fn a_post_that_was_not_sent_is_found_at_the_end() {
        let torture = std::boxed::Box::<Torture<2>>::default();
        torture.mail[1].receive(7);
        torture.close();
        let stranger = torture.first_violation().unwrap();
        assert_eq!((stranger.promise, stranger.found), (Promise::PostKept, 1));
    }
}
