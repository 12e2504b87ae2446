//! Tasks: more programs than CPUs, as in a kernel that preempts itself.
//!
//! The first programs of a machine belong to one CPU each and stay there. Further ones run where a [`Host`] puts them:
//! it may take the CPU from a task wherever a kernel's timer could, which is between two instructions with
//! interrupts on, outside interrupt handlers, and with preemption allowed. A task that lost its CPU goes on when
//! somebody switches to it, perhaps on another CPU.

use shootdown::watch::TraceEvent;

use crate::machine::{Context, Model, State};

/// What a [`Host`] is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Note {
    /// From now on the CPU cannot be given to another task: preemption or interrupts are off.
    Closed,
    /// From now on it can.
    Opened,
    /// The engine's interrupt handler begins.
    HandlerEntered,
    /// The engine's interrupt handler is over, with all that it cost.
    HandlerLeft,
    /// The engine tells what happened.
    Engine(TraceEvent),
}

/// The part of a kernel that decides who runs, and what interrupts besides the engine.
pub trait Host {
    /// When it wants to interrupt `cpu` next, in picoseconds of that CPU's clock (timed model); `u64::MAX` for never.
    fn interrupts_at_ps(&self, cpu: usize) -> u64 {
        let _ = cpu;
        u64::MAX
    }

    /// That interrupt, on the CPU, with interrupts off.
    fn interrupt(&self, context: Context<'_>) {
        let _ = context;
    }

    /// The task that gets the CPU now, if it is not the one that runs. It must be running nowhere.
    fn preempts(&self, context: Context<'_>) -> Option<usize> {
        let _ = context;
        None
    }

    /// Something happens on the CPU that calls this. Not an event, and may cause none.
    fn notes(&self, context: Context<'_>, note: Note) {
        let _ = (context, note);
    }
}

impl<'a> Context<'a> {
    pub(crate) fn host(self) -> Option<&'a dyn Host> {
        self.machine().host.as_deref()
    }

    /// The running task.
    pub fn task(self) -> usize {
        self.with(|state| state.current[state.running])
    }

    /// Gives the CPU to a task that runs nowhere; returns when this task has one again, perhaps another one.
    ///
    /// # Panics
    /// Where preemption is not allowed.
    pub fn switch_task(self, next: usize) {
        let mine = self.task();
        self.with(|state| {
            assert!(
                state.is_open(),
                "a task gives its CPU away where it may not"
            );
            state.leave_for(next);
        });
        self.give_way_as(mine);
        self.arrive();
    }

    /// A task has just got a CPU.
    pub(crate) fn arrive(self) {
        self.with(State::arrive);
    }

    pub(crate) fn note(self, note: Note) {
        if let Some(host) = self.host() {
            host.notes(self, note);
        }
    }

    /// Forbids that this task loses its CPU. Nests.
    pub fn preempt_disable(self) {
        let closes = self.with(|state| {
            let closes = state.is_open();
            state.me().preempt_off += 1;
            closes
        });
        if closes {
            self.note(Note::Closed);
        }
    }

    /// Undoes one [`preempt_disable`](Self::preempt_disable); whoever waits for the CPU may get it now.
    pub fn preempt_enable(self) {
        let opens = self.with(|state| {
            state.me().preempt_off -= 1;
            state.is_open()
        });
        if opens {
            self.note(Note::Opened);
            if self.host().is_some() {
                self.boundary();
            }
        }
    }

    /// An instruction of a task is complete: the host may interrupt, and give the CPU to somebody else.
    pub(crate) fn host_boundary(self, host: &dyn Host) {
        loop {
            while self.take_interrupt() {}
            if self.with(|state| !state.takes_interrupts() || state.failure.is_some()) {
                return;
            }
            if self.now_ps() >= host.interrupts_at_ps(self.cpu()) {
                self.with(|state| state.masks(true));
                host.interrupt(self);
                self.with(|state| state.masks(false));
                self.event();
                continue;
            }
            if !self.with(|state| state.is_open()) {
                return;
            }
            match host.preempts(self) {
                Some(next) => self.switch_task(next),
                None => return,
            }
        }
    }
}

impl State {
    pub(crate) fn takes_interrupts(&mut self) -> bool {
        let me = self.me();
        me.interrupts_on && !me.in_handler
    }

    /// Whether the running CPU could be given to another task.
    pub(crate) fn is_open(&mut self) -> bool {
        self.takes_interrupts() && self.me().preempt_off == 0
    }

    /// An interrupt of the host begins or ends.
    fn masks(&mut self, begins: bool) {
        let me = self.me();
        me.interrupts_on = !begins;
        me.in_handler = begins;
    }

    fn leave_for(&mut self, next: usize) {
        let running = self.running;
        assert!(
            !self.current.contains(&next),
            "task {next} is running already"
        );
        let mine = std::mem::replace(&mut self.current[running], next);
        self.tell(|| format!("leaves task {mine} for task {next}"));
        self.record(|recorder, cpu, now| recorder.leaves(cpu, now, mine));
        match &mut self.model {
            Model::Timed(timed) => timed.stays(&self.processors[running], running),
            Model::Explore(explore) => explore.park(running, mine),
        }
    }

    fn arrive(&mut self) {
        let running = self.running;
        let mine = self.current[running];
        self.record(|recorder, cpu, now| recorder.arrives(cpu, now, mine));
        if let Model::Explore(explore) = &mut self.model {
            explore.unpark(running, mine);
        }
    }
}
