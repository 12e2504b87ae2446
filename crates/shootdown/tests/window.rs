//! Behaviour of windows: what only one CPU can reach, and what it shares. On the puppet machine.

#![cfg(not(loom))]

mod puppet;

use std::sync::atomic::Ordering::Relaxed;

use puppet::*;
use shootdown::flushes::FLUSH_CEILING_PAGES;
use shootdown::*;
use shootdown::{Cpus, tags::*, windows::*};

/// A page of the shared part.
const SHARED: usize = 3;

/// A space with shared page [`SHARED`] at frame 30, and a private root of each of two CPUs.
struct Scene {
    machine: &'static Machine<2>,
    space: AddressSpace<Cpus<2>>,
    windows: [WindowRoot; 2],
}

impl Scene {
    fn new(tags: usize) -> Self {
        let machine = online(tagged::<2>(tags));
        let space = AddressSpace::new(machine, tables(1));
        machine.platform().map_in(space.root(), SHARED, 30);
        space.top_changed();
        let windows = [0, 1].map(|number| {
            WindowRoot::new(machine, &space, cpu(number), tables(10 + u64::from(number)))
        });
        Self {
            machine,
            space,
            windows,
        }
    }

    /// Each CPU has its private root loaded.
    fn entered(tags: usize) -> Self {
        let scene = Self::new(tags);
        for number in [0, 1] {
            scene.enter(number, None);
        }
        scene
    }

    fn puppet(&self) -> &'static Puppet {
        self.machine.platform()
    }

    fn enter(&self, number: u32, previous: Option<&AddressSpace<Cpus<2>>>) {
        let windows = &self.windows[number as usize];
        self.puppet().as_cpu(number, || {
            self.machine
                .windows()
                .switch_to(previous, &self.space, windows)
        });
    }

    /// CPU `number` maps its window's first page to `frame`, which needs no flush if it was empty.
    fn map(&self, number: u32, frame: u64) {
        self.puppet()
            .map_in(self.windows[number as usize].root(), WINDOW, frame);
    }

    /// CPU `number` flushes the first page of its window.
    fn flush(&self, number: u32) {
        let windows = &self.windows[number as usize];
        self.puppet().as_cpu(number, || {
            let pinned = self.machine.windows().pin(windows).expect("on its CPU");
            pinned.flush(pages(WINDOW, 1));
        });
    }

    fn leave(self) {
        for number in [0, 1] {
            let away = || self.machine.switch_away(&self.space, KERNEL_ROOT);
            self.puppet().as_cpu(number, away);
        }
        for windows in self.windows {
            let owner = windows.cpu().as_u32();
            let retire = || self.machine.windows().retire(&self.space, windows);
            self.machine.platform().as_cpu(owner, retire);
        }
        assert!(self.space.cpus().is_empty());
    }
}

#[test]
fn a_window_is_reached_from_its_cpu_alone() {
    let scene = Scene::entered(0);
    scene.map(0, 70);
    scene.map(1, 71);
    let puppet = scene.puppet();
    assert_eq!(
        (puppet.access(0, WINDOW), puppet.access(1, WINDOW)),
        (70, 71)
    );
    assert_eq!(
        (puppet.access(0, SHARED), puppet.access(1, SHARED)),
        (30, 30)
    );
    scene.puppet().as_cpu(1, || {
        scene.machine.switch_to(Some(&scene.space), &scene.space)
    });
    assert_eq!(puppet.translate(1, WINDOW), None, "by the shared root");
    scene.leave();
}

/// Also what nobody has announced as changed, because it was there when the space was made.
#[test]
fn a_private_root_has_what_its_space_was_made_with() {
    let machine = online(tagged::<2>(0));
    let puppet = machine.platform();
    puppet.map_in(1, SHARED, 30);
    let space = AddressSpace::new(machine, tables(1));
    let windows = WindowRoot::new(machine, &space, cpu(0), tables(10));
    machine.windows().switch_to(None, &space, &windows);
    assert_eq!(puppet.access(0, SHARED), 30);
    machine.switch_away(&space, KERNEL_ROOT);
    machine.windows().retire(&space, windows);
}

