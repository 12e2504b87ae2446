//! [`Machine`]: the coroutines of one run, and the loop that resumes them.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, Yielder};
use shootdown::{CpuId, remote::GlobalTags, tags::AsidSlot};

use crate::machine::current::{self, Context};
use crate::machine::quiet;
use crate::machine::{Failure, FailureKind, Host, Listeners, Model, State, StealTime};
use crate::timed::Timed;
use crate::trace::Recorder;
use crate::walkthrough::Steps;

/// What one virtual CPU executes.
pub type Program<'a> = Box<dyn FnOnce(Context<'_>) + 'a>;

/// Names the line at an address, if it is of interest.
pub(crate) type LineNames<'a> = dyn Fn(usize) -> Option<String> + 'a;

/// How a coroutine gives way; set while it exists.
pub(crate) type GiveWay = Cell<Option<NonNull<Yielder<(), ()>>>>;

/// Enough for the engine's deepest path with sets of 4096 CPUs, in a debug build.
const STACK_BYTES: usize = 256 * 1024;

thread_local! {
    /// Stacks of ended runs: mapping fresh ones costs more than a short run.
    static STACKS: RefCell<Vec<DefaultStack>> = const { RefCell::new(Vec::new()) };
}

/// One machine, for one run.
pub struct Machine<'a> {
    pub(crate) state: RefCell<State>,
    pub(crate) handler: Box<dyn Fn() + 'a>,
    pub(crate) nmi: Option<Box<dyn Fn() + 'a>>,
    pub(crate) host: Option<Box<dyn Host + 'a>>,
    pub(crate) listeners: Option<Box<dyn Listeners + 'a>>,
    /// What the line at an address holds, for those who walk through the run.
    pub(crate) line_names: Option<Box<LineNames<'a>>>,
    /// Of each task.
    pub(crate) yielders: Vec<GiveWay>,
    /// Whether CPUs may be taken off their processors.
    pub(super) has_hypervisor: bool,
    /// Whether CPUs look at their interrupts between instructions of their choice only.
    pub(super) has_flags: bool,
    /// What each CPU shares with the hypervisor.
    pub(super) steal_times: Vec<StealTime>,
    /// Tags that are the same on all CPUs.
    pub(crate) global_tags: GlobalTags,
    /// What each CPU remembers of its hardware tags.
    pub(crate) asid_slots: Vec<Box<[AsidSlot]>>,
    /// The same of those for guests.
    pub(crate) guest_slots: Vec<Box<[AsidSlot]>>,
}

impl fmt::Debug for Machine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Machine")
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

impl<'a> Machine<'a> {
    /// A machine with `cpus` virtual CPUs, on each of which the engine's interrupt leads to `handler`.
    ///
    /// # Panics
    /// With no CPU.
    pub fn new(cpus: usize, model: Model, handler: impl Fn() + 'a) -> Self {
        assert!(cpus > 0, "a machine needs a CPU");
        current::install();
        let global_tags = model.global_tags();
        let (tags, guest_tags) = (model.asid_slots(), model.guest_slots());
        let (has_hypervisor, has_flags) = (model.has_hypervisor(), model.has_flags());
        Self {
            state: RefCell::new(State::new(cpus, model)),
            handler: Box::new(handler),
            nmi: None,
            host: None,
            listeners: None,
            line_names: None,
            yielders: (0..cpus).map(|_| Cell::new(None)).collect(),
            has_hypervisor,
            has_flags,
            steal_times: (0..cpus).map(|_| StealTime::new()).collect(),
            global_tags,
            asid_slots: new_slots(cpus, tags),
            guest_slots: new_slots(cpus, guest_tags),
        }
    }

    /// A machine whose events cost time.
    pub fn timed(model: Timed, handler: impl Fn() + 'a) -> Self {
        Self::new(model.cpus(), Model::Timed(Box::new(model)), handler)
    }

    /// Records what happens from now on; the recorder comes back in the state.
    pub fn record(&mut self, recorder: Recorder) {
        self.state.get_mut().recorder = Some(Box::new(recorder));
    }

    /// Once the CPUs have their numbers: records the run step by step, and which CPUs have the lines that `line_name` names; both come back in the state.
    #[must_use]
    pub fn with_steps(mut self, line_name: impl Fn(usize) -> Option<String> + 'a) -> Self {
        self.hear_steps(line_name);
        self
    }

    /// The same.
    pub fn hear_steps(&mut self, line_name: impl Fn(usize) -> Option<String> + 'a) {
        let numbers = &self.state.get_mut().numbers;
        let recorder = Recorder::new(numbers.len()).with_numbers(numbers);
        self.record(recorder);
        self.state.get_mut().steps = Some(Box::new(Steps::new()));
        self.line_names = Some(Box::new(line_name));
    }

    /// Gives the virtual CPUs other numbers than 0 and so on.
    ///
    /// # Panics
    /// With more or fewer numbers than CPUs.
    #[must_use]
    pub fn with_numbers(mut self, numbers: &[CpuId]) -> Self {
        let known = &mut self.state.get_mut().numbers;
        assert_eq!(known.len(), numbers.len(), "one number a CPU");
        known.copy_from_slice(numbers);
        self
    }

