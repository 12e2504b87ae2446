//! [`Queue`]: which tasks wait for a CPU. It has its room from the beginning: signal handlers use it.

use std::collections::VecDeque;

/// Tasks that wait for a CPU, by number, and the numbers that no thread has.
#[derive(Debug)]
pub(crate) struct Queue {
    ready: VecDeque<usize>,
    pub(crate) unused: Vec<usize>,
}

impl Queue {
    /// Room for tasks numbered `first` and up.
    pub(crate) fn new(first: usize, tasks: usize) -> Self {
        Self {
            ready: VecDeque::with_capacity(tasks),
            unused: (first..first + tasks).rev().collect(),
        }
    }

    pub(crate) fn push(&mut self, task: usize) {
        assert!(
            self.ready.len() < self.ready.capacity(),
            "a task is ready twice"
        );
        self.ready.push_back(task);
    }

    pub(crate) fn pop(&mut self) -> Option<usize> {
        self.ready.pop_front()
    }
}
