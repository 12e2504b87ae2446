//! Behaviour of tracked spaces: whom a flush asks, and what a CPU drops, takes and gives up. On the puppet machine.

#![cfg(not(loom))]

mod puppet;

use std::mem::ManuallyDrop;
use std::pin::Pin;

use puppet::*;
use shootdown::reach::{Reach, ReachRoot, Region};
use shootdown::*;
use shootdown::{Cpus, tags::*, user_memory::Walk, watch::*, windows::*};

type Regions = [Region<Cpus<4>>; 50];

/// A tracked space in which CPUs 1 to 3 have roots of their own. Page 7 is in the first region, page 17 in the second; frames are ten times the page.
struct Scene {
    machine: &'static Machine<4>,
    /// Leaked, so that a test that fails says why.
    space: &'static AddressSpace<Cpus<4>>,
    roots: [ManuallyDrop<Pin<Box<ReachRoot<Cpus<4>>>>>; 4],
    regions: &'static Regions,
}

const ONE: usize = 7;
const TWO: usize = 17;
const LAST: usize = 495;

impl Scene {
    fn new(tags: usize) -> Self {
        Self::tracked(online(tagged::<4>(tags)), |_, _| ())
    }

    /// `before` comes before the space is tracked.
    fn tracked(
        machine: &'static Machine<4>,
        before: impl FnOnce(&'static Machine<4>, &AddressSpace<Cpus<4>>),
    ) -> Self {
        let space = Box::leak(Box::new(AddressSpace::new(machine, tables(1))));
        (0..500).for_each(|page| machine.platform().map_in(1, page, page as u64 * 10));
        before(machine, space);
        let regions: &Regions = Box::leak(Box::new(std::array::from_fn(|_| Region::new())));
        // SAFETY: 1. they are leaked.
        unsafe { machine.user_memory().reach().track(space, regions) };
        let roots = [0, 1, 2, 3].map(|number| {
            let table = tables(OWN_ROOTS + u64::from(number));
            ManuallyDrop::new(Box::pin(ReachRoot::new(machine, space, cpu(number), table)))
        });
        Self {
            machine,
            space,
            roots,
            regions,
        }
    }

    /// CPUs 1 and 2 have their own roots loaded; CPU 1 has the first region, CPU 2 the second, and both have the last.
    fn entered(tags: usize) -> Self {
        Self::entered_on(online(tagged::<4>(tags)))
    }

    fn entered_on(machine: &'static Machine<4>) -> Self {
        let scene = Self::tracked(machine, |_, _| ());
        for (number, pages) in [(1, [ONE, LAST]), (2, [TWO, LAST])] {
            scene.enter(number, None);
            pages.iter().for_each(|page| _ = scene.touch(number, *page));
        }
        scene.puppet().sent.take();
        scene.puppet().flushes.take();
        scene
    }

    fn puppet(&self) -> &'static Puppet {
        self.machine.platform()
    }

    fn reach(&self) -> Reach<'static, Seat<4>> {
        self.machine.user_memory().reach()
    }

    fn enter(&self, number: u32, previous: Option<&AddressSpace<Cpus<4>>>) {
        let root = self.roots[number as usize].as_ref();
        let enter = || self.reach().switch_to(previous, self.space, root);
        self.puppet().as_cpu(number, enter);
    }

    fn take(&self, number: u32, page: usize) -> bool {
        let root = self.roots[number as usize].as_ref();
        let take = || self.reach().take(self.space, root, page * PAGE);
        self.puppet().as_cpu(number, take)
    }

    /// CPU `number` uses `page`, with a fault if it must: the frame.
    fn touch(&self, number: u32, page: usize) -> u64 {
        let found = self.puppet().translate(number, page);
        found.unwrap_or_else(|| {
            self.take(number, page);
            self.puppet().access(number, page)
        })
    }

    fn flush_as(&self, number: u32, range: FlushRange) {
        let flush = || self.machine.flush(self.space, range, FreedTables::No);
        self.puppet().as_cpu(number, flush);
    }

    /// CPU `number` maps `page` to `frame` and flushes that; who was interrupted.
    fn remap(&self, number: u32, page: usize, frame: u64) -> Vec<u32> {
        self.puppet().map_in(1, page, frame);
        self.puppet().sent.take();
        self.flush_as(number, pages(page, 1));
        let sent = self.puppet().sent.take();
        sent.into_iter().map(|(_, to)| to).collect()
    }

    fn stats(&self, number: u32) -> Stats {
        self.machine.watch().stats(cpu(number))
    }

    fn switch_away(&self, number: u32) {
        let away = || self.machine.switch_away(self.space, KERNEL_ROOT);
        self.puppet().as_cpu(number, away);
    }

    /// All leave the space, and its roots are retired.
    fn leave(mut self) {
        for number in 0..4 {
            if self.space.cpus().contains(cpu(number)) {
                self.switch_away(number);
            }
        }
        for root in &mut self.roots {
            // SAFETY: 1. all have left.
            _ = unsafe {
                self.machine
                    .user_memory()
                    .reach()
                    .retire(self.space, root.as_mut())
            };
        }
        assert!(self.regions.iter().all(|region| region.takers(0) == 0));
    }
}

