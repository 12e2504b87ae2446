//! [`Core`]: what a CPU has begun and not finished: stores that others cannot see yet, and a load that it waits for.
//!
//! A plain store does not wait for its line: it goes into a buffer, and the CPU goes on. Stores become visible in the order in which they were
//! made, each when its line is there and all before it are visible. What must not be overtaken by what follows (a locked operation, a fence, an
//! instruction that serialises, an interrupt that is sent or taken) waits until the buffer is empty.
//!
//! A load that misses stops a CPU, but what follows has begun by then, as far as the CPU's window reaches: lines of stores are asked for early.
//! Not behind a load of a loop that waits: the CPU guesses that the loop goes on.

use std::collections::VecDeque;

/// One CPU.
#[derive(Clone, Default, Debug)]
pub(crate) struct Core {
    /// When each store that may still wait becomes visible, oldest first.
    visible_ps: VecDeque<u64>,
    /// By how much what follows the last load began before that was there.
    ahead_ps: u64,
    /// How far its window reached.
    ahead_until_ps: u64,
    is_polling: bool,
    /// Whether it has read what it has, and nothing else, since the last turn of a loop that waits.
    waits: bool,
}

impl Core {
    /// A load that is made at `now_ps` is there at `there_ps`.
    pub(crate) fn loads(&mut self, window_ps: u64, now_ps: u64, there_ps: u64) {
        let waits_ps = there_ps - now_ps;
        if waits_ps == 0 {
            return;
        }
        self.waits = false;
        let is_guessed = !std::mem::take(&mut self.is_polling);
        self.ahead_ps = if is_guessed { waits_ps } else { 0 };
        self.ahead_until_ps = there_ps + window_ps.min(waits_ps);
    }

    /// The CPU is in a loop that waits.
    pub(crate) fn polls(&mut self) {
        self.ahead_ps = 0;
        self.is_polling = true;
        self.waits = true;
    }

    /// Whether the CPU is in such a loop.
    pub(crate) fn waits(&self) -> bool {
        self.waits
    }

    /// When the line of a store that is made at `now_ps` is asked for.
    pub(crate) fn asks_ps(&self, now_ps: u64) -> u64 {
        match now_ps <= self.ahead_until_ps {
            true => now_ps.saturating_sub(self.ahead_ps),
            false => now_ps,
        }
    }

    /// A store that is made at `now_ps` and whose line is there at `there_ps`, in a buffer for `most`: when the CPU goes on, and when the store is
    /// visible.
    pub(crate) fn store(&mut self, most: usize, now_ps: u64, there_ps: u64) -> (u64, u64) {
        self.waits = false;
        while self.visible_ps.front().is_some_and(|it| *it <= now_ps) {
            self.visible_ps.pop_front();
        }
        let is_full = self.visible_ps.len() >= most;
        let oldest_ps = self.visible_ps.front().filter(|_| is_full);
        let goes_on_ps = oldest_ps.copied().unwrap_or(now_ps);
        let newest_ps = self.visible_ps.back().copied();
        let visible_ps = newest_ps.map_or(there_ps, |it| it.max(there_ps));
        self.visible_ps.push_back(visible_ps);
        (goes_on_ps, visible_ps)
    }

    /// When a CPU that waits at `now_ps` until the buffer is empty goes on.
    pub(crate) fn drain(&mut self, now_ps: u64) -> u64 {
        self.ahead_ps = 0;
        self.is_polling = false;
        self.waits = false;
        let newest_ps = self.visible_ps.back().copied();
        self.visible_ps.clear();
        newest_ps.map_or(now_ps, |it| it.max(now_ps))
    }
}

#[cfg(test)]
mod tests {
    use super::Core;

    #[test]
    fn stores_are_visible_in_order_and_the_cpu_goes_on() {
        let mut core = Core::default();
        assert_eq!(core.store(4, 10, 100), (10, 100));
        // Its line is there before that of the first.
        assert_eq!(core.store(4, 11, 20), (11, 100));
        assert_eq!(core.store(4, 12, 130), (12, 130));
        assert_eq!(core.drain(13), 130);
        assert_eq!(core.drain(131), 131);
    }

    #[test]
    fn a_full_buffer_waits_for_its_oldest_store() {
        let mut core = Core::default();
        core.store(2, 10, 100);
        core.store(2, 11, 150);
        assert_eq!(core.store(2, 12, 160), (100, 160));
        assert_eq!(core.store(2, 170, 180), (170, 180));
    }

    #[test]
    fn a_store_behind_a_load_is_asked_for_while_that_is_on_its_way() {
        let mut core = Core::default();
        core.loads(30, 1000, 1100);
        assert_eq!(core.asks_ps(1110), 1010);
        assert_eq!(core.asks_ps(1131), 1131);
        // Behind what waits for the stores before it, nothing is early.
        core.drain(1110);
        assert_eq!(core.asks_ps(1111), 1111);
    }

    #[test]
    fn a_loop_that_ends_was_not_guessed_to() {
        let mut core = Core::default();
        core.polls();
        core.loads(30, 1000, 1100);
        assert_eq!(core.asks_ps(1110), 1110);
        core.loads(30, 1120, 1220);
        assert_eq!(core.asks_ps(1230), 1130);
    }
}
