//! Servers that work on their clients' pages: what is answered, what is refused, and that each page is the right one.
//!
//! On kernels without `/dev/zerocopy`, such as Linux, there is nothing to check.

use std::io;
use std::process::ExitCode;
use std::thread;

use shootdown_user::checks::{self, expect};
use shootdown_user::child::End;
use shootdown_user::machine::{self, run_on};
use shootdown_user::region::PAGE_BYTES;
use shootdown_user::zerocopy::abi::MOST_PAGES;
use shootdown_user::zerocopy::device::{Lending, Service};
use shootdown_user::zerocopy::jobs::{
    Check, Duty, Job, ServerProcess, check_modes, open, start, status,
};

fn cpus() -> Vec<usize> {
    machine::allowed_cpus().unwrap()
}

/// Lends the bytes for a job.
fn ask(service: &Service, bytes: &mut [u8], job: Job, lending: Lending) -> io::Result<i64> {
    // SAFETY: 1. the slice is borrowed exclusively.
    unsafe { service.call(bytes.as_mut_ptr(), bytes.len(), job as u64, lending) }
}

fn read(service: &Service, bytes: &mut [u8], job: Job) -> io::Result<i64> {
    ask(service, bytes, job, Lending::Reading)
}

/// Bytes that nothing else has, and their sum.
fn pattern(seed: usize, length: usize) -> (Vec<u8>, i64) {
    let byte = |at| (at * 7 + at / PAGE_BYTES + seed) as u8;
    let bytes: Vec<u8> = (0..length).map(byte).collect();
    let sum = bytes.iter().map(|&byte| i64::from(byte)).sum();
    (bytes, sum)
}

/// Every CPU's server sees every byte of buffers of all sizes, and changes those that it may.
fn bytes_arrive(mode: u32) {
    let service = open();
    let cpus = cpus().into_iter();
    let servers: Vec<_> = cpus.map(|cpu| (cpu, start(&service, mode, cpu))).collect();
    let most = MOST_PAGES as usize * PAGE_BYTES;
    for (turn, &(cpu, _)) in servers.iter().enumerate() {
        run_on(cpu, || {
            let lengths = [1, 4095, 4096, 4097, 3 * PAGE_BYTES, most];
            for (seed, length) in lengths.into_iter().enumerate() {
                // Each begins inside a page.
                let (mut bytes, _) = pattern(seed + turn, length + 5);
                let sum: i64 = bytes[5..].iter().map(|&byte| i64::from(byte)).sum();
                let before = bytes.clone();
                assert_eq!(read(&service, &mut bytes[5..], Job::Sum).unwrap(), sum);
                assert_eq!(bytes, before);
                let raised = ask(&service, &mut bytes[5..], Job::Raise, Lending::Writing);
                assert_eq!(raised.unwrap(), length as i64);
                assert_eq!(bytes[..5], before[..5]);
                let is_raised = |(new, old): (&u8, &u8)| *new == old.wrapping_add(1);
                assert!(bytes[5..].iter().zip(&before[5..]).all(is_raised));
            }
        });
    }
    for (_, server) in servers {
        server.kill().unwrap();
    }
}

/// Call after call with other pages at the same place: an old translation would give an old sum.
fn no_page_stays(mode: u32) {
    const CALLS: usize = 400;
    let service = open();
    let cpu = cpus()[0];
    let server = start(&service, mode, cpu);
    run_on(cpu, || {
        let mut buffers = [0, 1, 2, 3, 4, 5, 6].map(|seed| pattern(31 * seed, 2 * PAGE_BYTES));
        for call in 0..CALLS {
            let (bytes, sum) = &mut buffers[call % 7];
            let answer = read(&service, bytes, Job::Sum).unwrap();
            assert_eq!(answer, *sum, "call {call}");
        }
    });
    server.kill().unwrap();
}

fn registrations_are_refused(mode: u32) {
    let service = open();
    let cpu = cpus()[0];
    if cpus().len() > 1 {
        expect(libc::EINVAL, service.register(mode, 1));
    }
    run_on(cpu, || {
        expect(libc::EPERM, service.wait(0));
        for pages in [0, MOST_PAGES + 1, u32::MAX] {
            expect(libc::EINVAL, service.register(mode, pages));
        }
        expect(libc::EINVAL, service.register(2, 1));
        let registered = service.register(mode, 1).unwrap();
        assert_eq!(registered.cpu as usize, cpu);
        expect(libc::EBUSY, service.register(mode, 1));
        expect(libc::EBUSY, open().register(mode, 1));
        expect(libc::EPERM, open().wait(0));
        expect(libc::EBUSY, on_same_cpu(|| service.register(mode, 1)));
        expect(libc::EBUSY, machine::pin_to(cpu));
        // It would wait for itself.
        expect(libc::EDEADLK, read(&service, &mut [0], Job::Sum));
    });
    // Who joins a thread finds that it serves no more.
    for _ in 0..100 {
        run_on(cpu, || service.register(mode, 1)).unwrap();
    }
}

