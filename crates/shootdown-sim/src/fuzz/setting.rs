//! [`Setting`]: the machine and the engine that a seed draws.
//!
//! Borders are where mistakes are: between words, leaves and rings of CPUs, and where counts and clocks go round. Half of the draws are
//! plain, so that not everything is odd at once.

use shootdown::CpuId;
use shootdown::sim::Start;

use crate::explore::{BackEnd, Clock, Loads};
use crate::fuzz::Case;
use crate::kernel::{GuestShare, PAGES_PER_TABLE, PageFlush, Plan, Setup};

/// What a seed draws besides programs and answers.
#[derive(Clone, Debug)]
pub(super) struct Setting {
    /// How many CPUs the engine is for.
    pub(super) capacity: usize,
    pub(super) setup: Setup,
    /// One a CPU.
    pub(super) clocks: Vec<Clock>,
    /// Whether interrupts are refused now and then.
    pub(super) has_refusals: bool,
    /// Whether CPUs that spin may go on while others are busy.
    pub(super) has_eager_spinners: bool,
    pub(super) back_end: BackEnd,
    pub(super) loads: Loads,
    /// Whether no CPU can interrupt itself.
    pub(super) refuses_self: bool,
    /// How many interrupts may get lost.
    pub(super) losses: u32,
    /// How many tags each CPU has for guests.
    pub(super) guest_slots: usize,
}

/// Sizes of engines, the smaller groups more often: 66 has two CPUs a group and one a leaf, 68 has four and two.
const CAPACITIES: [usize; 8] = [66, 66, 68, 68, 68, 128, 128, 64];
/// Numbers next to borders of leaves and groups, of whatever size.
const BORDERS: [u32; 12] = [0, 1, 2, 3, 4, 7, 8, 15, 63, 64, 65, 127];
/// Numbers below this are near each other: an engine looks at all groups up to the last one, which takes events.
const NEAR: u32 = 9;
/// Lengths of rings: short ones are full more often.
const RINGS: [usize; 7] = [1, 1, 1, 2, 2, 2, 4];
/// A machine that loses interrupts loses so many, at most, and reports waits after so long, at most.
const MOST_LOSSES: u32 = 6;
const MOST_STALL_NS: u64 = 200;
/// A count begins so little before it goes round.
const SHORTLY: u64 = 12;
/// A space has fewer changes in a run.
const MOST_GENERATIONS: u64 = 1 << 16;

/// Shortly before one of these powers of two, or 0.
fn first_count(random: &mut fastrand::Rng, borders: &[u32]) -> u64 {
    if random.bool() {
        return 0;
    }
    let border = borders[random.usize(..borders.len())];
    (1 << border) - random.u64(1..SHORTLY)
}

fn numbers(random: &mut fastrand::Rng, cpus: usize, capacity: usize) -> Vec<CpuId> {
    let (is_dense, is_far) = (random.bool(), random.u8(..3) == 0);
    if is_dense {
        return (0..cpus as u32).map(CpuId::new).collect();
    }
    let is_near = !is_far && cpus < NEAR as usize;
    let limit = if is_near { NEAR } else { capacity as u32 };
    let mut numbers: Vec<u32> = BORDERS.into_iter().filter(|cpu| *cpu < limit).collect();
    random.shuffle(&mut numbers);
    numbers.truncate(cpus);
    while numbers.len() < cpus {
        let other = random.u32(..limit);
        if !numbers.contains(&other) {
            numbers.push(other);
        }
    }
    numbers.into_iter().map(CpuId::new).collect()
}

/// All have the same clock, or each its own.
fn clocks(random: &mut fastrand::Rng, cpus: usize) -> Vec<Clock> {
    let (is_plain, do_differ) = (random.bool(), random.bool());
    let common = Clock::draw(random);
    let one = |_| match (is_plain, do_differ) {
        (true, _) => Clock::STILL,
        (false, true) => Clock::draw(random),
        (false, false) => common,
    };
    (0..cpus).map(one).collect()
}

fn start(random: &mut fastrand::Rng) -> Start {
    Start {
        ticket: first_count(random, &[32, 47, 48]),
        number: first_count(random, &[32, 55, 56]),
        ring_len: RINGS[random.usize(..RINGS.len())],
    }
}

fn first_generation(random: &mut fastrand::Rng) -> u64 {
    match random.u8(..4) {
        0 => (1 << 32) - random.u64(1..SHORTLY),
        // A tag remembers it doubled.
        1 => (1 << 63) - MOST_GENERATIONS,
        _ => 1,
    }
}