#[test]
fn flushing_a_window_asks_nobody() {
    let scene = Scene::entered(4);
    scene.map(0, 70);
    let puppet = scene.puppet();
    puppet.access(0, WINDOW);
    scene.map(0, 72);
    puppet.flushes.take();
    scene.flush(0);
    assert_eq!(puppet.access(0, WINDOW), 72);
    assert_eq!(
        puppet.flushes.take(),
        [(0, LocalFlush::Pages(pages(WINDOW, 1), FreedTables::Yes))]
    );
    assert!(puppet.sent.take().is_empty());
    let stats = scene.machine.watch().stats(cpu(0));
    assert_eq!(
        (stats.window_flushes, stats.window_flushes_deferred),
        (1, 0)
    );
    assert_eq!((stats.ipis_sent, stats.requests_published), (0, 0));
    scene.leave();
}

#[test]
fn a_large_window_is_dropped_with_all_else() {
    let scene = Scene::entered(4);
    scene.map(0, 70);
    let puppet = scene.puppet();
    puppet.access(0, WINDOW);
    scene.map(0, 72);
    puppet.flushes.take();
    let pinned = scene.machine.windows().pin(&scene.windows[0]).unwrap();
    assert!(pinned.is_loaded());
    pinned.flush(pages(WINDOW, FLUSH_CEILING_PAGES + 1));
    drop(pinned);
    assert_eq!(puppet.flushes.take(), [(0, LocalFlush::Space)]);
    assert_eq!(puppet.access(0, WINDOW), 72);
    scene.leave();
}

/// An empty range is no change.
#[test]
fn an_empty_range_flushes_nothing() {
    let scene = Scene::entered(4);
    scene.puppet().flushes.take();
    scene
        .machine
        .windows()
        .pin(&scene.windows[0])
        .unwrap()
        .flush(pages(WINDOW, 0));
    assert!(scene.puppet().flushes.take().is_empty());
    assert_eq!(scene.machine.watch().stats(cpu(0)).window_flushes, 0);
    scene.leave();
}

#[test]
fn a_private_root_has_a_tag_of_its_own() {
    let scene = Scene::entered(4);
    scene.map(0, 70);
    let puppet = scene.puppet();
    puppet.access(0, WINDOW);
    let space = &scene.space;
    scene.machine.switch_to(Some(space), space);
    assert_eq!(puppet.translate(0, WINDOW), None, "by the shared root");
    puppet.loads.take();
    scene.enter(0, Some(space));
    let (_, root, _, entries) = puppet.loads.take()[0];
    assert_eq!((root, entries), (10, TagEntries::Keep));
    assert_eq!(puppet.access(0, WINDOW), 70);
    scene.leave();
}

/// Loading the root that is loaded costs nothing.
#[test]
fn staying_in_the_private_root_loads_nothing() {
    let scene = Scene::entered(4);
    scene.puppet().loads.take();
    scene.puppet().trace.take();
    scene.enter(0, Some(&scene.space));
    assert!(scene.puppet().loads.take().is_empty());
    assert!(scene.puppet().trace.take().is_empty(), "it is no switch");
    scene.leave();
}

#[test]
fn a_window_that_changes_while_its_root_is_not_loaded_is_dropped_at_the_next_load() {
    let scene = Scene::entered(4);
    let (puppet, space) = (scene.puppet(), &scene.space);
    scene.map(0, 70);
    puppet.access(0, WINDOW);
    scene.machine.switch_away(space, KERNEL_ROOT);
    scene.map(0, 72);
    puppet.flushes.take();
    scene.flush(0);
    assert!(puppet.flushes.take().is_empty(), "nothing to drop now");
    assert_eq!(
        scene.machine.watch().stats(cpu(0)).window_flushes_deferred,
        1
    );
    scene.enter(0, None);
    assert_eq!(puppet.access(0, WINDOW), 72);
    scene.leave();
}

