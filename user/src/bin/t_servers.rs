//! Servers and clients of `/dev/zerocopy` that end in the middle, or lose their memory, their CPU or their descriptor.
//!
//! On kernels without the device, such as Linux, there is nothing to check.

use std::io;
use std::process::ExitCode;
use std::sync::atomic::AtomicI32;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Barrier, mpsc};
use std::thread;
use std::time::Duration;

use shootdown_user::checks::{self, expect};
use shootdown_user::child::{Child, End};
use shootdown_user::counters::{CounterSource, ipis_sent};
use shootdown_user::hotplug;
use shootdown_user::machine::{self, run_on};
use shootdown_user::region::{PAGE_BYTES, PAGE_WORDS, Region};
use shootdown_user::zerocopy::abi::{MODE_ORDINARY, MODE_WINDOW};
use shootdown_user::zerocopy::device::{Lending, Service};
use shootdown_user::zerocopy::jobs::{Check, Job, check_modes, open, start, status};

/// Pages of the buffers that are lost.
const PAGES: usize = 3;
/// Servers that come and go. Each has more than a KiB.
const SERVERS: usize = 100;
/// Memory that may be in caches of CPUs or kept for later.
const LEFT_KIB: u64 = 256;
/// Within this a client lines up; if it takes longer, less is tried.
const LINES_UP: Duration = Duration::from_millis(50);

fn cpus() -> Vec<usize> {
    machine::allowed_cpus().unwrap()
}

/// The one that may leave; the first if there is no other.
fn last_cpu() -> usize {
    *cpus().last().unwrap()
}

/// Lends the whole region for a job.
fn ask(service: &Service, buffer: &Region, job: Job, lending: Lending) -> io::Result<i64> {
    let bytes = buffer.pages() * PAGE_BYTES;
    let address = buffer.word(0, 0).as_ptr().cast();
    // SAFETY: 1. the region's words are atomics.
    unsafe { service.call(address, bytes, job as u64, lending) }
}

/// A region with words that depend on the seed, and the sum of its bytes.
fn filled(seed: u64, pages: usize) -> (Region, i64) {
    let region = Region::new(pages).unwrap();
    let mut sum = 0;
    for page in 0..pages {
        for word in 0..PAGE_WORDS {
            let value =
                seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (page * PAGE_WORDS + word) as u64;
            region.word(page, word).store(value, Release);
            sum += value
                .to_ne_bytes()
                .iter()
                .map(|&byte| i64::from(byte))
                .sum::<i64>();
        }
    }
    (region, sum)
}

/// Runs `work` in a thread pinned to `cpu`, and `meanwhile` here.
fn beside<T: Send>(cpu: usize, work: impl FnOnce() -> T + Send, meanwhile: impl FnOnce()) -> T {
    thread::scope(|scope| {
        let pinned = scope.spawn(|| {
            machine::pin_to(cpu).unwrap();
            work()
        });
        meanwhile();
        pinned.join().unwrap()
    })
}

/// The pages of a client that is killed stay the server's until it is done with them.
fn client_dies(mode: u32) {
    let service = open();
    let cpu = last_cpu();
    let server = start(&service, mode, cpu);
    let kill_client_of = |buffer: &Region| {
        let call = || ask(&service, buffer, Job::SumLater, Lending::Reading);
        let asked = || machine::pin_to(cpu).and_then(|()| call());
        let client = Child::start(|| i32::from(asked().is_err()));
        let client = client.unwrap();
        server.wait_until_holding();
        assert_eq!(client.kill().unwrap(), End::Killed(libc::SIGKILL));
    };
    let (buffer, sum) = filled(1, PAGES);
    kill_client_of(&buffer);
    // The child's pages are the parent's, too, until somebody writes to them.
    (0..PAGES).for_each(|page| buffer.word(page, 0).store(0, Release));
    drop(filled(2, 2000));
    // The next one waits for its turn, which is not before the server has done with the dead one's request.
    let (other, other_sum) = filled(3, 1);
    let call = || ask(&service, &other, Job::SumLater, Lending::Reading);
    let next = beside(cpu, call, || {
        thread::sleep(LINES_UP);
        server.allow();
    });
    assert_eq!((next.unwrap(), server.answer()), (other_sum, other_sum));
    server.forbid();
    // And the dead client's sum, which nobody asked for since.
    let (buffer, again) = filled(1, PAGES);
    assert_eq!(sum, again);
    kill_client_of(&buffer);
    drop(buffer);
    drop(filled(2, 2000));
    server.allow();
    while server.answer() == other_sum {
        thread::yield_now();
    }
    assert_eq!(server.answer(), sum);
    server.kill().unwrap();
}

