//! Behaviour of switches: what tags keep, and whom lazy mode spares. On the puppet machine.

#![cfg(not(loom))]

mod puppet;

use puppet::*;
use shootdown::*;
use shootdown::{tags::*, windows::*};
use std::sync::atomic::Ordering::Relaxed;

/// Spaces with roots 1, 2, ... in which page 0 is frame 10 times the root.
fn spaces<const N: usize>(machine: &'static Machine<N>, count: u64) -> Vec<Space<N>>
where
    Cpus<N>: Capacity,
{
    (1..=count)
        .map(|root| {
            let space = Space::new(machine, root);
            machine.platform().map_in(space.root(), 0, root * 10);
            space
        })
        .collect()
}

/// How the last root was loaded.
fn last_load<const N: usize>(machine: &Machine<N>) -> (u64, Asid, TagEntries)
where
    Cpus<N>: Capacity,
{
    let (_, root, asid, entries) = *machine.platform().loads.take().last().expect("a load");
    (root, asid, entries)
}

/// CPU 0 loads each space once, round robin, `rounds` times, and reads page 0 of each; it ends without a space.
fn go_round<const N: usize>(machine: &Machine<N>, spaces: &[Space<N>], rounds: usize)
where
    Cpus<N>: Capacity,
{
    let mut previous = None;
    for space in spaces.iter().cycle().take(rounds * spaces.len()) {
        machine.switch_to(previous, space);
        assert_eq!(machine.platform().access(0, 0), space.root() * 10);
        previous = Some(space);
    }
    machine.switch_away(previous.expect("at least one round"), KERNEL_ROOT);
}

#[test]
fn a_space_comes_back_to_its_tag() {
    let machine = online(tagged::<1>(8));
    let spaces = spaces(machine, 2);
    machine.switch_to(None, &spaces[0]);
    let (_, first, entries) = last_load(machine);
    assert_eq!(
        entries,
        TagEntries::Drop,
        "a tag that is new holds anything"
    );
    assert_ne!(first, Asid::UNTAGGED);
    machine.switch_to(Some(&spaces[0]), &spaces[1]);
    let (_, second, _) = last_load(machine);
    assert_ne!(first, second);
    machine.switch_to(Some(&spaces[1]), &spaces[0]);
    assert_eq!(last_load(machine), (1, first, TagEntries::Keep));
    let stats = machine.watch().stats(cpu(0));
    assert_eq!(
        (stats.tags_taken, stats.tags_kept, stats.tags_dropped),
        (2, 1, 0)
    );
}

#[test]
fn a_tag_that_missed_a_flush_is_dropped_when_its_space_comes_back() {
    for freed in [FreedTables::No, FreedTables::Yes] {
        let machine = online(tagged::<2>(8));
        let puppet = machine.platform().0;
        let spaces = spaces(machine, 2);
        machine.switch_to(None, &spaces[0]);
        assert_eq!(puppet.access(0, 0), 10);
        machine.switch_to(Some(&spaces[0]), &spaces[1]);
        puppet.map_in(spaces[0].root(), 0, 11);
        puppet.as_cpu(1, || machine.flush(&spaces[0], pages(0, 1), freed));
        assert_eq!(
            machine.watch().total_stats().ipis_sent,
            0,
            "nobody has it loaded"
        );
        machine.switch_to(Some(&spaces[1]), &spaces[0]);
        assert_eq!(puppet.access(0, 0), 11);
        assert_eq!(machine.watch().stats(cpu(0)).tags_dropped, 1);
    }
}

/// What is flushed while a space is loaded is in its generation when it is left: the tag need not be dropped.
#[test]
fn a_flush_that_reached_the_loaded_tag_costs_nothing_later() {
    let machine = online(tagged::<2>(8));
    let puppet = machine.platform().0;
    let spaces = spaces(machine, 2);
    machine.switch_to(None, &spaces[0]);
    puppet.map_in(spaces[0].root(), 0, 11);
    puppet.as_cpu(1, || {
        machine.flush(&spaces[0], pages(0, 1), FreedTables::No)
    });
    machine.switch_to(Some(&spaces[0]), &spaces[1]);
    machine.switch_to(Some(&spaces[1]), &spaces[0]);
    assert_eq!(machine.watch().stats(cpu(0)).tags_kept, 1);
    assert_eq!(puppet.access(0, 0), 11);
}

#[test]
fn six_tags_serve_six_spaces_and_all_tags_serve_more() {
    for (tags, count, kept) in [
        (Tags::Six, 6, true),
        (Tags::Six, 7, false),
        (Tags::All, 12, true),
        (Tags::All, 64, true),
        (Tags::None, 2, false),
    ] {
        let machine = online(tagged::<1>(64));
        machine.set_policy(Policy::BEST.with_tags(tags));
        let spaces = spaces(machine, count);
        go_round(machine, &spaces, 1);
        let before = machine.watch().total_stats();
        go_round(machine, &spaces, 3);
        let stats = machine.watch().total_stats().since(&before);
        let wanted = if kept { 3 * count } else { 0 };
        assert_eq!(stats.tags_kept, wanted, "{tags:?}, {count} spaces");
        let taken = if kept || tags == Tags::None {
            0
        } else {
            3 * count
        };
        assert_eq!(stats.tags_taken, taken, "{tags:?}, {count} spaces");
    }
}

/// A new space under the root of a dead one, perhaps in the same memory, has another name and inherits nothing.
#[test]
fn a_new_space_with_an_old_root_inherits_nothing() {
    let machine = online(tagged::<1>(8));
    let puppet = machine.platform().0;
    let old = Space::new(machine, 1);
    puppet.map_in(old.root(), 0, 10);
    machine.switch_to(None, &old);
    assert_eq!(puppet.access(0, 0), 10);
    machine.switch_away(&old, KERNEL_ROOT);
    drop(old);
    let new = Space::new(machine, 1);
    puppet.map_in(new.root(), 0, 99);
    machine.switch_to(None, &new);
    assert_eq!(puppet.access(0, 0), 99);
}

/// Slots that an earlier life of the CPU filled say nothing about what is cached now.
#[test]
fn coming_online_voids_every_tag() {
    let machine = online(tagged::<1>(8));
    let spaces = spaces(machine, 1);
    for life in 0..2 {
        machine.switch_to(None, &spaces[0]);
        assert_eq!(last_load(machine).2, TagEntries::Drop, "life {life}");
        machine.switch_away(&spaces[0], KERNEL_ROOT);
        machine.offline();
        machine.online();
    }
    assert_eq!(machine.watch().stats(cpu(0)).tags_kept, 0);
}

/// Each would believe what it wrote of a tag under which the other has loaded a root since. Tags that nobody uses any more go to who comes next.
#[test]
fn tags_of_a_cpu_belong_to_one_engine() {
    let first = tagged::<1>(8);
    first.online();
    let second: &Machine<1> = start_engine(first.platform());
    assert!(refuses(|| second.online()));
    assert!(second.ready_cpus().is_empty());
    first.offline();
    second.online();
    assert_eq!(second.ready_cpus().len(), 1);
}

/// Two engines of one machine: the spaces of one are not the other's, whose flushes would reach nobody.
#[test]
fn a_space_belongs_to_one_engine() {
    let first = powered_off::<2>();
    let second: &Machine<2> = start_engine(first.platform());
    first.online();
    first.platform().as_cpu(1, || second.online());
    let space = AddressSpace::new(first, tables(1));
    AddressSpace::new(second, tables(1));
    let range = pages(0, 1);
    let misuses: [&dyn Fn(); 4] = [
        &|| second.switch_to(None, &space),
        &|| second.flush(&space, range, FreedTables::No),
        &|| drop(WindowRoot::new(second, &space, cpu(0), tables(2))),
        &|| second.user_memory().enter_lazy(&space, KERNEL_ROOT),
    ];
    for misuse in misuses {
        first.platform().as_cpu(1, || assert!(refuses(misuse)));
    }
    assert!(space.cpus().is_empty());
}

#[test]
fn without_tags_every_load_drops_everything() {
    for (slots, policy) in [
        (0, Policy::BEST),
        (8, Policy::BEST.with_tags(Tags::None)),
        (8, Policy::BEFORE),
    ] {
        let machine = online(tagged::<1>(slots));
        machine.set_policy(policy);
        let spaces = spaces(machine, 2);
        go_round(machine, &spaces, 3);
        go_round(machine, &spaces, 1);
        for (_, _, asid, entries) in machine.platform().loads.take() {
            assert_eq!((asid, entries), (Asid::UNTAGGED, TagEntries::Drop));
        }
    }
}

/// The kernel's root keeps its translations under the reserved tag, but never a user's.
#[test]
fn the_kernels_root_keeps_only_what_it_cached_itself() {
    let machine = online(tagged::<1>(8));
    let spaces = spaces(machine, 1);
    machine.switch_to(None, &spaces[0]);
    machine.switch_away(&spaces[0], KERNEL_ROOT);
    assert_eq!(
        last_load(machine),
        (KERNEL_ROOT.as_u64(), Asid::UNTAGGED, TagEntries::Drop)
    );
    machine.switch_to(None, &spaces[0]);
    machine.switch_away(&spaces[0], KERNEL_ROOT);
    assert_eq!(last_load(machine).2, TagEntries::Keep);
    // A user's translations come under the reserved tag.
    machine.set_policy(Policy::BEST.with_tags(Tags::None));
    machine.switch_to(None, &spaces[0]);
    machine.switch_away(&spaces[0], KERNEL_ROOT);
    assert_eq!(last_load(machine).2, TagEntries::Drop);
}

/// Kernel tables may be freed, and other tags have cached entries of them that one page's flush does not reach.
#[test]
fn after_a_kernel_flush_no_other_tag_is_kept() {
    let machine = online(tagged::<1>(8));
    let puppet = machine.platform().0;
    let spaces = spaces(machine, 2);
    machine.switch_to(None, &spaces[0]);
    machine.switch_away(&spaces[0], KERNEL_ROOT);
    machine.switch_to(None, &spaces[0]);
    machine.switch_to(Some(&spaces[0]), &spaces[1]);
    assert_eq!(puppet.walked_table(0, 1), 1);
    machine.switch_to(Some(&spaces[1]), &spaces[0]);
    machine.flush(FlushScope::Kernel, pages(GLOBAL, 1), FreedTables::Yes);
    // The loaded tag was flushed, so it may be kept; the others may not.
    machine.switch_to(Some(&spaces[0]), &spaces[1]);
    assert_eq!(last_load(machine).2, TagEntries::Drop);
    assert_eq!(puppet.walked_table(0, 2), 2, "a freed table");
    machine.switch_to(Some(&spaces[1]), &spaces[0]);
    assert_eq!(last_load(machine).2, TagEntries::Keep);
    machine.switch_away(&spaces[0], KERNEL_ROOT);
    assert_eq!(last_load(machine).2, TagEntries::Drop);
}

/// A flush of everything reaches all tags, and so does one of pages, which are global here: nothing is void afterwards.
#[test]
fn after_a_full_kernel_flush_tags_are_kept() {
    let machine = online(tagged::<1>(8));
    let spaces = spaces(machine, 2);
    go_round(machine, &spaces, 1);
    for (range, freed) in [
        (FlushRange::WHOLE, FreedTables::Yes),
        (pages(GLOBAL, 1), FreedTables::No),
    ] {
        machine.flush(FlushScope::Kernel, range, freed);
        let before = machine.watch().total_stats();
        go_round(machine, &spaces, 1);
        assert_eq!(machine.watch().total_stats().since(&before).tags_kept, 2);
    }
}

/// Two CPUs have space 0 loaded; CPU 1 is lazy in it, as the policy allows.
fn lazy_pair(policy: Policy, tags: usize) -> (&'static Machine<2>, Vec<Space<2>>) {
    let machine = online(tagged::<2>(tags));
    machine.set_policy(policy);
    let spaces = spaces(machine, 2);
    let puppet = machine.platform();
    for number in 0..2 {
        puppet.as_cpu(number, || machine.switch_to(None, &spaces[0]));
        assert_eq!(puppet.access(number, 0), 10);
    }
    puppet.as_cpu(1, || {
        machine.user_memory().enter_lazy(&spaces[0], KERNEL_ROOT)
    });
    (machine, spaces)
}

#[test]
fn a_lazy_cpu_is_left_alone_and_catches_up() {
    for tags in [0, 8] {
        let (machine, spaces) = lazy_pair(Policy::BEST, tags);
        let puppet = machine.platform();
        let ok = || puppet.as_cpu(1, || machine.user_memory().access_ok(spaces[0].id()));
        assert!(!ok());
        puppet.map_in(spaces[0].root(), 0, 11);
        machine.flush(&spaces[0], pages(0, 1), FreedTables::No);
        let stats = machine.watch().stats(cpu(0));
        assert_eq!((stats.ipis_sent, stats.lazy_skipped), (0, 1));
        puppet.as_cpu(1, || machine.switch_to(Some(&spaces[0]), &spaces[0]));
        assert!(ok());
        assert_eq!(puppet.access(1, 0), 11);
        // From now on it is a target again.
        puppet.map_in(spaces[0].root(), 0, 12);
        machine.flush(&spaces[0], pages(0, 1), FreedTables::No);
        assert_eq!(machine.watch().stats(cpu(0)).ipis_sent, 1);
        assert_eq!(puppet.access(1, 0), 12);
    }
}

#[test]
fn a_lazy_cpu_that_missed_nothing_comes_back_for_free() {
    let (machine, spaces) = lazy_pair(Policy::BEST, 8);
    let puppet = machine.platform();
    puppet.loads.take();
    puppet.flushes.take();
    puppet.as_cpu(1, || machine.switch_to(Some(&spaces[0]), &spaces[0]));
    assert!(puppet.loads.take().is_empty());
    assert!(puppet.flushes.take().is_empty());
}

#[test]
fn freed_tables_make_a_lazy_cpu_let_go_once() {
    let (machine, spaces) = lazy_pair(Policy::BEST, 8);
    let puppet = machine.platform();
    machine.flush(&spaces[0], pages(0, 1), FreedTables::Yes);
    assert_eq!(puppet.root_of(1), KERNEL_ROOT.as_u64());
    assert_eq!(machine.watch().stats(cpu(1)).lazy_detached, 1);
    assert_eq!(machine.watch().stats(cpu(0)).ipis_sent, 1);
    machine.flush(&spaces[0], pages(0, 1), FreedTables::Yes);
    let stats = machine.watch().stats(cpu(0));
    assert_eq!((stats.ipis_sent, stats.lazy_skipped), (1, 1));
    // It comes back as one that joins.
    puppet.map_in(spaces[0].root(), 0, 11);
    machine.flush(&spaces[0], pages(0, 1), FreedTables::No);
    puppet.as_cpu(1, || machine.switch_to(Some(&spaces[0]), &spaces[0]));
    assert_eq!(puppet.root_of(1), 1);
    assert_eq!(puppet.access(1, 0), 11);
}

#[test]
fn a_lazy_cpu_may_go_elsewhere() {
    for detaches in [false, true] {
        let (machine, spaces) = lazy_pair(Policy::BEST, 8);
        let puppet = machine.platform();
        if detaches {
            machine.flush(&spaces[0], pages(0, 1), FreedTables::Yes);
        }
        puppet.as_cpu(1, || machine.switch_to(Some(&spaces[0]), &spaces[1]));
        assert_eq!(puppet.access(1, 0), 20);
        assert!(!spaces[0].cpus().contains(cpu(1)));
        assert!(spaces[1].cpus().contains(cpu(1)));
        // It is a target there.
        puppet.map_in(spaces[1].root(), 0, 21);
        machine.flush(&spaces[1], pages(0, 1), FreedTables::No);
        assert_eq!(puppet.access(1, 0), 21);
        puppet.as_cpu(1, || machine.switch_away(&spaces[1], KERNEL_ROOT));
        assert!(spaces[1].cpus().is_empty());
    }
}

#[test]
fn a_lazy_cpu_may_leave() {
    let (machine, spaces) = lazy_pair(Policy::BEST, 0);
    let puppet = machine.platform();
    puppet.as_cpu(1, || machine.switch_away(&spaces[0], KERNEL_ROOT));
    assert_eq!(puppet.root_of(1), KERNEL_ROOT.as_u64());
    assert!(!puppet.as_cpu(1, || machine.user_memory().access_ok(spaces[0].id())));
    machine.switch_away(&spaces[0], KERNEL_ROOT);
    assert!(spaces[0].cpus().is_empty());
}

#[test]
fn under_a_policy_that_is_not_lazy_the_cpu_leaves_at_once() {
    let (machine, spaces) = lazy_pair(Policy::BEST.with_lazy(false), 8);
    let puppet = machine.platform();
    assert_eq!(puppet.root_of(1), KERNEL_ROOT.as_u64());
    assert!(!spaces[0].cpus().contains(cpu(1)));
    machine.flush(&spaces[0], pages(0, 1), FreedTables::Yes);
    assert_eq!(machine.watch().total_stats().ipis_sent, 0);
    // The host goes on as if it had stayed, whatever the policy is by then.
    machine.set_policy(Policy::BEST);
    puppet.map_in(spaces[0].root(), 0, 11);
    machine.flush(&spaces[0], pages(0, 1), FreedTables::No);
    puppet.as_cpu(1, || {
        machine.user_memory().enter_lazy(&spaces[0], KERNEL_ROOT)
    });
    puppet.as_cpu(1, || machine.switch_to(Some(&spaces[0]), &spaces[0]));
    assert_eq!(puppet.access(1, 0), 11);
}

/// A CPU that became lazy under one policy is still there when the policy is another.
#[test]
fn a_policy_without_lazy_mode_interrupts_lazy_cpus() {
    let (machine, spaces) = lazy_pair(Policy::BEST, 8);
    let puppet = machine.platform();
    machine.set_policy(Policy::BEFORE);
    puppet.map_in(spaces[0].root(), 0, 11);
    machine.flush(&spaces[0], pages(0, 1), FreedTables::No);
    assert_eq!(machine.watch().stats(cpu(0)).ipis_sent, 1);
    puppet.as_cpu(1, || machine.switch_to(Some(&spaces[0]), &spaces[0]));
    assert_eq!(puppet.access(1, 0), 11);
}

/// A kernel thread on a lazy CPU may change the space that it is lazy in.
#[test]
fn a_lazy_cpu_may_flush_its_own_space() {
    for freed in [FreedTables::No, FreedTables::Yes] {
        let (machine, spaces) = lazy_pair(Policy::BEST, 8);
        let puppet = machine.platform();
        puppet.map_in(spaces[0].root(), 0, 11);
        puppet.as_cpu(1, || machine.flush(&spaces[0], pages(0, 1), freed));
        assert_eq!(puppet.access(0, 0), 11);
        puppet.as_cpu(1, || machine.switch_to(Some(&spaces[0]), &spaces[0]));
        assert_eq!(puppet.access(1, 0), 11);
    }
}

#[test]
#[should_panic(expected = "but the caller leaves")]
fn lazy_mode_names_what_is_loaded() {
    let machine = online(powered_off::<1>());
    let spaces = spaces(machine, 1);
    machine.user_memory().enter_lazy(&spaces[0], KERNEL_ROOT);
}

/// A CPU that is lazy from before the policy changed lets go when it rests again, and is then interrupted for nothing any more.
#[test]
fn a_cpu_that_rests_again_follows_the_policy() {
    let machine = online(powered_off::<2>());
    let space = Space::new(machine, 1);
    let puppet = machine.platform();
    let rest = || puppet.as_cpu(1, || machine.user_memory().enter_lazy(&space, KERNEL_ROOT));
    let flush = || {
        machine.flush(&space, pages(0, 1), FreedTables::No);
        puppet.sent.take().len()
    };
    puppet.as_cpu(1, || machine.switch_to(None, &space));
    rest();
    assert_eq!(flush(), 0, "it is lazy");
    machine.set_policy(Policy::BEFORE);
    assert_eq!(flush(), 1, "nobody looks at marks any more");
    rest();
    assert_eq!((flush(), puppet.root_of(1)), (0, KERNEL_ROOT.as_u64()));
    assert!(!space.cpus().contains(cpu(1)));
    puppet.as_cpu(1, || machine.switch_to(Some(&space), &space));
    assert_eq!(flush(), 1, "it is back");
}

/// An NMI may use user memory of the space that is loaded, of no other, and of none while a root is being loaded.
#[test]
fn user_access_is_for_the_space_that_is_loaded() {
    for has_no_back_end in [false, true] {
        let machine = online(tagged::<1>(8));
        let has = &machine.platform().has_no_back_end;
        has.store(has_no_back_end, Relaxed);
        user_access_is_for_the_loaded_space(machine);
    }
}

fn user_access_is_for_the_loaded_space(machine: &'static Machine<1>) {
    let puppet = machine.platform().0;
    let spaces = spaces(machine, 2);
    let ok = |number: usize| machine.user_memory().access_ok(spaces[number].id());
    assert!(!ok(0), "none is loaded");
    machine.switch_to(None, &spaces[0]);
    assert_eq!((ok(0), ok(1)), (true, false));
    puppet.nmis_ask_about(spaces[0].id());
    puppet.user_access_denied.take();
    machine.switch_to(Some(&spaces[0]), &spaces[1]);
    assert_eq!((ok(0), ok(1)), (false, true));
    let denied = puppet.user_access_denied.take();
    let load = Moment::Load(spaces[1].root());
    assert_eq!(denied[..2], [load, load], "before the load and after it");
    puppet.nmis_ask_about(spaces[1].id());
    machine.switch_away(&spaces[1], KERNEL_ROOT);
    let denied = puppet.user_access_denied.take();
    let load = Moment::Load(KERNEL_ROOT.as_u64());
    assert_eq!(denied[..2], [load, load], "before the load and after it");
    assert!(!ok(1));
}
