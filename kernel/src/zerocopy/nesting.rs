//! Servers that call servers.
//!
//! A server that waits for another one does not answer its own clients meanwhile. Each waits for one at most, so
//! who waits for whom is a chain, and only a server can close it to a circle: other threads are waited for by nobody.

use alloc::sync::Arc;

use super::server::Server;
use crate::errno::Errno;
use crate::sync::Mutex;
use crate::task::{Current, MAX_THREADS};

/// Two servers of a circle must not look at the same time, each before the other counts as waiting.
static CHAINS: Mutex<Chains> = Mutex::new(Chains);

/// Whose holder looks along chains of servers, and makes one longer.
struct Chains;

/// The current thread counts as waiting for a server, if it is one itself.
#[derive(Debug)]
pub(super) struct Nested<'a> {
    me: &'a Current,
    is_server: bool,
}

impl<'a> Nested<'a> {
    /// From now on.
    ///
    /// # Errors
    /// EDEADLK when that one waits for the current thread, directly or not, or is it.
    pub fn begin(me: &'a Current, server: &Arc<Server>) -> Result<Self, Errno> {
        let is_server = me.server_link.lock().serves.is_some();
        if is_server {
            CHAINS.lock().wait_for(me, server)?;
        }
        Ok(Self { me, is_server })
    }
}

impl Chains {
    /// The current thread waits for `server`, unless that waits for it.
    fn wait_for(&mut self, me: &Current, server: &Arc<Server>) -> Result<(), Errno> {
        if leads_to(server, me) {
            return Err(Errno::EDEADLK);
        }
        me.server_link.lock().waits_for = Some(server.clone());
        Ok(())
    }
}

impl Drop for Nested<'_> {
    fn drop(&mut self) {
        if self.is_server {
            let over = self.me.server_link.lock().waits_for.take();
            drop(over);
        }
    }
}

/// Whether the chain from that server on comes to this thread.
fn leads_to(server: &Arc<Server>, me: &Current) -> bool {
    let mut at = Some(server.clone());
    for _ in 0..MAX_THREADS {
        let Some(server) = at else { return false };
        if server.thread().tid() == me.tid() {
            return true;
        }
        at = server.thread().server_link.lock().waits_for.clone();
    }
    // Longer than any chain can be.
    true
}
