//! [`Context`]: the machine that the running coroutine belongs to, and what a program may ask of it.

use std::cell::Cell;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Once;
use std::sync::atomic::AtomicU64;

use shootdown::sim::{Memory, Operation, Ordering, Plain};
use shootdown::{CpuId, remote::GlobalTags, tags::AsidSlot};

use crate::explore::{Question, View, Walk};
use crate::machine::{FailureKind, Machine, Model, Note, State, Status, StealTime};

thread_local! {
    static CURRENT: Cell<Option<NonNull<Machine<'static>>>> = const { Cell::new(None) };
}

static MEMORY: Memory = Memory {
    access: |cell, operation, order| match try_context() {
        Some(context) => context.access(cell, operation, order),
        None => operation.apply(cell, order),
    },
    fence: |order| match try_context() {
        Some(context) => context.fence(order),
        None => std::sync::atomic::fence(order),
    },
    plain: |address, access| {
        if let Some(context) = try_context() {
            context.plain(address, access);
        }
    },
};

/// Puts the machine under every engine of this process. Engines on other threads do not notice.
pub(crate) fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| shootdown::sim::install(&MEMORY));
}

/// The thread belongs to a machine until this is dropped.
#[derive(Debug)]
pub(crate) struct Entered(());

pub(crate) fn enter(machine: &Machine<'_>) -> Entered {
    let machine: NonNull<Machine<'_>> = NonNull::from(machine);
    // SAFETY: only the lifetime changes; `Entered` is dropped before the machine, see `Machine::run`.
    let machine: NonNull<Machine<'static>> = unsafe { std::mem::transmute(machine) };
    let before = CURRENT.replace(Some(machine));
    assert!(before.is_none(), "a run inside a run");
    Entered(())
}

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(None);
    }
}

/// The machine of this thread, or `None` outside a run.
#[inline]
pub fn try_context() -> Option<Context<'static>> {
    let machine = CURRENT.get()?;
    // SAFETY: `enter` stored it, and clears it before the machine goes away.
    Some(Context(unsafe { machine.as_ref() }))
}

/// The machine of this thread.
///
/// # Panics
/// Outside a run.
pub fn context() -> Context<'static> {
    try_context().expect("only a program of a virtual CPU may ask this")
}

/// A virtual CPU's view of its machine.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a>(&'a Machine<'a>);

impl<'a> Context<'a> {
    pub(crate) fn of(machine: &'a Machine<'a>) -> Self {
        Self(machine)
    }

    /// Looks at the state, or changes it. No event.
    ///
    /// # Panics
    /// When nested.
    #[inline]
    pub fn with<R>(self, look: impl FnOnce(&mut State) -> R) -> R {
        look(&mut self.0.state.borrow_mut())
    }

    /// Adds to the story of the run, if it is wanted.
    pub fn tell(self, what: impl FnOnce() -> String) {
        self.with(|state| state.tell(what));
    }

    pub(crate) fn machine(self) -> &'a Machine<'a> {
        self.0
    }

    /// The running virtual CPU.
    pub fn cpu(self) -> usize {
        self.with(|state| state.running)
    }

    /// The virtual CPU with this number.
    ///
    /// # Panics
    /// When there is none.
    pub fn index_of(self, number: CpuId) -> usize {
        self.with(|state| state.index_of(number))
    }

    /// The number of a virtual CPU, by which the engine knows it.
    pub fn number_of(self, cpu: usize) -> CpuId {
        self.with(|state| state.numbers[cpu])
    }

    /// What a virtual CPU remembers of its hardware tags.
    pub(crate) fn global_tags(self) -> GlobalTags {
        self.0.global_tags
    }

