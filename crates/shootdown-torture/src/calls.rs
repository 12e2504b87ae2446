//! Calls of every kind, and what they promise.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use shootdown::control::Rendezvous;
use shootdown::{CallTargets, Capacity, CpuId, CpuMask, Cpus, Platform};

use crate::churn::Steady;
use crate::host::Host;
use crate::record::Record;
use crate::rng::{Rng, mix};
use crate::step::Context;
use crate::step::Step;
use crate::violation::Promise;

/// A borrowed function as the engine takes it.
type Function<'a> = &'a (dyn Fn(CpuId) + Sync + 'a);

/// How long CPUs may take to come together. Of virtual CPUs some may not run for longer.
const PATIENCE_NS: u64 = 5_000_000;

impl<H: Host<N>, const N: usize> Step<'_, H, N>
where
    Cpus<N>: Capacity,
{
    pub(crate) fn call_one(&self, rng: &mut Rng) -> bool {
        let target = self.some_cpu(rng);
        let function = |cpu, sequence| self.answer(cpu, sequence);
        self.check_call(&CpuMask::only(target), &function, |function| {
            match self.host.engine().call_one(target, function) {
                Ok(()) => CpuMask::only(target),
                Err(_) => CpuMask::EMPTY,
            }
        })
    }

    /// As `call_one`, of one that answers wherever it polls.
    pub(crate) fn ask(&self, rng: &mut Rng) -> bool {
        let target = self.some_cpu(rng);
        let function = |cpu, sequence| self.answer_anywhere(cpu, sequence);
        self.check_call(&CpuMask::only(target), &function, |function| {
            // SAFETY: 1. it counts.
            let asked = unsafe { self.host.engine().control().ask(target, function) };
            match asked {
                Ok(()) => CpuMask::only(target),
                Err(_) => CpuMask::EMPTY,
            }
        })
    }

    /// In two steps, of which the second begins nowhere before the first has ended everywhere; or it runs nowhere.
    pub(crate) fn meet_others(&self, rng: &mut Rng) -> bool {
        let targets = self.some_cpus(rng);
        let (first, second, other) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        let function = |_: CpuId, step: u32| match step {
            0 => _ = first.fetch_add(1, Relaxed),
            _ => {
                let ended = first.load(Relaxed);
                let before = other.swap(ended, Relaxed);
                if before != 0 && before != ended {
                    self.report(Promise::RunsOnce, self.here(), before, ended);
                }
                second.fetch_add(1, Relaxed);
            }
        };
        let how = Rendezvous::within(PATIENCE_NS).with_steps(2);
        let control = self.host.engine().control();
        // SAFETY: 1. it counts.
        let met = unsafe { control.rendezvous(how, &targets, &function) };
        let (first, second) = (first.into_inner(), second.into_inner());
        if first != second || met.is_ok() != (first > 0) {
            self.report(Promise::RunsOnce, self.here(), first, second);
        }
        met.is_ok()
    }

    pub(crate) fn call_many(&self, rng: &mut Rng) -> bool {
        let function = |cpu, sequence| self.answer(cpu, sequence);
        self.call_some(rng, &function)
    }

    pub(crate) fn call_all(&self) -> bool {
        let function = |cpu, sequence| self.answer(cpu, sequence);
        self.check_call(&self.host.possible_cpus(), &function, |function| {
            self.host.engine().call_many(CallTargets::Online, function)
        })
    }

    pub(crate) fn call_any(&self, rng: &mut Rng) -> bool {
        let targets = self.some_cpus(rng);
        let steady = self.steady(&targets);
        let function = |cpu, sequence| self.answer(cpu, sequence);
        let ran = self.run_call(&function, |function| {
            let engine = self.host.engine();
            engine.call_many(CallTargets::AnyOf(&targets), function)
        });
        let mut excused = ran;
        if !ran.is_empty() {
            excused.unite(&steady.cpus);
        }
        self.check_targets(&targets, &excused, steady);
        if let Some(second) = ran.iter().nth(1) {
            self.report(Promise::TargetsNamed, second, 0, 1);
        }
        !ran.is_empty()
    }

    pub(crate) fn call_with(&self, rng: &mut Rng) -> bool {
        let targets = self.some_cpus(rng);
        let function = |cpu, sequence| self.answer(cpu, sequence);
        self.check_call(&targets, &function, |function| {
            let overlap = || self.meanwhile(rng);
            let engine = self.host.engine();
            engine.call_many_with(&targets, function, overlap).0
        })
    }

    /// A called function that does what called functions may: flush, and post if there is room.
    pub(crate) fn nested(&self, rng: &mut Rng) -> bool {
        let seed = rng.next_u64();
        let function = |cpu: CpuId, sequence| {
            self.answer(cpu, sequence);
            let mut rng = Rng::new(mix(seed ^ u64::from(cpu.as_u32())));
            if rng.once_in(2) {
                self.post_from_function(&mut rng);
            } else {
                self.change_some(&mut rng);
            }
        };
        self.call_some(rng, &function)
    }

    pub(crate) fn long_handler(&self, rng: &mut Rng) -> bool {
        let ns = self.some_long_ns(rng);
        let function = |cpu, sequence| {
            self.host.busy(ns);
            self.answer(cpu, sequence);
        };
        self.call_some(rng, &function)
    }

    /// Work between a sending and its wait. No call that waits: its functions would share the record.
    fn meanwhile(&self, rng: &mut Rng) {
        match rng.below(4) {
            0 if self.context == Context::Task => self.host.preempt(),
            1 => _ = self.post(rng),
            2 => _ = self.change_some(rng),
            _ => _ = self.access(rng),
        }
    }

    fn call_some(&self, rng: &mut Rng, function: &(dyn Fn(CpuId, u64) + Sync)) -> bool {
        let targets = self.some_cpus(rng);
        self.check_call(&targets, function, |function| {
            self.host.engine().call_many(&targets, function)
        })
    }

    /// Calls `function` by `call`, which returns where it ran, and checks all that a call promises.
    fn check_call(
        &self,
        named: &CpuMask<Cpus<N>>,
        function: &(dyn Fn(CpuId, u64) + Sync),
        call: impl FnOnce(&Function<'_>) -> CpuMask<Cpus<N>>,
    ) -> bool {
        let steady = self.steady(named);
        let ran = self.run_call(function, call);
        self.check_targets(named, &ran, steady);
        !ran.is_empty()
    }

    /// The same without a look at whom it names; returns where it ran.
    fn run_call(
        &self,
        function: &(dyn Fn(CpuId, u64) + Sync),
        call: impl FnOnce(&Function<'_>) -> CpuMask<Cpus<N>>,
    ) -> CpuMask<Cpus<N>> {
        let sequence = self.record().open();
        let numbered = |cpu: CpuId| function(cpu, sequence);
        let ran = call(&(&numbered as Function<'_>));
        self.check_answers(&ran, sequence, |cpu| u64::from(ran.contains(cpu)));
        ran
    }

    /// What a called function does.
    fn answer(&self, cpu: CpuId, sequence: u64) {
        self.torture.check_section(Some(self.operation), cpu);
        self.answer_anywhere(cpu, sequence);
        self.load_in_function(sequence);
    }

    /// What one does that runs in the middle of something.
    fn answer_anywhere(&self, cpu: CpuId, sequence: u64) {
        let here = self.host.engine().platform().current_cpu();
        if here != cpu {
            let (expected, found) = (u64::from(cpu.as_u32()), u64::from(here.as_u32()));
            self.report(Promise::RightCpu, cpu, expected, found);
        }
        let record = self.record();
        if let Err(seen) = record.sees(sequence) {
            self.report(Promise::WriteSeen, cpu, sequence, seen);
        }
        record.reply(cpu, sequence);
    }

    pub(crate) fn record(&self) -> &'static Record<N> {
        self.torture.record(self.worker)
    }

    /// Whether a call returned the right targets.
    pub(crate) fn check_targets(
        &self,
        named: &CpuMask<Cpus<N>>,
        ran: &CpuMask<Cpus<N>>,
        steady: Steady<N>,
    ) {
        let mut unnamed = *ran;
        unnamed.subtract(named);
        if let Some(cpu) = unnamed.iter().next() {
            self.report(Promise::TargetsNamed, cpu, 0, 1);
        }
        if let Some(cpu) = self.torture.churn.difference(steady, ran) {
            let found = u64::from(ran.contains(cpu));
            self.report(Promise::TargetsNamed, cpu, 1 - found, found);
        }
    }

    /// Whether the functions ran, on each CPU as often as `wanted` says, and what they wrote is seen.
    pub(crate) fn check_answers(
        &self,
        ran: &CpuMask<Cpus<N>>,
        sequence: u64,
        wanted: impl Fn(CpuId) -> u64,
    ) {
        let record = self.record();
        if let Some(it) = record.check_runs(wanted) {
            self.report(Promise::RunsOnce, it.cpu, it.expected, it.found);
        }
        if let Some(it) = record.check_replies(ran, sequence) {
            self.report(Promise::ReplySeen, it.cpu, it.expected, it.found);
        }
    }
}