#[test]
fn a_flush_in_a_region_that_one_cpu_has_asks_nobody() {
    let scene = Scene::entered(0);
    assert_eq!(scene.remap(1, ONE, 71), []);
    assert_eq!(scene.touch(1, ONE), 71);
    let dropped = LocalFlush::Pages(pages(ONE, 1), FreedTables::No);
    assert_eq!(scene.puppet().flushes.take(), [(1, dropped)]);
    assert_eq!(scene.stats(1).requests_published, 0);
    scene.leave();
}

#[test]
fn a_flush_asks_those_that_have_taken_the_region_and_the_space() {
    let scene = Scene::entered(0);
    scene.enter(3, None);
    assert_eq!((scene.touch(1, LAST), scene.touch(2, LAST)), (4950, 4950));
    assert_eq!(scene.remap(1, LAST, 71), [2]);
    assert_eq!((scene.touch(1, LAST), scene.touch(2, LAST)), (71, 71));
    // It has taken the region, and is elsewhere.
    scene.switch_away(2);
    assert_eq!(scene.remap(1, LAST, 72), []);
    scene.enter(2, None);
    assert_eq!(scene.touch(2, LAST), 72);
    scene.leave();
}

/// By whoever: the initiator has not taken what it changes.
#[test]
fn an_initiator_need_not_have_taken_the_region() {
    let scene = Scene::entered(0);
    assert_eq!(scene.remap(0, ONE, 71), [1]);
    assert_eq!(scene.remap(2, ONE, 72), [1]);
    assert_eq!(scene.touch(1, ONE), 72);
    scene.leave();
}

/// More pages than are dropped one by one are one region's all the same.
#[test]
fn a_region_is_flushed_as_a_whole() {
    let scene = Scene::entered(0);
    scene.puppet().map_in(1, ONE, 71);
    // The last has no end.
    scene.flush_as(2, pages(TWO, 3));
    scene.flush_as(1, pages(0, REGION));
    assert_eq!(scene.puppet().sent.take(), []);
    assert_eq!(scene.touch(1, ONE), 71);
    scene.leave();
}

#[test]
fn changes_of_several_regions_reach_all_that_have_the_space() {
    let scene = Scene::entered(0);
    scene.enter(3, None);
    scene.puppet().map_in(1, TWO, 71);
    let mut both = FlushRanges::from(pages(ONE, 1));
    both.add(pages(TWO, 1));
    scene.machine.flush(scene.space, both, FreedTables::No);
    let sent: Vec<_> = scene.puppet().sent.take();
    assert_eq!(sent, [(0, 1), (0, 2), (0, 3)]);
    assert_eq!(scene.touch(2, TWO), 71);
    // Those that follow find no gap.
    let before = scene.stats(2).full_flushes;
    scene.remap(2, TWO, 72);
    scene.remap(1, LAST, 73);
    assert_eq!(scene.stats(2).full_flushes, before);
    assert_eq!((scene.touch(2, TWO), scene.touch(2, LAST)), (72, 73));
    scene.leave();
}

/// A request of one region that comes before that of several, which has changed the region before, does not go page by page.
#[test]
fn a_change_of_several_regions_is_missed_in_each() {
    let scene = Scene::entered(0);
    let puppet = scene.puppet();
    puppet
        .deliver_on_relax
        .store(false, std::sync::atomic::Ordering::Relaxed);
    let mut both = FlushRanges::from(pages(ONE, 1));
    both.add(pages(TWO, 1));
    let first = puppet.as_cpu(0, || {
        scene
            .machine
            .submit_flush(scene.space, both, FreedTables::No)
    });
    let second = puppet.as_cpu(3, || {
        let range = pages(ONE + 1, 1);
        scene
            .machine
            .submit_flush(scene.space, range, FreedTables::No)
    });
    puppet.flushes.take();
    puppet.deliver(1);
    // It looks at CPU 3 first.
    let as_if_nothing_was_missed = LocalFlush::Pages(pages(ONE + 1, 1), FreedTables::No);
    let flushes = puppet.flushes.take();
    assert!(
        flushes.len() > 1 && flushes[0].1 != as_if_nothing_was_missed,
        "{flushes:?}"
    );
    puppet
        .deliver_on_relax
        .store(true, std::sync::atomic::Ordering::Relaxed);
    puppet.as_cpu(0, || first.wait());
    puppet.as_cpu(3, || second.wait());
    scene.leave();
}

