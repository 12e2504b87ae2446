//! [`Spins`]: CPUs that spin are set aside until there is something for them to see.
//!
//! A turn of a spin loop that only read lines which the CPU has, and took as long as the turn before, will be followed by
//! others like it until somebody takes one of these lines, or an interrupt comes. Then the CPU goes on where its last whole
//! turn before that began. So nothing is simulated but what matters, and nothing changes but the count of events, unless a
//! loop does something else every so many turns: the engine's looks at its host's watchdog then, which is off here.

use rustc_hash::FxHashMap;

/// A loop that looks at more lines is not set aside.
const MOST_LINES: usize = 16;

/// What one CPU did since its last turn ended.
#[derive(Clone, Default, Debug)]
struct Turn {
    started_ps: u64,
    /// Lines that it read and had.
    lines: Vec<usize>,
    /// It did something else as well.
    is_other: bool,
    /// How long the turn before took, with the same lines.
    before_ps: Option<u64>,
    lines_before: Vec<usize>,
}

/// A CPU that was set aside.
#[derive(Clone, Copy, Debug)]
struct Aside {
    since_ps: u64,
    turn_ps: u64,
}

/// Where a CPU that was set aside goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Resumed {
    pub(crate) cpu: usize,
    pub(crate) now_ps: u64,
    /// Turns that were left out.
    pub(crate) turns: u64,
}

/// All CPUs.
#[derive(Clone, Debug)]
pub(crate) struct Spins {
    turns: Vec<Turn>,
    aside: Vec<Option<Aside>>,
    /// Who waits for a line to be taken.
    watchers: FxHashMap<usize, Vec<usize>>,
}

impl Spins {
    pub(crate) fn new(cpus: usize) -> Self {
        Self {
            turns: vec![Turn::default(); cpus],
            aside: vec![None; cpus],
            watchers: FxHashMap::default(),
        }
    }

    /// `cpu` read a line that it has.
    pub(crate) fn reads(&mut self, cpu: usize, line: usize) {
        let turn = &mut self.turns[cpu];
        if turn.lines.last() == Some(&line) {
            return;
        }
        if turn.lines.len() == MOST_LINES {
            turn.is_other = true;
            return;
        }
        turn.lines.push(line);
    }

    /// `cpu` did anything else that costs time or is seen by others.
    pub(crate) fn disturb(&mut self, cpu: usize) {
        self.turns[cpu].is_other = true;
    }

    /// A turn of `cpu` ends at `now_ps`. Tells which lines it will look at for ever, if it was like the one before.
    pub(crate) fn ends_turn(&mut self, cpu: usize, now_ps: u64) -> Option<&[usize]> {
        let turn = &mut self.turns[cpu];
        let turn_ps = now_ps - turn.started_ps;
        let is_same =
            !turn.is_other && turn.before_ps == Some(turn_ps) && turn.lines == turn.lines_before;
        turn.before_ps = (!turn.is_other).then_some(turn_ps);
        std::mem::swap(&mut turn.lines, &mut turn.lines_before);
        turn.lines.clear();
        turn.is_other = false;
        turn.started_ps = now_ps;
        is_same.then_some(&self.turns[cpu].lines_before)
    }

    /// Sets `cpu` aside, whose turn has just ended.
    pub(crate) fn set_aside(&mut self, cpu: usize) {
        let turn = &self.turns[cpu];
        self.aside[cpu] = turn.before_ps.map(|turn_ps| Aside {
            since_ps: turn.started_ps,
            turn_ps,
        });
        for line in &turn.lines_before {
            self.watchers.entry(*line).or_default().push(cpu);
        }
    }

    /// Somebody asks for a line at `at_ps` to write it: who has been waiting for that?
    pub(crate) fn taken(&mut self, line: usize, at_ps: u64) -> Vec<Resumed> {
        let watchers = self.watchers.get(&line).cloned().unwrap_or_default();
        watchers
            .into_iter()
            .filter_map(|cpu| self.resume(cpu, at_ps))
            .collect()
    }

    /// `cpu` goes on with the turn that `at_ps` falls into, if it was set aside.
    pub(crate) fn resume(&mut self, cpu: usize, at_ps: u64) -> Option<Resumed> {
        let Aside { since_ps, turn_ps } = self.aside[cpu].take()?;
        let turn = &mut self.turns[cpu];
        for line in &turn.lines_before {
            if let Some(watchers) = self.watchers.get_mut(line) {
                watchers.retain(|watcher| *watcher != cpu);
            }
        }
        let turns = at_ps.saturating_sub(since_ps) / turn_ps.max(1);
        turn.started_ps = since_ps + turns * turn_ps;
        turn.before_ps = None;
        Some(Resumed {
            cpu,
            now_ps: turn.started_ps,
            turns,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CPU 1 has spun on line 7 until 220, 100 a turn.
    fn spinning() -> Spins {
        let mut spins = Spins::new(2);
        for now_ps in [20, 120] {
            spins.reads(1, 7);
            assert_eq!(spins.ends_turn(1, now_ps), None);
        }
        spins.reads(1, 7);
        assert_eq!(spins.ends_turn(1, 220), Some(&[7][..]));
        spins.set_aside(1);
        spins
    }

    #[test]
    fn a_cpu_goes_on_where_the_last_whole_turn_ended() {
        let resumed = |now_ps, turns| {
            let resumed = Resumed {
                cpu: 1,
                now_ps,
                turns,
            };
            vec![resumed]
        };
        assert_eq!(spinning().taken(7, 519), resumed(420, 2));
        assert_eq!(spinning().taken(7, 520), resumed(520, 3));
        assert_eq!(spinning().taken(7, 100), resumed(220, 0));
        let mut spins = spinning();
        assert_eq!(spins.taken(8, 519), []);
        assert!(spins.resume(1, 519).is_some());
        assert_eq!(spins.taken(7, 519), []);
    }

    #[test]
    fn turns_that_differ_or_do_something_are_simulated() {
        let mut spins = Spins::new(1);
        for now_ps in [100, 200, 301, 400] {
            spins.reads(0, 7);
            assert_eq!(spins.ends_turn(0, now_ps), None, "{now_ps}");
            if now_ps == 100 {
                spins.disturb(0);
            }
        }
        let mut spins = Spins::new(1);
        for (now_ps, line) in [(100, 7), (200, 8), (300, 7)] {
            spins.reads(0, line);
            assert_eq!(spins.ends_turn(0, now_ps), None, "{now_ps}");
        }
    }
}
