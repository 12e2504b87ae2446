//! [`Cpu`]: one CPU's queue, its deadlines, and what interrupts it.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::workload::preemptoff::Load;
use crate::workload::preemptoff::load::{pause_ps, picoseconds};

/// What kind of task a number means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Task {
    Idle,
    Fifo,
    Worker,
}

/// Why interrupts are off for a while.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Section {
    /// The handler of a device.
    Device,
    /// A driver that keeps them off for long.
    Driver,
}

/// One CPU's part of the scheduler.
#[derive(Debug)]
pub(super) struct Cpu {
    pub(super) queue: VecDeque<usize>,
    /// By the time at which they wake up.
    pub(super) sleepers: BinaryHeap<Reverse<(u64, usize)>>,
    pub(super) fifo_is_ready: bool,
    pub(super) slice_ends_ps: u64,
    pub(super) slice_is_over: bool,
    next_body_ps: u64,
    next_tail_ps: u64,
    random: fastrand::Rng,
}

impl Cpu {
    pub(super) fn new(load: &Load, seed: u64, number: usize) -> Self {
        let mut random = fastrand::Rng::with_seed(seed ^ (number as u64 + 1) << 40);
        Self {
            queue: VecDeque::new(),
            sleepers: BinaryHeap::new(),
            fifo_is_ready: false,
            slice_ends_ps: 0,
            slice_is_over: false,
            next_body_ps: pause_ps(load.body_per_s, &mut random),
            next_tail_ps: pause_ps(load.tail_per_s, &mut random),
            random,
        }
    }

    /// When it is to be interrupted next.
    pub(super) fn interrupted_at_ps(&self) -> u64 {
        let mut at_ps = self.next_body_ps.min(self.next_tail_ps);
        if let Some(Reverse((wakes_ps, _))) = self.sleepers.peek() {
            at_ps = at_ps.min(*wakes_ps);
        }
        if !self.queue.is_empty() {
            at_ps = at_ps.min(self.slice_ends_ps);
        }
        at_ps
    }

    /// The section that is due, if one is, and its length.
    pub(super) fn section(&mut self, load: &Load, now_ps: u64) -> Option<(Section, u64)> {
        if self.next_tail_ps <= now_ps {
            let length_ps = load.tail_ps(&mut self.random);
            self.next_tail_ps = now_ps + length_ps + pause_ps(load.tail_per_s, &mut self.random);
            return Some((Section::Driver, length_ps));
        }
        if self.next_body_ps <= now_ps {
            let length_ps = load.body_ps(&mut self.random);
            self.next_body_ps = now_ps + length_ps + pause_ps(load.body_per_s, &mut self.random);
            return Some((Section::Device, length_ps));
        }
        None
    }

    /// Moves those whose time has come to the queue.
    pub(super) fn wake(&mut self, now_ps: u64, kind: impl Fn(usize) -> Task) {
        while let Some(Reverse((_, task))) =
            self.sleepers.peek().filter(|first| first.0.0 <= now_ps)
        {
            match kind(*task) {
                Task::Fifo => self.fifo_is_ready = true,
                _ => self.queue.push_back(*task),
            }
            self.sleepers.pop();
        }
    }

    pub(super) fn begin_slice(&mut self, load: &Load, now_ps: u64) {
        self.slice_ends_ps = now_ps + picoseconds(load.slice_us);
    }
}