#[test]
fn a_cpu_that_has_the_shared_root_is_asked_until_it_loads_its_own() {
    let scene = Scene::tracked(online(tagged::<4>(4)), |machine, space| {
        machine.switch_to(None, space);
    });
    scene.enter(1, None);
    scene.touch(1, ONE);
    assert_eq!(scene.puppet().access(0, ONE), 70);
    assert_eq!(scene.remap(1, ONE, 71), [0]);
    assert_eq!(scene.puppet().access(0, ONE), 71);
    scene.enter(0, Some(scene.space));
    assert_eq!(scene.puppet().translate(0, ONE), None);
    assert_eq!(scene.remap(1, ONE, 72), []);
    assert_eq!(scene.touch(0, ONE), 72);
    assert_eq!(scene.remap(1, ONE, 73), [0]);
    scene.leave();
}

#[test]
fn nothing_of_the_shared_root_is_kept() {
    let scene = Scene::tracked(online(tagged::<4>(4)), |machine, space| {
        machine.switch_to(None, space);
        assert_eq!(machine.platform().access(0, ONE), 70);
        machine.switch_away(space, KERNEL_ROOT);
    });
    assert_eq!(scene.remap(1, ONE, 71), []);
    for frame in [72, 73] {
        scene.machine.switch_to(None, scene.space);
        assert_eq!(scene.puppet().access(0, ONE), frame - 1);
        scene.switch_away(0);
        assert_eq!(scene.remap(1, ONE, frame), []);
    }
    scene.leave();
}

/// A CPU with windows of a tracked space is asked like one with the shared root.
#[test]
fn a_cpu_with_windows_is_asked_about_all_regions() {
    let scene = Scene::entered(4);
    let windows = WindowRoot::new(scene.machine, scene.space, cpu(3), tables(13));
    let puppet = scene.puppet();
    (0..500).for_each(|page| puppet.map_in(13, page, page as u64 * 10));
    let go = || {
        scene
            .machine
            .windows()
            .switch_to(None, scene.space, &windows)
    };
    puppet.as_cpu(3, go);
    puppet.access(3, ONE);
    puppet.map_in(13, ONE, 71);
    assert_eq!(scene.remap(1, ONE, 71), [3]);
    assert_eq!(puppet.access(3, ONE), 71);
    scene.switch_away(3);
    puppet.map_in(13, ONE, 72);
    assert_eq!(scene.remap(1, ONE, 72), []);
    puppet.as_cpu(3, go);
    assert_eq!(puppet.access(3, ONE), 72);
    scene.switch_away(3);
    puppet.as_cpu(3, || scene.machine.windows().retire(scene.space, windows));
    scene.leave();
}

#[test]
fn a_tag_is_kept_if_nothing_of_what_was_taken_has_changed() {
    for (changed, expected) in [
        (TWO, TagEntries::Keep),
        (ONE, TagEntries::Drop),
        (LAST, TagEntries::Drop),
    ] {
        let scene = Scene::entered(4);
        scene.switch_away(1);
        scene.remap(2, changed, 71);
        scene.puppet().loads.take();
        scene.enter(1, None);
        assert_eq!(scene.puppet().loads.take()[0].3, expected, "page {changed}");
        assert_eq!(scene.puppet().translate(1, TWO), None);
        let one = if changed == ONE { 71 } else { 70 };
        assert_eq!(scene.touch(1, ONE), one);
        scene.leave();
    }
}

/// The same root in two tags, by a change of policy: what was flushed under one is not kept under the other.
#[test]
fn what_was_flushed_does_not_come_back_under_an_older_tag() {
    let scene = Scene::new(64);
    let policies = [Tags::Six, Tags::All].map(|tags| Policy::BEST.with_tags(tags));
    for (round, policy) in policies.into_iter().cycle().take(3).enumerate() {
        scene.machine.set_policy(policy);
        scene.enter(1, None);
        assert_eq!(scene.touch(1, ONE), if round < 2 { 70 } else { 71 });
        if round == 1 {
            scene.remap(1, ONE, 71);
        }
        scene.switch_away(1);
    }
    scene.leave();
}

