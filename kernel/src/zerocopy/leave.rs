//! Ceasing to be a server, in every way there is.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem;

use shootdown::CpuId;

use super::server::Server;
use crate::cpus::MAX_CPUS;
use crate::errno::Errno;
use crate::sync::Mutex;
use crate::task::{self, Current};

/// All servers by their CPUs, for when these go offline.
static SERVERS: [Mutex<Vec<Arc<Server>>>; MAX_CPUS] = [const { Mutex::new(Vec::new()) }; MAX_CPUS];

/// Notes a server.
///
/// # Errors
/// ESHUTDOWN when its CPU is going offline; ENOMEM.
pub(super) fn enlist(server: &Arc<Server>) -> Result<(), Errno> {
    let mut servers = SERVERS[server.cpu().index()].lock();
    servers.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
    if task::usable_cpu_bits() & 1 << server.cpu().index() == 0 {
        return Err(Errno::ESHUTDOWN);
    }
    servers.push(server.clone());
    Ok(())
}

/// Forgets it.
pub(super) fn delist(server: &Arc<Server>) {
    let mut servers = SERVERS[server.cpu().index()].lock();
    let at = servers.iter().position(|held| Arc::ptr_eq(held, server));
    let gone = at.map(|at| servers.swap_remove(at));
    drop(servers);
    drop(gone);
}

/// The current thread is no server any more, if it was one: as it ends, calls `execve`, or has been dismissed. Thread
/// context, interrupts and preemption on.
pub fn leave(me: &Current) {
    let serves = me.server_link.lock().serves.take();
    let Some(server) = serves else { return };
    server.close();
    // Without an answer: the client has been told that there is none.
    drop(server.give_up());
    server.place.clear();
    // Away from its CPU, which is going offline, a window has yet to be taken away: see `cpu_left`.
    if !server.place.window().is_some_and(|window| window.is_open()) {
        delist(&server);
    }
}

/// As [`leave`] for a thread that was told to look, see `Server::dismiss`.
pub fn look(me: &Current) {
    let serves = me.server_link.lock().serves.clone();
    if serves.is_some_and(|server| server.is_closed()) {
        leave(me);
    }
}

/// This CPU, which is going offline and has left its last space, takes away the windows that only it can reach. It may be
/// quicker than whoever is to dismiss its servers. Interrupts are off.
pub fn cpu_left(cpu: CpuId) {
    let servers = mem::take(&mut *SERVERS[cpu.index()].lock());
    for server in &servers {
        server.dismiss();
        if let Some(window) = server.place.window() {
            drop(server.give_up());
            window.retire();
        }
    }
}

/// Dismisses all servers of a CPU that is going offline, and takes no threads any more.
pub fn cpu_leaves(cpu: CpuId) {
    let servers = SERVERS[cpu.index()].lock().clone();
    servers.iter().for_each(|server| server.dismiss());
}
