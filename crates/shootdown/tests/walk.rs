//! Behaviour of sections in which a CPU reads page tables without their lock: who waits for them, and for whom they don't. On the puppet machine.

#![cfg(not(loom))]

mod puppet;

use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;

use puppet::*;
use shootdown::user_memory::Walk;
use shootdown::watch::Activity;
use shootdown::*;

/// CPU 1 walks tables; others have no business there.
const WALKER: u32 = 1;

type Section<const N: usize> = Walk<'static, Seat<N>>;

/// A section that ends wherever the one thread that plays all CPUs gets to.
struct Ends<T>(T);
// SAFETY: there is one thread.
unsafe impl<T> Send for Ends<T> {}

/// What the walker is to the space whose tables it reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Walker {
    Active,
    Lazy,
    Detached,
    Deferring,
    Elsewhere,
    Nowhere,
}

const WALKERS: [Walker; 6] = [
    Walker::Active,
    Walker::Lazy,
    Walker::Detached,
    Walker::Deferring,
    Walker::Elsewhere,
    Walker::Nowhere,
];

struct Scene<const N: usize>
where
    Cpus<N>: Capacity,
{
    machine: &'static Machine<N>,
    puppet: &'static Puppet,
    space: &'static Space<N>,
    other: &'static Space<N>,
}

/// Plays `test` with each kind of walker, where flushes come by interrupt and where a back end takes every CPU that it may; that is its argument.
fn with_each_walker(test: impl Fn(Walker, bool, Scene<4>)) {
    for walker in WALKERS {
        for has_back_end in [false, true] {
            let scene = Scene::new(walker);
            scene.puppet.has_no_back_end.store(!has_back_end, Relaxed);
            scene.puppet.reaches(EVERYBODY);
            test(walker, has_back_end, scene);
        }
    }
}

/// CPUs 0 and 2 have `space` loaded, and CPU 1 is what `walker` says.
fn scene_on<const N: usize>(machine: &'static Machine<N>, walker: Walker) -> Scene<N>
where
    Cpus<N>: Capacity,
{
    let puppet = machine.platform().0;
    machine.set_policy(Policy::BEST.with_deferral(true).with_global_tags_from(1));
    let space: &'static Space<N> = Box::leak(Box::new(space_on(machine, 3)));
    let other: &'static Space<N> = Box::leak(Box::new(Space::new(machine, 2)));
    puppet.as_cpu(WALKER, || match walker {
        Walker::Active => {}
        Walker::Lazy | Walker::Detached => machine.user_memory().enter_lazy(space, KERNEL_ROOT),
        Walker::Deferring => assert!(machine.user_memory().defer_flushes(space)),
        Walker::Elsewhere => machine.switch_to(Some(space), other),
        Walker::Nowhere => machine.switch_away(space, KERNEL_ROOT),
    });
    if walker == Walker::Detached {
        flush(machine, space, FreedTables::Yes);
    }
    puppet.sent.take();
    puppet.asked.take();
    Scene {
        machine,
        puppet,
        space,
        other,
    }
}

fn flush<const N: usize>(machine: &Machine<N>, space: &AddressSpace<Cpus<N>>, freed: FreedTables)
where
    Cpus<N>: Capacity,
{
    machine.flush(space, pages(0, 1), freed);
}

impl<const N: usize> Scene<N>
where
    Cpus<N>: Capacity,
{
    fn new(walker: Walker) -> Self
    where
        Cpus<N>: Capacity,
    {
        scene_on(online(tagged::<N>(4)), walker)
    }

    fn walk(&self) -> Section<N> {
        let memory = self.machine.user_memory();
        self.puppet.as_cpu(WALKER, || memory.walk(self.space))
    }

    fn end(&self, section: Section<N>) {
        self.puppet.as_cpu(WALKER, || drop(section));
    }

    fn poll(&self) -> bool {
        self.puppet.as_cpu(WALKER, || self.machine.poll())
    }

    fn submit(
        &self,
        initiator: u32,
        ranges: impl Into<FlushRanges>,
        freed: FreedTables,
    ) -> FlushTicket<'static, Seat<N>> {
        let (machine, space) = (self.machine, self.space);
        self.puppet
            .as_cpu(initiator, || machine.submit_flush(space, ranges, freed))
    }

    /// As CPU 2, which every flush of the space finds, answers.
    fn submit_freed(&self) -> FlushTicket<'static, Seat<N>> {
        let ticket = self.submit(0, pages(0, 1), FreedTables::Yes);
        self.puppet.deliver(2);
        ticket
    }

    fn submit_here(&self, freed: FreedTables) -> FlushTicket<'static, Seat<N>> {
        self.machine.submit_flush(self.space, pages(0, 1), freed)
    }

    fn awaited(&self) -> u64 {
        self.machine.watch().stats(cpu(WALKER)).walks_awaited
    }
}

