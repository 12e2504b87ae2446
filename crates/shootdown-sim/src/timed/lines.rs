//! [`Lines`]: who has which cache line, and what it costs to get it.
//!
//! A line is held by one CPU for writing, or by several for reading. Whoever lacks it gets it from the
//! nearest holder (for reading) or must take it from all (for writing, at the price of the farthest). Requests for
//! one line are served in the order in which they are made.
//!
//! A request reaches those who hold the line half-way through the transfer; until then they go on using it. So
//! CPUs that queue for a line each have it for half a transfer before the next one takes it.

use rustc_hash::FxHashMap;

use crate::timed::holders::{farthest, has, insert, nearest};
use crate::timed::{Costs, Motive, Moves};

/// Bytes of a line.
pub const LINE_BYTES: usize = 64;

/// Who holds a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Holders {
    /// Nobody yet.
    None,
    /// One CPU, which may write it.
    One(usize),
    /// So many CPUs, for reading; which, is in the set of the line.
    Several(usize),
}

#[derive(Clone, Debug)]
struct Line {
    holders: Holders,
    /// When the line can next be sent.
    free_ps: u64,
    /// When the line arrives at its one holder.
    arrives_ps: u64,
    /// Before when, and of those that act just then before whom, those in the set may still read it, although one CPU has taken it for writing.
    shared_until: (u64, usize),
    /// CPUs that have lost the line to a request that has not reached them yet.
    leaving: FxHashMap<usize, Leaving>,
}

/// A CPU may still use a line: from its arrival until the request of the next one reaches it.
#[derive(Clone, Copy, Debug)]
struct Leaving {
    arrives_ps: u64,
    until_ps: u64,
}

/// Counts of what moved.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Transfers {
    /// Lines that came from another CPU's cache.
    pub moved: u64,
    /// Lines that were there for reading and had to be taken for writing.
    pub upgraded: u64,
}

impl Transfers {
    /// Both together.
    pub fn sum(self) -> u64 {
        self.moved + self.upgraded
    }
}

/// All lines that were ever touched.
#[derive(Clone, Debug)]
pub struct Lines {
    index: FxHashMap<usize, usize>,
    lines: Vec<Line>,
    /// The CPUs that hold each line for reading, `words` a line.
    sets: Vec<u64>,
    words: usize,
    transfers: Transfers,
    /// By line, where somebody asked for it.
    account: Option<Vec<Moves>>,
}

impl Lines {
    /// No line is cached anywhere.
    pub fn new(cpus: usize) -> Self {
        Self {
            index: FxHashMap::default(),
            lines: Vec::new(),
            sets: Vec::new(),
            words: cpus.div_ceil(64),
            transfers: Transfers::default(),
            account: None,
        }
    }

    /// What moved so far.
    pub fn transfers(&self) -> Transfers {
        self.transfers
    }

    /// Counts what moves from now on for each line.
    pub fn open_account(&mut self) {
        self.account = Some(Vec::new());
    }

    /// What moved since the account was opened, by the address of the line, in no order. Closes it.
    pub fn close_account(&mut self) -> Vec<(usize, Moves)> {
        let account = self.account.take().unwrap_or_default();
        let moves = move |(line, index): (&usize, &usize)| {
            let moves = account.get(*index)?;
            (moves.sum().count > 0).then_some((line * LINE_BYTES, *moves))
        };
        self.index.iter().filter_map(moves).collect()
    }

    /// Whether `cpu` has a line, by its number, and nobody has asked for it to write it.
    pub(crate) fn has(&self, cpu: usize, line: usize) -> bool {
        let Some(&index) = self.index.get(&line) else {
            return false;
        };
        match self.lines[index].holders {
            Holders::None => false,
            Holders::One(holder) => holder == cpu,
            Holders::Several(_) => has(&self.sets[index * self.words..][..self.words], cpu),
        }
    }