#[test]
fn a_lazy_cpu_makes_up_for_what_passed_it_by() {
    let scene = Scene::entered(4);
    let lazy = || {
        scene
            .machine
            .user_memory()
            .enter_lazy(scene.space, KERNEL_ROOT)
    };
    scene.puppet().as_cpu(2, lazy);
    assert_eq!(scene.remap(1, LAST, 71), []);
    scene.enter(2, Some(scene.space));
    assert_eq!(scene.touch(2, LAST), 71);
    // Nothing has passed it by.
    scene.puppet().as_cpu(2, lazy);
    assert_eq!(scene.remap(1, ONE, 72), []);
    scene.puppet().flushes.take();
    scene.enter(2, Some(scene.space));
    assert_eq!(scene.puppet().flushes.take(), []);
    scene.leave();
}

#[test]
fn a_cpu_that_defers_makes_up_for_what_passed_it_by() {
    let scene = Scene::entered(4);
    scene.machine.set_policy(Policy::BEST.with_deferral(true));
    let defer = || scene.machine.user_memory().defer_flushes(scene.space);
    assert!(scene.puppet().as_cpu(2, defer));
    assert_eq!(scene.remap(1, LAST, 71), []);
    let catch_up = || scene.machine.user_memory().catch_up(scene.space);
    scene.puppet().as_cpu(2, catch_up);
    assert_eq!(scene.touch(2, LAST), 71);
    scene.leave();
}

/// A table of a region is freed: who has its entry lets go of it, and nobody gets one that had none.
#[test]
fn freed_tables_go_from_own_roots() {
    let scene = Scene::entered(4);
    let lazy = || {
        scene
            .machine
            .user_memory()
            .enter_lazy(scene.space, KERNEL_ROOT)
    };
    scene.puppet().as_cpu(2, lazy);
    scene
        .machine
        .flush(scene.space, pages(LAST, 1), FreedTables::Yes);
    let sent = scene.puppet().sent.take();
    assert_eq!(sent, [(0, 1), (0, 2)]);
    assert_eq!(scene.stats(2).lazy_detached, 1);
    assert_eq!(
        scene.puppet().translate(1, TWO),
        None,
        "its entry was empty"
    );
    scene.leave();
}

#[test]
fn a_region_that_others_only_flush_is_given_up() {
    let scene = Scene::entered(4);
    scene.puppet().nmis_ask_about(scene.space.id());
    let mut asked = 0;
    while scene.remap(1, LAST, 71) == [2] {
        asked += 1;
    }
    assert!((2..100).contains(&asked), "{asked}");
    assert_eq!(scene.stats(2).regions_given_up, 1);
    assert_eq!(scene.puppet().translate(2, LAST), None);
    assert_eq!((scene.touch(2, LAST), scene.touch(2, TWO)), (71, 170));
    // It was wrong, and stands more from now on.
    let more = (0..10_000)
        .take_while(|_| scene.remap(1, LAST, 72) == [2])
        .count();
    assert!(more > asked, "{more}");
    // One that flushes there itself uses it.
    assert_eq!(scene.touch(2, LAST), 72);
    for frame in 0..2000 {
        assert_eq!(scene.remap(1, LAST, frame), [2]);
        assert_eq!(scene.remap(2, LAST, frame), [1]);
    }
    scene.leave();
}

/// What a given-up region had under another tag of the same root is not used, also if another region has changed by just as much as its count no longer adds.
#[test]
fn what_was_given_up_does_not_come_back_under_an_older_tag() {
    for changes in 0..3 {
        let scene = Scene::new(64);
        let policies = [Tags::Six, Tags::All].map(|tags| Policy::BEST.with_tags(tags));
        scene.machine.set_policy(policies[0]);
        scene.enter(2, None);
        scene.touch(2, LAST);
        scene.touch(2, ONE);
        scene.switch_away(2);
        scene.machine.set_policy(policies[1]);
        scene.enter(2, None);
        while scene.stats(2).regions_given_up == 0 {
            scene.remap(1, LAST, 71);
        }
        (0..changes).for_each(|change| _ = scene.remap(2, ONE, 72 + change));
        scene.switch_away(2);
        scene.machine.set_policy(policies[0]);
        scene.enter(2, None);
        assert_eq!(scene.puppet().translate(2, LAST), None, "{changes} changes");
        scene.leave();
    }
}

