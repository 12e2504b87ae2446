//! [`Service`]: one open `/dev/zerocopy`, with a place for a server on each CPU.

use alloc::sync::Arc;
use core::mem;

use shootdown::CpuId;

use super::server::Server;
use crate::cpus::MAX_CPUS;
use crate::errno::Errno;
use crate::sync::Mutex;

/// What requests on a descriptor are about.
#[derive(Debug)]
pub struct Service {
    places: [Place; MAX_CPUS],
}

/// The place of one CPU, on a cache line of its own: calls on one CPU have nothing to do with those on others.
#[derive(Debug)]
#[repr(align(64))]
struct Place(Mutex<Holder>);

#[derive(Debug)]
enum Holder {
    Nobody,
    Server(Arc<Server>),
    /// The service has ended.
    Gone,
}

/// What an open file has of its service: dropping it ends the service, whoever is in the middle of a request.
#[derive(Debug)]
pub struct ServiceHandle(Arc<Service>);

impl ServiceHandle {
    /// A new service.
    pub fn new() -> Self {
        let places = [const { Place(Mutex::new(Holder::Nobody)) }; MAX_CPUS];
        Self(Arc::new(Service { places }))
    }

    /// The service, for the time of a request.
    pub fn service(&self) -> Arc<Service> {
        self.0.clone()
    }
}

impl Drop for ServiceHandle {
    fn drop(&mut self) {
        for place in &self.0.places {
            let before = mem::replace(&mut *place.0.lock(), Holder::Gone);
            if let Holder::Server(server) = before {
                server.dismiss();
            }
        }
    }
}

impl Service {
    /// The server of that CPU.
    ///
    /// # Errors
    /// ENXIO when there is none.
    pub(super) fn server(&self, cpu: CpuId) -> Result<Arc<Server>, Errno> {
        match &*self.place(cpu).lock() {
            Holder::Server(server) => Ok(server.clone()),
            Holder::Nobody | Holder::Gone => Err(Errno::ENXIO),
        }
    }

    /// Makes this the server of its CPU.
    ///
    /// # Errors
    /// EBUSY when the CPU has one; ESHUTDOWN when the service has ended.
    pub(super) fn install(&self, server: &Arc<Server>) -> Result<(), Errno> {
        let mut holder = self.place(server.cpu()).lock();
        match &*holder {
            Holder::Nobody => {
                *holder = Holder::Server(server.clone());
                Ok(())
            }
            Holder::Server(_) => Err(Errno::EBUSY),
            Holder::Gone => Err(Errno::ESHUTDOWN),
        }
    }

    /// Calls find it no more.
    pub(super) fn remove(&self, server: &Server) {
        let mut holder = self.place(server.cpu()).lock();
        if matches!(&*holder, Holder::Server(held) if core::ptr::eq(&raw const **held, server)) {
            let before = mem::replace(&mut *holder, Holder::Nobody);
            drop(holder);
            drop(before);
        }
    }

    fn place(&self, cpu: CpuId) -> &Mutex<Holder> {
        &self.places[cpu.index()].0
    }
}