    /// `cpu` accesses the line at `address` at `now_ps`; returns when it has it.
    pub fn access(
        &mut self,
        costs: &Costs,
        cpu: usize,
        address: usize,
        writes: bool,
        now_ps: u64,
    ) -> u64 {
        let index = self.index_of(address);
        let line = &mut self.lines[index];
        if line.holders == Holders::One(cpu) {
            return line.arrives_ps.max(now_ps);
        }
        if let Some(arrived_ps) = line.still_there(cpu, now_ps) {
            return arrived_ps;
        }
        let set = &mut self.sets[index * self.words..][..self.words];
        if !writes && (now_ps, cpu) < line.shared_until && has(set, cpu) {
            return now_ps;
        }
        let (price, upgrades) = match line.holders {
            Holders::None => (0, false),
            Holders::One(holder) => {
                let distance = costs.topology.distance(cpu, holder);
                (costs.transfer_ps.at(distance), false)
            }
            Holders::Several(_) if !writes && has(set, cpu) => return now_ps,

            Holders::Several(_) => {
                let distance = match writes {
                    true => farthest(set, costs.topology, cpu),
                    false => nearest(set, costs.topology, cpu),
                };
                (costs.transfer_ps.at(distance), has(set, cpu))
            }
        };
        let start_ps = now_ps.max(line.free_ps);
        let done_ps = start_ps + price;
        line.free_ps = match writes {
            true => done_ps,
            false => start_ps + price.min(costs.read_occupancy_ps),
        };
        let until_ps = start_ps + price / 2;
        match line.holders {
            Holders::One(holder) => line.leaves(holder, until_ps),
            Holders::Several(_) if writes => line.shared_until = (until_ps, 0),
            Holders::None | Holders::Several(_) => {}
        }
        line.give(set, cpu, writes, done_ps);
        let motive = match writes {
            _ if upgrades => Motive::Upgrade,
            _ if price == 0 => return done_ps,
            true => Motive::Write,
            false => Motive::Read,
        };
        self.count(index, motive, done_ps - now_ps);
        done_ps
    }

    fn count(&mut self, index: usize, motive: Motive, time_ps: u64) {
        match motive {
            Motive::Upgrade => self.transfers.upgraded += 1,
            Motive::Read | Motive::Write => self.transfers.moved += 1,
        }
        if let Some(account) = &mut self.account {
            if account.len() <= index {
                account.resize(index + 1, Moves::default());
            }
            account[index].add(motive, time_ps);
        }
    }

    /// A store of `cpu` to the line at `address`, made at `now_ps`, for which the line is asked at `asked_ps`, perhaps before: when the line is there.
    ///
    /// The value is in memory from `now_ps` on, so nobody may see it in a copy that the request has not reached; until then, all that had a copy have it.
    pub(crate) fn store(
        &mut self,
        costs: &Costs,
        cpu: usize,
        address: usize,
        (asked_ps, now_ps): (u64, u64),
    ) -> u64 {
        let index = self.index_of(address);
        let before = self.lines[index].holders;
        let there_ps = self.access(costs, cpu, address, true, asked_ps);
        let line = &mut self.lines[index];
        line.shared_until = match before {
            Holders::Several(_) => (now_ps, cpu),
            _ => line.shared_until.min((now_ps, cpu)),
        };
        for (leaving, copy) in &mut line.leaving {
            if before == Holders::One(*leaving) {
                copy.until_ps = now_ps;
            } else if *leaving != cpu {
                copy.until_ps = copy.until_ps.min(now_ps);
            }
        }
        there_ps
    }

    /// The line at `address` is stored to, which is visible at `visible_ps`: whoever else reads it waits for that.
    pub(crate) fn hold(&mut self, address: usize, visible_ps: u64) {
        let index = self.index_of(address);
        let line = &mut self.lines[index];
        line.free_ps = line.free_ps.max(visible_ps);
    }

    /// `cpu` asks for the line for writing and does not wait for it.
    pub fn prefetch(&mut self, costs: &Costs, cpu: usize, address: usize, now_ps: u64) {
        // The line notes when it arrives; an access before that waits.
        self.access(costs, cpu, address, true, now_ps);
    }

    fn index_of(&mut self, address: usize) -> usize {
        let Self {
            index,
            lines,
            sets,
            words,
            ..
        } = self;
        *index.entry(address / LINE_BYTES).or_insert_with(|| {
            lines.push(Line {
                holders: Holders::None,
                free_ps: 0,
                arrives_ps: 0,
                shared_until: (0, 0),
                leaving: FxHashMap::default(),
            });
            sets.resize(sets.len() + *words, 0);
            lines.len() - 1
        })
    }
}