    pub(crate) fn asid_slots(self, cpu: usize) -> &'a [AsidSlot] {
        &self.0.asid_slots[cpu]
    }

    /// What a virtual CPU shares with the hypervisor (exploration).
    pub(super) fn steal_time(self, cpu: usize) -> &'a StealTime {
        &self.0.steal_times[cpu]
    }

    /// Which stores the running CPU knows of (exploration).
    pub(crate) fn knowledge(self) -> Rc<View> {
        self.with(|state| match &state.model {
            Model::Explore(explore) => explore.memory.tell(state.running),
            Model::Timed(_) => Rc::default(),
        })
    }

    /// A walk that knows what the running CPU does; only in exploration.
    pub(crate) fn walk(self) -> Option<Walk> {
        self.with(|state| {
            let cpu = state.running;
            state.explore().map(|explore| explore.memory.walk(cpu))
        })
    }

    /// Ends the run. Does not return.
    pub fn fail(self, kind: FailureKind, message: String) -> ! {
        self.with(|state| state.fail(kind, message));
        self.give_way_for_good()
    }

    /// Lets the machine decide who goes on, after an event that takes until the CPU's clock (timed), or before
    /// one (exploration).
    pub fn event(self) {
        if self.0.has_hypervisor && self.with(State::is_taken_away) {
            self.go_out_and_in();
        }
        self.others_go_on();
    }

    /// An event that no hypervisor comes to.
    pub(crate) fn others_go_on(self) {
        let gives_way = self.with(State::gives_way);
        if gives_way {
            self.give_way();
        }
    }

    /// An event in exploration only, where it costs no time: others may go on before the hardware obeys. Atomic
    /// accesses come after their event, so without this nobody could come between one and the flush that follows.
    pub(crate) fn choice(self) {
        if self.with(|state| state.explore().is_some()) {
            self.event();
        }
    }

    pub(crate) fn give_way(self) {
        self.give_way_as(self.task());
    }

    /// What runs is `task`, although its CPU may be somebody else's by now.
    pub(crate) fn give_way_as(self, task: usize) {
        let yielder = self.0.yielders[task].get().expect("a coroutine runs");
        // SAFETY: set by this very coroutine, whose yielder lives as long as its body.
        let yielder = unsafe { yielder.as_ref() };
        yielder.suspend(());
    }

    fn give_way_for_good(self) -> ! {
        loop {
            self.give_way();
        }
    }

    /// The program is over; the CPU goes on to take interrupts, or with its own task.
    pub(crate) fn finish(self) {
        let own = self.cpu();
        if self.task() != own {
            self.with(|state| state.unfinished -= 1);
            self.switch_task(own);
        }
        self.with(State::finish);
        loop {
            self.sleep();
        }
    }

    /// Waits for one interrupt, in user mode or halted, and takes it.
    ///
    /// # Panics
    /// With interrupts off: it would wait for ever.
    pub fn wait_for_interrupt(self) {
        self.with(|state| {
            assert!(state.me().interrupts_on, "waiting with interrupts off");
            state.me().status = Status::Waiting;
        });
        self.sleep();
        self.with(|state| state.me().status = Status::Running);
    }

    fn sleep(self) {
        while !self.take_interrupt() {
            self.with(|state| state.plan_within(u64::MAX));
            self.give_way();
        }
    }

    /// Spends time on something that is not simulated, such as user code or a system call's own work.
    /// Interrupts come in between if they are on, and their time is extra. In exploration it is one event.
    pub fn work(self, time_ps: u64) {
        let mut left_ps = time_ps;
        while left_ps > 0 && self.with(|state| state.timed().is_some()) {
            let started_ps = self.with(|state| state.me().now_ps);
            let host_ps = self
                .host()
                .map_or(u64::MAX, |host| host.interrupts_at_ps(self.cpu()));
            if self.with(|state| !state.me().interrupts_on) {
                self.with(|state| state.me().now_ps += left_ps);
                break;
            }
            self.with(|state| {
                state.plan_within(left_ps.min(host_ps.saturating_sub(started_ps)));
                state.me().status = Status::Waiting;
            });
            self.give_way();
            left_ps -= self.with(|state| {
                state.me().status = Status::Running;
                state.worked_ps(started_ps)
            });
            self.boundary();
        }
        self.event();
        self.boundary();
    }

    /// What the CPU's clock says, as the engine reads it.
    pub(crate) fn clock_ns(self) -> u64 {
        self.with(|state| {
            let (cpu, events) = (state.running, state.events);
            match &state.model {
                Model::Timed(_) => state.me().now_ps / 1000,
                Model::Explore(explore) => explore.now_ns(cpu, events),
            }
        })
    }

    /// The CPU's clock in picoseconds (timed model).
    pub fn now_ps(self) -> u64 {
        self.with(|state| state.me().now_ps)
    }

    /// How many events the run has had: the number of the one that is now.
    pub fn events(self) -> u64 {
        self.with(|state| state.events)
    }

    /// Takes the interrupt that is due, if there is one; tells whether there was.
    pub(crate) fn take_interrupt(self) -> bool {
        if !self.with(State::interrupt_due) {
            return false;
        }
        self.note(Note::HandlerEntered);
        self.with(State::enter_handler);
        self.event();
        (self.0.handler)();
        self.with(State::leave_handler);
        self.note(Note::HandlerLeft);
        self.event();
        true
    }

    pub(crate) fn access(self, cell: &AtomicU64, operation: Operation, order: Ordering) -> u64 {
        self.with(|state| state.charge_access(cell, operation));
        self.event();
        let value = self.with(|state| {
            let cpu = state.running;
            match &mut state.model {
                Model::Timed(_) => operation.apply(cell, Ordering::Relaxed),
                Model::Explore(explore) => explore.access(cpu, cell, operation, order),
            }
        });
        self.heard_access(cell, operation, value);
        self.end_access();
        value
    }

    pub(crate) fn fence(self, order: Ordering) {
        self.with(State::charge_fence);
        self.event();
        self.with(|state| {
            let cpu = state.running;
            if let Some(explore) = state.explore() {
                explore.fence(cpu, order);
            }
        });
        self.end_access();
    }

    /// A plain access to the memory at `address`, which a protocol must have made exclusive: in exploration a race
    /// ends the run.
    pub fn plain(self, address: usize, access: Plain) {
        self.with(|state| state.charge_plain(address, access));
        self.event();
        let raced = self.with(|state| {
            let cpu = state.running;
            state
                .explore()
                .and_then(|explore| explore.plain(cpu, address, access).err())
        });
        if let Some(race) = raced {
            self.fail(FailureKind::DataRace, race);
        }
        self.heard_line(address, access == Plain::Write, false);
    }

    /// A non-maskable interrupt may come here; only exploration asks, and only if the machine has a handler.
    pub(crate) fn maybe_nmi(self) {
        let Some(nmi) = &self.0.nmi else {
            return;
        };
        let comes = self.with(|state| match state.explore() {
            Some(explore) => explore.chooser.choose(Question::Nmi, 2) == 1,
            None => false,
        });
        if !comes {
            return;
        }
        let interrupts_on =
            self.with(|state| std::mem::replace(&mut state.me().interrupts_on, false));
        nmi();
        self.with(|state| state.me().interrupts_on = interrupts_on);
    }

    /// An instruction is complete: interrupts may come in, and a failed run ends here.
    pub(crate) fn boundary(self) {
        self.end_instruction(true);
    }

    /// The same behind an access, where nobody looks at interrupts that are flags.
    fn end_access(self) {
        self.end_instruction(!self.0.has_flags);
    }

    fn end_instruction(self, looks: bool) {
        if self.with(State::leaves_processor) {
            self.give_way();
        }
        while looks && self.take_interrupt() {}
        if let Some(host) = self.host() {
            self.host_boundary(host);
        }
        if self.with(|state| state.failure.is_some()) {
            self.give_way_for_good();
        }
    }
}
