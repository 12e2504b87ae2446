//! [`Clock`]: who acts next.
//!
//! The virtual CPU with the earliest clock goes on, the lower number first among equals. So an access takes
//! effect when nobody can act before it any more.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The virtual CPUs that have something to do, by time.
#[derive(Clone, Default, Debug)]
pub struct Clock {
    queue: BinaryHeap<Reverse<(u64, usize)>>,
    /// The entry of each CPU that counts; others are left-overs of an earlier plan.
    planned_ps: Vec<Option<u64>>,
}

impl Clock {
    /// All CPUs start at zero.
    pub fn new(cpus: usize) -> Self {
        let mut clock = Self {
            queue: BinaryHeap::new(),
            planned_ps: vec![None; cpus],
        };
        for cpu in 0..cpus {
            clock.plan(cpu, 0);
        }
        clock
    }

    /// `cpu` has something to do at `time_ps`, and no earlier plan of it counts any more.
    pub fn plan(&mut self, cpu: usize, time_ps: u64) {
        self.planned_ps[cpu] = Some(time_ps);
        self.queue.push(Reverse((time_ps, cpu)));
    }

    /// When `cpu` has something to do, if it is not the one that acts.
    pub fn planned_ps(&self, cpu: usize) -> Option<u64> {
        self.planned_ps[cpu]
    }

    /// Whether somebody acts before `cpu` does at `time_ps`.
    #[inline]
    pub fn is_preceded(&mut self, cpu: usize, time_ps: u64) -> bool {
        self.first().is_some_and(|first| first < (time_ps, cpu))
    }

    /// Takes the next CPU out.
    pub fn take(&mut self) -> Option<(u64, usize)> {
        let first = self.first()?;
        self.queue.pop();
        self.planned_ps[first.1] = None;
        Some(first)
    }

    /// The next one, and when.
    #[inline]
    pub fn first(&mut self) -> Option<(u64, usize)> {
        loop {
            let Reverse((time_ps, cpu)) = *self.queue.peek()?;
            if self.planned_ps[cpu] == Some(time_ps) {
                return Some((time_ps, cpu));
            }
            self.queue.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Clock;

    #[test]
    fn the_earliest_goes_first_and_the_lower_number_among_equals() {
        let mut clock = Clock::new(3);
        assert_eq!(clock.take(), Some((0, 0)));
        clock.plan(0, 5);
        assert_eq!(clock.take(), Some((0, 1)));
        assert!(clock.is_preceded(1, 1));
        assert!(!clock.is_preceded(1, 0));
        clock.plan(1, 5);
        assert_eq!(clock.take(), Some((0, 2)));
        assert_eq!(clock.take(), Some((5, 0)));
        assert_eq!(clock.take(), Some((5, 1)));
        assert_eq!(clock.take(), None);
    }

    #[test]
    fn a_new_plan_replaces_the_old_one() {
        let mut clock = Clock::new(1);
        clock.take();
        clock.plan(0, 10);
        clock.plan(0, 4);
        assert_eq!(clock.take(), Some((4, 0)));
        assert_eq!(clock.take(), None);
    }
}
