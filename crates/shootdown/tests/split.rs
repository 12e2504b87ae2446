//! Behaviour of split tags: the user side is dropped when it must be, and only then. On the puppet machine.

#![cfg(not(loom))]

mod puppet;

use std::sync::atomic::Ordering::Relaxed;

use proptest::prelude::*;
use puppet::*;
use shootdown::tags::TagEntries::{Drop, Keep};
use shootdown::tags::*;
use shootdown::*;

const SPACES: u64 = 3;
const PAGES: usize = 2;
const CASES: u32 = if cfg!(miri) { 4 } else { 256 };

fn split_machine(tags: usize, flushes_user_side: bool) -> &'static Machine<1> {
    let machine = online(tagged::<1>(tags));
    let puppet = machine.platform();
    puppet.split.store(true, Relaxed);
    puppet.flushes_user_side.store(flushes_user_side, Relaxed);
    machine
}

/// Spaces with roots 1, 2, ... and [`PAGES`] pages each.
fn spaces(machine: &'static Machine<1>) -> Vec<Space<1>> {
    (1..=SPACES)
        .map(|root| {
            let space = Space::new(machine, root);
            (0..PAGES).for_each(|page| machine.platform().map_in(space.root(), page, root * 100));
            space
        })
        .collect()
}

/// What the engine says each time that user mode is entered, and that what is used there is right.
fn enters(machine: &Machine<1>, frame: u64) -> TagEntries {
    let (seen, entries) = machine.platform().user_access(machine, 0, 0);
    assert_eq!(seen, frame);
    entries
}

#[test]
fn the_user_side_is_dropped_once_after_any_number_of_flushes() {
    let machine = split_machine(8, false);
    let spaces = spaces(machine);
    machine.switch_to(None, &spaces[0]);
    assert_eq!(
        enters(machine, 100),
        Drop,
        "a tag that is new holds anything"
    );
    assert_eq!(enters(machine, 100), Keep);
    for frame in [101, 102] {
        machine.platform().map_in(spaces[0].root(), 0, frame);
        machine.flush(&spaces[0], pages(0, 1), FreedTables::No);
    }
    assert_eq!(enters(machine, 102), Drop);
    assert_eq!(enters(machine, 102), Keep);
}

#[test]
fn a_drop_that_is_due_survives_a_switch() {
    let machine = split_machine(8, false);
    let spaces = spaces(machine);
    machine.switch_to(None, &spaces[0]);
    enters(machine, 100);
    machine.platform().map_in(spaces[0].root(), 0, 101);
    machine.flush(&spaces[0], pages(0, 1), FreedTables::No);
    // Away before user mode was entered again: the kernel side is current, the user side is not.
    machine.switch_to(Some(&spaces[0]), &spaces[1]);
    enters(machine, 200);
    machine.switch_to(Some(&spaces[1]), &spaces[0]);
    assert_eq!(machine.watch().stats(CpuId::new(0)).tags_kept, 1);
    assert_eq!(enters(machine, 101), Drop);
    // And what was not due is not dropped.
    machine.switch_to(Some(&spaces[0]), &spaces[1]);
    assert_eq!(enters(machine, 200), Keep);
}

#[test]
fn a_platform_that_flushes_pages_of_the_user_side_drops_nothing_else() {
    let machine = split_machine(8, true);
    let spaces = spaces(machine);
    machine.switch_to(None, &spaces[0]);
    enters(machine, 100);
    machine.platform().map_in(spaces[0].root(), 0, 101);
    machine.flush(&spaces[0], pages(0, 1), FreedTables::No);
    assert_eq!(enters(machine, 101), Keep);
    machine.flush(&spaces[0], FlushRange::WHOLE, FreedTables::No);
    assert_eq!(enters(machine, 101), Drop);
    // It is told of freed tables, to which entries of other addresses may lead.
    machine.flush(&spaces[0], pages(0, 1), FreedTables::Yes);
    assert_eq!(enters(machine, 101), Drop);
}

