//! Servers with windows, and clients that lend them pages, beside the workers.
//!
//! Each CPU has a server thread and a client thread, all in the process whose other memory the workers change, so its private
//! roots have to follow what becomes of the shared part. Each call lends pages that bear a stamp of that call alone; the server
//! looks at all of them and changes them, the client looks what came back, and gives the pages away to whoever wants frames
//! next. A server that works on a page of another call sees another stamp, or spoils somebody's page.
//!
//! When a CPU leaves, its server faults or is told; it begins anew when the CPU is back.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use super::board::Board;
use super::evidence::Evidence;
use super::probe::{self, Length};
use super::promise::Promise;
use super::rule::Effect;
use super::state::State;
use super::worker::pin_if_online;
use crate::region::{PAGE_BYTES, Region};
use crate::signals;
use crate::zerocopy::abi::{MODE_WINDOW, Wait};
use crate::zerocopy::device::{Lending, Service};

/// Most pages of a call.
const MOST_PAGES: usize = 40;
/// Calls with the same memory.
const BURST: usize = 8;
/// How long a server or a client waits for its CPU to come back.
const NAP: Duration = Duration::from_micros(300);
/// The operation that ends a server; stamps are odd.
const STOP: u64 = 0;

/// What all of them share.
#[derive(Debug)]
pub struct Lent {
    service: Service,
    /// Calls that were answered.
    answered: AtomicU64,
    /// Calls without a server, or whose server went.
    refused: AtomicU64,
}

impl Lent {
    /// A service, `None` on kernels that have none.
    pub fn new() -> io::Result<Option<Self>> {
        Ok(Service::open()?.map(|service| Self {
            service,
            answered: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }))
    }

    /// How many calls were answered, and how many were not.
    pub fn counts(&self) -> (u64, u64) {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (count(&self.answered), count(&self.refused))
    }

    /// The life of the server of `cpu`.
    pub fn serve(&self, board: &Board, cpu: usize) {
        if let Err(error) = signals::use_signal_stack() {
            board.fail(format!("the server of CPU {cpu}: {error}"));
        }
        while !board.stopped() {
            if self.serve_once(cpu) {
                return;
            }
            thread::sleep(NAP);
        }
    }

    /// Serves as long as the CPU is there; whether it was told to stop.
    fn serve_once(&self, cpu: usize) -> bool {
        let is_there = matches!(pin_if_online(cpu), Ok(true));
        let register = || self.service.register(MODE_WINDOW, MOST_PAGES as u32);
        if !is_there || register().is_err() {
            return false;
        }
        let mut result = 0;
        loop {
            match self.service.wait(result) {
                Ok(request) if request.op == STOP => return true,
                Ok(request) => result = work(&request),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
    }

    /// The life of the client of `cpu`, which ends that server at its end.
    pub fn lend(&self, board: &Board, cpus: &[usize], own: usize, seed: u64) {
        let mut random = fastrand::Rng::with_seed(!seed.wrapping_add(own as u64));
        while !board.stopped() {
            // Now and then it calls another CPU's.
            let cpu = match random.u8(..8) {
                0 => cpus[random.usize(..cpus.len())],
                _ => cpus[own],
            };
            let mut lend = || -> io::Result<bool> {
                let is_there = pin_if_online(cpu)?;
                if is_there {
                    let region = Region::new(1 + random.usize(..MOST_PAGES))?;
                    self.burst(board, own, cpu, &region, &mut random)?;
                }
                Ok(is_there)
            };
            if !matches!(lend(), Ok(true)) {
                thread::sleep(NAP);
            }
        }
    }

    /// A few calls with the same memory. An error when no server answers.
    fn burst(
        &self,
        board: &Board,
        own: usize,
        cpu: usize,
        region: &Region,
        random: &mut fastrand::Rng,
    ) -> io::Result<()> {
        for _ in 0..BURST {
            let seed = random.u64(..) | 1;
            if random.bool() {
                region.discard(region.pages())?;
            }
            for page in 0..region.pages() {
                let stamp = stamp(seed, page);
                region.word(page, 0).store(stamp, Ordering::Relaxed);
                region.word(page, 1).store(!stamp, Ordering::Relaxed);
            }
            let (lending, op, added) = match random.bool() {
                true => (Lending::Writing, seed | WRITES, 1),
                false => (Lending::Reading, seed & !WRITES, 0),
            };
            let bytes = region.pages() * PAGE_BYTES;
            let start = region.word(0, 0).as_ptr().cast();
            // SAFETY: 1. the region's words are atomics.
            let answer = unsafe { self.service.call(start, bytes, op, lending) };
            let Ok(answer) = answer else {
                self.refused.fetch_add(1, Ordering::Relaxed);
                return answer.map(|_| ());
            };
            self.answered.fetch_add(1, Ordering::Relaxed);
            let expected = region.pages() as i64;
            if answer != expected {
                board.report(own, cpu, Evidence::Lent { answer, expected });
            }
            for page in 0..region.pages() {
                let expected = stamp(seed, page).wrapping_add(added);
                let seen = region.word(page, 0).load(Ordering::Relaxed);
                if seen != expected {
                    let evidence = Evidence::LentBack {
                        page,
                        expected,
                        seen,
                    };
                    board.report(own, cpu, evidence);
                }
            }
        }
        Ok(())
    }

    /// Ends the servers, which wait for requests, when everything else is over.
    pub fn stop(&self, cpus: &[usize], is_over: impl Fn() -> bool) {
        while !is_over() {
            for &cpu in cpus {
                if matches!(pin_if_online(cpu), Ok(true)) {
                    let mut byte = 0;
                    // SAFETY: 1. it is only read.
                    let _refused =
                        unsafe { self.service.call(&raw mut byte, 1, STOP, Lending::Reading) };
                }
            }
            thread::sleep(NAP);
        }
    }
}

/// In the operation: the server is to write, too.
const WRITES: u64 = 1 << 63;

/// What the first word of a page bears; the second one has it inverted.
fn stamp(seed: u64, page: usize) -> u64 {
    (seed & !WRITES).wrapping_mul(page as u64 + 1)
}

/// Looks at all pages and changes them if it may: how many there were, or one less than the negative number of the first one
/// that was another's or could not be reached.
fn work(request: &Wait) -> i64 {
    let promise = Promise::new(State::ABSENT);
    let pages = request.length as usize / PAGE_BYTES;
    for page in 0..pages {
        let address = request.address as usize + page * PAGE_BYTES;
        let expected = stamp(request.op, page);
        // SAFETY: 1. only lent pages are ever there. 2. `Run::new` has called it.
        let (_, seen) = unsafe { probe::load(&promise, address, Length::Short) };
        if seen != Effect::loaded(expected, !expected) {
            return -1 - page as i64;
        }
        if request.op & WRITES != 0 {
            let value = expected.wrapping_add(1);
            // SAFETY: as above.
            unsafe { probe::store(&promise, address, value, Length::Short) };
        }
    }
    pages as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_tell_pages_and_calls_apart() {
        assert_ne!(stamp(3, 0), stamp(3, 1));
        assert_ne!(stamp(3, 0), stamp(5, 0));
        assert_eq!(stamp(3 | WRITES, 2), stamp(3, 2));
    }
}