/// Who is in a call, or waits for its turn, learns that the server is dead.
fn server_dies(mode: u32) {
    let service = open();
    let cpu = last_cpu();
    let server = start(&service, mode, cpu);
    let (buffer, _) = filled(4, PAGES);
    let call = || ask(&service, &buffer, Job::SumLater, Lending::Writing);
    let calls = || [libc::EPIPE, libc::ENXIO].map(|errno| expect(errno, call()));
    beside(cpu, calls, || {
        let waits = || {
            let called = ask(&service, &buffer, Job::Sum, Lending::Reading);
            let errno = called.unwrap_err().raw_os_error();
            let is_told = matches!(errno, Some(libc::EPIPE | libc::ENXIO));
            assert!(is_told, "{errno:?}");
        };
        server.wait_until_holding();
        beside(cpu, waits, || server.kill().unwrap());
    });
}

/// What the client's other threads do to a buffer that is lent.
fn buffer_changes(mode: u32) {
    let service = open();
    let cpu = last_cpu();
    let server = start(&service, mode, cpu);
    let bytes = (PAGES * PAGE_BYTES) as i64;
    let raise = |buffer: &Region, change: &dyn Fn()| {
        server.forbid();
        let call = || ask(&service, buffer, Job::RaiseLater, Lending::Writing).unwrap();
        let answer = beside(cpu, call, || {
            server.wait_until_holding();
            change();
            server.allow();
        });
        assert_eq!(answer, bytes);
    };
    let (buffer, _) = filled(5, PAGES);
    let before = buffer.word(0, 0).load(Acquire);
    raise(&buffer, &|| ());
    assert_ne!(buffer.word(0, 0).load(Acquire), before);
    // Discarded: the server raises what is no longer there.
    raise(&buffer, &|| buffer.discard(PAGES).unwrap());
    assert_eq!(buffer.word(PAGES - 1, 7).load(Acquire), 0);
    // Forked, then written to by both.
    let (buffer, _) = filled(6, PAGES);
    raise(&buffer, &|| {
        let child = Child::start(|| {
            buffer.word(0, 1).store(1, Release);
            i32::from(buffer.word(0, 1).load(Acquire) != 1)
        });
        buffer.word(1, 1).store(2, Release);
        assert_eq!(child.unwrap().wait().unwrap(), End::Exited(0));
    });
    assert_eq!(buffer.word(1, 1).load(Acquire), 2);
    // Gone altogether, and the memory used for something else.
    let (buffer, _) = filled(7, PAGES);
    let address = buffer.word(0, 0).as_ptr().cast();
    raise(&buffer, &|| {
        // SAFETY: nobody uses the words from here on but the kernel.
        assert_eq!(unsafe { libc::munmap(address, PAGES * PAGE_BYTES) }, 0);
        let (other, sum) = filled(8, 500);
        assert_eq!(filled(8, 500).1, sum);
        drop(other);
    });
    std::mem::forget(buffer);
    server.kill().unwrap();
}

/// A window is its server's alone; an ordinary mapping is everybody's.
fn others_look(mode: u32) {
    let service = open();
    let cpu = last_cpu();
    for job in [Job::SumByThread, Job::SumElsewhere] {
        let server = start(&service, mode, cpu);
        let (buffer, sum) = filled(9, 1);
        let call = || ask(&service, &buffer, job, Lending::Reading);
        let answer = run_on(cpu, call);
        if mode == MODE_ORDINARY {
            assert_eq!(answer.unwrap(), sum);
            server.kill().unwrap();
        } else {
            expect(libc::EPIPE, answer);
            let end = server.wait().unwrap();
            assert_eq!(end, End::Killed(libc::SIGSEGV), "{job:?}");
        }
    }
}