/// Runs `work` in another thread, with the affinity of this one.
fn on_same_cpu<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(work).join().unwrap())
}

fn calls_are_refused(mode: u32) {
    let service = open();
    let cpu = cpus()[0];
    let called = || read(&service, &mut [0], Job::Sum);
    expect(libc::ENXIO, run_on(cpu, called));
    let small = Duty {
        max_pages: 1,
        ..Duty::new(&service, mode)
    };
    let server = ServerProcess::start(small, cpu).unwrap();
    run_on(cpu, || {
        expect(libc::EINVAL, read(&service, &mut [], Job::Sum));
        let called = read(&service, &mut [0; PAGE_BYTES + 1], Job::Sum);
        expect(libc::E2BIG, called);
        for address in [0usize, 8, 0x7fff_ffff_efff, 0x8000_0000_0000, usize::MAX] {
            let buffer = address as *mut u8;
            // SAFETY: 1. nothing is there.
            let called = unsafe { service.call(buffer, 2, Job::Sum as u64, Lending::Writing) };
            expect(libc::EFAULT, called);
        }
        // Constants are mapped read-only.
        static CONSTANT: [u8; 3] = [1, 2, 3];
        let buffer = CONSTANT.as_ptr().cast_mut();
        // SAFETY: 1. it must be refused.
        let called = unsafe { service.call(buffer, 3, Job::Raise as u64, Lending::Writing) };
        expect(libc::EFAULT, called);
        // SAFETY: 1. it is only read.
        let called = unsafe { service.call(buffer, 3, Job::Sum as u64, Lending::Reading) };
        assert_eq!(called.unwrap(), 6);
        // After all that it still works.
        let answer = read(&service, &mut [1; PAGE_BYTES], Job::Sum).unwrap();
        assert_eq!(answer, 4096);
    });
    server.kill().unwrap();
    let called = || read(&service, &mut [0], Job::Sum);
    expect(libc::ENXIO, run_on(cpu, called));
}

