//! Becoming a server.

use alloc::sync::Arc;
use alloc::vec::Vec;

use shootdown::{CpuId, CpuMask};

use super::abi::{self, Register};
use super::exchange::Exchange;
use super::leave;
use super::place::{Mode, Place};
use super::server::Server;
use super::service::Service;
use crate::addr::PAGE_BYTES;
use crate::arch::percpu;
use crate::boot;
use crate::cpus::Cpus;
use crate::errno::Errno;
use crate::task::{self, Current, Thread};

/// Makes the current thread the server of the one CPU that it is pinned to; the answer to the program.
///
/// # Errors
/// EINVAL: bad arguments, or a thread that may use more than one CPU (pin it with `sched_setaffinity`). EBUSY: the CPU has
/// a server on this service, or the thread is one. ENOMEM. ESHUTDOWN: the service or the CPU is going.
pub(super) fn register(
    service: &Arc<Service>,
    me: &Current,
    wanted: Register,
) -> Result<Register, Errno> {
    let mode = Mode::from_abi(wanted.mode)?;
    if !(1..=abi::MOST_PAGES).contains(&wanted.max_pages) || wanted.reserved != 0 {
        return Err(Errno::EINVAL);
    }
    let cpu = settle(me)?;
    let most_pages = wanted.max_pages as usize;
    // A buffer may begin inside a page.
    let room = most_pages + 1;
    let mut pages = Vec::new();
    pages.try_reserve_exact(room).map_err(|_| Errno::ENOMEM)?;
    let space = task::current_space().ok_or(Errno::ENOMEM)?;
    let place = Place::new(mode, space, cpu, room * PAGE_BYTES)?;
    let server = Server::new(
        service,
        me.to_arc(),
        cpu,
        most_pages,
        place,
        Exchange::new(pages),
    );
    if let Err(errno) = install(service, me, &server) {
        server.place.clear();
        return Err(errno);
    }
    if let Some(window) = server.place.window() {
        // A server that has been dismissed since may have to be one on another CPU.
        task::open_window(window, || !server.is_closed());
    }
    Ok(Register {
        cpu: cpu.as_u32(),
        window: server.place.start() as u64,
        ..wanted
    })
}

/// The one CPU that the thread may use, on which it then is.
fn settle(me: &Current) -> Result<CpuId, Errno> {
    loop {
        let cpu = only_cpu(me)?;
        // It stays there: nobody moves a thread that may not run elsewhere.
        if percpu::cpu_id() == cpu {
            return Ok(cpu);
        }
        task::yield_now();
    }
}

fn only_cpu(thread: &Thread) -> Result<CpuId, Errno> {
    let cpus = thread.affinity_bits() & boot::info().cpu_bits();
    match cpus.count_ones() {
        1 => Ok(CpuId::new(cpus.trailing_zeros())),
        _ => Err(Errno::EINVAL),
    }
}

/// Everybody may find it from now on.
fn install(service: &Arc<Service>, me: &Current, server: &Arc<Server>) -> Result<(), Errno> {
    let mut link = me.server_link.lock();
    if link.serves.is_some() {
        return Err(Errno::EBUSY);
    }
    // Somebody may have moved it since, but from now on nobody does.
    if only_cpu(me)? != server.cpu() {
        return Err(Errno::EINVAL);
    }
    leave::enlist(server)?;
    if let Err(errno) = service.install(server) {
        leave::delist(server);
        return Err(errno);
    }
    link.serves = Some(server.clone());
    Ok(())
}

/// Pins a thread to these CPUs unless it is a server.
///
/// # Errors
/// EBUSY: it is one.
pub fn set_affinity(thread: &Arc<Thread>, cpus: &CpuMask<Cpus>) -> Result<(), Errno> {
    let link = thread.server_link.lock();
    if link.serves.is_some() {
        return Err(Errno::EBUSY);
    }
    task::set_affinity(thread, cpus);
    Ok(())
}