/// A change of the window and one of the space are told apart from one of either alone.
#[test]
fn changes_of_windows_and_of_the_space_add_up() {
    for changes in [(1, 0), (0, 1), (1, 1), (0, 0)] {
        let scene = Scene::entered(4);
        let (puppet, space) = (scene.puppet(), &scene.space);
        scene.machine.switch_away(space, KERNEL_ROOT);
        for _ in 0..changes.0 {
            scene.flush(0);
        }
        for _ in 0..changes.1 {
            scene
                .machine
                .flush(space, pages(SHARED, 1), FreedTables::No);
        }
        puppet.loads.take();
        scene.enter(0, None);
        let expected = match changes {
            (0, 0) => TagEntries::Keep,
            _ => TagEntries::Drop,
        };
        assert_eq!(puppet.loads.take()[0].3, expected, "{changes:?}");
        scene.leave();
    }
}

/// A CPU with windows in two spaces remembers for each tag how often the windows of that root have changed, not of the other.
#[test]
fn changes_of_another_root_do_not_count() {
    let scene = Scene::entered(4);
    let (machine, puppet, space) = (scene.machine, scene.puppet(), &scene.space);
    let other = AddressSpace::new(machine, tables(2));
    let others = WindowRoot::new(machine, &other, cpu(0), tables(21));
    let flush_others = || {
        let pinned = machine.windows().pin(&others).expect("on its CPU");
        pinned.flush(pages(WINDOW, 1));
    };
    let go_there = || machine.windows().switch_to(Some(space), &other, &others);
    go_there();
    flush_others();
    scene.enter(0, Some(&other));
    // Five changes here, one there.
    (0..5).for_each(|_| scene.flush(0));
    go_there();
    puppet.map_in(others.root(), WINDOW, 70);
    assert_eq!(puppet.access(0, WINDOW), 70);
    scene.enter(0, Some(&other));
    // Four more make five there too.
    (0..4).for_each(|_| flush_others());
    puppet.map_in(others.root(), WINDOW, 72);
    go_there();
    assert_eq!(puppet.access(0, WINDOW), 72);
    scene.enter(0, Some(&other));
    machine.windows().retire(&other, others);
    scene.leave();
}

/// The same name in two slots, by a change of policy: what was flushed under one tag is not kept under the other.
#[test]
fn a_flushed_window_does_not_come_back_under_an_older_tag() {
    let scene = Scene::new(64);
    let (puppet, space) = (scene.puppet(), &scene.space);
    // Names are spread over all 64 slots, but not under `Six`.
    let policies = [Tags::Six, Tags::All].map(|tags| Policy::BEST.with_tags(tags));
    scene.map(0, 70);
    for (round, policy) in policies.into_iter().cycle().take(3).enumerate() {
        scene.machine.set_policy(policy);
        scene.enter(0, None);
        let expected = if round < 2 { 70 } else { 72 };
        assert_eq!(puppet.access(0, WINDOW), expected, "round {round}");
        if round == 1 {
            scene.map(0, 72);
            scene.flush(0);
        }
        scene.machine.switch_away(space, KERNEL_ROOT);
    }
    scene.enter(0, None);
    scene.enter(1, None);
    scene.leave();
}

#[test]
fn shared_pages_are_flushed_whichever_root_is_loaded() {
    let scene = Scene::entered(4);
    let (puppet, space) = (scene.puppet(), &scene.space);
    puppet.access(1, SHARED);
    puppet.map_in(space.root(), SHARED, 31);
    puppet.map_in(scene.windows[1].root(), SHARED, 31);
    scene
        .machine
        .flush(space, pages(SHARED, 1), FreedTables::No);
    assert_eq!(puppet.access(1, SHARED), 31);
    assert_eq!(
        scene.machine.watch().stats(cpu(1)).tops_copied,
        0,
        "no table was unlinked"
    );
    scene.leave();
}

#[test]
fn an_unlinked_table_is_gone_from_every_loaded_private_root() {
    let scene = Scene::entered(4);
    let (puppet, space) = (scene.puppet(), &scene.space);
    assert_eq!(puppet.access(1, SHARED), 30);
    puppet.unmap_in(space.root(), SHARED);
    space.top_changed();
    scene
        .machine
        .flush(space, pages(SHARED, 1), FreedTables::Yes);
    for number in [0, 1] {
        assert_eq!(puppet.translate(number, SHARED), None, "CPU {number}");
        assert_eq!(scene.machine.watch().stats(cpu(number)).tops_copied, 1);
    }
    scene.leave();
}

