//! [`Lines`]: who has which cache line, and what it costs to get it.
//!
//! A line is held by one CPU for writing, or by several for reading. Whoever lacks it gets it from the
//! nearest holder (for reading) or must take it from all (for writing, at the price of the farthest). Requests for
//! one line are served in the order in which they are made.

use rustc_hash::FxHashMap;

use crate::timed::Costs;

/// Bytes of a line.
pub const LINE_BYTES: usize = 64;

#[derive(Clone, Debug)]
struct Line {
    /// Bit set of the CPUs that have a copy.
    holders: Vec<u64>,
    /// Whether the one holder may write.
    exclusive: bool,
    /// When the line can next be sent.
    free_ps: u64,
    /// Prefetches under way: who has asked, and when the line is there.
    arriving: Vec<(usize, u64)>,
}

/// Counts of what moved.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Transfers {
    /// Lines that came from another CPU's cache.
    pub moved: u64,
    /// Lines that were there for reading and had to be taken for writing.
    pub upgraded: u64,
}

/// All lines that were ever touched.
#[derive(Clone, Debug)]
pub struct Lines {
    lines: FxHashMap<usize, Line>,
    words: usize,
    transfers: Transfers,
}

impl Lines {
    /// No line is cached anywhere.
    pub fn new(cpus: usize) -> Self {
        Self {
            lines: FxHashMap::default(),
            words: cpus.div_ceil(64),
            transfers: Transfers::default(),
        }
    }

    /// What moved so far.
    pub fn transfers(&self) -> Transfers {
        self.transfers
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
        let line = self.line(address);
        let arrived_ps = line.take_arrival(cpu).map_or(now_ps, |at| at.max(now_ps));
        let Some(price) = line.price(costs, cpu, writes) else {
            line.exclusive |= writes;
            return arrived_ps;
        };
        let upgrade = line.has(cpu);
        let start = arrived_ps.max(line.free_ps);
        let done = start + price;
        line.free_ps = start
            + if writes {
                price
            } else {
                price.min(costs.read_occupancy_ps)
            };
        line.give(cpu, writes);
        if upgrade {
            self.transfers.upgraded += 1;
        } else {
            self.transfers.moved += 1;
        }
        done
    }

    /// `cpu` asks for the line for writing and does not wait for it.
    pub fn prefetch(&mut self, costs: &Costs, cpu: usize, address: usize, now_ps: u64) {
        let done = self.access(costs, cpu, address, true, now_ps);
        if done > now_ps {
            self.line(address).arriving.push((cpu, done));
        }
    }

    fn line(&mut self, address: usize) -> &mut Line {
        let words = self.words;
        self.lines
            .entry(address / LINE_BYTES)
            .or_insert_with(|| Line {
                holders: vec![0; words],
                exclusive: false,
                free_ps: 0,
                arriving: Vec::new(),
            })
    }
}

impl Line {
    fn has(&self, cpu: usize) -> bool {
        self.holders[cpu / 64] & (1 << (cpu % 64)) != 0
    }

    fn others(&self, cpu: usize) -> impl Iterator<Item = usize> + '_ {
        self.holders
            .iter()
            .enumerate()
            .flat_map(|(word, bits)| Bits(*bits).map(move |bit| word * 64 + bit))
            .filter(move |holder| *holder != cpu)
    }

    /// What getting the line costs, or `None` when it is there.
    fn price(&self, costs: &Costs, cpu: usize, writes: bool) -> Option<u64> {
        let distances = self
            .others(cpu)
            .map(|holder| costs.topology.distance(cpu, holder));
        let distance = match (self.has(cpu), writes) {
            (true, false) => return None,
            (true, true) if self.exclusive => return None,
            (_, true) => distances.max(),
            (false, false) => distances.min(),
        };
        match distance {
            Some(distance) => Some(costs.transfer_ps.at(distance)),
            // The only holder becomes the writer silently.
            None if self.has(cpu) => None,
            // Nobody had it: taken to be in this CPU's cache already, as after a warm-up.
            None => Some(0),
        }
    }

    fn give(&mut self, cpu: usize, writes: bool) {
        if writes {
            self.holders.fill(0);
            self.arriving.clear();
        }
        self.holders[cpu / 64] |= 1 << (cpu % 64);
        self.exclusive = writes;
    }

    fn take_arrival(&mut self, cpu: usize) -> Option<u64> {
        let index = self.arriving.iter().position(|(who, _)| *who == cpu)?;
        Some(self.arriving.swap_remove(index).1)
    }
}

/// The set bits of a word.
struct Bits(u64);

impl Iterator for Bits {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let bit = (self.0 != 0).then(|| self.0.trailing_zeros() as usize)?;
        self.0 &= self.0 - 1;
        Some(bit)
    }
}
