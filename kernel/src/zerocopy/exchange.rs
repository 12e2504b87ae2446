//! [`Exchange`]: the one request between a server and its clients.
//!
//! Clients take turns. Who has the turn lends pages, states the request and waits for the answer; then the turn is the next
//! one's. A client that is killed in the middle leaves the turn behind, which passes on with the answer that nobody reads.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem;

use super::server::Server;
use crate::errno::Errno;
use crate::mm::Lending;
use crate::mm::frames::Share;
use crate::mm::lend;
use crate::task::{self, Current, Thread, ThreadList};

/// What a client asks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    /// Of the first byte in the first page.
    pub offset: usize,
    pub length: usize,
    pub op: u64,
    pub lending: Lending,
    /// The client's thread number.
    pub client: u32,
}

/// How far the request is.
#[derive(Debug)]
enum Stage {
    /// There is none; somebody may have the turn.
    Idle,
    /// Stated, with its pages; the server has not seen it.
    Stated(Request),
    /// The server sees the pages.
    Served,
    /// The server's answer, which the client has not read.
    Answered(i64),
}

/// The state of the exchange; under a lock of its own, which is a leaf but for those of queues.
#[derive(Debug)]
pub(super) struct Exchange {
    stage: Stage,
    /// Has the turn.
    client: Option<Arc<Thread>>,
    /// Come after it.
    queue: ThreadList,
    /// What is lent, unless page-table entries have it. Its room lasts for any request.
    pages: Vec<Share>,
    /// The client was killed: nobody reads the answer.
    is_abandoned: bool,
    is_closed: bool,
}

/// What a server finds when it looks.
#[derive(Debug)]
pub(super) enum Found {
    /// A request, with its pages.
    Request(Request, Vec<Share>),
    Nothing,
    Closed,
}

/// Threads to be woken, when the lock is released.
#[derive(Debug)]
#[must_use]
pub(super) struct Waiting {
    client: Option<Arc<Thread>>,
    queue: ThreadList,
}

impl Waiting {
    pub fn wake(mut self) {
        self.client.iter().for_each(task::unpark);
        while let Some(thread) = self.queue.take_most_urgent() {
            task::unpark(&thread);
        }
    }
}

impl Exchange {
    /// Nothing yet, with room for the pages of any request.
    pub fn new(pages: Vec<Share>) -> Self {
        Self {
            stage: Stage::Idle,
            client: None,
            queue: ThreadList::new(),
            pages,
            is_abandoned: false,
            is_closed: false,
        }
    }

    /// Whether it has ended.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Ends it. The pages of a request that the server has not seen are given up.
    pub fn close(&mut self) -> Waiting {
        self.is_closed = true;
        if let Stage::Stated(_) = self.stage {
            self.withdraw();
        }
        Waiting {
            client: self.client.clone(),
            queue: mem::take(&mut self.queue),
        }
    }

    /// What the server is to do next.
    pub fn look(&mut self) -> Found {
        match self.stage {
            _ if self.is_closed => Found::Closed,
            Stage::Stated(request) => {
                self.stage = Stage::Served;
                Found::Request(request, mem::take(&mut self.pages))
            }
            _ => Found::Nothing,
        }
    }

    /// Keeps what the server sees, or the room for it, while it serves.
    pub fn keep(&mut self, pages: Vec<Share>) {
        self.pages = pages;
    }

    /// What the server sees and is about to give up, once for each request.
    pub fn take_served(&mut self) -> Option<Vec<Share>> {
        if !matches!(self.stage, Stage::Served) {
            return None;
        }
        self.stage = Stage::Idle;
        Some(mem::take(&mut self.pages))
    }

    /// The server no longer sees the pages, whose room is given back, and answers. The thread to go on with.
    pub fn answer(&mut self, result: i64, pages: Vec<Share>) -> Option<Arc<Thread>> {
        self.pages = pages;
        if mem::take(&mut self.is_abandoned) {
            self.stage = Stage::Idle;
            return self.pass_turn();
        }
        self.stage = Stage::Answered(result);
        self.client.clone()
    }