/// User roots map a little of the kernel: its changes reach the user side too.
#[test]
fn a_kernel_flush_reaches_the_user_side() {
    let machine = split_machine(8, false);
    let spaces = spaces(machine);
    machine.switch_to(None, &spaces[0]);
    enters(machine, 100);
    machine.flush(
        FlushScope::Kernel,
        pages(puppet::GLOBAL, 1),
        FreedTables::Yes,
    );
    assert_eq!(enters(machine, 100), Drop);
}

#[test]
fn without_tags_both_sides_drop_everything() {
    let machine = split_machine(0, false);
    let spaces = spaces(machine);
    machine.switch_to(None, &spaces[0]);
    for _ in 0..2 {
        assert_eq!(enters(machine, 100), Drop);
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    SwitchTo(usize),
    Rest,
    Remap(usize, usize),
    FlushKernel(bool),
    UseUser(usize),
    UseKernel(usize),
    Tags(Tags),
}

fn step() -> impl Strategy<Value = Step> {
    let space = 0..SPACES as usize;
    let tags = prop_oneof![Just(Tags::None), Just(Tags::Six), Just(Tags::All)];
    prop_oneof![
        4 => space.clone().prop_map(Step::SwitchTo),
        1 => Just(Step::Rest),
        3 => (space, 0..PAGES).prop_map(|(space, page)| Step::Remap(space, page)),
        1 => any::<bool>().prop_map(Step::FlushKernel),
        6 => (0..PAGES).prop_map(Step::UseUser),
        3 => (0..PAGES).prop_map(Step::UseKernel),
        1 => tags.prop_map(Step::Tags),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever happens in whatever order, neither side uses what was flushed.
    #[test]
    fn neither_side_is_ever_stale(
        steps in prop::collection::vec(step(), 1..60),
        tags in 0..4usize,
        flushes_user_side in any::<bool>(),
    ) {
        let machine = split_machine(tags, flushes_user_side);
        let puppet = machine.platform();
        let spaces = spaces(machine);
        let mut frames = [[0; PAGES]; SPACES as usize];
        for (space, frames) in frames.iter_mut().enumerate() {
            *frames = [(space as u64 + 1) * 100; PAGES];
        }
        let mut loaded: Option<usize> = None;
        for step in steps {
            match (step, loaded) {
                (Step::SwitchTo(next), _) => {
                    machine.switch_to(loaded.map(|space| &*spaces[space]), &spaces[next]);
                    loaded = Some(next);
                }
                (Step::Rest, Some(space)) => {
                    machine.user_memory().enter_lazy(&spaces[space], KERNEL_ROOT);
                    machine.switch_to(Some(&spaces[space]), &spaces[space]);
                }
                (Step::Remap(space, page), _) => {
                    frames[space][page] += 1;
                    puppet.map_in(spaces[space].root(), page, frames[space][page]);
                    machine.flush(&spaces[space], pages(page, 1), FreedTables::No);
                }
                (Step::FlushKernel(whole), _) => {
                    let range = match whole {
                        true => FlushRange::WHOLE,
                        false => pages(puppet::GLOBAL, 1),
                    };
                    machine.flush(FlushScope::Kernel, range, FreedTables::Yes);
                }
                (Step::UseUser(page), Some(space)) => {
                    let (seen, _) = puppet.user_access(machine, 0, page);
                    prop_assert_eq!(seen, frames[space][page]);
                }
                (Step::UseKernel(page), Some(space)) => {
                    prop_assert_eq!(puppet.access(0, page), frames[space][page]);
                }
                (Step::Tags(tags), _) => machine.set_policy(Policy::BEST.with_tags(tags)),
                (Step::Rest | Step::UseUser(_) | Step::UseKernel(_), None) => {}
            }
        }
        if let Some(space) = loaded {
            machine.switch_away(&spaces[space], KERNEL_ROOT);
        }
    }
}