#[test]
fn unlinked_tables_of_every_range_are_gone() {
    const OTHER: usize = SHARED + 2;
    let scene = Scene::new(4);
    let (puppet, space) = (scene.puppet(), &scene.space);
    puppet.map_in(space.root(), OTHER, 40);
    space.top_changed();
    scene.enter(0, None);
    scene.enter(1, None);
    let mut ranges = FlushRanges::from(pages(SHARED, 1));
    ranges.add(pages(OTHER, 1));
    for page in [SHARED, OTHER] {
        assert!(puppet.translate(1, page).is_some());
        puppet.unmap_in(space.root(), page);
    }
    space.top_changed();
    scene.machine.flush(space, ranges, FreedTables::Yes);
    for page in [SHARED, OTHER] {
        assert_eq!(puppet.translate(1, page), None, "page {page}");
    }
    scene.leave();
}

/// The change that is missing may have unlinked a table to which a private root leads: everything goes, and the top is renewed.
#[test]
fn no_flush_overtakes_another_under_a_private_root() {
    let scene: &'static Scene = Box::leak(Box::new(Scene::entered(4)));
    let (machine, puppet, space) = (scene.machine, scene.puppet(), &scene.space);
    let flush = move |page| machine.flush(space, pages(page, 1), FreedTables::No);
    puppet.flushes.take();
    puppet.at_next_flush_remote(move || {
        flush(SHARED + 1);
        let mut flushes = puppet.flushes.take();
        flushes.sort_by_key(|(cpu, _)| *cpu);
        assert_eq!(flushes, [0, 1].map(|cpu| (cpu, LocalFlush::Space)));
        let copied = [0, 1].map(|number| machine.watch().stats(cpu(number)).tops_copied);
        assert_eq!(copied, [1, 1]);
    });
    flush(SHARED);
    assert_eq!(
        puppet.flushes.take(),
        [],
        "what was dropped whole is covered"
    );
}

/// A CPU that was passed by catches up with a flush, and with a table that was unlinked behind it.
#[test]
fn whoever_makes_up_for_a_missed_flush_copies_too() {
    let scene = Scene::entered(4);
    let (machine, puppet, space) = (scene.machine, scene.puppet(), &scene.space);
    puppet.access(1, SHARED);
    puppet.deliver_on_relax.store(false, Relaxed);
    // The deferring CPU is passed by, and catches up at once with both.
    machine.set_policy(Policy::BEST.with_deferral(true));
    puppet.as_cpu(1, || assert!(machine.user_memory().defer_flushes(space)));
    machine.flush(space, pages(SHARED + 1, 1), FreedTables::No);
    puppet.unmap_in(space.root(), SHARED);
    space.top_changed();
    puppet.as_cpu(1, || machine.user_memory().catch_up(space));
    assert_eq!(puppet.translate(1, SHARED), None);
    puppet.deliver_on_relax.store(true, Relaxed);
    scene.leave();
}

#[test]
fn a_private_root_that_is_not_loaded_is_brought_up_to_date_at_its_next_load() {
    let scene = Scene::entered(4);
    let (machine, puppet, space) = (scene.machine, scene.puppet(), &scene.space);
    puppet.as_cpu(1, || machine.switch_away(space, KERNEL_ROOT));
    puppet.unmap_in(space.root(), SHARED);
    puppet.map_in(space.root(), SHARED + 1, 40);
    space.top_changed();
    machine.flush(space, pages(SHARED, 1), FreedTables::Yes);
    assert!(puppet.sent.take().is_empty(), "it has left the space");
    scene.enter(1, None);
    assert_eq!(puppet.translate(1, SHARED), None);
    assert_eq!(puppet.access(1, SHARED + 1), 40);
    scene.leave();
}

#[test]
fn a_fault_brings_new_entries() {
    let scene = Scene::entered(4);
    let (puppet, space) = (scene.puppet(), &scene.space);
    puppet.map_in(space.root(), SHARED + 1, 40);
    space.top_changed();
    assert_eq!(puppet.translate(0, SHARED + 1), None);
    assert!(scene.machine.windows().refresh(space, &scene.windows[0]));
    assert_eq!(puppet.access(0, SHARED + 1), 40);
    assert!(
        !scene.machine.windows().refresh(space, &scene.windows[0]),
        "nothing is new"
    );
    scene.leave();
}