impl Setting {
    /// What is drawn for a case. Fixed stories are told on a plain machine.
    pub(super) fn of(case: &Case) -> Self {
        let usual = Setup::usual(case.cpus, case.kernel_pages());
        if case.scenario.is_some() {
            return Self {
                capacity: if case.seed % 5 < 2 { 128 } else { 64 },
                setup: usual,
                clocks: vec![Clock::STILL; case.cpus],
                has_refusals: false,
                has_eager_spinners: false,
                back_end: BackEnd::None,
                loads: Loads::AtOnce,
                refuses_self: false,
                losses: 0,
                guest_slots: 0,
            };
        }
        // Not the seed itself, from which programs and answers are drawn.
        let mut random = fastrand::Rng::with_seed(case.seed.rotate_left(17) ^ 0x0005_e771);
        let guests = case.guest_share();
        let is_siege = Plan::is_siege(case.seed, guests);
        let capacity = match is_siege {
            true => [68, 128][random.usize(..2)],
            false => CAPACITIES[random.usize(..CAPACITIES.len())],
        };
        let has_refusals = random.u8(..4) == 0;
        let has_eager_spinners = random.u8(..6) == 0 || is_siege;
        let page_flush = match random.u8(..4) {
            0 => PageFlush::LeavesOnly,
            _ => PageFlush::Structures,
        };
        // What came later has a source of its own, so that seeds mean what they meant before.
        let mut later = fastrand::Rng::with_seed(case.seed.rotate_left(29) ^ 0x0010_ad50);
        let loads = match later.bool() {
            true => Loads::InSteps,
            false => Loads::AtOnce,
        };
        let (has_trampoline, has_second_root) = (later.u8(..3) == 0, later.u8(..3) == 0);
        let kernel_addresses = match Plan::churns(case.seed) {
            true => 1,
            false => PAGES_PER_TABLE,
        };
        let forgets = later.u32(..8).saturating_sub(5);
        let has_second_engine = later.u8(..6) == 0;
        let refuses_self = later.u8(..8) == 0;
        let losses = match later.u8(..8) {
            0 => later.u32(1..=MOST_LOSSES),
            _ => 0,
        };
        let stall_ns = match random.u8(..8) {
            0 => random.u64(1..2_000),
            _ => 0,
        };
        // Who loses interrupts has a watchdog, and a clock that goes on.
        let stall_ns = match losses {
            0 => stall_ns,
            _ => later.u64(1..MOST_STALL_NS),
        };
        let has_guards = later.u8(..4) == 0;
        Self {
            capacity,
            has_refusals,
            has_eager_spinners,
            back_end: BackEnd::of_seed(case.seed),
            loads,
            refuses_self,
            losses,
            guest_slots: guests.tags(case.seed),
            setup: Setup {
                threads: case.threads(),
                page_flush,
                stall_ns,
                has_guests: guests != GuestShare::None,
                host_loads: case.seed / 32 % 4 == 3
                    && !Plan::has_windows(case.seed, guests)
                    && BackEnd::of_seed(case.seed) != BackEnd::ByTag,
                has_trampoline,
                has_second_root,
                has_guards,
                // What was forgotten leaves preemption off, and threads without their CPU.
                forgets: if case.threads() == 0 { forgets } else { 0 },
                kernel_addresses,
                has_second_engine,
                has_secondary: Plan::has_secondary(case.seed),
                global_tags_from: [1, 1, 1, 2][(case.seed / 16 % 4) as usize],
                start: start(&mut random),
                first_generation: first_generation(&mut random),
                numbers: match is_siege {
                    true => usual.numbers.clone(),
                    false => numbers(&mut random, case.cpus, capacity),
                },
                ..usual
            },
            clocks: match losses {
                0 => clocks(&mut random, case.cpus),
                _ => vec![Clock::RUNNING; case.cpus],
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{CAPACITIES, Setting};
    use crate::fuzz::Case;

    fn settings(cpus: usize) -> impl Iterator<Item = Setting> {
        (0..400).map(move |seed| Setting::of(&Case::new(cpus, seed)))
    }

    #[test]
    fn numbers_are_different_and_fit_the_engine() {
        for cpus in [1, 2, 6, 8, 9, Case::MOST_CPUS] {
            for Setting {
                capacity, setup, ..
            } in settings(cpus)
            {
                let all: BTreeSet<_> = setup.numbers.iter().map(|cpu| cpu.index()).collect();
                assert_eq!(all.len(), cpus);
                assert!(all.into_iter().all(|cpu| cpu < capacity), "{setup:?}");
            }
        }
    }

    #[test]
    fn every_size_and_every_ring_is_drawn_with_each_other() {
        let drawn: BTreeSet<_> = settings(4)
            .map(|setting| (setting.capacity, setting.setup.start.ring_len))
            .collect();
        let sizes: BTreeSet<_> = CAPACITIES.into_iter().collect();
        assert_eq!(drawn.len(), 3 * sizes.len(), "{drawn:?}");
    }

    #[test]
    fn every_fourth_machine_or_so_has_nothing_odd_about_its_counts() {
        let plain = settings(3).filter(|setting| {
            let start = setting.setup.start;
            (start.ticket, start.number) == (0, 0)
        });
        assert!((50..150).contains(&plain.count()));
    }
}
