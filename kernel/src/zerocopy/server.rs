//! [`Server`]: a thread that serves one CPU.

use alloc::sync::{Arc, Weak};

use shootdown::CpuId;

use super::exchange::Exchange;
use super::place::Place;
use super::service::Service;
use crate::addr::PAGE_BYTES;
use crate::sync::Mutex;
use crate::task::{self, Thread};

/// A thread that serves the clients of one service on its CPU.
#[derive(Debug)]
pub struct Server {
    cpu: CpuId,
    thread: Arc<Thread>,
    service: Weak<Service>,
    most_pages: usize,
    /// Where it sees buffers. For its own thread, but for a window, which its CPU may take away.
    pub(super) place: Place,
    pub(super) exchange: Mutex<Exchange>,
}

/// What each thread has to do with servers.
#[derive(Debug, Default)]
pub struct Link {
    /// It is this server.
    pub(super) serves: Option<Arc<Server>>,
    /// It is a server, and waits for this one.
    pub(super) waits_for: Option<Arc<Server>>,
}

impl Link {
    /// It neither serves nor waits.
    pub const fn new() -> Self {
        Self {
            serves: None,
            waits_for: None,
        }
    }
}

impl Server {
    pub(super) fn new(
        service: &Arc<Service>,
        thread: Arc<Thread>,
        cpu: CpuId,
        most_pages: usize,
        place: Place,
        exchange: Exchange,
    ) -> Arc<Self> {
        Arc::new(Self {
            cpu,
            thread,
            service: Arc::downgrade(service),
            most_pages,
            place,
            exchange: Mutex::new(exchange),
        })
    }

    /// The CPU that it serves.
    pub(super) fn cpu(&self) -> CpuId {
        self.cpu
    }

    /// The thread.
    pub(super) fn thread(&self) -> &Arc<Thread> {
        &self.thread
    }

    /// Whether it takes buffers of so many bytes.
    pub(super) fn takes(&self, bytes: usize) -> bool {
        bytes <= self.most_pages * PAGE_BYTES
    }

    /// Whether it belongs to that service.
    pub(super) fn is_of(&self, service: &Arc<Service>) -> bool {
        core::ptr::eq(self.service.as_ptr(), Arc::as_ptr(service))
    }

    /// Whether it takes no more calls.
    pub(super) fn is_closed(&self) -> bool {
        self.exchange.lock().is_closed()
    }

    /// It takes no more calls, and whoever is in one learns that. The thread may still see a buffer.
    pub(super) fn close(&self) {
        if let Some(service) = self.service.upgrade() {
            service.remove(self);
        }
        let waiting = self.exchange.lock().close();
        waiting.wake();
    }

    /// As [`close`](Self::close), by another thread; the server's own gives up what it sees as soon as it can.
    pub(super) fn dismiss(&self) {
        self.close();
        task::tell_server(&self.thread);
    }
}