#[test]
fn a_lazy_cpu_lets_go_of_its_private_root() {
    let scene = Scene::entered(4);
    let (machine, puppet, space) = (scene.machine, scene.puppet(), &scene.space);
    puppet.as_cpu(1, || machine.user_memory().enter_lazy(space, KERNEL_ROOT));
    machine.flush(space, pages(SHARED, 1), FreedTables::Yes);
    assert_eq!(puppet.root_of(1), KERNEL_ROOT.as_u64());
    assert_eq!(
        machine.watch().stats(cpu(1)).tops_copied,
        0,
        "it walks that root no more"
    );
    scene.enter(1, Some(space));
    assert_eq!(puppet.root_of(1), 11);
    scene.leave();
}

/// Going offline leaves the private root as it is; what happened meanwhile is found when it is loaded again.
#[test]
fn a_private_root_outlives_its_cpus_absence() {
    let scene = Scene::entered(4);
    let (machine, puppet, space) = (scene.machine, scene.puppet(), &scene.space);
    scene.map(1, 71);
    puppet.access(1, WINDOW);
    puppet.as_cpu(1, || {
        machine.switch_away(space, KERNEL_ROOT);
        machine.offline();
    });
    puppet.unmap_in(space.root(), SHARED);
    space.top_changed();
    machine.flush(space, pages(SHARED, 1), FreedTables::Yes);
    puppet.as_cpu(1, || machine.online());
    scene.enter(1, None);
    assert_eq!(
        (puppet.access(1, WINDOW), puppet.translate(1, SHARED)),
        (71, None)
    );
    scene.leave();
}

#[test]
fn windows_are_pinned_on_their_cpu_only() {
    let scene = Scene::new(0);
    let error = scene.machine.windows().pin(&scene.windows[1]).unwrap_err();
    assert_eq!(
        error,
        WrongCpu {
            here: cpu(0),
            needed: cpu(1)
        }
    );
    assert!(error.to_string().contains("pin the task"), "{error}");
    let puppet = scene.puppet();
    assert!(
        puppet.is_preemptible(),
        "a refusal leaves preemption as it was"
    );
    let pinned = scene.machine.windows().pin(&scene.windows[0]).unwrap();
    assert!(!pinned.is_loaded());
    assert!(!puppet.is_preemptible());
    drop(pinned);
    assert!(puppet.is_preemptible());
}

/// A task may be moved just after it has asked where it is, so it is kept there first.
#[test]
fn windows_are_pinned_before_their_cpu_is_compared() {
    let scene = Scene::new(0);
    let puppet = scene.puppet();
    *puppet.moves_to.lock().unwrap() = Some(1);
    let pinned = scene.machine.windows().pin(&scene.windows[0]).unwrap();
    assert_eq!(Seat::<2>(puppet).current_cpu(), cpu(0));
    drop(pinned);
    assert!(puppet.is_preemptible());
}

#[test]
#[should_panic(expected = "loads the window root of")]
fn another_cpus_private_root_is_refused() {
    let scene = Scene::new(0);
    scene
        .machine
        .windows()
        .switch_to(None, &scene.space, &scene.windows[1]);
}

#[test]
#[should_panic(expected = "the window root of")]
fn another_spaces_private_root_is_refused() {
    let scene = Scene::new(0);
    let other = AddressSpace::new(scene.machine, tables(2));
    scene
        .machine
        .windows()
        .switch_to(None, &other, &scene.windows[0]);
}

#[test]
#[should_panic(expected = "switch away first")]
fn a_loaded_private_root_is_not_retired() {
    let scene = Scene::entered(0);
    let [first, second] = scene.windows;
    // Their drops would panic too.
    let (space, _second) = (
        std::mem::ManuallyDrop::new(scene.space),
        std::mem::ManuallyDrop::new(second),
    );
    scene.machine.windows().retire(&space, first);
}

