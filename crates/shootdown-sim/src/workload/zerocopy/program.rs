//! What a CPU does: operation after operation, the client's part and the server's.

use shootdown::sim::{AtomicU64, Ordering};
use shootdown::{
    Capacity, FlushRange, FreedTables, LocalFlush, PageSize, Platform, windows::WindowRoot,
};

use crate::machine::{Context, PLATFORM, kernel_root_at};
use crate::timed::Translation;
use crate::workload::zerocopy::Mapping;
use crate::workload::zerocopy::world::{Desk, World};

/// Number of the first page of the windows, in units of 4 KiB: those of different CPUs have leaf tables of their own.
const FIRST_WINDOW: u64 = 0x7f00_0000;
const WINDOW_STRIDE: u64 = 512;
/// Where the client and the server have pages of their own.
const FIRST_OWN: [u64; 2] = [0x1_0000, 0x2_0000];
/// Whose pages.
const CLIENT: usize = 0;
const SERVER: usize = 1;
/// Threads that share a CPU take turns of this length: one tick of Linux at 250 Hz.
const SLICE_PS: u64 = 4_000_000_000;

/// A CPU's part of a run.
struct Seat {
    cpu: usize,
    /// The client that runs there, and one that waits for its turn.
    thread: usize,
    waiting: Option<usize>,
    slice_ends_ps: u64,
    /// The private root of the server's space, if there are windows.
    windows: Option<WindowRoot>,
    random: fastrand::Rng,
}

