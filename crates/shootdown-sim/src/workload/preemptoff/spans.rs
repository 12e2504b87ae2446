//! The tracer: for how long each CPU could not be given to another task, and what for.

use crate::machine::{Context, Note};

/// What a CPU does while it cannot be given to another task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Cause {
    /// The kernel's own work.
    Own,
    /// It is inside the engine: sends, waits, serves.
    Engine,
    /// It waits for the data of an earlier call of its CPU (a model, see `program`).
    CallData,
    /// It waits for a lock.
    Lock,
    /// A device or the timer interrupts.
    Device,
}

const CAUSES: usize = 5;

/// The longest spans of one CPU in one interval.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Maxima {
    /// With preemption off, or with interrupts off by the task that runs, whatever for; also a device's handler.
    pub all_ps: u64,
    /// The part of one span that was spent in the engine (sending, flushing here, waiting) or waiting for another
    /// call's data.
    pub initiator_ps: u64,
    /// The part of one span that was spent waiting for another call's data alone.
    pub call_data_ps: u64,
    /// The part of one span that was spent waiting for a lock.
    pub lock_ps: u64,
    /// One interrupt of the engine.
    pub handler_ps: u64,
}

impl Maxima {
    /// What comes of interrupting other CPUs and of being interrupted.
    pub fn ipi_ps(&self) -> u64 {
        self.initiator_ps.max(self.handler_ps)
    }
}

#[derive(Clone, Copy, Debug)]
struct Span {
    since_ps: u64,
    accounted_ps: u64,
    by_ps: [u64; CAUSES],
}

#[derive(Clone, Debug)]
struct CpuSpans {
    open: Option<Span>,
    /// An interrupt is being served, for this; on top of what the task does.
    interrupted: Option<Cause>,
    handler_since_ps: u64,
    maxima: Vec<Maxima>,
}

/// The spans of all CPUs.
#[derive(Clone, Debug)]
pub(super) struct Spans {
    interval_ps: u64,
    cpus: Vec<CpuSpans>,
    /// Of each task.
    causes: Vec<Cause>,
}

impl Spans {
    pub(super) fn new(cpus: usize, tasks: usize, interval_ps: u64, intervals: usize) -> Self {
        let cpu = CpuSpans {
            open: None,
            interrupted: None,
            handler_since_ps: 0,
            maxima: vec![Maxima::default(); intervals],
        };
        Self {
            interval_ps,
            cpus: vec![cpu; cpus],
            causes: vec![Cause::Own; tasks],
        }
    }

    /// The task that runs does something else from now on; returns what it did before.
    pub(super) fn charge(&mut self, context: Context<'_>, cause: Cause) -> Cause {
        self.account(context);
        std::mem::replace(&mut self.causes[context.task()], cause)
    }

    /// An interrupt of the host begins, or ends.
    pub(super) fn interrupts(&mut self, context: Context<'_>, cause: Option<Cause>) {
        self.account(context);
        self.cpus[context.cpu()].interrupted = cause;
    }

    /// A device's handler has taken so long.
    pub(super) fn device(&mut self, context: Context<'_>, took_ps: u64) {
        self.keep(context.cpu(), context.now_ps(), |maxima| {
            maxima.all_ps = maxima.all_ps.max(took_ps);
        });
    }

    pub(super) fn note(&mut self, context: Context<'_>, note: Note) {
        let (cpu, now_ps) = (context.cpu(), context.now_ps());
        match note {
            Note::Closed => {
                self.cpus[cpu].open = Some(Span {
                    since_ps: now_ps,
                    accounted_ps: now_ps,
                    by_ps: [0; CAUSES],
                });
            }
            Note::Opened => self.close(context),
            Note::HandlerEntered => {
                self.interrupts(context, Some(Cause::Engine));
                self.cpus[cpu].handler_since_ps = now_ps;
            }
            Note::HandlerLeft => {
                self.interrupts(context, None);
                let took_ps = now_ps - self.cpus[cpu].handler_since_ps;
                self.keep(cpu, now_ps, |maxima| {
                    maxima.handler_ps = maxima.handler_ps.max(took_ps);
                    maxima.all_ps = maxima.all_ps.max(took_ps);
                });
            }
            Note::Engine(_) => {}
        }
    }

    /// The time since the last account goes to what the CPU has done since.
    fn account(&mut self, context: Context<'_>) {
        let (now_ps, task) = (context.now_ps(), context.task());
        let cpu = &mut self.cpus[context.cpu()];
        let cause = cpu.interrupted.unwrap_or(self.causes[task]);
        if let Some(span) = &mut cpu.open {
            span.by_ps[cause as usize] += now_ps - span.accounted_ps;
            span.accounted_ps = now_ps;
        }
    }

    fn close(&mut self, context: Context<'_>) {
        self.account(context);
        let (cpu, now_ps) = (context.cpu(), context.now_ps());
        let Some(span) = self.cpus[cpu].open.take() else {
            return;
        };
        let by_ps = |cause: Cause| span.by_ps[cause as usize];
        self.keep(cpu, now_ps, |maxima| {
            let call_data_ps = by_ps(Cause::CallData);
            let initiator_ps = by_ps(Cause::Engine) + call_data_ps;
            maxima.all_ps = maxima.all_ps.max(now_ps - span.since_ps);
            maxima.initiator_ps = maxima.initiator_ps.max(initiator_ps);
            maxima.call_data_ps = maxima.call_data_ps.max(call_data_ps);
            maxima.lock_ps = maxima.lock_ps.max(by_ps(Cause::Lock));
        });
    }

    /// A span belongs to the interval in which it ends.
    fn keep(&mut self, cpu: usize, now_ps: u64, change: impl FnOnce(&mut Maxima)) {
        let interval = (now_ps / self.interval_ps) as usize;
        if let Some(maxima) = self.cpus[cpu].maxima.get_mut(interval) {
            change(maxima);
        }
    }

    /// Of each CPU, of each interval.
    pub(super) fn into_maxima(self) -> Vec<Vec<Maxima>> {
        self.cpus.into_iter().map(|cpu| cpu.maxima).collect()
    }
}
