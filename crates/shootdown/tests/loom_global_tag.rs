//! loom models of a space that gets a tag which is the same on all CPUs (I16).

#![cfg(loom)]

mod loom_machine;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread::JoinHandle;
use loom_machine::*;
use shootdown::Cpus;
use shootdown::*;

const OLD: u64 = 0;
const NEW: u64 = 1;

/// CPUs 0 and 1, which do not have the space loaded, flush it; CPU 2 has it loaded.
fn scene() -> (Arc<Machine<3>>, Arc<AddressSpace<Cpus<3>>>) {
    let machine = globally_tagged::<3>();
    // A target is enough.
    machine.set_policy(Policy::BEST.with_global_tags_from(1));
    let space = Arc::new(AddressSpace::new(&machine, tables(1)));
    become_cpu(2);
    machine.switch_to(None, &space);
    become_cpu(0);
    (machine, space)
}

fn remap(machine: &Machine<3>, space: &AddressSpace<Cpus<3>>) {
    machine.platform().table[0].store(NEW, Ordering::Relaxed);
    machine.flush(space, page(0), FreedTables::No);
}

/// Gives the space its tag, before the model proper.
fn settle(machine: &Machine<3>, space: &AddressSpace<Cpus<3>>) {
    let given = machine.submit_flush(space, page(1), FreedTables::No);
    become_cpu(2);
    take_interrupt(machine);
    become_cpu(0);
    given.wait();
    machine.flush(space, page(1), FreedTables::No);
    assert_eq!(machine.watch().stats(cpu(0)).flushes_everywhere, 1);
}

/// Nothing of page 0 is old here.
fn check_page(machine: &Machine<3>) {
    machine.platform().drop_flushed_everywhere();
    assert_ne!(cached(0), Some(OLD), "stale translation");
    assert_eq!(walk(machine, 0), NEW, "stale walk");
}

/// CPU 2 leaves the space and loads it again, so many times, and uses page 0. When all is `done`, nothing of that may be old.
fn user(
    machine: &Arc<Machine<3>>,
    space: &Arc<AddressSpace<Cpus<3>>>,
    done: &'static AtomicBool,
    times: usize,
) -> JoinHandle<()> {
    let space = space.clone();
    on_cpu(machine, 2, move |machine| {
        for time in 0..times {
            machine.switch_away(&space, NO_USER);
            machine.switch_to(None, &space);
            if time == 0 {
                walk(machine, 0);
            }
        }
        idle_until(machine, || done.load(Ordering::Acquire));
        check_page(machine);
        machine.switch_away(&space, NO_USER);
    })
}

/// One CPU gives the space its tag. Another finds that all that have it loaded have it so, because nobody has, and flushes by the tag. A third
/// one, which had it loaded, loads it again: under the tag, or it is seen.
#[test]
fn a_cpu_that_joins_has_the_tag_or_is_seen() {
    check(1, || {
        let (machine, space) = scene();
        let (given, done) = (flag(), flag());
        let giver = {
            let space = space.clone();
            on_cpu(&machine, 1, move |machine| {
                machine.flush(&*space, page(1), FreedTables::No);
                tell(machine, 0, given);
            })
        };
        let user = user(&machine, &space, done, 1);
        machine.flush(&*space, page(1), FreedTables::No);
        remap(&machine, &space);
        idle_until(&machine, || given.load(Ordering::Acquire));
        tell(&machine, 2, done);
        giver.join().unwrap();
        user.join().unwrap();
    });
}

/// A CPU leaves a space that has a settled tag, and loads it again, while another CPU changes it, once by interrupt and once by the tag: what is
/// kept is not old.
#[test]
fn a_cpu_that_comes_back_keeps_nothing_old() {
    check(2, || {
        let (machine, space) = scene();
        settle(&machine, &space);
        let done = flag();
        let user = user(&machine, &space, done, 2);
        let refuse = |refuses| {
            let platform = machine.platform();
            (platform.refuses_everywhere).store(refuses, std::sync::atomic::Ordering::Relaxed);
        };
        refuse(true);
        remap(&machine, &space);
        refuse(false);
        machine.flush(&*space, page(1), FreedTables::No);
        tell(&machine, 2, done);
        user.join().unwrap();
    });
}