/// There is room for so many; then all are given up.
#[test]
fn a_cpu_that_takes_too_much_begins_anew() {
    let scene = Scene::new(4);
    scene.enter(1, None);
    for region in 0..50 {
        assert_eq!(
            scene.touch(1, region * REGION),
            (region * REGION) as u64 * 10
        );
    }
    assert_eq!(scene.stats(1).regions_taken, 50);
    let taken = scene.regions.iter().filter(|region| region.takers(0) != 0);
    assert_eq!(taken.count() as u64, 50 - scene.stats(1).regions_given_up);
    assert_eq!(scene.remap(2, 0, 71), []);
    assert_eq!(scene.remap(2, LAST, 71), [1]);
    scene.leave();
}

#[test]
fn nmis_leave_what_is_given_up_alone() {
    let scene = Scene::entered(4);
    // Nothing is owed for another reason.
    scene.machine.set_policy(Policy::BEFORE);
    scene.puppet().nmis_ask_about(scene.space.id());
    let denied = |moments: &[Moment]| moments.contains(&Moment::Flush(LocalFlush::Space));
    let denials = || {
        scene
            .puppet()
            .as_cpu(2, || scene.puppet().user_access_denied.take())
    };
    denials();
    while scene.stats(2).regions_given_up == 0 {
        denials();
        scene.remap(1, LAST, 71);
    }
    assert!(denied(&denials()));
    scene.leave();
}

/// Whoever walks the tables elsewhere is waited for, and so is one that has the space loaded and has not taken the region.
#[test]
fn walkers_are_asked_whatever_they_have_taken() {
    let machine = online(tagged::<4>(4));
    let no_back_end = &machine.platform().has_no_back_end;
    no_back_end.store(true, std::sync::atomic::Ordering::Relaxed);
    let scene = Scene::entered_on(machine);
    let puppet = scene.puppet();
    let walk: Walk<'_, _> = puppet.as_cpu(2, || scene.machine.user_memory().walk(scene.space));
    let flush = || {
        scene
            .machine
            .submit_flush(scene.space, pages(ONE, 1), FreedTables::Yes)
    };
    let ticket = puppet.as_cpu(1, flush);
    puppet.deliver(2);
    assert!(!ticket.is_done());
    puppet.as_cpu(2, || drop(walk));
    puppet.deliver(2);
    assert!(ticket.is_done());
    puppet.as_cpu(1, || ticket.wait());
    assert_eq!(scene.remap(1, ONE, 71), []);
    scene.leave();
}

/// In a section of a region that it has taken a CPU tells nobody: flushes there wait for it, others do not, and it does not give the region up.
#[test]
fn a_walk_of_what_is_taken_is_of_its_region() {
    let machine = online(tagged::<4>(4));
    let no_back_end = &machine.platform().has_no_back_end;
    no_back_end.store(true, std::sync::atomic::Ordering::Relaxed);
    let scene = Scene::entered_on(machine);
    let puppet = scene.puppet();
    let walk = |page: usize| {
        let root = scene.roots[2].as_ref();
        let walk = || scene.reach().walk(scene.space, root, page * PAGE);
        puppet.as_cpu(2, walk)
    };
    assert!(walk(ONE).is_none(), "not taken");
    no_back_end.store(false, std::sync::atomic::Ordering::Relaxed);
    assert!(walk(LAST).is_none(), "flushed without an interrupt");
    no_back_end.store(true, std::sync::atomic::Ordering::Relaxed);
    puppet.as_cpu(2, || {
        let memory = machine.user_memory();
        memory.enter_lazy(scene.space, KERNEL_ROOT);
    });
    assert!(walk(LAST).is_none(), "lazy");
    scene.enter(2, Some(scene.space));
    let section = walk(LAST).unwrap();
    let flush = |page| {
        puppet.as_cpu(1, || {
            machine.submit_flush(scene.space, pages(page, 1), FreedTables::Yes)
        })
    };
    let elsewhere = flush(ONE);
    assert!(elsewhere.is_done());
    assert_eq!(puppet.sent.take(), []);
    let here = flush(LAST);
    puppet.deliver(2);
    assert!(!here.is_done());
    for _ in 0..100 {
        let ask = || machine.submit_flush(scene.space, pages(LAST, 1), FreedTables::No);
        let ticket = puppet.as_cpu(1, ask);
        puppet.as_cpu(2, || machine.poll());
        puppet.as_cpu(1, || ticket.wait());
    }
    assert!(!here.is_done());
    assert_eq!(scene.stats(2).regions_given_up, 0);
    puppet.as_cpu(2, || drop(section));
    puppet.deliver(2);
    assert!(here.is_done());
    puppet.as_cpu(1, || [elsewhere, here].map(FlushTicket::wait));
    scene.remap(1, LAST, 71);
    assert_eq!(scene.stats(2).regions_given_up, 1);
    scene.leave();
}