/// Requests that there are not, on descriptors that are none, with arguments that are nowhere.
fn nonsense_is_refused() {
    let service = open();
    let ioctl = |fd: i32, request: u32, argument: usize| {
        // SAFETY: the kernel checks whatever it is given.
        match unsafe { libc::ioctl(fd, request as libc::Ioctl, argument) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    use shootdown_user::zerocopy::abi::{CALL, REGISTER, WAIT};
    for request in [REGISTER, WAIT, CALL] {
        expect(libc::EBADF, ioctl(-1, request, 0));
        expect(libc::EBADF, ioctl(200, request, 0));
        expect(libc::ENOTTY, ioctl(1, request, 0));
        for argument in [0, 1, 0x7fff_ffff_f000, 0xffff_8000_0000_0000, usize::MAX] {
            expect(libc::EFAULT, ioctl(service.descriptor(), request, argument));
        }
    }
    for request in [0, 1, 0x5a00, REGISTER ^ 0x40_0000, CALL + 1, u32::MAX] {
        expect(libc::ENOTTY, ioctl(service.descriptor(), request, 0));
    }
}

/// Who serves may call others, but not in a circle.
fn servers_call_servers(mode: u32) {
    let (first, second) = (open(), open());
    let cpu = cpus()[0];
    let forward = Duty {
        second: Some(&second),
        ..Duty::new(&first, mode)
    };
    let back = Duty {
        second: Some(&first),
        ..Duty::new(&second, mode)
    };
    let to_itself = Duty {
        second: Some(&first),
        ..forward
    };
    let to_itself = ServerProcess::start(to_itself, cpu).unwrap();
    run_on(cpu, || {
        let deadlock = -i64::from(libc::EDEADLK);
        assert_eq!(read(&first, &mut [0], Job::Forward).unwrap(), deadlock);
    });
    to_itself.kill().unwrap();
    let servers = [forward, back].map(|duty| ServerProcess::start(duty, cpu).unwrap());
    run_on(cpu, || {
        let deadlock = -i64::from(libc::EDEADLK);
        assert_eq!(read(&first, &mut [0], Job::Forward).unwrap(), 4096);
        assert_eq!(read(&first, &mut [0], Job::Back).unwrap(), deadlock);
        let lent = read(&first, &mut [3], Job::LendWindow).unwrap();
        assert_eq!(lent, -i64::from(libc::EFAULT));
    });
    for server in servers {
        server.kill().unwrap();
    }
}

/// Clients of one server take turns, and each gets its own answer.
fn clients_take_turns(mode: u32) {
    const CALLS: usize = 60;
    let service = open();
    let cpu = cpus()[0];
    let server = start(&service, mode, cpu);
    thread::scope(|scope| {
        for client in 0..4 {
            let service = &service;
            scope.spawn(move || {
                machine::pin_to(cpu).unwrap();
                let (mut bytes, sum) = pattern(client * 50, PAGE_BYTES + client);
                for _ in 0..CALLS {
                    assert_eq!(read(service, &mut bytes, Job::Sum).unwrap(), sum);
                }
            });
        }
    });
    server.kill().unwrap();
}

/// A client that may run anywhere gets the server of the CPU that it is on, or none.
fn clients_wander(mode: u32) {
    const CALLS: usize = 200;
    let service = open();
    let last = *cpus().last().unwrap();
    let server = start(&service, mode, last);
    thread::scope(|scope| {
        for client in 0..3 {
            let service = &service;
            scope.spawn(move || {
                let (mut bytes, sum) = pattern(client * 50, 100);
                for call in 0..CALLS {
                    match read(service, &mut bytes, Job::Sum) {
                        Ok(answer) => assert_eq!(answer, sum),
                        Err(error) => assert_eq!(error.raw_os_error(), Some(libc::ENXIO)),
                    }
                    if call % 8 == 0 {
                        machine::pin_to(if call % 16 == 0 { last } else { 0 }).unwrap();
                    }
                }
            });
        }
    });
    server.kill().unwrap();
}

/// What the server may not do with its window.
fn windows_are_guarded(mode: u32) {
    let service = open();
    let cpu = cpus()[0];
    let ends = [
        (Job::Beyond, End::Killed(libc::SIGSEGV)),
        // The page was lent for reading.
        (Job::Raise, End::Killed(libc::SIGSEGV)),
        (Job::Exit, End::Exited(status::ASKED)),
    ];
    for (job, end) in ends {
        let server = start(&service, mode, cpu);
        let (mut bytes, sum) = pattern(3, PAGE_BYTES);
        run_on(cpu, || {
            assert_eq!(read(&service, &mut bytes, Job::Sum).unwrap(), sum);
            expect(libc::EPIPE, read(&service, &mut bytes, job));
            expect(libc::ENXIO, read(&service, &mut bytes, job));
        });
        assert_eq!(server.wait().unwrap(), end, "{job:?}");
        assert_eq!(bytes, pattern(3, PAGE_BYTES).0);
    }
    let server = start(&service, mode, cpu);
    run_on(cpu, || {
        let (mut bytes, sum) = pattern(9, PAGE_BYTES);
        let seized = read(&service, &mut bytes, Job::Seize).unwrap();
        assert!(seized < 0, "mprotect of the window: {seized}");
        let answer = read(&service, &mut bytes, Job::Fork).unwrap();
        assert_eq!(answer, -i64::from(libc::SIGSEGV));
        assert_eq!(read(&service, &mut bytes, Job::Sum).unwrap(), sum);
    });
    server.kill().unwrap();
}

/// All that is done in both modes.
const CHECKS: [Check; 8] = [
    ("registrations", registrations_are_refused),
    ("calls", calls_are_refused),
    ("bytes", bytes_arrive),
    ("pages", no_page_stays),
    ("nesting", servers_call_servers),
    ("turns", clients_take_turns),
    ("wandering", clients_wander),
    ("guards", windows_are_guarded),
];

fn main() -> ExitCode {
    checks::fail_on_panic("t_zerocopy");
    machine::prepare();
    if Service::open().unwrap().is_none() {
        println!("t_zerocopy: this kernel has no such device: OK");
        return ExitCode::SUCCESS;
    }
    nonsense_is_refused();
    check_modes("t_zerocopy", &CHECKS);
    println!("t_zerocopy: OK");
    ExitCode::SUCCESS
}