/// The name of a retired root is never used again, so its tag serves nobody.
#[test]
fn a_new_private_root_with_an_old_table_inherits_nothing() {
    let scene = Scene::entered(4);
    let (machine, puppet, space) = (scene.machine, scene.puppet(), &scene.space);
    scene.map(0, 70);
    puppet.access(0, WINDOW);
    machine.switch_away(space, KERNEL_ROOT);
    let [first, second] = scene.windows;
    let root = machine.windows().retire(space, first);
    let again = WindowRoot::new(machine, space, cpu(0), root);
    puppet.map_in(again.root(), WINDOW, 72);
    machine.windows().switch_to(None, space, &again);
    assert_eq!(puppet.access(0, WINDOW), 72);
    Scene {
        windows: [again, second],
        ..scene
    }
    .leave();
}

/// A platform that says nothing about windows.
struct Plain;

// SAFETY: one CPU without interrupts or page tables.
unsafe impl Platform for Plain {
    type Cpus = Cpus<2>;
    type IrqState = ();
    fn current_cpu(&self) -> CpuId {
        cpu(0)
    }
    fn irq_save(&self) {}
    unsafe fn irq_restore(&self, (): ()) {}
    fn preempt_disable(&self) {}
    unsafe fn preempt_enable(&self) {}
    fn send_ipi(&self, _: CpuId) -> Result<(), IpiRefused> {
        Ok(())
    }
    fn local_flush(&self, _: LocalFlush) {}
    unsafe fn load_root(&self, _: u64) {}
    fn now_ns(&self) -> u64 {
        0
    }
}

#[test]
#[should_panic(expected = "copy_shared_top")]
fn a_platform_without_windows_has_none() {
    let machine = Shootdown::<Plain>::new(Plain);
    let space = AddressSpace::new(&machine, tables(1));
    drop(WindowRoot::new(&machine, &space, cpu(0), tables(2)));
}

/// A space whose tables are freed while nobody runs it: its private roots go with it, from any CPU.
#[test]
fn private_roots_are_retired_after_their_space_was_left() {
    let machine = online(powered_off::<2>());
    let space = AddressSpace::new(machine, tables(1));
    let windows = WindowRoot::new(machine, &space, cpu(1), tables(11));
    machine.platform().as_cpu(1, || {
        machine.windows().switch_to(None, &space, &windows);
        machine.switch_away(&space, KERNEL_ROOT);
    });
    // SAFETY: 1. CPU 1 has left it, and nobody else knows it.
    let root = unsafe { machine.windows().retire_elsewhere(&space, windows) };
    assert_eq!(root, tables(11));
}

/// Who has windows in a space stays in its set, and is asked for nothing while it is elsewhere.
#[test]
fn a_resident_that_is_elsewhere_is_left_alone() {
    for freed in [FreedTables::No, FreedTables::Yes] {
        let scene = Scene::entered(4);
        let (machine, puppet, space) = (scene.machine, scene.puppet(), &scene.space);
        puppet.access(1, SHARED);
        puppet.as_cpu(1, || machine.switch_away(space, KERNEL_ROOT));
        assert!(space.cpus().contains(cpu(1)));
        puppet.sent.take();
        puppet.map_in(space.root(), SHARED, 31);
        space.top_changed();
        machine.flush(space, pages(SHARED, 1), freed);
        assert!(puppet.sent.take().is_empty(), "{freed:?}");
        assert_eq!(machine.watch().stats(cpu(0)).absent_skipped, 1);
        scene.enter(1, None);
        assert_eq!(puppet.access(1, SHARED), 31);
        machine.flush(space, pages(SHARED, 1), freed);
        assert_eq!(puppet.sent.take(), [(0, 1)], "it is back");
        // An initiator that is elsewhere passes by nobody: it is no target of its own.
        let before = machine.watch().stats(cpu(0)).absent_skipped;
        machine.switch_away(space, KERNEL_ROOT);
        machine.flush(space, pages(SHARED, 1), freed);
        assert_eq!(machine.watch().stats(cpu(0)).absent_skipped, before);
        scene.enter(0, None);
        scene.leave();
    }
}