/// The user side of the tag, too.
#[test]
fn what_is_given_up_goes_from_the_user_side() {
    let scene = Scene::entered(4);
    scene
        .puppet()
        .split
        .store(true, std::sync::atomic::Ordering::Relaxed);
    while scene.stats(2).regions_given_up == 0 {
        scene.remap(1, LAST, 71);
    }
    // SAFETY: 1. nothing runs in user mode.
    let enter = || unsafe { scene.machine.user_memory().enter_user() };
    assert_eq!(scene.puppet().as_cpu(2, enter).1, TagEntries::Drop);
    scene.leave();
}

/// What only wants an answer is about no region.
#[test]
fn a_kick_drops_nothing() {
    let scene = Scene::entered(4);
    let puppet = scene.puppet();
    puppet.as_cpu(3, || scene.machine.switch_to(None, scene.space));
    puppet.flushes.take();
    scene.machine.control().barrier(scene.space).wait();
    scene.machine.user_memory().sync_walks(scene.space);
    assert_eq!(puppet.flushes.take(), []);
    scene.leave();
}

#[test]
fn mistakes_are_refused() {
    let scene = Scene::entered(4);
    let reach = scene.reach();
    assert!(!scene.take(3, ONE), "not loaded");
    // SAFETY: 1. they are leaked.
    assert!(refuses(|| unsafe {
        reach.track(scene.space, scene.regions)
    }));
    let other = AddressSpace::new(scene.machine, tables(2));
    let root = || ReachRoot::new(scene.machine, &other, cpu(0), tables(OWN_ROOTS + 9));
    assert!(refuses(root), "not tracked");
    let second = || ReachRoot::new(scene.machine, scene.space, cpu(1), tables(OWN_ROOTS + 9));
    assert!(refuses(second), "CPU 1 has one");
    // SAFETY: 1. there are none.
    assert!(refuses(|| unsafe { reach.track(&other, &[]) }));
    let root = scene.roots[1].as_ref();
    assert!(refuses(|| reach.switch_to(None, &other, root)));
    assert!(
        refuses(|| reach.switch_to(None, scene.space, root)),
        "another CPU's"
    );
    let halves = || {
        scene
            .machine
            .host_roots()
            .begin_switch(Some(scene.space), None)
    };
    assert!(refuses(|| scene.puppet().as_cpu(1, halves)));
    scene.leave();
}

/// A host that loads the shared root itself.
#[test]
fn a_root_that_the_host_loads_is_asked_about_all_regions() {
    let scene = Scene::entered(0);
    let (machine, puppet) = (scene.machine, scene.puppet());
    puppet.set_irqs_off(true);
    assert!(machine.host_roots().begin_switch(None, Some(scene.space)));
    let root = scene.space.root();
    // SAFETY: 1. a puppet's roots are numbers.
    unsafe {
        machine
            .platform()
            .load_tagged_root(root, Asid::UNTAGGED, TagEntries::Drop);
    }
    // SAFETY: 1. just done.
    unsafe { machine.host_roots().end_switch(None, Some(scene.space)) };
    puppet.set_irqs_off(false);
    puppet.access(0, ONE);
    assert_eq!(scene.remap(1, ONE, 71), [0]);
    assert_eq!(puppet.access(0, ONE), 71);
    scene.leave();
}

/// Whoever makes tables of ours reads an entry, stops to listen, and listens again: the change meanwhile was a region's, and it must not install what it has read.
#[test]
fn what_was_read_before_somebody_listened_again_is_known_to_be_old() {
    let scene = Scene::entered(0);
    let listeners = scene.machine.secondary_tlbs();
    listeners.listen(scene.space, 1);
    let read_at = scene.space.generation();
    listeners.unlisten(scene.space);
    scene.remap(1, ONE, 5);
    listeners.listen(scene.space, 1);
    assert_ne!(scene.space.generation(), read_at);
    listeners.unlisten(scene.space);
}
