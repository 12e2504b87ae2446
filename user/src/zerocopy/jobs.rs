//! A server process for tests of [`/dev/zerocopy`](super::device): it does odd jobs, some of which it does not survive.

use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::thread;

use super::abi::{MOST_PAGES, Wait};
use super::contender::MODES;
use super::device::{Lending, Service};
use crate::checks::errno;
use crate::child::{Child, End};
use crate::machine;
use crate::region::{PAGE_BYTES, Region};

/// What a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Job {
    /// The sum of the bytes.
    Sum,
    /// One more in each byte; how many bytes.
    Raise,
    /// [`Sum`](Self::Sum), but not before it is allowed.
    SumLater,
    /// [`Raise`](Self::Raise), but not before it is allowed.
    RaiseLater,
    /// A read of the page behind the buffer.
    Beyond,
    /// The end of the process, without an answer.
    Exit,
    /// A call of the second service, whose answer is this one's; an error as a negative number.
    Forward,
    /// The same of the first one.
    Back,
    /// The sum of the bytes as another thread on the same CPU finds it.
    SumByThread,
    /// The same on another CPU, if there is one.
    SumElsewhere,
    /// Unmaps the window itself.
    Unmap,
    /// Tries to get the right to write to the window; the error as a negative number.
    Seize,
    /// The end of a forked child that reads the window: its signal as a negative number.
    Fork,
    /// Lends a page of the window to the second service; an error as a negative number.
    LendWindow,
}

const JOBS: [Job; 14] = [
    Job::Sum,
    Job::Raise,
    Job::SumLater,
    Job::RaiseLater,
    Job::Beyond,
    Job::Exit,
    Job::Forward,
    Job::Back,
    Job::SumByThread,
    Job::SumElsewhere,
    Job::Unmap,
    Job::Seize,
    Job::Fork,
    Job::LendWindow,
];

/// How a server process ends by itself, apart from signals.
pub mod status {
    /// [`Job::Exit`](super::Job::Exit).
    pub const ASKED: i32 = 7;
    /// A call failed otherwise than below.
    pub const FAILED: i32 = 8;
    /// ESHUTDOWN.
    pub const SHUT_DOWN: i32 = 9;
    /// EPERM.
    pub const NO_SERVER: i32 = 10;
    /// EFAULT.
    pub const FAULT: i32 = 11;
}

/// Words that test and servers share.
const READY: usize = 0;
const HOLDING: usize = 1;
const ALLOWED: usize = 2;
const ANSWER: usize = 3;

/// What a process serves: with calls to a second service if there is one.
#[derive(Clone, Copy, Debug)]
pub struct Duty<'a> {
    /// Whose requests.
    pub service: &'a Service,
    /// Where [`Job::Forward`] goes.
    pub second: Option<&'a Service>,
    /// As in a registration.
    pub mode: u32,
    /// As in a registration.
    pub max_pages: u32,
}

impl<'a> Duty<'a> {
    /// Serves calls of any length, and calls nobody.
    pub fn new(service: &'a Service, mode: u32) -> Self {
        Self {
            service,
            second: None,
            mode,
            max_pages: MOST_PAGES,
        }
    }
}

/// A new service, where there is the device.
pub fn open() -> Service {
    Service::open().unwrap().expect("the device")
}

/// A server of `service` on `cpu` that does all of its [duty](Duty::new).
pub fn start(service: &Service, mode: u32, cpu: usize) -> ServerProcess {
    ServerProcess::start(Duty::new(service, mode), cpu).unwrap()
}