#[test]
fn freed_tables_wait_for_a_walker_wherever_it_is() {
    with_each_walker(|walker, has_back_end, scene| {
        let puppet = scene.puppet;
        let section = scene.walk();
        let ticket = scene.submit_freed();
        let message = format!("{walker:?}, back end: {has_back_end}");
        assert!(puppet.is_interrupted(WALKER), "{message}");
        assert!(!puppet.deliver(WALKER), "interrupts are off");
        scene.poll();
        scene.poll();
        assert!(!ticket.is_done(), "{message}");
        assert_eq!(scene.awaited(), 0);
        scene.end(section);
        assert!(ticket.is_done(), "{message}");
        assert_eq!(scene.awaited(), 1, "{message}");
        // All is as before, also for who comes later.
        assert_eq!(scene.walk_without_company(), 1, "{message}");
        let denied = !matches!(walker, Walker::Active);
        let access_ok = || scene.machine.user_memory().access_ok(scene.space.id());
        assert_eq!(puppet.as_cpu(WALKER, access_ok), !denied, "{message}");
        puppet.deliver(WALKER);
        puppet.sent.take();
        puppet.reaches(&[]);
        flush(scene.machine, scene.space, FreedTables::No);
        let is_asked = puppet.sent.take().contains(&(0, WALKER));
        assert_eq!(is_asked, walker == Walker::Active, "{message}");
    });
}

impl<const N: usize> Scene<N>
where
    Cpus<N>: Capacity,
{
    /// A section for whose end nobody waits.
    fn walk_without_company(&self) -> u64 {
        let section = self.walk();
        self.poll();
        self.end(section);
        self.awaited()
    }
}

/// Where the walker spins, polling, for a lock whose holder waits for another flush.
#[test]
fn other_flushes_are_answered_inside() {
    for walker in [Walker::Active, Walker::Lazy] {
        let scene = Scene::<4>::new(walker);
        let section = scene.walk();
        let freed = scene.submit_freed();
        let other = scene.submit(2, pages(1, 1), FreedTables::No);
        scene.puppet.deliver(0);
        scene.poll();
        assert!(other.is_done() && !freed.is_done(), "{walker:?}");
        scene.end(section);
        assert!(freed.is_done());
    }
}

#[test]
fn strict_flushes_and_the_kernels_tables_wait_too() {
    let scene = Scene::<4>::new(Walker::Active);
    let section = scene.walk();
    let strict = scene.submit(0, FlushRanges::from(pages(0, 1)).strict(), FreedTables::No);
    let kernel = scene.puppet.as_cpu(3, || {
        let range = pages(GLOBAL, 1);
        (scene.machine).submit_flush(FlushScope::Kernel, range, FreedTables::Yes)
    });
    scene.puppet.deliver_all();
    scene.puppet.deliver(0);
    scene.poll();
    assert!(!strict.is_done() && !kernel.is_done());
    scene.end(section);
    assert!(strict.is_done() && kernel.is_done());
}

#[test]
fn the_outer_section_goes_on_when_the_inner_one_ends() {
    with_each_walker(|walker, _, scene| {
        let (outer, inner) = (scene.walk(), scene.walk());
        let first = scene.submit_freed();
        scene.poll();
        scene.end(inner);
        assert!(!first.is_done(), "{walker:?}");
        let second = scene.submit_freed();
        scene.poll();
        assert!(!second.is_done(), "{walker:?}");
        scene.end(outer);
        assert!(first.is_done() && second.is_done(), "{walker:?}");
    });
}