/// A switch that has to do with windows on one side only, that of the space it leaves, leaves them altogether.
#[test]
fn a_space_without_windows_after_one_with() {
    let scene = Scene::entered(4);
    let (machine, puppet, space) = (scene.machine, scene.puppet(), &scene.space);
    let plain = AddressSpace::new(machine, tables(2));
    puppet.as_cpu(1, || machine.switch_to(Some(space), &plain));
    puppet.sent.take();
    machine.flush(space, pages(SHARED, 1), FreedTables::Yes);
    assert!(puppet.sent.take().is_empty(), "it is elsewhere");
    puppet.as_cpu(1, || {
        let pinned = machine
            .windows()
            .pin(&scene.windows[1])
            .expect("on its CPU");
        assert!(!pinned.is_loaded());
        machine.flush(&plain, FlushRange::WHOLE, FreedTables::Yes);
    });
    assert_eq!(
        machine.watch().stats(cpu(1)).tops_copied,
        0,
        "no private root there"
    );
    scene.enter(1, Some(&plain));
    assert!(plain.cpus().is_empty());
    machine.flush(space, pages(SHARED, 1), FreedTables::Yes);
    assert_eq!(puppet.sent.take(), [(0, 1)], "it is back");
    scene.leave();
}

/// By whichever root: a resident on the shared one is told as well.
#[test]
fn a_resident_on_the_shared_root_is_flushed() {
    let scene = Scene::entered(4);
    let (machine, puppet, space) = (scene.machine, scene.puppet(), &scene.space);
    puppet.as_cpu(1, || {
        machine.switch_away(space, KERNEL_ROOT);
        machine.switch_to(None, space);
    });
    puppet.access(1, SHARED);
    puppet.map_in(space.root(), SHARED, 31);
    machine.flush(space, pages(SHARED, 1), FreedTables::No);
    assert_eq!(puppet.access(1, SHARED), 31);
    scene.leave();
}

/// A CPU that has windows in two spaces is in one of them.
#[test]
fn a_resident_of_two_spaces_is_in_one() {
    let scene = Scene::entered(4);
    let (machine, puppet, space) = (scene.machine, scene.puppet(), &scene.space);
    let other = AddressSpace::new(machine, tables(2));
    let others = WindowRoot::new(machine, &other, cpu(1), tables(21));
    let flush_both = || {
        puppet.sent.take();
        [space, &other].map(|space| {
            machine.flush(space, pages(SHARED, 1), FreedTables::No);
            puppet.sent.take().len()
        })
    };
    for _ in 0..2 {
        puppet.as_cpu(1, || {
            machine.windows().switch_to(Some(space), &other, &others)
        });
        assert_eq!(flush_both(), [0, 1]);
        scene.enter(1, Some(&other));
        assert_eq!(flush_both(), [1, 0]);
    }
    puppet.as_cpu(1, || machine.windows().retire(&other, others));
    scene.leave();
}

/// Without windows a CPU is in the set for as long as it has the space loaded, and no longer.
#[test]
fn who_retires_its_windows_is_no_resident_any_more() {
    let scene = Scene::entered(4);
    let (machine, puppet, space) = (scene.machine, scene.puppet(), scene.space);
    let [first, second] = scene.windows;
    puppet.as_cpu(1, || {
        machine.switch_to(Some(&space), &space);
        machine.windows().retire(&space, second);
    });
    puppet.access(1, SHARED);
    puppet.map_in(space.root(), SHARED, 31);
    machine.flush(&space, pages(SHARED, 1), FreedTables::No);
    assert_eq!(
        puppet.access(1, SHARED),
        31,
        "it still has the space loaded"
    );
    puppet.as_cpu(1, || machine.switch_away(&space, KERNEL_ROOT));
    assert!(!space.cpus().contains(cpu(1)));
    machine.switch_away(&space, KERNEL_ROOT);
    machine.windows().retire(&space, first);
    assert!(space.cpus().is_empty());
}

/// A private root that its CPU never loaded made it no resident: it is in the set for the sake of the shared one.
#[test]
fn who_retires_windows_that_it_never_had_loaded_is_still_flushed() {
    let scene = Scene::new(0);
    let (machine, puppet, space) = (scene.machine, scene.puppet(), scene.space);
    let [_, second] = scene.windows;
    puppet.as_cpu(1, || {
        machine.switch_to(None, &space);
        machine.windows().retire(&space, second);
    });
    puppet.access(1, SHARED);
    puppet.map_in(space.root(), SHARED, 31);
    machine.flush(&space, pages(SHARED, 1), FreedTables::No);
    assert_eq!(puppet.access(1, SHARED), 31);
    puppet.as_cpu(1, || machine.switch_away(&space, KERNEL_ROOT));
}

