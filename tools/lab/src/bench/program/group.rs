//! [`Group`]: the rows that one machine measures together, and for how long.

use serde::Serialize;

use crate::cli::Bench;
use crate::failure::{Failure, Outcome};
use crate::machine::{Accel, AccelChoice, host_cores};

/// How long and how often each row is measured.
#[derive(Debug, Clone, Serialize)]
pub struct Effort {
    /// One policy's turn within a round.
    pub slice_ms: u32,
    /// Rounds a boot; the order of policies rotates from round to round.
    pub rounds: u32,
    /// Before the first round of each row.
    pub warmup_ms: u32,
    /// Boots of each machine, alternating.
    pub boots: u32,
}

/// Rows that one machine measures together.
#[derive(Debug, Clone)]
pub struct Group {
    /// Virtual CPUs.
    pub cpus: usize,
    /// Actors of the program, one row each.
    pub actors: Vec<u32>,
    /// What the machine runs on.
    pub accel: Accel,
    /// Whether more virtual CPUs are busy than the host has cores.
    pub is_crowded: bool,
    /// How long.
    pub effort: Effort,
}

impl Group {
    /// With what suits so many actors.
    ///
    /// # Errors
    /// The accelerator does not suit them, or is missing.
    pub fn new(cpus: usize, actors: Vec<u32>, bench: &Bench) -> Outcome<Self> {
        let most = actors.iter().copied().max().unwrap_or(1);
        let busy = bench.workload.busy_cpus(most);
        let counts = bench.emulator.accel == AccelChoice::Icount;
        if counts && busy > 1 {
            return Err(Failure::input(
                "with --accel icount CPUs take turns, and busy threads let nobody have his",
                format!("use --{} 1", bench.workload.actors),
            ));
        }
        let is_crowded = busy > host_cores() && !counts;
        let usual = match (bench.quick, is_crowded) {
            (true, false) => [30, 3, 20, 2],
            (true, true) => [60, 2, 20, 1],
            (false, false) => [60, 7, 50, 5],
            (false, true) => [150, 5, 50, 1],
        };
        let [slice_ms, rounds, warmup_ms, boots] = match &bench.workload.effort {
            Some(own) if bench.quick => own.quick,
            Some(own) => own.whole,
            None => usual,
        };
        Ok(Self {
            cpus,
            actors,
            accel: bench.emulator.accel.settle(busy)?,
            is_crowded,
            effort: Effort {
                slice_ms,
                rounds,
                warmup_ms,
                boots,
            },
        })
    }
}
