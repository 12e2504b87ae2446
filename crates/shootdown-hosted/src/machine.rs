//! [`Machine`]: the whole, as its users see it.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use shootdown::{
    AddressSpace, Capacity, CpuId, CpuMask, Cpus, Shootdown, watch::Stall, windows::WindowRoot,
};

use crate::config::{Config, Refused};
use crate::cpu::{RESCHEDULE, Service};
use crate::futex::Mailbox;
use crate::idle::Job;
use crate::inner::Inner;
use crate::memory::Memory;
use crate::platform::Hosted;
use crate::signal;
use crate::thread;

/// A machine of threads, with an engine for up to `N` CPUs.
///
/// Dropping it takes the CPUs down one by one.
#[derive(Debug)]
pub struct Machine<const N: usize>
where
    Cpus<N>: Capacity,
{
    pub(crate) inner: Arc<Inner<N>>,
    threads: Vec<JoinHandle<()>>,
    ticker: Option<JoinHandle<()>>,
}

impl<const N: usize> Machine<N>
where
    Cpus<N>: Capacity,
{
    /// Starts a machine, all its CPUs online and idle. Blocks until they are.
    ///
    /// # Errors
    /// [`Refused::Cpus`], [`Refused::System`].
    pub fn start(config: &Config) -> Result<Self, Refused> {
        if config.cpus == 0 || config.number(config.cpus - 1) >= N {
            return Err(Refused::Cpus {
                asked: config.cpus,
                most: N - config.unused.len().min(N - 1),
            });
        }
        let system = |error: std::io::Error| Refused::System(error.to_string());
        signal::install().map_err(system)?;
        let mut machine = Self {
            inner: Arc::new(Inner::new(config)),
            threads: Vec::new(),
            ticker: None,
        };
        for cpu in machine.possible_cpus().iter().map(CpuId::index) {
            let inner = machine.inner.clone();
            let thread = std::thread::Builder::new().name(format!("cpu{cpu}"));
            let thread = thread.spawn(move || inner.idle(cpu)).map_err(system)?;
            machine.threads.push(thread);
        }
        while !machine.inner.states().all(|cpu| cpu.is(Service::Online)) {
            machine.pause();
        }
        if let Some(every) = config.tick {
            let inner = machine.inner.clone();
            let thread = std::thread::Builder::new().name("ticker".into());
            let thread = thread.spawn(move || inner.tick(every)).map_err(system)?;
            machine.ticker = Some(thread);
        }
        Ok(machine)
    }

    /// The engine. Its calls and flushes work on this machine's CPUs only: inside [`run_on`](Self::run_on) and
    /// [`run_tasks`](Self::run_tasks), and in what runs in interrupt context there.
    pub fn engine(&self) -> &Shootdown<Hosted<N>> {
        &self.inner.engine
    }

    /// How many CPUs it has, online or not.
    pub fn cpus(&self) -> usize {
        self.inner.cpus.len()
    }

    /// Their numbers.
    pub fn possible_cpus(&self) -> CpuMask<Cpus<N>> {
        self.inner.cpus
    }

    /// Frames and page tables.
    pub fn memory(&self) -> &Memory {
        &self.inner.platform().memory
    }

    /// The engine's view of an address space.
    ///
    /// # Panics
    /// When there is no space with this index.
    pub fn space(&self, index: usize) -> &AddressSpace<Cpus<N>> {
        &self.inner.spaces[index]
    }

    /// The private root of a CPU in the first space. Tasks in that space run on it or on the shared one, as it comes.
    pub fn windows(&self, cpu: usize) -> Option<&WindowRoot> {
        self.inner.windows.get(cpu)?.as_ref()
    }

    /// Runs `job` on `cpu`, with interrupts on and preemption off, and waits for it. From any thread, except in interrupt
    /// context.
    ///
    /// # Errors
    /// [`Refused::Offline`]; [`Refused::Pinned`] inside another job on the same CPU.
    ///
    /// # Panics
    /// When the job does.
    pub fn run_on<R: Send>(
        &self,
        cpu: CpuId,
        job: impl FnOnce() -> R + Send,
    ) -> Result<R, Refused> {
        let inner = &*self.inner;
        let index = cpu.index();
        let is_pinned = !thread::is_preemptible();
        if is_pinned && thread::task() == Some(index) {
            return Err(Refused::Pinned(cpu));
        }
        if !inner.cpus.contains(cpu) {
            return Err(Refused::Offline(cpu));
        }
        let result = std::sync::Mutex::new(None);
        let done = Mailbox::new();
        let work: Box<dyn FnOnce() + Send + '_> = Box::new(|| {
            let outcome = catch_unwind(AssertUnwindSafe(job));
            *result.lock().expect("nobody panics with it") = Some(outcome);
            done.put(1);
        });
        // SAFETY: only the lifetime changes; a job that is taken puts `done` after the last use of its borrows, and we
        // wait for that; one that is not taken is dropped here and now.
        let work: Job = unsafe { core::mem::transmute::<Box<dyn FnOnce() + Send + '_>, Job>(work) };
        let were_on = thread::irq_save();
        let is_taken = inner.idles[index].push(work);
        if were_on {
            thread::irq_enable();
        }
        if !is_taken {
            return Err(Refused::Offline(cpu));
        }
        self.call_idle(index);
        // A task has a CPU, which others may want meanwhile.
        let patience = match thread::task() {
            Some(_) => Duration::from_micros(200),
            None => Duration::from_secs(1),
        };
        while !done.is_full() {
            self.pause();
            done.await_some(patience);
        }
        match result.into_inner().expect("nobody panics with it") {
            Some(Ok(value)) => Ok(value),
            Some(Err(panic)) => resume_unwind(panic),
            None => unreachable!("the job says done after it has left its result"),
        }
    }

    /// Runs `count` tasks at once, each on a thread that is one CPU or another at a time, and waits for all of them. With
    /// [ticks](Config::tick), tasks are preempted wherever interrupts and preemption are on.
    ///
    /// # Errors
    /// [`Refused::Tasks`].
    ///
    /// # Panics
    /// When a task does, after all have ended; on a CPU of this machine.
    pub fn run_tasks(&self, count: usize, task: impl Fn(usize) + Sync) -> Result<(), Refused> {
        assert!(thread::task().is_none(), "tasks are started from outside");
        let inner = &*self.inner;
        let numbers: Vec<usize> = {
            let unused = &mut inner.queue().unused;
            let left = unused.len().checked_sub(count).ok_or(Refused::Tasks {
                asked: count,
                most: inner.tasks.len() - inner.span,
            })?;
            unused.split_off(left)
        };
        let outcomes: Vec<_> = std::thread::scope(|scope| {
            let start = |(index, number): (usize, &usize)| {
                let (task, number) = (&task, *number);
                scope.spawn(move || inner.run_task(number, || task(index)))
            };
            let threads: Vec<_> = numbers.iter().enumerate().map(start).collect();
            threads.into_iter().map(|thread| thread.join()).collect()
        });
        inner.queue().unused.extend(numbers);
        for outcome in outcomes {
            outcome.unwrap_or_else(|panic| resume_unwind(panic));
        }
        Ok(())
    }

    /// How often a CPU that came back found that something had been sent to it while it was away: never, if the engine
    /// keeps its promise.
    pub fn late_requests(&self) -> u64 {
        self.inner.late_requests.load(Ordering::Relaxed)
    }

    /// Has `on_tick` called in interrupt context at each tick of a CPU, with interrupts off. It interrupts its thread
    /// anywhere, so it must neither allocate, lock nor print. Once; later ones are ignored.
    pub fn on_tick(&self, on_tick: &'static (dyn Fn(CpuId) + Sync)) {
        let _ = self.inner.on_tick.set(on_tick);
    }

    /// Has `on_second` called in interrupt context when the platform of a [second engine](crate::SecondPlatform) interrupts a CPU,
    /// with interrupts off: as [`on_tick`](Self::on_tick). Once; later ones are ignored.
    pub fn on_second(&self, on_second: &'static (dyn Fn(CpuId) + Sync)) {
        let _ = self.inner.on_second.set(on_second);
    }

    /// Has `on_stall` called when the engine's watchdog reports, in the context of the waiter: as [`on_tick`](Self::on_tick).
    /// Once; later ones are ignored.
    pub fn on_stall(&self, on_stall: fn(&Stall)) {
        let _ = self.inner.platform().on_stall.set(on_stall);
    }

    pub(crate) fn await_service(&self, cpu: usize, service: Service) {
        while !self.inner.platform().cpus[cpu].is(service) {
            self.pause();
        }
    }

    /// Has the idle thread of a CPU look for work. If the kernel does not take the signal, the next tick does it.
    pub(crate) fn call_idle(&self, cpu: usize) {
        let state = &self.inner.platform().cpus[cpu];
        state.bell.ring();
        let _ = state.interrupt(RESCHEDULE);
    }

    /// One turn of a wait in task context or outside.
    pub(crate) fn pause(&self) {
        self.preempt();
        std::thread::yield_now();
    }
}

impl<const N: usize> Drop for Machine<N>
where
    Cpus<N>: Capacity,
{
    fn drop(&mut self) {
        self.inner.stopping.store(true, Ordering::Relaxed);
        if let Some(ticker) = self.ticker.take() {
            // It cannot panic, and if it did, the machine would go down all the same.
            let _ = ticker.join();
        }
        self.inner
            .states()
            .for_each(|cpu| cpu.want(Service::Stopped));
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