impl<C: Capacity> World<'_, C> {
    /// The whole run of a CPU; returns the times of the measured calls.
    pub(super) fn run(&self, context: Context<'_>, cpu: usize) -> Vec<u64> {
        self.engine.online();
        let other = cpu + self.desks.len();
        let mut seat = Seat {
            cpu,
            thread: cpu,
            waiting: (other < self.row.threads).then_some(other),
            slice_ends_ps: SLICE_PS,
            windows: self.window_root(cpu),
            random: fastrand::Rng::with_seed(self.row.seed ^ (cpu as u64 + 1) << 40),
        };
        let (desk, mut calls_ps) = (&self.desks[cpu], Vec::new());
        self.engine.switch_to(None, self.client(seat.thread));
        while !self.is_over() {
            context.work(about(self.row.costs.request_ps, &mut seat.random));
            self.use_own_pages(context, desk, CLIENT);
            let called_ps = context.now_ps();
            self.call(context, &mut seat);
            if self.is_measured() {
                calls_ps.push(context.now_ps() - called_ps);
            }
            self.count(context, desk);
            self.take_turns(context, &mut seat);
        }
        self.engine
            .switch_away(self.client(seat.thread), kernel_root_at(0));
        if let Some(windows) = seat.windows {
            self.engine.windows().retire(&self.servers, windows);
        }
        calls_ps
    }

    /// Lets the other client of the CPU have it, if there is one and it is its turn.
    fn take_turns(&self, context: Context<'_>, seat: &mut Seat) {
        let Some(next) = seat.waiting else {
            return;
        };
        if context.now_ps() < seat.slice_ends_ps {
            return;
        }
        context.work(self.row.costs.context_switch_ps);
        let (from, to) = (self.client(seat.thread), self.client(next));
        self.engine.switch_to(Some(from), to);
        seat.waiting = Some(std::mem::replace(&mut seat.thread, next));
        seat.slice_ends_ps = context.now_ps() + SLICE_PS;
    }

    /// One call, from the client's user mode back to it.
    fn call(&self, context: Context<'_>, seat: &mut Seat) {
        let (costs, desk) = (&self.row.costs, &self.desks[seat.cpu]);
        // The client is in the kernel.
        context.work(costs.syscall_ps / 2 + about(costs.relay_ps, &mut seat.random));
        if let Some(shared) = &self.shared {
            shared.pass(context);
        }
        context.work(costs.map_page_ps);
        let frame = desk.operations.get() + 1;
        desk.window.store(frame, Ordering::Release);
        self.to_server(context, seat);
        context.work(costs.syscall_ps / 2);
        self.serve(context, seat, frame);
        // The server is in the kernel.
        context.work(costs.syscall_ps / 2);
        self.forget(context, seat);
        desk.oldest_frame.set(frame + 1);
        context.work(costs.context_switch_ps);
        let client = self.client(seat.thread);
        self.engine.switch_to(Some(&self.servers), client);
        context.work(costs.syscall_ps / 2);
    }

    fn to_server(&self, context: Context<'_>, seat: &Seat) {
        context.work(self.row.costs.context_switch_ps);
        let (from, to) = (Some(self.client(seat.thread)), &self.servers);
        match &seat.windows {
            Some(windows) => self.engine.windows().switch_to(from, to, windows),
            None => self.engine.switch_to(from, to),
        }
    }

    /// The server's user mode.
    fn serve(&self, context: Context<'_>, seat: &mut Seat, frame: u64) {
        let (costs, cpu) = (&self.row.costs, seat.cpu);
        let desk = &self.desks[cpu];
        self.look_next_door(context, cpu);
        context.work(about(costs.serve_ps, &mut seat.random));
        self.use_own_pages(context, desk, SERVER);
        match context.touch(window_page(cpu), desk.window.as_core()) {
            Translation::Cached(found) | Translation::Walked(found) => {
                assert!(found <= frame, "a frame of the future");
                self.check(desk, found);
            }
            Translation::Fault => panic!("the window of CPU {cpu} is empty while it is served"),
        }
        context.work(costs.copy_page_ps);
        self.look_next_door(context, cpu);
    }

    /// If the row says so, the processor caches, as it may, what the loaded root leads to: not the window of another CPU if
    /// that is in no root but its own.
    fn look_next_door(&self, context: Context<'_>, cpu: usize) {
        if !self.row.looks_next_door {
            return;
        }
        let next = (cpu + 1) % self.desks.len();
        let desk = &self.desks[next];
        let empty = AtomicU64::new(0);
        let entry = match self.row.mapping {
            Mapping::Ordinary | Mapping::Flagged => &desk.window,
            Mapping::Windowed => &empty,
        };
        if let Translation::Cached(frame) = context.touch(window_page(next), entry.as_core()) {
            self.check(desk, frame);
        }
    }

    fn use_own_pages(&self, context: Context<'_>, desk: &Desk, whose: usize) {
        for (index, entry) in desk.own[whose].iter().enumerate() {
            context.touch(FIRST_OWN[whose] + index as u64, entry.as_core());
        }
    }

    /// Empties the window: whoever may have cached its page forgets it.
    fn forget(&self, context: Context<'_>, seat: &Seat) {
        let entry = &self.desks[seat.cpu].window;
        let page = window_page(seat.cpu) as usize;
        let range = FlushRange::pages(page << 12, 1, PageSize::SIZE_4K);
        let pinned = seat.windows.as_ref().map(|windows| {
            let pinned = self.engine.windows().pin(windows);
            pinned.expect("a CPU's own windows")
        });
        entry.swap(0, Ordering::AcqRel);
        match (pinned, self.row.mapping) {
            (Some(pinned), _) => pinned.flush(range),
            (None, Mapping::Flagged) => {
                PLATFORM.local_flush(LocalFlush::Pages(range, FreedTables::No))
            }
            (None, _) => {
                context.work(self.row.costs.gather_ps);
                self.engine.flush(&self.servers, range, FreedTables::No);
            }
        }
    }
}

/// Between nothing and twice as long: with the same time always, CPUs would fall into step.
fn about(time_ps: u64, random: &mut fastrand::Rng) -> u64 {
    random.u64(0..=2 * time_ps)
}

/// The page of a CPU's window.
fn window_page(cpu: usize) -> u64 {
    FIRST_WINDOW + cpu as u64 * WINDOW_STRIDE
}