/// Servers come and go, one after the other: each takes all it had along.
fn many_in_turn(mode: u32) {
    let service = open();
    let in_turn = || {
        for _ in 0..SERVERS {
            start(&service, mode, 0).kill().unwrap();
        }
    };
    // The first ones leave what is kept for later ones.
    in_turn();
    checks::must_not_lose(SERVERS as u64, in_turn);
}

/// The CPU goes: servers are none any more, and their clients learn it.
fn cpu_leaves(mode: u32) {
    let cpu = last_cpu();
    if cpu == 0 || std::process::id() != 1 {
        return;
    }
    let service = open();
    let (idle, busy) = (open(), &service);
    let [idle_server, busy_server] = [&idle, busy].map(|service| start(service, mode, cpu));
    let (buffer, sum) = filled(10, PAGES);
    let ask_for = |job| ask(busy, &buffer, job, Lending::Reading);
    let call = || {
        expect(libc::EPIPE, ask_for(Job::SumLater));
        expect(libc::ENXIO, ask_for(Job::Sum));
    };
    beside(cpu, call, || {
        busy_server.wait_until_holding();
        hotplug::take_offline(cpu).unwrap();
        busy_server.allow();
    });
    assert_eq!(busy_server.wait().unwrap(), End::Killed(libc::SIGSEGV));
    assert_eq!(idle_server.wait().unwrap(), End::Exited(status::SHUT_DOWN));
    hotplug::bring_online(cpu).unwrap();
    let server = start(busy, mode, cpu);
    assert_eq!(run_on(cpu, || ask_for(Job::Sum).unwrap()), sum);
    server.kill().unwrap();
}

/// The last descriptor goes: who waits for requests is told, and nobody is left behind.
fn service_ends(mode: u32) {
    let service = open();
    let cpu = last_cpu();
    let (say, hear) = mpsc::channel();
    let serve = || {
        service.register(mode, 1).unwrap();
        say.send(()).unwrap();
        expect(libc::ESHUTDOWN, service.wait(0));
        expect(libc::EBADF, service.wait(0));
    };
    beside(cpu, serve, || {
        hear.recv().unwrap();
        // It may be on its way into the wait still: then it finds no descriptor at all.
        thread::sleep(Duration::from_millis(20));
        // SAFETY: `service` is forgotten below.
        assert_eq!(unsafe { libc::close(service.descriptor()) }, 0);
    });
    std::mem::forget(service);
}

/// Clients that were queued on the server's CPU and then moved away: nothing runs there between their requests, so nothing
/// but the kernel's own flush makes the CPU forget the page of the one before.
fn moved_clients(mode: u32) {
    const ROUNDS: u64 = 12;
    if last_cpu() == 0 {
        return;
    }
    let service = open();
    let server = start(&service, mode, last_cpu());
    for round in 0..ROUNDS {
        server.forbid();
        let threads = [const { AtomicI32::new(0) }; 2];
        thread::scope(|scope| {
            for (client, own) in threads.iter().enumerate() {
                let service = &service;
                scope.spawn(move || {
                    let (buffer, sum) = filled(20 + 2 * round + client as u64, 1);
                    machine::pin_to(last_cpu_of_machine()).unwrap();
                    // SAFETY: takes nothing.
                    own.store(unsafe { libc::gettid() }, Release);
                    let answer = ask(service, &buffer, Job::SumLater, Lending::Reading);
                    assert_eq!(answer.unwrap(), sum, "round {round}, client {client}");
                });
            }
            server.wait_until_holding();
            for own in &threads {
                while own.load(Acquire) == 0 {
                    thread::yield_now();
                }
            }
            // Long enough for the second one to be asleep in its call; if not, it is served elsewhere, or here later.
            thread::sleep(Duration::from_millis(2));
            for own in &threads {
                move_to_first(own.load(Acquire));
            }
            server.allow();
        });
    }
    server.kill().unwrap();
}