/// Sections about two spaces.
#[test]
fn a_section_inside_one_about_another_space() {
    let scene = Scene::<4>::new(Walker::Active);
    let (machine, puppet) = (scene.machine, scene.puppet);
    puppet.as_cpu(3, || machine.switch_to(None, scene.other));
    let outer = scene.walk();
    let inner = puppet.as_cpu(WALKER, || machine.user_memory().walk(scene.other));
    let submit = || machine.submit_flush(scene.other, pages(0, 1), FreedTables::Yes);
    let other = puppet.as_cpu(3, submit);
    let ours = scene.submit_freed();
    scene.poll();
    assert!(!other.is_done() && !ours.is_done());
    scene.end(inner);
    assert!(!other.is_done(), "the word is one for all");
    scene.end(outer);
    assert!(other.is_done() && ours.is_done());
    assert!(!scene.other.cpus().contains(cpu(WALKER)));
    assert!(scene.space.cpus().contains(cpu(WALKER)));
}

#[test]
fn a_sync_waits_for_walkers() {
    with_each_walker(|walker, has_back_end, scene| {
        let (machine, puppet) = (scene.machine, scene.puppet);
        let asked = |scene: &Scene<4>| {
            puppet.sent.take();
            machine.user_memory().sync_walks(scene.space);
            let sent = puppet.sent.take();
            sent.iter().map(|(_, to)| *to).collect::<Vec<_>>()
        };
        let section = Ends(scene.walk());
        static ENDED: Count = Count::new();
        ENDED.take();
        puppet.at_next_relax(move || {
            let section = section;
            puppet.as_cpu(WALKER, || {
                machine.poll();
                ENDED.add();
                drop(section);
            });
        });
        let expected: &[u32] = if has_back_end { &[1] } else { &[1, 2] };
        assert_eq!(asked(&scene), expected, "{walker:?}, {has_back_end}");
        assert_eq!(ENDED.get(), 1, "it has waited");
        // Nobody walks: where walkers say so nobody is asked.
        let expected: &[u32] = match (has_back_end, walker) {
            (true, _) => &[],
            (false, Walker::Active) => &[1, 2],
            (false, _) => &[2],
        };
        assert_eq!(asked(&scene), expected, "{walker:?}, {has_back_end}");
        assert!(puppet.asked.take().is_empty(), "nothing is flushed");
    });
}

/// A flush by an instruction reads no set of CPUs, unless tables are freed that somebody has walked.
#[test]
fn tables_that_were_walked_are_not_freed_by_an_instruction_alone() {
    for walker in WALKERS {
        let machine = online(globally_tagged::<4>(12));
        let scene = scene_on(machine, walker);
        let puppet = scene.puppet;
        for _ in 0..3 {
            flush(machine, scene.space, FreedTables::No);
        }
        assert!(!puppet.everywhere.take().is_empty(), "{walker:?} has a tag");
        puppet.sent.take();
        let section = scene.walk();
        puppet.reaches(EVERYBODY);
        let ticket = scene.submit_freed();
        scene.poll();
        assert!(!ticket.is_done(), "{walker:?}");
        assert_eq!(puppet.everywhere.take().len(), 1);
        assert_eq!(puppet.sent.take(), [(0, WALKER)], "{walker:?}");
        scene.end(section);
        assert!(ticket.is_done(), "{walker:?}");
        flush(machine, scene.space, FreedTables::No);
        assert_eq!(puppet.everywhere.take().len(), 1, "{walker:?}");
    }
}