#[test]
#[should_panic(expected = "do that there")]
fn a_private_root_is_not_retired_behind_its_cpus_back() {
    let scene = Scene::entered(0);
    let [first, second] = scene.windows;
    // Their drops would panic too.
    let (space, _first) = (
        std::mem::ManuallyDrop::new(scene.space),
        std::mem::ManuallyDrop::new(first),
    );
    scene
        .machine
        .platform()
        .as_cpu(1, || scene.machine.switch_to(Some(&space), &space));
    // SAFETY: 1. is not so, which is what is noticed.
    unsafe { scene.machine.windows().retire_elsewhere(&space, second) };
}

#[test]
#[should_panic(expected = "is retired from")]
fn a_private_root_is_retired_from_its_own_space() {
    let scene = Scene::new(0);
    let other = AddressSpace::new(scene.machine, tables(2));
    let [first, _] = scene.windows;
    scene.machine.windows().retire(&other, first);
}

/// A platform that flushes other CPUs by itself does not renew their private roots: where a table was freed they are interrupted.
#[test]
fn a_freed_table_is_not_left_in_a_private_root_by_a_platform_that_flushes_others() {
    let scene = Scene::entered(4);
    let (machine, puppet, space) = (scene.machine, scene.puppet(), &scene.space);
    puppet.reaches(EVERYBODY);
    assert_eq!(puppet.access(1, SHARED), 30);
    puppet.unmap_in(space.root(), SHARED);
    space.top_changed();
    machine.flush(space, pages(SHARED, 1), FreedTables::Yes);
    assert_eq!(puppet.translate(1, SHARED), None, "it leads to the table");
    assert!(puppet.asked.take().is_empty());
    machine.flush(space, pages(SHARED, 1), FreedTables::No);
    assert_eq!(puppet.asked.take().len(), 1, "nothing to renew");
    scene.leave();
}

/// It has the other's private root loaded still, and may use it, while the load of the next is under way.
#[test]
fn a_cpu_on_its_way_from_one_private_root_to_another_is_told_of_changes_to_both() {
    let scene: &'static Scene = Box::leak(Box::new(Scene::new(4)));
    let (machine, puppet) = (scene.machine, scene.puppet());
    let next: &'static AddressSpace<Cpus<2>> =
        Box::leak(Box::new(AddressSpace::new(machine, tables(2))));
    let windows = WindowRoot::new(machine, next, cpu(0), tables(20));
    for _ in 0..2 {
        scene.enter(0, None);
        machine
            .windows()
            .switch_to(Some(&scene.space), next, &windows);
        machine.switch_away(next, KERNEL_ROOT);
    }
    scene.enter(0, None);
    puppet.sent.take();
    puppet.at_next_load(move || {
        puppet.as_cpu(1, || {
            let range = pages(SHARED, 1);
            let ticket = machine.submit_flush(&scene.space, range, FreedTables::Yes);
            std::mem::forget(ticket);
        });
    });
    machine
        .windows()
        .switch_to(Some(&scene.space), next, &windows);
    assert_eq!(puppet.sent.take(), [(1, 0)]);
    puppet.as_cpu(1, || assert!(puppet.deliver(0)));
    machine.switch_away(next, KERNEL_ROOT);
    machine.windows().retire(next, windows);
}

/// It leaves a space without windows for one that has some, by the shared root.
#[test]
fn the_tag_of_a_space_without_windows_is_remembered_when_it_is_left_for_one_with_windows() {
    let scene = Scene::entered(4);
    let (machine, puppet) = (scene.machine, scene.puppet());
    scene.map(1, 70);
    scene.flush(1);
    let plain = AddressSpace::new(machine, tables(2));
    puppet.as_cpu(1, || {
        machine.switch_to(Some(&scene.space), &plain);
        machine.switch_to(Some(&plain), &scene.space);
        puppet.loads.take();
        machine.switch_to(Some(&scene.space), &plain);
        let (_, root, _, entries) = puppet.loads.take()[0];
        assert_eq!((root, entries), (2, TagEntries::Keep));
        machine.switch_to(Some(&plain), &scene.space);
    });
    scene.leave();
}
