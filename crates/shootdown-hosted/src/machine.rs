//! [`Machine`]: the whole, as its users see it.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use shootdown::{AddressSpace, Capacity, CpuId, Cpus, Shootdown, Stall, WindowRoot};

use crate::config::{Config, Refused};
use crate::cpu::{RESCHEDULE, Service};
use crate::futex::Mailbox;
use crate::idle::Job;
use crate::inner::Inner;
use crate::memory::{Memory, PAGES, Part};
use crate::platform::Hosted;
use crate::signal;
use crate::thread;
use crate::tlb::Tlb;

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
        if config.cpus == 0 || config.cpus > N {
            return Err(Refused::Cpus {
                asked: config.cpus,
                most: N,
            });
        }
        let system = |error: std::io::Error| Refused::System(error.to_string());
        signal::install().map_err(system)?;
        let mut machine = Self {
            inner: Arc::new(Inner::new(config)),
            threads: Vec::new(),
            ticker: None,
        };
        for cpu in 0..config.cpus {
            let inner = machine.inner.clone();
            let thread = std::thread::Builder::new().name(format!("cpu{cpu}"));
            let thread = thread.spawn(move || inner.idle(cpu)).map_err(system)?;
            machine.threads.push(thread);
        }
        machine.await_service(0..config.cpus, Service::Online);
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
    pub fn engine(&self) -> &Shootdown<Hosted<N>, N> {
        &self.inner.engine
    }

    /// How many CPUs it has, online or not.
    pub fn cpus(&self) -> usize {
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
    pub fn space(&self, index: usize) -> &AddressSpace<N> {
        &self.inner.spaces[index]
    }

    /// The private root of a CPU in the first space. Tasks in that space run on it or on the shared one, as it comes.
    pub fn windows(&self, cpu: usize) -> Option<&WindowRoot> {
        self.inner.windows.get(cpu)
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
        if index >= inner.cpus {
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
                most: inner.tasks.len() - inner.cpus,
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

    /// Gives the running task another space, or none, on whatever CPU it runs. On a CPU, not in interrupt context.
    ///
    /// # Panics
    /// Elsewhere, and when there is no such space.
    pub fn enter(&self, space: Option<usize>) {
        let inner = &*self.inner;
        assert!(
            space.is_none_or(|space| space < inner.spaces.len()),
            "no such space"
        );
        let me = thread::task().expect("a space is entered on a CPU");
        let were_on = thread::irq_save();
        inner.tasks[me].set_space(space);
        inner.load_space(thread::cpu(), space);
        if were_on {
            thread::irq_enable();
        }
    }

    /// The space of the running task. On a CPU; in interrupt context, that of the interrupted task.
    pub fn entered(&self) -> Option<usize> {
        self.inner.tasks[thread::task()?].space()
    }

    /// Loads the word at an address as this CPU's translations have it, as one instruction; `None` if it has none. Windows are
    /// those of this CPU, whatever the part says. A word of all ones says that a page table was walked that had been given back. On a CPU, any context.
    pub fn load(&self, part: Part, page: usize) -> Option<u64> {
        use crate::memory::Entry;
        let platform = self.inner.platform();
        let (is_kernel, page) = match part {
            Part::Kernel => (true, page),
            Part::Space(_) => (false, page),
            Part::Window(_) => (false, PAGES + page),
        };
        let were_on = thread::irq_save();
        let tlb: &Tlb = &platform.tlbs[thread::cpu()];
        let word = match tlb.translate(&platform.memory, is_kernel, page) {
            Entry::Unmapped => None,
            Entry::Frame(frame) => Some(platform.memory.read_frame(frame as usize)),
            Entry::Freed => Some(u64::MAX),
        };
        if were_on {
            thread::irq_enable();
        }
        word
    }

    /// Lets another task have the CPU, if one wants it and preemption is on; the caller may go on elsewhere. In a task, with
    /// interrupts on; elsewhere it does nothing.
    pub fn preempt(&self) {
        if thread::irqs_are_off() || !thread::is_preemptible() {
            return;
        }
        if let Some(me) = thread::task() {
            thread::irq_save();
            self.inner.schedule(me);
            thread::irq_enable();
        }
    }

    /// Lets the CPU go, to the next task or to idle, and wants one again after `time`. In a task, with interrupts and
    /// preemption on; elsewhere it does nothing.
    pub fn rest(&self, time: Duration) {
        if thread::irqs_are_off() || !thread::is_preemptible() {
            return;
        }
        if let Some(me) = thread::task() {
            thread::irq_save();
            self.inner.retire();
            std::thread::sleep(time);
            self.inner.want_cpu(me);
            thread::irq_enable();
        }
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

    pub(crate) fn await_service(&self, cpus: std::ops::Range<usize>, service: Service) {
        let states = &self.inner.platform().cpus[cpus];
        while !states.iter().all(|state| state.is(service)) {
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
        for cpu in &self.inner.platform().cpus[..self.inner.cpus] {
            cpu.want(Service::Stopped);
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