/// A CPU with windows stays in a space's set, and is passed by while it is elsewhere.
#[test]
fn a_resident_that_is_elsewhere_is_found() {
    let (machine, puppet) = with_puppet::<4>();
    puppet.has_no_back_end.store(true, Relaxed);
    let space: &'static Space<4> = Box::leak(Box::new(space_on(machine, 3)));
    let other: &'static Space<4> = Box::leak(Box::new(Space::new(machine, 2)));
    let windows = Box::leak(Box::new(windows::WindowRoot::new(
        machine,
        space,
        cpu(WALKER),
        tables(3),
    )));
    puppet.as_cpu(WALKER, || {
        machine.windows().switch_to(Some(space), space, windows);
        machine.switch_to(Some(space), other);
    });
    flush(machine, space, FreedTables::Yes);
    assert_eq!(machine.watch().stats(cpu(0)).absent_skipped, 1);
    let section = puppet.as_cpu(WALKER, || machine.user_memory().walk(space));
    let ticket = machine.submit_flush(space, pages(0, 1), FreedTables::Yes);
    puppet.deliver(2);
    puppet.as_cpu(WALKER, || machine.poll());
    assert!(!ticket.is_done());
    puppet.as_cpu(WALKER, || drop(section));
    assert!(ticket.is_done());
    assert!(space.cpus().contains(cpu(WALKER)), "it stays a resident");
}

/// Announcements in rings, with functions before and behind them.
#[test]
fn what_a_ring_announces_is_held_too() {
    for wide in [false, true] {
        if wide {
            held_in_a_ring::<128>();
        } else {
            held_in_a_ring::<16>();
        }
    }
}

fn held_in_a_ring<const N: usize>()
where
    Cpus<N>: Capacity,
{
    static RAN: Count = Count::new();
    RAN.take();
    let scene = Scene::<N>::new(Walker::Active);
    let (machine, puppet) = (scene.machine, scene.puppet);
    machine.set_policy(Policy::BEST.with_broadcast_from(1));
    let section = scene.walk();
    let post = |initiator| {
        puppet.as_cpu(initiator, || {
            let target = CpuMask::only(cpu(WALKER));
            machine.try_post(&target, |_| RAN.add()).unwrap();
        });
    };
    post(3);
    let freed = scene.submit_freed();
    post(4);
    let other = scene.submit(2, pages(1, 1), FreedTables::No);
    puppet.deliver(0);
    scene.poll();
    scene.poll();
    assert!(other.is_done() && !freed.is_done());
    assert!(machine.watch().stats(cpu(0)).broadcasts_published > 0);
    scene.end(section);
    assert!(freed.is_done());
    assert_eq!(RAN.get(), 0, "under nobody's locks");
    assert!(puppet.deliver(WALKER));
    assert_eq!(RAN.get(), 2);
}

/// A handler that the host runs inside a section answers other flushes, and comes again.
#[test]
fn a_handler_inside_a_section_serves_no_more_than_a_poll() {
    static RAN: Count = Count::new();
    for has_freed in [false, true] {
        RAN.take();
        let scene = Scene::<4>::new(Walker::Active);
        let (machine, puppet) = (scene.machine, scene.puppet);
        let section = scene.walk();
        let freed = has_freed.then(|| scene.submit_freed());
        puppet.as_cpu(3, || {
            let target = CpuMask::only(cpu(WALKER));
            machine.try_post(&target, |_| RAN.add()).unwrap();
        });
        puppet.lose_interrupt(WALKER);
        puppet.interrupt_now(WALKER);
        assert!(freed.as_ref().is_none_or(|freed| !freed.is_done()) && RAN.get() == 0);
        scene.end(section);
        assert!(freed.is_none_or(|freed| freed.is_done()));
        assert!(puppet.deliver(WALKER), "it interrupts itself");
        assert_eq!(RAN.get(), 1);
    }
}

/// Of a type that is `Send`, both are meant, and this does not compile.
#[test]
fn a_section_is_not_sent() {
    trait IsSent<Which> {
        fn ask() {}
    }
    struct Sent;
    impl<T> IsSent<()> for T {}
    impl<T: Send> IsSent<Sent> for T {}
    <Section<4> as IsSent<_>>::ask();
}