    /// The next client has the turn, or nobody.
    fn pass_turn(&mut self) -> Option<Arc<Thread>> {
        self.client = self.queue.take_most_urgent();
        self.client.clone()
    }

    fn withdraw(&mut self) {
        self.stage = Stage::Idle;
        lend::release(&mut self.pages);
    }

    fn is_turn_of(&self, thread: &Thread) -> bool {
        let is_it = |client: &Arc<Thread>| core::ptr::eq(Arc::as_ptr(client), thread);
        self.client.as_ref().is_some_and(is_it)
    }
}

/// A client's turn with a server. Dropping it passes the turn on.
#[derive(Debug)]
#[must_use]
pub(super) struct Turn<'a> {
    server: &'a Server,
    /// False once the turn passes on without this client.
    is_own: bool,
}

impl<'a> Turn<'a> {
    /// A place in the queue of the server, perhaps the first one. Does not sleep.
    ///
    /// # Errors
    /// EPIPE when the server has just gone.
    pub fn line_up(server: &'a Server, me: &Arc<Thread>) -> Result<Self, Errno> {
        let mut exchange = server.exchange.lock();
        match &exchange.client {
            _ if exchange.is_closed => return Err(Errno::EPIPE),
            Some(_) => exchange.queue.enter(me),
            None => exchange.client = Some(me.clone()),
        }
        Ok(Self {
            server,
            is_own: true,
        })
    }

    /// Sleeps until it is this thread's turn. The room for its pages.
    ///
    /// # Errors
    /// EPIPE when the server goes; EINTR when the thread ends.
    pub fn wait(&self, me: &Current) -> Result<Vec<Share>, Errno> {
        loop {
            {
                let mut exchange = self.server.exchange.lock();
                match () {
                    () if exchange.is_closed => return Err(Errno::EPIPE),
                    () if exchange.is_turn_of(me) => return Ok(mem::take(&mut exchange.pages)),
                    () if me.is_ending() => return Err(Errno::EINTR),
                    () => {}
                }
            }
            task::park_uninterrupted();
        }
    }

    /// Gives the room back, empty, without a request.
    pub fn give_back(&self, mut pages: Vec<Share>) {
        lend::release(&mut pages);
        self.server.exchange.lock().pages = pages;
    }

    /// States the request, gives the CPU to the server, and waits for the answer.
    ///
    /// # Errors
    /// EPIPE when the server goes first; EINTR when the thread ends.
    pub fn ask(mut self, me: &Current, request: Request, pages: Vec<Share>) -> Result<i64, Errno> {
        {
            let mut exchange = self.server.exchange.lock();
            exchange.pages = pages;
            if exchange.is_closed {
                exchange.withdraw();
                return Err(Errno::EPIPE);
            }
            exchange.stage = Stage::Stated(request);
        }
        task::hand_over(self.server.thread());
        loop {
            if let Some(answer) = self.look(me) {
                return answer;
            }
            task::park_uninterrupted();
        }
    }

    /// The answer, or why there will be none.
    fn look(&mut self, me: &Current) -> Option<Result<i64, Errno>> {
        let mut exchange = self.server.exchange.lock();
        match exchange.stage {
            Stage::Answered(result) => {
                exchange.stage = Stage::Idle;
                Some(Ok(result))
            }
            _ if exchange.is_closed => Some(Err(Errno::EPIPE)),
            Stage::Stated(_) if me.is_ending() => {
                exchange.withdraw();
                Some(Err(Errno::EINTR))
            }
            _ if me.is_ending() => {
                exchange.is_abandoned = true;
                self.is_own = false;
                Some(Err(Errno::EINTR))
            }
            _ => None,
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if !self.is_own {
            return;
        }
        let me = task::current();
        let mut exchange = self.server.exchange.lock();
        let next = if exchange.is_turn_of(&me) {
            exchange.pass_turn()
        } else {
            // It was still in the queue.
            let _own = exchange.queue.remove(&me);
            None
        };
        drop(exchange);
        next.iter().for_each(task::unpark);
    }
}