    /// Keeps the story of the run in the state.
    #[must_use]
    pub fn with_story(mut self) -> Self {
        let state = self.state.get_mut();
        state.story = Some(state.unusual_numbers());
        self
    }

    /// In exploration, non-maskable interrupts may come wherever the engine tells of an event, and lead to `nmi`.
    #[must_use]
    pub fn with_nmi(mut self, nmi: impl Fn() + 'a) -> Self {
        self.nmi = Some(Box::new(nmi));
        self
    }

    /// Lets `host` decide who runs: besides the program of each CPU there are `tasks` more.
    #[must_use]
    pub fn with_host(mut self, host: impl Host + 'a, tasks: usize) -> Self {
        self.host = Some(Box::new(host));
        self.yielders.extend((0..tasks).map(|_| Cell::new(None)));
        self.state.get_mut().unfinished += tasks;
        self
    }

    /// Runs one program on each CPU to the end, and those of further tasks, and gives the state back.
    ///
    /// # Errors
    /// The state, whose `failure` is set.
    ///
    /// # Panics
    /// When there are not as many programs as CPUs and tasks, or on a thread that is inside a run.
    pub fn run(self, programs: Vec<Program<'_>>) -> (State, Option<Failure>) {
        assert_eq!(programs.len(), self.yielders.len(), "one program a task");
        {
            let entered = current::enter(&self);
            quiet::panics_are_reported_by_runs();
            let mut coroutines: Vec<_> = programs
                .into_iter()
                .enumerate()
                .map(|(task, program)| Coroutined::new(&self, task, program))
                .collect();
            while let Some(next) = self.next() {
                coroutines[next].resume();
            }
            drop(coroutines);
            drop(entered);
        }
        let state = self.state.into_inner();
        let failure = state.failure.clone();
        (state, failure)
    }

    /// Runs `program` on each CPU, and for each further task, with its number.
    ///
    /// # Panics
    /// When the run, which `what` names, fails.
    pub fn run_each(self, what: &str, program: impl Fn(usize, Context<'_>)) -> State {
        let program = &program;
        let programs = (0..self.yielders.len())
            .map(|task| -> Program<'_> { Box::new(move |context| program(task, context)) })
            .collect();
        let (state, failure) = self.run(programs);
        assert_eq!(failure, None, "{what}");
        state
    }

    /// The task to resume, or nobody when the run is over.
    fn next(&self) -> Option<usize> {
        let mut state = self.state.borrow_mut();
        if state.unfinished == 0 {
            state.send_lost();
        }
        if state.is_over() {
            return None;
        }
        let next = state.pick();
        match next {
            Some(cpu) => state.running = cpu,
            None => state.fail(
                FailureKind::NoProgress,
                "every CPU waits for an interrupt that nobody sends".to_owned(),
            ),
        }
        next.map(|cpu| state.current[cpu])
    }
}

/// So many slots for each CPU.
fn new_slots(cpus: usize, tags: usize) -> Vec<Box<[AsidSlot]>> {
    let of_one = |_| (0..tags).map(|_| AsidSlot::new()).collect();
    (0..cpus).map(of_one).collect()
}

/// A task's coroutine.
struct Coroutined(Option<Coroutine<(), (), (), DefaultStack>>);

impl Coroutined {
    fn new(machine: &Machine<'_>, task: usize, program: Program<'_>) -> Self {
        let stack = STACKS
            .with_borrow_mut(Vec::pop)
            .unwrap_or_else(|| DefaultStack::new(STACK_BYTES).expect("memory for a stack"));
        let machine: NonNull<Machine<'_>> = NonNull::from(machine);
        // SAFETY: only lifetimes change. `Machine::run` drops every coroutine, finished or not, before it
        // returns, and what the program and the machine borrow outlives that call.
        let program: Program<'static> = unsafe { std::mem::transmute(program) };
        // SAFETY: as above.
        let machine: NonNull<Machine<'static>> = unsafe { std::mem::transmute(machine) };
        Self(Some(Coroutine::with_stack(stack, move |yielder, ()| {
            // SAFETY: the machine outlives its coroutines, see above.
            let machine = unsafe { machine.as_ref() };
            machine.yielders[task].set(Some(NonNull::from(yielder)));
            let context = Context::of(machine);
            context.arrive();
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| program(context))) {
                context.fail(FailureKind::Panic, quiet::take_message(&*panic));
            }
            context.finish();
        })))
    }

    fn resume(&mut self) {
        if let Some(coroutine) = &mut self.0 {
            coroutine.resume(());
        }
    }
}

impl Drop for Coroutined {
    fn drop(&mut self) {
        let Some(mut coroutine) = self.0.take() else {
            return;
        };
        if !coroutine.done() {
            // SAFETY: what is left on the stack is forgotten without being dropped: no reference to it leaves
            // the coroutine, and unwinding it instead would run waits that cannot end any more.
            unsafe { coroutine.force_reset() };
        }
        STACKS.with_borrow_mut(|stacks| stacks.push(coroutine.into_stack()));
    }
}
