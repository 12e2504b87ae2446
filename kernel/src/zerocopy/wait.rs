//! A server's wait: the end of one request and the beginning of the next.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::abi::Wait;
use super::exchange::{Found, Request};
use super::leave;
use super::server::Server;
use super::service::Service;
use crate::errno::Errno;
use crate::mm::frames::Share;
use crate::task::{self, Current, Thread};

/// Answers the request served so far with `argument.result`, and waits for another one; what the program is told of it.
///
/// # Errors
/// EPERM: the thread is no server of this service. `Errno::RESTART`: a signal came first; the answer has been given.
/// ESHUTDOWN: it is a server no more. EFAULT: it has unmapped the place where it sees buffers, and is one no more.
pub(super) fn wait(service: &Arc<Service>, me: &Current, argument: &Wait) -> Result<Wait, Errno> {
    let serves = me.server_link.lock().serves.clone();
    let server = serves.filter(|server| server.is_of(service));
    let server = server.ok_or(Errno::EPERM)?;
    let mut client = server.finish(argument.result);
    loop {
        let found = server.exchange.lock().look();
        match found {
            Found::Request(request, mut pages) => {
                wake(client);
                let is_shown = server.place.show(&mut pages, request.lending);
                server.exchange.lock().keep(pages);
                if !is_shown {
                    leave::leave(me);
                    return Err(Errno::EFAULT);
                }
                return Ok(server.told(&request));
            }
            Found::Closed => {
                wake(client);
                leave::leave(me);
                return Err(Errno::ESHUTDOWN);
            }
            Found::Nothing if me.is_interrupted() => {
                wake(client);
                return Err(Errno::RESTART);
            }
            Found::Nothing => {}
        }
        match client.take() {
            Some(client) => task::hand_over(&client),
            None => task::park_uninterrupted(),
        }
    }
}

fn wake(client: Option<Arc<Thread>>) {
    client.iter().for_each(task::unpark);
}

impl Server {
    /// Gives up the pages of the request served so far and answers it, if there is one; whom to go on with.
    pub(super) fn finish(&self, result: i64) -> Option<Arc<Thread>> {
        let pages = self.give_up()?;
        self.exchange.lock().answer(result, pages)
    }

    /// Gives up the pages of the request served so far, if there is one; the room for the next ones.
    pub(super) fn give_up(&self) -> Option<Vec<Share>> {
        self.place.at_home(|| {
            let mut pages = self.exchange.lock().take_served()?;
            self.place.hide(&mut pages);
            Some(pages)
        })
    }

    /// A request as the program is told of it.
    fn told(&self, request: &Request) -> Wait {
        Wait {
            result: 0,
            address: (self.place.start() + request.offset) as u64,
            length: request.length as u64,
            op: request.op,
            client: request.client,
            reserved: 0,
        }
    }
}
