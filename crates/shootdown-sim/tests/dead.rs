//! CPUs that die at any of their events, and are declared dead: all others come to their ends, and the dead come back. `DEAD_FROM` and `DEAD_COUNT` choose other seeds.

mod programs;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use programs::{post, spin_while, turn_on};
use shootdown::calls::{CallData, CallTicket, Wait};
use shootdown::control::Rendezvous;
use shootdown::sim::{Unfinished, place_of};
use shootdown::{
    AddressSpace, CallTargets, Capacity, CpuId, CpuMask, Cpus, FlushRange, FlushScope, FreedTables,
    Platform, Policy,
};
use shootdown_sim::explore::{Chooser, Explore, NoTlb, Strategy};
use shootdown_sim::machine::{Context, Model, SimPlatform, context, kernel_root_at, root_at};
use shootdown_sim::{Engine, FailureKind, Machine, PLATFORM, Program};

const SPACES: usize = 2;
const DATA: usize = 6;
/// Events of a CPU in which it does most of what it does.
const EVENTS: u64 = 1500;
/// What must have been left half done, or the schedules show nothing.
const STEPS: [Unfinished; 5] = [
    Unfinished::Claim,
    Unfinished::Leaf,
    Unfinished::Inbox,
    Unfinished::Departure,
    Unfinished::Rendezvous,
];
/// Of each CPU.
const OPERATIONS: usize = 8;

type Data = CallData<Box<dyn Fn(CpuId) + Sync>>;

