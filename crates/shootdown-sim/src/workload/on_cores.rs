//! What `bench shoot --machine cores` measures, on the simulated machine.

use serde_json::Value;
use shootdown::Policy;
use shootdown_peers::Peer;

use crate::timed::{Costs, Preset};
use crate::workload::{Callers, Means, Operation, Volley};

/// What a figure there has besides: two readings of the counter, in cycles.
const READINGS: f64 = 38.0;
/// The instructions of each operation, of both CPUs: the record of the figure `cores-instructions`.
const INSTRUCTIONS: &str = include_str!("../../../../docs/figures/cores-instructions.json");

/// What the called function takes: it reads the counter and notes it.
const FUNCTION_PS: u64 = 20_000;
const CALLS: usize = 200;

/// Whose calls and flushes: the name in records, the algorithm, and the engine's policy.
const CONTENDERS: [(&str, Peer, Policy); 11] = [
    ("mailbox", Peer::Mailbox, Policy::BEST),
    ("xen-before", Peer::OneLock, Policy::BEST),
    ("xen", Peer::TaskSet, Policy::BEST),
    ("linux", Peer::CallQueues, Policy::BEST),
    ("freebsd", Peer::Scoreboard, Policy::BEST),
    ("bits", Peer::Bits, Policy::BEST),
    ("bits numbered", Peer::BitsNumbered, Policy::BEST),
    ("bits guessed", Peer::BitsGuessed, Policy::BEST),
    ("engine before", Peer::Shootdown, Policy::BEFORE),
    ("engine published", Peer::Shootdown, Policy::PUBLISHED),
    ("best", Peer::Shootdown, Policy::BEST),
];

/// Two processors, one of which a host had on two cores, and one on two threads of a core.
struct Placement {
    /// Where the two CPUs are, by its name in records.
    name: &'static str,
    /// The preset that stands for it.
    preset: &'static str,
    /// Cycles of a nanosecond.
    cycles: f64,
    /// What was measured: the record of a figure.
    record: &'static str,
}

const PLACEMENTS: [Placement; 2] = [
    Placement {
        name: "far",
        preset: "xeon-far",
        cycles: 2.6,
        record: include_str!("../../../../docs/figures/cores-far.json"),
    },
    Placement {
        name: "near",
        preset: "xeon-near",
        cycles: 2.5,
        record: include_str!("../../../../docs/figures/cores-near.json"),
    },
];

/// What two CPUs do, by its name in records.
const OPERATIONS: [(&str, Callers, Operation); 3] = [
    ("call 1", Callers::One, Operation::Call),
    ("all call all", Callers::All, Operation::Call),
    ("flush 1 page", Callers::One, Operation::Flush),
];

/// A row of the record, and what the simulated machine makes of it. In cycles.
#[derive(Clone, Copy, Debug)]
pub struct Compared {
    /// Where the CPUs were, what they did, and whose algorithm it was: names of the record.
    pub name: [&'static str; 3],
    /// The median of the rounds.
    pub measured: f64,
    /// What a tenth of the rounds is below, and above.
    pub between: [f64; 2],
    /// The median of the simulated operations.
    pub simulated: f64,
}

/// How far a median may be off.
const TOLERANCE: f64 = 0.1;

impl Compared {
    /// Whether what was simulated is within a tenth of what was measured, or between what a tenth of the rounds was below, and above.
    pub fn agrees(&self) -> bool {
        let [low, high] = self.between;
        let least = low.min(self.measured * (1.0 - TOLERANCE));
        let most = high.max(self.measured * (1.0 + TOLERANCE));
        (least..=most).contains(&self.simulated)
    }
}

/// All rows of the record, with other figures than the preset's where `change`, which is told its name, gives them.
///
/// # Panics
/// When the record has no such row.
pub fn compared(change: impl Fn(&str, &mut Costs)) -> Vec<Compared> {
    let counts = rows(INSTRUCTIONS);
    let mut all = Vec::new();
    for placement in PLACEMENTS {
        let (record, preset) = (rows(placement.record), placement.preset);
        let mut costs = Preset::named(preset).expect("a preset").costs();
        change(preset, &mut costs);
        for operation in OPERATIONS {
            for contender in CONTENDERS {
                let name = [placement.name, operation.0, contender.0];
                let row = row_of(&record, ["placement", "operation", "peer"], name);
                let of = |key: &str| row[key].as_f64().expect("a number");
                all.push(Compared {
                    name,
                    measured: of("median_cycles"),
                    between: [of("low_cycles"), of("high_cycles")],
                    simulated: median_ns(&costs, &counts, contender, operation) * placement.cycles
                        + READINGS,
                });
            }
        }
    }
    all
}

fn rows(record: &str) -> Vec<Value> {
    let mut record: Value = serde_json::from_str(record).expect("a record");
    match record["rows"].take() {
        Value::Array(rows) => rows,
        _ => panic!("a record has rows"),
    }
}

/// The row that has these names under these keys.
fn row_of<'a, const KEYS: usize>(
    rows: &'a [Value],
    keys: [&str; KEYS],
    names: [&str; KEYS],
) -> &'a Value {
    let is_wanted = |row: &&Value| keys.map(|key| &row[key]) == names;
    let row = rows.iter().find(is_wanted);
    row.unwrap_or_else(|| panic!("a record lacks {names:?}"))
}

/// The median of an operation. Its instructions, which are counted, are spread over its accesses, which a run with nobody else under way counts.
fn median_ns(
    costs: &Costs,
    counts: &[Value],
    (name, peer, policy): (&str, Peer, Policy),
    (_, callers, operation): (&str, Callers, Operation),
) -> f64 {
    let mut row = Volley {
        peer,
        callers: Callers::One,
        operation,
        means: Means::Interrupts,
        targets: 1,
        cpus: 2,
        function_ps: FUNCTION_PS,
        calls: CALLS,
        costs: costs.clone(),
        seed: 1,
        names_lines: false,
    };
    let what = match operation {
        Operation::Call => "call",
        _ => "flush",
    };
    let count = &row_of(counts, ["peer", "operation"], [name, what])["instructions"];
    let count = count.as_u64().expect("a number");
    let accesses = row.run_under(policy).activity.accesses;
    row.costs.instructions_ps = costs.instruction_ps * count * CALLS as u64 / accesses;
    row.callers = callers;
    row.run_under(policy)
        .quantile_ns(500, |called| called.whole_ps)
}
