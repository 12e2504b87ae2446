//! How many CPUs there may be.

/// Most CPUs that the kernel uses; more in the machine stay parked.
pub const MAX_CPUS: usize = 64;

/// As the engine is told.
pub type Cpus = shootdown::Cpus<MAX_CPUS>;