/// Of a call that may be given up, by any CPU: its number, too.
type Ticket<C> = (CallTicket<'static, SimPlatform<C, true>>, usize);

thread_local! {
    /// How often each of these calls has run.
    static RUNS: RefCell<Vec<u32>> = const { RefCell::new(Vec::new()) };
}

/// The first CPUs do nothing but declare others dead, each other too: while one does, another may die that it waits for.
const DECLARERS: usize = 3;

/// How many steps a rendezvous has, and how many each CPU has run.
type Steps = (u32, Vec<Cell<u32>>);

/// What the CPUs of a run share.
struct World<C: Capacity> {
    engine: Engine<C, SimPlatform<C, true>>,
    numbers: Vec<CpuId>,
    spaces: [AddressSpace<C>; SPACES],
    data: Vec<Data>,
    /// Those that have begun, and those that have come to their ends.
    begun: Vec<Cell<bool>>,
    ended: Vec<Cell<bool>>,
    declared: RefCell<CpuMask<C>>,
    /// Those that are declaring.
    declaring: RefCell<CpuMask<C>>,
    steps: RefCell<Vec<Rc<Steps>>>,
    /// Whether calls are given up; those that are under way, and the numbers of those that were.
    gives_up: bool,
    tickets: RefCell<Vec<Ticket<C>>>,
    given_up: RefCell<Vec<usize>>,
    /// What they had left half done, and how many calls and data they did not run.
    unfinished: RefCell<BTreeMap<Unfinished, usize>>,
    unserved: Cell<(usize, usize)>,
    /// Whether they are lost before they are dead, which are, and how often any was.
    loses: bool,
    lost: RefCell<CpuMask<C>>,
    losing: Cell<u64>,
    /// How many flushes were held.
    held: Cell<u64>,
}

impl<C: Capacity> World<C> {
    fn new(numbers: Vec<CpuId>, policy: Policy, gives_up: bool, loses: bool) -> Self {
        let engine = Engine::<C, SimPlatform<C, true>>::for_cpus(numbers.iter().copied());
        engine.set_policy(policy);
        let spaces = [1, 2].map(|frame| AddressSpace::new(&engine, root_at(frame << 12)));
        let flags = || vec![Cell::new(false); numbers.len()];
        Self {
            spaces,
            data: (0..DATA).map(|_| Data::new(Box::new(|_| ()))).collect(),
            begun: flags(),
            ended: flags(),
            declared: RefCell::new(CpuMask::EMPTY),
            declaring: RefCell::new(CpuMask::EMPTY),
            steps: RefCell::default(),
            gives_up,
            tickets: RefCell::default(),
            given_up: RefCell::default(),
            unfinished: RefCell::default(),
            unserved: Cell::default(),
            loses,
            lost: RefCell::new(CpuMask::EMPTY),
            losing: Cell::default(),
            held: Cell::default(),
            engine,
            numbers,
        }
    }

    fn index(&self, cpu: CpuId) -> usize {
        self.numbers.iter().position(|other| *other == cpu).unwrap()
    }

    fn is_gone(&self, cpu: usize) -> bool {
        context().with(|state| state.explore().unwrap().has_stopped(cpu))
    }

    fn all(&self, flags: &[Cell<bool>]) -> bool {
        (DECLARERS..flags.len()).all(|cpu| flags[cpu].get() || self.is_gone(cpu))
    }

    /// A function runs once on each CPU that is said to have run it.
    fn call(&self, targets: CallTargets<'_, C>) {
        let ran: Vec<Cell<u32>> = vec![Cell::new(0); self.numbers.len()];
        let (ran, world) = (Shared(&ran), Shared(self));
        let all = self.engine.call_many(targets, &|cpu: CpuId| {
            let ran = &ran.get()[world.get().index(cpu)];
            ran.set(ran.get() + 1);
        });
        for cpu in all.iter() {
            assert_eq!(
                ran.get()[self.index(cpu)].get(),
                1,
                "runs of a call on {cpu}"
            );
        }
        assert!(ran.get().iter().all(|ran| ran.get() <= 1), "it ran twice");
    }

    fn begin_steps(&self, steps: u32) -> Rc<Steps> {
        let all = Rc::new((steps, vec![Cell::new(0); self.numbers.len()]));
        self.steps.borrow_mut().push(all.clone());
        all
    }

    /// Has a CPU call, or give a call up, its own or another's.
    fn give_up(&'static self, rng: &mut fastrand::Rng) {
        let taken = match rng.bool() {
            true => self.tickets.borrow_mut().pop(),
            false => None,
        };
        let Some((ticket, number)) = taken else {
            let number = RUNS.with_borrow_mut(|runs| {
                runs.push(0);
                runs.len() - 1
            });
            let count = move |_: CpuId| RUNS.with_borrow_mut(|runs| runs[number] += 1);
            let target = *rng.choice(&self.numbers).unwrap();
            if let Ok(ticket) = self.engine.control().try_submit(target, count) {
                self.tickets.borrow_mut().push((ticket, number));
            }
            return;
        };
        match ticket.give_up() {
            Ok(()) => self.given_up.borrow_mut().push(number),
            Err(ticket) => _ = ticket.wait(),
        }
    }

    /// One operation of a CPU that has `loaded` this space.
    fn operate(&'static self, rng: &mut fastrand::Rng, loaded: &mut Option<usize>) {
        if self.gives_up && rng.u8(..3) > 0 {
            return self.give_up(rng);
        }
        let engine = &self.engine;
        let control = engine.control();
        let other = *rng.choice(&self.numbers).unwrap();
        let some: CpuMask<C> = self
            .numbers
            .iter()
            .copied()
            .filter(|_| rng.bool())
            .collect();
        match rng.u8(..16) {
            0 | 1 => self.call(CallTargets::Online),
            2 => self.call(CallTargets::Of(&some)),
            3 => _ = engine.call_one(other, &|_| ()),
            4 => drop(engine.submit(&some, |_| (), rng.choice([Wait::None, Wait::Done]).unwrap())),
            5 => _ = engine.try_post(&some, |_| ()),
            6 => _ = post(&**engine, other, &self.data[rng.usize(..DATA)]),
            7 => self.flush(FlushScope::Kernel, FreedTables::No),
            8 | 9 => {
                let freed = rng.choice([FreedTables::Yes, FreedTables::No]).unwrap();
                self.flush(FlushScope::Space(&self.spaces[rng.usize(..SPACES)]), freed);
            }
            10 => {
                let next = rng.usize(..SPACES);
                with_interrupts_off(|| {
                    engine.switch_to(loaded.map(|space| &self.spaces[space]), &self.spaces[next]);
                    if rng.bool() {
                        engine
                            .user_memory()
                            .enter_lazy(&self.spaces[next], kernel_root_at(0));
                    }
                });
                *loaded = Some(next);
            }
            11 => {
                let section = engine.user_memory().walk(&self.spaces[rng.usize(..SPACES)]);
                PLATFORM.relax();
                drop(section);
            }
            12 => control.kick(&some).wait(),
            // SAFETY: 1. it does nothing.
            13 => _ = unsafe { control.ask(other, &|_| ()) },
            14 => {
                let steps = 1 + rng.u32(..3);
                let how = Rendezvous::within(u64::MAX).with_steps(steps);
                let how = match rng.bool() {
                    true => how.without_flushes(),
                    false => how,
                };
                let (ran, world) = (self.begin_steps(steps), Shared(self));
                let ran = Shared(&*ran);
                let step = |cpu: CpuId, step: u32| {
                    let ran = &ran.get().1;
                    let most = ran.iter().map(Cell::get).max().unwrap();
                    assert!(most <= step + 1, "somebody is a step ahead");
                    ran[world.get().index(cpu)].set(step + 1);
                };
                // Somebody has to find out that its initiator has died.
                let mut workers = some;
                self.numbers[..DECLARERS]
                    .iter()
                    .for_each(|cpu| _ = workers.remove(*cpu));
                // SAFETY: 1. it writes a word.
                let met = unsafe { control.rendezvous(how, &workers, &step) };
                assert_eq!(met, Ok(()));
            }
            _ => {
                if let Some(space) = loaded.take() {
                    with_interrupts_off(|| {
                        engine.switch_away(&self.spaces[space], kernel_root_at(0));
                    });
                }
                with_interrupts_off(|| {
                    engine.offline();
                    PLATFORM.relax();
                    engine.online();
                });
            }
        }
    }

    /// What a lost CPU may walk is held, and leaked here.
    fn flush(&self, scope: FlushScope<'_, C>, freed: FreedTables) {
        let lost = || {
            let mut lost = *self.lost.borrow();
            if let FlushScope::Space(space) = scope {
                lost.intersect(&space.cpus());
            }
            lost
        };
        let before = lost();
        let held = (self.engine.submit_flush(scope, FlushRange::WHOLE, freed)).try_wait();
        let mut all_the_time = before;
        all_the_time.intersect(&lost());
        let is_held = held.is_err();
        assert!(
            is_held || all_the_time.is_empty(),
            "{all_the_time:?} may walk what was freed"
        );
        assert!(
            !is_held || self.losing.get() > 0,
            "held, and nobody was ever lost"
        );
        self.held.set(self.held.get() + u64::from(is_held));
    }

    fn live(&'static self, me: usize, seed: u64) {
        // Before that a rendezvous could keep them.
        spin_while(|| !(0..DECLARERS).all(|cpu| self.begun[cpu].get() || self.is_gone(cpu)));
        let mut rng = fastrand::Rng::with_seed(seed << 8 | me as u64);
        with_interrupts_off(|| {
            self.engine.online();
            self.begun[me].set(true);
        });
        spin_while(|| !self.all(&self.begun));
        let mut loaded = None;
        for _ in 0..OPERATIONS {
            self.operate(&mut rng, &mut loaded);
        }
        if let Some(space) = loaded {
            with_interrupts_off(|| {
                self.engine
                    .switch_away(&self.spaces[space], kernel_root_at(0));
            });
        }
        self.ended[me].set(true);
    }

    fn declare_these(&self, me: usize, cpus: &CpuMask<C>) {
        for cpu in cpus.iter() {
            context().with(|state| {
                let explore = state.explore().unwrap();
                explore.learn_of_stop(me, self.index(cpu));
            });
            let none = std::iter::empty();
            // Others go on, so it may be about one of them.
            let _ = self.engine.unfinished(cpu, none, |one| {
                *self.unfinished.borrow_mut().entry(one).or_default() += 1;
            });
        }
        self.declaring.borrow_mut().insert(self.numbers[me]);
        let mut lost = shootdown::control::Unserved::default();
        if self.loses {
            self.losing.set(self.losing.get() + 1);
            // SAFETY: 1. and 3. they have stopped, and their stacks stay until the run is over.
            lost = unsafe { self.engine.control().declare_lost(cpus) };
            self.lost.borrow_mut().unite(cpus);
            (0..50).for_each(|_| PLATFORM.relax());
            self.lost.borrow_mut().subtract(cpus);
        }
        // SAFETY: 1. to 3. as above.
        let mut unserved = unsafe { self.engine.control().declare_dead(cpus) };
        unserved.calls += lost.calls;
        unserved.data += lost.data;
        let (calls, data) = self.unserved.get();
        (self.unserved).set((calls + unserved.calls, data + unserved.data));
        self.declared.borrow_mut().unite(cpus);
        self.declaring.borrow_mut().remove(self.numbers[me]);
    }

    /// No other CPU that lives waits in a declaration.
    fn are_declared(&self) -> bool {
        let declaring = *self.declaring.borrow();
        let mut cpus = declaring.iter().map(|cpu| self.index(cpu));
        cpus.all(|cpu| self.is_gone(cpu))
    }

    /// Declares those dead that have stopped, until all others have come to their ends.
    fn declare(&self, me: usize) {
        with_interrupts_off(|| {
            self.engine.online();
            self.begun[me].set(true);
        });
        loop {
            let is_over = self.all(&self.ended);
            let gone: CpuMask<C> = (0..self.numbers.len())
                .filter(|cpu| self.is_gone(*cpu))
                .map(|cpu| self.numbers[cpu])
                .collect();
            let declared = *self.declared.borrow();
            let mut news = gone;
            news.subtract(&declared);
            if !news.is_empty() {
                self.declare_these(me, &news);
            } else if is_over && self.are_declared() && !gone_lends(self) {
                break;
            }
            PLATFORM.relax();
        }
        self.ended[me].set(true);
    }
}

/// What the dead have lent comes to an end.
fn gone_lends<C: Capacity>(world: &World<C>) -> bool {
    let declared = *world.declared.borrow();
    let mut cpus = declared.iter();
    cpus.any(|cpu| !world.engine.control().is_settled(cpu))
}

/// What virtual CPUs share, which run on one thread.
struct Shared<'a, T: ?Sized>(&'a T);

