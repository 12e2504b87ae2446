//! [`Servers`]: a process with a serving thread on each CPU.

use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::thread;
use std::time::Duration;

use super::abi::Wait;
use super::client::answer;
use super::device::Service;
use crate::child::{Child, wait_for};
use crate::machine;
use crate::region::{PAGE_WORDS, Region};

/// Words that both processes share.
const READY: usize = 0;

/// The server process of a service.
#[derive(Debug)]
pub struct Servers {
    service: Service,
    /// `None` when it has been waited for.
    child: Option<Child>,
}

impl Servers {
    /// Forks a process that serves calls of up to `max_pages` pages on all of `cpus`, mapping them as `mode` says; waits until it does.
    /// `None` on kernels without such services. To be called before there are other threads.
    pub fn start(cpus: &[usize], mode: u32, max_pages: u32) -> io::Result<Option<Self>> {
        let Some(service) = Service::open()? else {
            return Ok(None);
        };
        let control = Region::shared(1)?;
        let ready = || control.word(0, READY);
        let child = Child::start(|| serve_all(&service, cpus, (mode, max_pages), ready()))?;
        // ORDERING: pairs with the increment in `serve`.
        while ready().load(Acquire) < cpus.len() as u64 {
            if wait_for(child.pid(), libc::WNOHANG)?.is_some() {
                return Err(io::Error::other("a server could not begin"));
            }
            // Sleeping, not yielding: where CPUs take turns, a busy one lets nobody have his.
            thread::sleep(Duration::from_millis(1));
        }
        Ok(Some(Self {
            service,
            child: Some(child),
        }))
    }

    /// What clients call.
    pub fn service(&self) -> &Service {
        &self.service
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        if let Some(child) = self.child.take() {
            // It ends now, or has ended already.
            let _ignored = child.kill();
        }
    }
}

/// The whole life of the process; its exit status.
fn serve_all(
    service: &Service,
    cpus: &[usize],
    (mode, max_pages): (u32, u32),
    ready: &AtomicU64,
) -> i32 {
    let serve = |cpu| -> io::Result<()> {
        machine::pin_to(cpu)?;
        service.register(mode, max_pages)?;
        let mut copy = vec![0; max_pages as usize * PAGE_WORDS];
        // ORDERING: pairs with the load in `start`.
        ready.fetch_add(1, Release);
        let mut result = 0;
        loop {
            result = match service.wait(result) {
                Ok(request) => work(&request, &mut copy),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => result,
                Err(error) => return Err(error),
            };
        }
    };
    thread::scope(|scope| {
        let threads: Vec<_> = cpus
            .iter()
            .map(|&cpu| scope.spawn(move || serve(cpu)))
            .collect();
        for thread in threads {
            if !matches!(thread.join(), Ok(Ok(()))) {
                // The others would wait for ever.
                crate::child::end(1);
            }
        }
    });
    0
}

/// Copies what is lent and answers from the copy.
fn work(request: &Wait, copy: &mut [u64]) -> i64 {
    let words = (request.length as usize / size_of::<u64>()).min(copy.len());
    let lent = request.address as *const u64;
    // SAFETY: the kernel has mapped that many bytes there until the next wait, the clients' buffers begin with a page, and the
    // client leaves them alone until it is answered; the copy is this thread's.
    unsafe { lent.copy_to_nonoverlapping(copy.as_mut_ptr(), words) };
    answer(request.op, &copy[..words])
}
