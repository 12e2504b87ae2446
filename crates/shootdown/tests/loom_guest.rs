//! loom models of guests: I1, I2, I3 and I5 for nested page tables.

#![cfg(loom)]

mod loom_machine;

use loom::sync::Arc;
use loom::sync::atomic::Ordering;
use loom_machine::*;
use shootdown::guest::*;
use shootdown::{CpuMask, Cpus, FlushRange, FreedTables};

const OLD: u64 = 0;
const NEW: u64 = 1;

/// A machine with two CPUs, a guest, and the frame that its page 0 is translated to at first.
struct World {
    machine: Arc<Machine<2>>,
    guest: GuestSpace<Cpus<2>>,
}

impl World {
    fn new() -> Arc<Self> {
        let machine = Arc::new(machine_with(0));
        online_all(&machine, 2);
        let guest = GuestSpace::new(&*machine, tables(1));
        Arc::new(Self { machine, guest })
    }

    /// One entry of `vcpu`, which uses page 0 twice, or none.
    fn enter(&self, vcpu: &mut Vcpu, uses: bool) {
        let frame = &self.machine.platform().table_page;
        let use_it = |number| {
            if number == OLD {
                frame.walk();
            }
        };
        match uses {
            true => run_guest(&self.machine, &self.guest, vcpu, [0, 0], use_it),
            false => run_guest(&self.machine, &self.guest, vcpu, [], use_it),
        }
    }

    fn remap(&self) {
        self.machine.platform().table[0].store(NEW, Ordering::Relaxed);
        self.machine
            .submit_flush(&self.guest, FlushRange::WHOLE, FreedTables::No)
            .wait();
        self.machine.platform().table_page.reuse();
    }
}

/// A virtual CPU enters `entries` times, on a CPU that has run it before or has not, while another CPU gives its page another frame:
/// whichever it finds, it uses the old one only before that is somebody else's.
fn a_guest_and_a_flush(has_run: bool, entries: usize, preemptions: usize) {
    check(preemptions, move || {
        let world = World::new();
        let done = flag();
        let runner = {
            let (world, ready) = (world.clone(), Arc::new(Event::new()));
            let is_ready = ready.clone();
            let thread = on_cpu(&world.machine.clone(), 1, move |machine| {
                let mut vcpu = Vcpu::new(machine, &world.guest);
                if has_run {
                    world.enter(&mut vcpu, true);
                }
                is_ready.set();
                for _ in 0..entries {
                    world.enter(&mut vcpu, true);
                    take_interrupt(machine);
                }
                idle_until(machine, || done.load(Ordering::Acquire));
                world.enter(&mut vcpu, true);
            });
            ready.wait();
            thread
        };
        world.remap();
        tell(&world.machine, 1, done);
        runner.join().unwrap();
    });
}

#[test]
fn a_virtual_cpu_enters_for_the_first_time_while_its_memory_changes() {
    a_guest_and_a_flush(false, 1, 3);
}

#[test]
fn a_virtual_cpu_enters_again_while_its_memory_changes() {
    a_guest_and_a_flush(true, 2, 2);
}

/// A CPU runs one guest and then another: the first one's flush need not wait for the second.
#[test]
fn a_cpu_leaves_one_guest_for_another_while_the_first_ones_memory_changes() {
    check(3, || {
        let world = World::new();
        let done = flag();
        let (inside, ready) = (world.clone(), Arc::new(Event::new()));
        let is_ready = ready.clone();
        let runner = on_cpu(&world.machine, 1, move |machine| {
            let other = GuestSpace::new(machine, tables(2));
            let mut vcpus = [&inside.guest, &other].map(|guest| Vcpu::new(machine, guest));
            is_ready.set();
            inside.enter(&mut vcpus[0], true);
            run_guest(machine, &other, &mut vcpus[1], [1], |_| ());
            idle_until(machine, || done.load(Ordering::Acquire));
        });
        ready.wait();
        world.remap();
        tell(&world.machine, 1, done);
        runner.join().unwrap();
    });
}

/// Two CPUs change the guest's memory; each waits for its own flush only.
#[test]
fn a_guest_and_two_flushes() {
    check(1, || {
        let machine = Arc::new(machine_with::<3>(0));
        online_all(&machine, 3);
        let guest = Arc::new(GuestSpace::new(&*machine, tables(1)));
        let done = flag();
        let inside = guest.clone();
        let runner = on_cpu(&machine, 2, move |machine| {
            let mut vcpu = Vcpu::new(machine, &inside);
            let frame = &machine.platform().table_page;
            for _ in 0..2 {
                run_guest(machine, &inside, &mut vcpu, [0, 1], |number| {
                    if number == OLD {
                        frame.walk();
                    }
                });
                take_interrupt(machine);
            }
            idle_until(machine, || done.load(Ordering::Acquire));
        });
        let inside = guest.clone();
        let other = on_cpu(&machine, 1, move |machine| {
            machine.platform().table[1].store(NEW, Ordering::Relaxed);
            machine
                .submit_flush(&*inside, FlushRange::WHOLE, FreedTables::No)
                .wait();
        });
        machine.platform().table[0].store(NEW, Ordering::Relaxed);
        machine
            .submit_flush(&*guest, FlushRange::WHOLE, FreedTables::No)
            .wait();
        other.join().unwrap();
        machine.platform().table_page.reuse();
        tell(&machine, 2, done);
        runner.join().unwrap();
    });
}

/// Interrupts do not end guest mode on CPU 1, and an NMI that comes outside of it does nothing: whoever wants something is heard all the same.
#[test]
fn a_guest_that_holds_interrupts_is_left() {
    check(3, || {
        let world = World::new();
        let_guests_hold_interrupts(&world.machine);
        let (ends, over) = (flag(), flag());
        let inside = world.clone();
        let runner = on_cpu(&world.machine, 1, move |machine| {
            let mut vcpu = Vcpu::new(machine, &inside.guest);
            while !ends.load(Ordering::Acquire) {
                run_holder(machine, &inside.guest, &mut vcpu);
                take_interrupt(machine);
            }
            idle_until(machine, || over.load(Ordering::Acquire));
        });
        let target = CpuMask::only(cpu(1));
        world.machine.control().kick(&target).wait();
        ends.store(true, Ordering::Release);
        world.machine.control().kick(&target).wait();
        tell(&world.machine, 1, over);
        runner.join().unwrap();
    });
}