/// What is checked, and the check in a mode.
pub type Check = (&'static str, fn(u32));

/// Runs the checks of `program` in both modes.
pub fn check_modes(program: &str, checks: &[Check]) {
    for mode in MODES {
        for (name, check) in checks {
            println!("{program}: mode {mode}: {name}");
            check(mode);
        }
    }
}

/// A server process on one CPU.
#[derive(Debug)]
pub struct ServerProcess {
    child: Child,
    control: Region,
}

impl ServerProcess {
    /// Forks one that serves `cpu`, and waits until it does.
    pub fn start(duty: Duty<'_>, cpu: usize) -> io::Result<Self> {
        let control = Region::shared(1)?;
        let child = Child::start(|| serve(duty, cpu, &control))?;
        let server = Self { child, control };
        while server.word(READY).load(Acquire) == 0 {
            thread::yield_now();
        }
        Ok(server)
    }

    /// Waits until it is at a job that it may not end yet.
    pub fn wait_until_holding(&self) {
        while self.word(HOLDING).load(Acquire) == 0 {
            thread::yield_now();
        }
    }

    /// Lets it end that job, and all later ones.
    pub fn allow(&self) {
        self.word(ALLOWED).store(1, Release);
    }

    /// From now on it may not end such jobs.
    pub fn forbid(&self) {
        self.word(HOLDING).store(0, Relaxed);
        self.word(ALLOWED).store(0, Relaxed);
    }

    /// Its last answer, whether anybody has read it or not.
    pub fn answer(&self) -> i64 {
        self.word(ANSWER).load(Acquire) as i64
    }

    /// The process.
    pub fn child(&self) -> &Child {
        &self.child
    }

    /// How it ends, sooner or later.
    pub fn wait(self) -> io::Result<End> {
        self.child.wait()
    }

    /// Ends it.
    pub fn kill(self) -> io::Result<()> {
        self.child.kill().map(|_| ())
    }

    fn word(&self, word: usize) -> &AtomicU64 {
        self.control.word(0, word)
    }
}

/// The whole life of a server process; its exit status.
fn serve(duty: Duty<'_>, cpu: usize, control: &Region) -> i32 {
    let begun =
        machine::pin_to(cpu).and_then(|()| duty.service.register(duty.mode, duty.max_pages));
    if begun.is_err() {
        return status::FAILED;
    }
    control.word(0, READY).store(1, Release);
    let mut result = 0;
    loop {
        match duty.service.wait(result) {
            Ok(request) => match work(duty, &request, control) {
                Ok(answer) => {
                    control.word(0, ANSWER).store(answer as u64, Release);
                    result = answer;
                }
                Err(status) => return status,
            },
            Err(error) => match error.raw_os_error() {
                Some(libc::EINTR) => {}
                Some(libc::ESHUTDOWN) => return status::SHUT_DOWN,
                Some(libc::EPERM) => return status::NO_SERVER,
                Some(libc::EFAULT) => return status::FAULT,
                _ => return status::FAILED,
            },
        }
    }
}

/// Does the job; `Err` with the exit status.
fn work(duty: Duty<'_>, request: &Wait, control: &Region) -> Result<i64, i32> {
    let (address, length) = (request.address as usize, request.length as usize);
    let job = JOBS.get(request.op as usize).ok_or(status::FAILED)?;
    if matches!(job, Job::SumLater | Job::RaiseLater) {
        hold(control);
    }
    Ok(match job {
        Job::Sum | Job::SumLater => sum(address, length),
        Job::Raise | Job::RaiseLater => raise(address, length),
        Job::Beyond => sum(page_above(address + length), 1),
        Job::Exit => return Err(status::ASKED),
        Job::Forward => forward(duty.second, Job::Sum),
        Job::Back => forward(duty.second, Job::Forward),
        Job::SumByThread => sum_by_thread(address, length, |cpu| cpu)?,
        Job::SumElsewhere => sum_by_thread(address, length, |cpu| usize::from(cpu == 0))?,
        Job::Unmap => negative(unmap(page_below(address))),
        Job::Seize => negative(seize(page_below(address))),
        Job::Fork => forked(address),
        Job::LendWindow => lend(duty.second, address as *mut u8, 1, Job::Sum),
    })
}

fn hold(control: &Region) {
    control.word(0, HOLDING).store(1, Release);
    while control.word(0, ALLOWED).load(Acquire) == 0 {
        thread::yield_now();
    }
}

fn sum(address: usize, length: usize) -> i64 {
    let byte = |at: usize| {
        let pointer = (address + at) as *const u8;
        // SAFETY: the kernel has mapped it, or ends this process, as the test wants to see.
        i64::from(unsafe { pointer.read_volatile() })
    };
    (0..length).map(byte).sum()
}

/// The sum as another thread finds it, on the CPU that `choose` makes of the server's, if there is that CPU.
fn sum_by_thread(
    address: usize,
    length: usize,
    choose: impl FnOnce(usize) -> usize + Send + 'static,
) -> Result<i64, i32> {
    // SAFETY: takes nothing.
    let here = unsafe { libc::sched_getcpu() };
    let summing = thread::spawn(move || {
        // The server is pinned: one CPU may be all there is.
        let _stays = machine::pin_to(choose(here as usize));
        sum(address, length)
    });
    summing.join().map_err(|_| status::FAILED)
}

fn raise(address: usize, length: usize) -> i64 {
    for at in 0..length {
        let pointer = (address + at) as *mut u8;
        // SAFETY: as in `sum`.
        let byte = unsafe { pointer.read_volatile() };
        // SAFETY: as in `sum`.
        unsafe { pointer.write_volatile(byte.wrapping_add(1)) };
    }
    length as i64
}

/// A call with a page of its own.
fn forward(service: Option<&Service>, job: Job) -> i64 {
    let mut page = [1; PAGE_BYTES];
    lend(service, page.as_mut_ptr(), page.len(), job)
}

fn lend(service: Option<&Service>, buffer: *mut u8, length: usize, job: Job) -> i64 {
    let Some(service) = service else { return 0 };
    // SAFETY: 1. the jobs only read.
    match unsafe { service.call(buffer, length, job as u64, Lending::Reading) } {
        Ok(result) => result,
        Err(error) => -i64::from(error.raw_os_error().unwrap_or(libc::EIO)),
    }
}

fn unmap(page: usize) -> i32 {
    // SAFETY: nothing of this process is there but the window.
    unsafe { libc::munmap(page as *mut libc::c_void, PAGE_BYTES) }
}

fn seize(page: usize) -> i32 {
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: as in `unmap`.
    unsafe { libc::mprotect(page as *mut libc::c_void, PAGE_BYTES, rights) }
}

/// The error of a call that returned this status, as a negative number; 0 for none.
fn negative(status: i32) -> i64 {
    match status {
        0 => 0,
        _ => -i64::from(errno()),
    }
}

/// A child that reads there, and how it ends.
fn forked(address: usize) -> i64 {
    let read = || {
        sum(address, 1);
        0
    };
    match Child::start(read).and_then(Child::wait) {
        Ok(End::Killed(signal)) => -i64::from(signal),
        Ok(End::Exited(status)) => i64::from(status),
        Err(_) => i64::from(status::FAILED),
    }
}

fn page_below(address: usize) -> usize {
    address - address % PAGE_BYTES
}

fn page_above(address: usize) -> usize {
    address.next_multiple_of(PAGE_BYTES)
}