/// Who spins behind the section for a lock, with interrupts off still, keeps nobody waiting that it kept in the section.
#[test]
fn a_function_may_walk() {
    static RAN: Count = Count::new();
    let scene: &'static Scene<4> = Box::leak(Box::new(Scene::new(Walker::Active)));
    let function = move |_| {
        let section = scene.walk();
        let freed = scene.submit_freed();
        let other = scene.submit(2, pages(1, 1), FreedTables::No);
        scene.puppet.deliver(0);
        scene.machine.poll();
        assert!(other.is_done() && !freed.is_done());
        scene.puppet.interrupt_now(WALKER);
        assert!(!freed.is_done());
        drop(section);
        assert!(freed.is_done());
        RAN.add();
    };
    scene.puppet.as_cpu(2, || {
        let target = CpuMask::only(cpu(WALKER));
        scene.machine.try_post(&target, function).unwrap();
    });
    assert!(scene.puppet.deliver(WALKER));
    assert_eq!(RAN.get(), 1);
}

#[test]
fn what_a_section_forbids_panics() {
    let forbidden: [fn(&Scene<4>); 10] = [
        |it| it.machine.poll_idle(|_| ()),
        |it| {
            // Waiting for it is forbidden, too.
            std::mem::forget(it.submit_here(FreedTables::Yes));
        },
        |it| {
            let strict = FlushRanges::from(pages(0, 1)).strict();
            it.machine.flush(&**it.space, strict, FreedTables::No);
        },
        |it| it.machine.user_memory().sync_walks(it.space),
        |it| it.machine.call_one(cpu(0), &|_| {}).unwrap(),
        |it| it.machine.switch_to(Some(it.space), it.other),
        |it| it.machine.switch_away(it.space, KERNEL_ROOT),
        |it| it.machine.user_memory().enter_lazy(it.space, KERNEL_ROOT),
        |it| _ = it.machine.user_memory().defer_flushes(it.space),
        |it| it.machine.control().kick(&CpuMask::only(cpu(0))).wait(),
    ];
    for (number, misuse) in forbidden.into_iter().enumerate() {
        let scene = Scene::<4>::new(Walker::Active);
        let section = scene.walk();
        scene.puppet.as_cpu(WALKER, || {
            assert!(refuses(|| misuse(&scene)), "number {number}");
        });
        scene.end(section);
        scene.puppet.deliver_all();
        if number != 9 {
            scene.puppet.as_cpu(WALKER, || misuse(&scene));
        }
    }
}

/// A lone flush does not wait, and may be begun inside.
#[test]
fn a_flush_of_pages_may_be_submitted_inside() {
    let scene = Scene::<4>::new(Walker::Active);
    let section = scene.walk();
    let ticket = scene.submit(WALKER, pages(0, 1), FreedTables::No);
    scene.puppet.deliver_all();
    scene.puppet.deliver(0);
    assert!(ticket.is_done());
    scene.end(section);
}

#[test]
fn a_walker_that_stays_is_named() {
    static SECTION: Mutex<Option<Ends<Section<4>>>> = Mutex::new(None);
    let scene = Scene::<4>::new(Walker::Active);
    scene.machine.watch().set_stall_ns(1000);
    *SECTION.lock().unwrap() = Some(Ends(scene.walk()));
    scene.puppet.at_stall(|puppet| {
        puppet.as_cpu(WALKER, || drop(SECTION.lock().unwrap().take()));
    });
    flush(scene.machine, scene.space, FreedTables::Yes);
    let stalls = scene.puppet.stalls.take();
    assert_eq!(stalls.len(), 1);
    assert_eq!(
        (stalls[0].target, stalls[0].doing),
        (cpu(WALKER), Activity::Walk)
    );
    let message = stalls[0].to_string();
    assert!(
        message.ends_with("to flush, which walks page tables without their lock"),
        "{message}"
    );
}

#[test]
fn a_cpu_that_is_not_online_walks_nothing() {
    let (off, on) = (powered_off::<4>(), machine::<4>());
    let space = Space::new(off, 1);
    assert!(refuses(|| off.user_memory().walk(&space)));
    assert!(
        refuses(|| on.user_memory().walk(&space)),
        "another engine's"
    );
}
