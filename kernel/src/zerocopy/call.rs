//! A client's call.

use alloc::sync::Arc;

use super::abi::{self, Call};
use super::exchange::{Request, Turn};
use super::nesting::Nested;
use super::server::Server;
use super::service::Service;
use crate::addr::PAGE_BYTES;
use crate::arch::percpu;
use crate::errno::Errno;
use crate::mm::Lending;
use crate::mm::range::UserRange;
use crate::preempt;
use crate::task::{self, Current};
use crate::user_memory::UserBytes;

/// What is lent.
#[derive(Clone, Copy, Debug)]
struct Buffer {
    bytes: UserBytes,
    pages: UserRange,
    lending: Lending,
}

impl Buffer {
    fn of(wanted: &Call) -> Result<Self, Errno> {
        let lending = match wanted.flags {
            0 => Lending::Reading,
            abi::CALL_WRITES => Lending::Writing,
            _ => return Err(Errno::EINVAL),
        };
        if wanted.length == 0 || wanted.reserved != 0 {
            return Err(Errno::EINVAL);
        }
        let bytes = UserBytes::new(wanted.buffer as usize, wanted.length as usize)?;
        let offset = bytes.address % PAGE_BYTES;
        let pages = UserRange::new(bytes.address - offset, offset + bytes.len)
            .map_err(|_| Errno::EFAULT)?;
        Ok(Self {
            bytes,
            pages,
            lending,
        })
    }
}

/// Calls the server of this CPU; what it answers.
///
/// # Errors
/// EINVAL: no length, or unknown flags. ENXIO: no server here. E2BIG: more than it takes. EFAULT: not the caller's.
/// EDEADLK: it would wait for itself. EPIPE: the server went. EINTR: the thread ends. ENOMEM.
pub(super) fn call(service: &Service, me: &Current, wanted: &Call) -> Result<i64, Errno> {
    let buffer = Buffer::of(wanted)?;
    let thread = me.to_arc();
    // This CPU's server is the one until the call is in its queue; wherever the thread goes then.
    preempt::disable();
    let server =
        service
            .server(percpu::cpu_id())
            .and_then(|server| match server.takes(buffer.bytes.len) {
                true => Ok(server),
                false => Err(Errno::E2BIG),
            });
    let begun = server.and_then(|server| Begun::new(me, server));
    let turn = match &begun {
        Ok(begun) => Turn::line_up(&begun.server, &thread),
        Err(errno) => Err(*errno),
    };
    preempt::enable();
    serve(turn?, me, buffer, wanted.op)
}

/// A call on its way to this server.
struct Begun<'a> {
    server: Arc<Server>,
    _nested: Nested<'a>,
}

impl<'a> Begun<'a> {
    fn new(me: &'a Current, server: Arc<Server>) -> Result<Self, Errno> {
        let _nested = Nested::begin(me, &server)?;
        Ok(Self { server, _nested })
    }
}

/// Waits for the turn, lends the buffer, and asks.
fn serve(turn: Turn<'_>, me: &Current, buffer: Buffer, op: u64) -> Result<i64, Errno> {
    let mut pages = turn.wait(me)?;
    let space = task::current_space().ok_or(Errno::EFAULT)?;
    if let Err(errno) = space.lend(buffer.pages, buffer.lending, &mut pages, || me.is_ending()) {
        turn.give_back(pages);
        return Err(errno);
    }
    let request = Request {
        offset: buffer.bytes.address % PAGE_BYTES,
        length: buffer.bytes.len,
        op,
        lending: buffer.lending,
        client: me.tid().as_u32(),
    };
    turn.ask(me, request, pages)
}