/// The last CPU, also for threads that are pinned.
fn last_cpu_of_machine() -> usize {
    hotplug::list("online").unwrap().pop().unwrap()
}

/// Has another thread run on CPU 0 from now on.
fn move_to_first(thread: i32) {
    let first: u64 = 1;
    // SAFETY: the mask has the length that is passed.
    let moved = unsafe { libc::syscall(libc::SYS_sched_setaffinity, thread, 8, &raw const first) };
    assert_eq!(moved, 0, "{}", io::Error::last_os_error());
}

/// With servers on all CPUs in one process, a request in a window sends no interrupt; one in an ordinary mapping does.
fn steady_state(mode: u32) {
    const CALLS: usize = 400;
    let service = open();
    let cpus = cpus();
    // Reading the counters allocates and frees memory of this process, which may take an interrupt.
    let stray = (cpus.len() * CALLS / 100) as u64;
    // Clients before and after their calls, and this thread.
    let barrier = Barrier::new(cpus.len() + 1);
    let mut counters = CounterSource::of_this_kernel();
    let sent = thread::scope(|scope| {
        for &cpu in &cpus {
            let (service, barrier) = (&service, &barrier);
            let (say, hear) = mpsc::channel();
            scope.spawn(move || serve_sums(service, mode, cpu, || say.send(()).unwrap()));
            scope.spawn(move || {
                machine::pin_to(cpu).unwrap();
                hear.recv().unwrap();
                let (buffer, sum) = filled(cpu as u64, PAGES);
                let call = |job| ask(service, &buffer, job, Lending::Reading);
                assert_eq!(call(Job::Sum).unwrap(), sum);
                barrier.wait();
                barrier.wait();
                (0..CALLS).for_each(|_| assert_eq!(call(Job::Sum).unwrap(), sum));
                barrier.wait();
                barrier.wait();
                expect(libc::EPIPE, call(Job::Exit));
            });
        }
        barrier.wait();
        let before = ipis_sent(&counters.read());
        barrier.wait();
        barrier.wait();
        let sent = ipis_sent(&counters.read()) - before;
        barrier.wait();
        sent
    });
    if mode == MODE_WINDOW {
        assert!(sent < stray, "{sent} interrupts for windows");
    } else if cpus.len() > 1 {
        assert!(sent > stray, "{sent} interrupts for ordinary mappings");
    }
}

/// The life of a server thread that adds up bytes.
fn serve_sums(service: &Service, mode: u32, cpu: usize, is_ready: impl FnOnce()) {
    machine::pin_to(cpu).unwrap();
    service.register(mode, PAGES as u32).unwrap();
    is_ready();
    let mut result = 0;
    loop {
        let request = service.wait(result).unwrap();
        if request.op == Job::Exit as u64 {
            return;
        }
        let byte = |at: u64| {
            let pointer = (request.address + at) as *const u8;
            // SAFETY: the kernel has mapped it for this request.
            i64::from(unsafe { pointer.read_volatile() })
        };
        result = (0..request.length).map(byte).sum();
    }
}

const CHECKS: [Check; 9] = [
    ("client dies", client_dies),
    ("server dies", server_dies),
    ("buffer changes", buffer_changes),
    ("others look", others_look),
    ("service ends", service_ends),
    ("moved clients", moved_clients),
    ("steady state", steady_state),
    ("many in turn", many_in_turn),
    ("CPU leaves", cpu_leaves),
];

fn main() -> ExitCode {
    machine::prepare();
    if Service::open().unwrap().is_none() {
        println!("t_servers: this kernel has no such device: OK");
        return ExitCode::SUCCESS;
    }
    checks::fail_on_panic("t_servers");
    let mut free_kib = machine::free_kib().unwrap();
    for turn in 0..2 {
        check_modes("t_servers", &CHECKS);
        let now = machine::free_kib().unwrap();
        // The first turn makes what stays, such as stacks that are kept for later threads.
        let is_kept = turn == 0 || now + LEFT_KIB >= free_kib;
        assert!(is_kept, "{now} KiB are free after {free_kib}");
        free_kib = now;
    }
    println!("t_servers: OK");
    ExitCode::SUCCESS
}