impl Line {
    /// When `cpu`, which is about to lose the line, has it for this access; `None` when it is too late.
    fn still_there(&mut self, cpu: usize, now_ps: u64) -> Option<u64> {
        if self.leaving.is_empty() {
            return None;
        }
        let leaving = self.leaving.get(&cpu)?;
        if now_ps > leaving.until_ps {
            self.leaving.remove(&cpu);
            return None;
        }
        Some(leaving.arrives_ps.max(now_ps))
    }

    fn leaves(&mut self, cpu: usize, until_ps: u64) {
        let arrives_ps = self.arrives_ps;
        let leaving = Leaving {
            arrives_ps,
            until_ps,
        };
        self.leaving.insert(cpu, leaving);
    }

    fn give(&mut self, set: &mut [u64], cpu: usize, writes: bool, arrives_ps: u64) {
        if !self.leaving.is_empty() {
            self.leaving.remove(&cpu);
        }
        self.holders = match (self.holders, writes) {
            (_, true) | (Holders::None, false) => {
                self.arrives_ps = arrives_ps;
                Holders::One(cpu)
            }
            (Holders::One(holder), false) => {
                self.shared_until = (0, 0);
                set.fill(0);
                insert(set, holder);
                insert(set, cpu);
                Holders::Several(2)
            }
            (Holders::Several(count), false) => {
                insert(set, cpu);
                Holders::Several(count + 1)
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timed::{Moved, PerDistance, Topology};

    /// Two threads a core, two cores a socket.
    fn costs() -> Costs {
        Costs {
            topology: Topology {
                threads_per_core: 2,
                cores_per_socket: 2,
                cluster: 8,
            },
            transfer_ps: PerDistance {
                core: 10,
                socket: 100,
                machine: 1000,
            },
            read_occupancy_ps: 30,
            ..Costs::default()
        }
    }

    fn read(lines: &mut Lines, cpu: usize, now_ps: u64) -> u64 {
        lines.access(&costs(), cpu, 0, false, now_ps)
    }

    fn write(lines: &mut Lines, cpu: usize, now_ps: u64) -> u64 {
        lines.access(&costs(), cpu, 0, true, now_ps)
    }

    #[test]
    fn the_first_access_is_free_and_so_is_what_one_has() {
        let mut lines = Lines::new(8);
        assert_eq!(write(&mut lines, 0, 5), 5);
        assert_eq!(read(&mut lines, 0, 6), 6);
        assert_eq!(lines.transfers(), Transfers::default());
    }

    #[test]
    fn readers_pay_for_the_nearest_writers_for_the_farthest() {
        let mut lines = Lines::new(8);
        write(&mut lines, 0, 0);
        assert_eq!(read(&mut lines, 4, 10_000), 11_000);
        assert_eq!(read(&mut lines, 5, 20_000), 20_010);
        assert_eq!(read(&mut lines, 2, 30_000), 30_100);
        assert_eq!(read(&mut lines, 2, 40_000), 40_000);
        assert_eq!(write(&mut lines, 2, 50_000), 51_000);
        let expected = Transfers {
            moved: 3,
            upgraded: 1,
        };
        assert_eq!(lines.transfers(), expected);
    }

    #[test]
    fn the_only_reader_writes_for_free_only_after_it_was_the_only_holder() {
        let mut lines = Lines::new(8);
        read(&mut lines, 3, 0);
        assert_eq!(write(&mut lines, 3, 1), 1);
        read(&mut lines, 2, 1000);
        assert_eq!(write(&mut lines, 3, 2000), 2010);
    }

    #[test]
    fn writers_queue_in_the_order_of_their_requests() {
        let mut lines = Lines::new(8);
        write(&mut lines, 0, 0);
        assert_eq!(write(&mut lines, 2, 1000), 1100);
        assert_eq!(write(&mut lines, 3, 1001), 1110);
        assert_eq!(write(&mut lines, 1, 1002), 1210);
    }

    #[test]
    fn readers_overlap_but_for_the_occupancy() {
        let mut lines = Lines::new(8);
        write(&mut lines, 0, 0);
        assert_eq!(read(&mut lines, 2, 1000), 1100);
        assert_eq!(read(&mut lines, 3, 1000), 1040);
        assert_eq!(read(&mut lines, 4, 1000), 2040);
    }

    #[test]
    fn whoever_loses_a_line_uses_it_until_the_request_has_come() {
        let mut lines = Lines::new(8);
        write(&mut lines, 0, 0);
        // CPU 2 has it at 1100; the request of CPU 1 starts then and reaches it at 1150.
        assert_eq!(write(&mut lines, 2, 1000), 1100);
        assert_eq!(write(&mut lines, 1, 1010), 1200);
        assert_eq!(write(&mut lines, 2, 1110), 1110);
        assert_eq!(write(&mut lines, 2, 1150), 1150);
        assert_eq!(write(&mut lines, 2, 1151), 1300);
    }

    #[test]
    fn readers_keep_their_copy_until_the_writer_s_request_has_come() {
        let mut lines = Lines::new(8);
        write(&mut lines, 0, 0);
        read(&mut lines, 2, 1000);
        assert_eq!(write(&mut lines, 3, 2000), 2100);
        assert_eq!(read(&mut lines, 2, 2049), 2049);
        assert_eq!(read(&mut lines, 0, 2050), 2200);
        assert_eq!(read(&mut lines, 2, 2300), 2310);
    }

    #[test]
    fn copies_are_good_until_a_buffered_store_and_no_longer() {
        let mut lines = Lines::new(8);
        write(&mut lines, 0, 0);
        read(&mut lines, 2, 1000);
        // Asked for at 2000, before the store at 2500: the request reaches them at 2050, and nobody was to see it before the store.
        assert_eq!(lines.store(&costs(), 3, 0, (2000, 2500)), 2100);
        assert_eq!(read(&mut lines, 2, 2499), 2499);
        assert_eq!(read(&mut lines, 0, 2501), 2601);
        // A line that is there already: what is left of a copy goes with the store.
        write(&mut lines, 1, 9000);
        lines.prefetch(&costs(), 3, 0, 10_000);
        assert_eq!(lines.store(&costs(), 3, 0, (10_010, 10_010)), 10_100);
        assert!(read(&mut lines, 1, 10_011) > 10_011);
    }

    #[test]
    fn a_prefetch_hides_what_has_passed_meanwhile() {
        let mut lines = Lines::new(8);
        write(&mut lines, 0, 0);
        lines.prefetch(&costs(), 2, 0, 1000);
        assert_eq!(read(&mut lines, 2, 1040), 1100);
        assert_eq!(write(&mut lines, 2, 1120), 1120);
        assert_eq!(lines.transfers().moved, 1);
    }

    #[test]
    fn an_account_has_each_line_s_transfers_from_its_opening_on() {
        let (costs, mut lines) = (costs(), Lines::new(8));
        let access = |lines: &mut Lines, cpu, address, writes, now_ps| {
            lines.access(&costs, cpu, address, writes, now_ps)
        };
        access(&mut lines, 0, 8, true, 0);
        access(&mut lines, 2, 8, true, 100);
        lines.open_account();
        let before = lines.transfers();
        access(&mut lines, 0, 8, false, 1000);
        access(&mut lines, 0, 16, true, 2000);
        access(&mut lines, 4, 8, true, 2050);
        access(&mut lines, 4, 70, true, 5000);
        access(&mut lines, 0, 70, false, 6000);
        let after = lines.transfers();
        let mut account = lines.close_account();
        account.sort_unstable_by_key(|(address, _)| *address);
        let of = |line: usize, motive| {
            let Moved { count, time_ps } = account[line].1.of(motive);
            (count, time_ps)
        };
        assert_eq!(account.iter().map(|it| it.0).collect::<Vec<_>>(), [0, 64]);
        // The last waits for the one before, whose upgrade takes 100.
        assert_eq!(of(0, Motive::Read), (1, 100));
        assert_eq!(of(0, Motive::Upgrade), (1, 100));
        assert_eq!(of(0, Motive::Write), (1, 1050));
        assert_eq!(of(1, Motive::Read), (1, 1000));
        let sum = account.iter().map(|it| it.1.sum().count).sum::<u64>();
        assert_eq!(sum, after.sum() - before.sum());
        assert_eq!(lines.close_account(), [], "it is closed");
    }

    #[test]
    fn prefetches_of_several_each_have_the_line_for_a_while() {
        let mut lines = Lines::new(8);
        write(&mut lines, 0, 0);
        lines.prefetch(&costs(), 2, 0, 1000);
        lines.prefetch(&costs(), 4, 0, 1000);
        assert_eq!(write(&mut lines, 2, 1010), 1100);
        assert_eq!(write(&mut lines, 4, 1010), 2100);
    }
}