impl<T: ?Sized> Shared<'_, T> {
    fn get(&self) -> &T {
        self.0
    }
}

// SAFETY: see above.
unsafe impl<T: ?Sized> Sync for Shared<'_, T> {}

fn with_interrupts_off(body: impl FnOnce()) {
    let interrupts = PLATFORM.irq_save();
    body();
    turn_on(interrupts);
}

fn run_machine<C: Capacity>(
    world: &World<C>,
    explore: Explore,
    program: impl Fn(usize, Context<'_>),
) -> Option<shootdown_sim::Failure> {
    let cpus = world.numbers.len();
    let machine = Machine::new(cpus, Model::Explore(Box::new(explore)), || {
        world.engine.handle_ipi();
    })
    .with_numbers(&world.numbers);
    let program = &program;
    let programs =
        (0..cpus).map(|me| -> Program<'_> { Box::new(move |context| program(me, context)) });
    machine.run(programs.collect()).1
}

/// What was found in all runs.
#[derive(Default, Debug)]
struct Found {
    unfinished: BTreeMap<Unfinished, usize>,
    calls: usize,
    data: usize,
    came_back: usize,
    given_up: usize,
    held: u64,
}

/// A run in which CPUs stop, each after so many events.
fn die<C: Capacity>(
    seed: u64,
    gives_up: bool,
    numbers: Vec<CpuId>,
    stops: &[(usize, u64)],
    found: &mut Found,
) {
    RUNS.with_borrow_mut(Vec::clear);
    let cpus = numbers.len();
    let policies = [
        Policy::BEST,
        Policy::PUBLISHED,
        Policy::BEFORE,
        Policy::BEST.with_broadcast_from(2),
    ];
    let world = &*Box::leak(Box::new(World::<C>::new(
        numbers,
        policies[seed as usize / 2 % 4],
        gives_up,
        seed % 5 < 2,
    )));
    let new_explore = |seed| {
        let strategy = match seed % 4 {
            0 => Strategy::Priorities { seed, changes: 3 },
            _ => Strategy::Random(seed),
        };
        Explore::new(cpus, Chooser::new(strategy, cpus), Box::new(NoTlb), 400_000)
    };
    let place = format!("seed {seed}, stops {stops:?}");
    let explore = stops
        .iter()
        .fold(new_explore(seed), |explore, (cpu, after)| {
            explore.with_stop(*cpu, *after)
        });
    let failure = run_machine(world, explore, |me, _| match me {
        _ if me < DECLARERS => world.declare(me),
        _ => world.live(me, seed),
    });
    for (one, times) in world.unfinished.take() {
        *found.unfinished.entry(one).or_default() += times;
    }
    found.held += world.held.get();
    let (calls, data) = world.unserved.get();
    (found.calls, found.data) = (found.calls + calls, found.data + data);
    match &failure {
        // One that has come to its end may stop later.
        None => {}
        Some(failure) => {
            let declared = world.declared.borrow();
            let stops_in = |cpu: usize| stops.iter().any(|stop| stop.0 == cpu);
            let has_ended = |cpu: usize| world.ended[cpu].get() || stops_in(cpu);
            // One that dies when all who are left to look are declaring another one is waited for.
            let declaring = world.declaring.borrow();
            let looks = |cpu: usize| !has_ended(cpu) && !declaring.contains(world.numbers[cpu]);
            let is_left = |stop: &&(usize, u64)| !declared.contains(world.numbers[stop.0]);
            let nobody_looks =
                stops.iter().filter(is_left).count() > 1 && !(0..DECLARERS).any(looks);
            let is_right = failure.kind == FailureKind::NoProgress
                && ((0..cpus).all(has_ended) || nobody_looks);
            assert!(
                is_right,
                "{place}: {failure}; declared {declared:?}, ended {:?}",
                world.ended
            );
            if (0..cpus).any(|cpu| stops_in(cpu) && !declared.contains(world.numbers[cpu])) {
                // It stopped when nobody looked any more, or not at all.
                return;
            }
        }
    }
    for cpu in world.declared.borrow().iter() {
        let (mut left, data) = (Vec::new(), world.data.iter().map(place_of));
        let lost = (world.engine).unfinished(cpu, data, |one| left.push(one));
        // Nobody but the host knows of these.
        left.retain(|one| *one != Unfinished::Posting);
        assert_eq!(
            (lost, &left[..]),
            (Ok(()), &[][..]),
            "{place}: left by {cpu}"
        );
    }
    let declared = *world.declared.borrow();
    for steps in world.steps.borrow().iter() {
        let living = (0..cpus).filter(|cpu| !declared.contains(world.numbers[*cpu]));
        let mut ran = living.map(|cpu| steps.1[cpu].get());
        assert!(
            ran.all(|ran| ran == 0 || ran == steps.0),
            "{place}: steps {steps:?}"
        );
    }
    come_back(world, &place, new_explore(seed + 1));
    let given_up = world.given_up.borrow();
    let ran = RUNS.with_borrow(|runs| given_up.iter().any(|number| runs[*number] > 0));
    assert!(!ran, "{place}: a call has run that was given up");
    found.given_up += given_up.len();
    found.came_back += world.declared.borrow().len();
}

/// The dead come back, and take part in everything.
fn come_back<C: Capacity>(world: &World<C>, place: &str, explore: Explore) {
    let is_dead = |me: usize| world.declared.borrow().contains(world.numbers[me]);
    let flushed = Cell::new(false);
    let called = vec![Cell::new(false); world.numbers.len()];
    let called = Shared(&called[..]);
    let failure = run_machine(world, explore, |me, _| {
        if me == 0 {
            for space in &world.spaces {
                world
                    .engine
                    .flush(space, FlushRange::WHOLE, FreedTables::Yes);
                assert!(space.cpus().is_empty(), "{place}: a space names the dead");
            }
            flushed.set(true);
        }
        spin_while(|| !flushed.get());
        if is_dead(me) {
            with_interrupts_off(|| {
                world.engine.online();
            });
            // It neither polls nor waits in the engine.
            spin_while(|| !called.get()[me].get());
        } else if me == 0 {
            for (cpu, called) in called
                .get()
                .iter()
                .enumerate()
                .filter(|(cpu, _)| is_dead(*cpu))
            {
                let called = Shared(called);
                let call = || {
                    world
                        .engine
                        .call_one(world.numbers[cpu], &|_| called.get().set(true))
                };
                spin_while(|| call().is_err());
            }
        }
        spin_while(|| world.engine.ready_cpus().len() < world.numbers.len());
        world.call(CallTargets::Online);
        with_interrupts_off(|| {
            world.engine.switch_to(None, &world.spaces[me % SPACES]);
        });
        world
            .engine
            .flush(&world.spaces[0], FlushRange::WHOLE, FreedTables::Yes);
        world
            .data
            .iter()
            .for_each(|data| _ = post(&*world.engine, world.numbers[me], data));
        with_interrupts_off(|| {
            world
                .engine
                .switch_away(&world.spaces[me % SPACES], kernel_root_at(0));
        });
    });
    assert_eq!(failure, None, "{place}: when the dead come back");
}

fn numbers(seed: u64, cpus: usize, limit: u32) -> Vec<CpuId> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut all: Vec<u32> = (0..limit).collect();
    rng.shuffle(&mut all);
    all.into_iter().take(cpus).map(CpuId::new).collect()
}

/// Seeds that have found something: a CPU was called as it came online, and not interrupted.
const FOUND: [u64; 2] = [116127, 174422];

/// Runs, each with its seed; `gives_up` whether calls are given up in them.
fn die_anywhere(gives_up: bool, usual: u64) -> Found {
    let from: u64 = std::env::var("DEAD_FROM").map_or(1, |it| it.parse().unwrap());
    let count: u64 = std::env::var("DEAD_COUNT").map_or(usual, |it| it.parse().unwrap());
    let mut found = Found::default();
    for seed in FOUND.into_iter().chain(from..from + count) {
        let cpus = DECLARERS + 2 + seed as usize % 3;
        let mut rng = fastrand::Rng::with_seed(seed ^ 0xdead);
        let mut stops = vec![(
            DECLARERS + rng.usize(..cpus - DECLARERS),
            1 + rng.u64(..EVENTS),
        )];
        if rng.bool() {
            let other = 1 + rng.usize(..cpus - 1);
            let after = if other < DECLARERS {
                1 + rng.u64(..4 * EVENTS)
            } else {
                1 + rng.u64(..EVENTS)
            };
            if other != stops[0].0 {
                stops.push((other, after));
            }
        }
        // Of a wide machine all in one group, or not.
        let (is_wide, limit) = [(true, 128), (true, 64), (false, 8)][seed as usize % 3];
        let numbers = numbers(seed, cpus, limit);
        match is_wide {
            true => die::<Cpus<128>>(seed, gives_up, numbers, &stops, &mut found),
            false => die::<Cpus<8>>(seed, gives_up, numbers, &stops, &mut found),
        }
    }
    println!("{found:?}");
    found
}

#[test]
fn cpus_die_anywhere() {
    let found = die_anywhere(false, 5000);
    let is_found = |one| found.unfinished.contains_key(one);
    let all_found =
        STEPS.iter().all(is_found) && found.calls > 0 && found.data > 0 && found.held > 0;
    assert!(
        all_found && found.came_back > 0,
        "not everything was found: {found:?}"
    );
}

/// As they call, give up, and are called, also by others that hold their tickets.
#[test]
fn cpus_die_where_calls_are_given_up() {
    let found = die_anywhere(true, 3000);
    let is_found = found.unfinished.contains_key(&Unfinished::GivenUp);
    let all_found = is_found && found.calls > 0 && found.given_up > 0;
    assert!(
        all_found && found.came_back > 0,
        "not everything was found: {found:?}"
    );
}

/// One CPU, alone in its group, dies before it answers a call, and who declares it dies at any event: the next one ends the group all the same.
#[test]
fn a_declarer_dies_at_each_event() {
    const NUMBERS: [u32; 5] = [0, 1, 2, 100, 3];
    const TARGET: usize = DECLARERS;
    const CALLER: usize = TARGET + 1;
    for (after, seed) in (30..250).flat_map(|after| (1..13).map(move |seed| (after, seed))) {
        let numbers = NUMBERS.map(CpuId::new).to_vec();
        let world = World::<Cpus<128>>::new(numbers, Policy::BEST, false, false);
        let world = &*Box::leak(Box::new(world));
        let chooser = Chooser::new(Strategy::Random(seed), NUMBERS.len());
        let explore = Explore::new(NUMBERS.len(), chooser, Box::new(NoTlb), 400_000)
            .with_stop(TARGET, 40)
            .with_stop(0, after);
        let failure = run_machine(world, explore, |me, _| {
            if me < DECLARERS {
                return world.declare(me);
            }
            with_interrupts_off(|| {
                world.engine.online();
                world.begun[me].set(true);
                spin_while(|| me == TARGET);
            });
            spin_while(|| !world.begun[TARGET].get());
            let reached = world.engine.call_one(world.numbers[TARGET], &|_| ());
            assert!(reached.is_err());
            world.ended[me].set(true);
        });
        assert!(
            world.ended[CALLER].get(),
            "after {after}, seed {seed}: {failure:?}"
        );
    }
}
