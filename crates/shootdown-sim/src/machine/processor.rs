//! [`Processor`]: the part of a virtual CPU that both models need.

/// What a virtual CPU does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// It executes its program.
    Running,
    /// It waits for an interrupt, in user mode or halted.
    Waiting,
    /// Its program is over. It still takes interrupts.
    Finished,
}

/// An interrupt on its way or held back. Several merge into one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pending {
    /// When it reaches the CPU, in picoseconds (timed model).
    pub arrival_ps: u64,
    /// Who sent the first of those that merged.
    pub initiator: usize,
    /// How often delivery was put off (exploration).
    pub delays: u32,
}

/// One virtual CPU.
#[derive(Clone, Debug)]
pub struct Processor {
    /// What it does.
    pub status: Status,
    /// The interrupt flag.
    pub interrupts_on: bool,
    /// Whether it executes an interrupt handler.
    pub in_handler: bool,
    /// How many times over preemption is forbidden.
    pub preempt_off: u32,
    /// The interrupt that it has still to take.
    pub pending: Option<Pending>,
    /// Its clock in picoseconds (timed model).
    pub now_ps: u64,
}

impl Processor {
    pub(crate) fn new() -> Self {
        Self {
            status: Status::Running,
            interrupts_on: true,
            in_handler: false,
            preempt_off: 0,
            pending: None,
            now_ps: 0,
        }
    }
}
