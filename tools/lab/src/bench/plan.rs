//! [`Plan`]: what a bench is settled to do before the first machine starts, and what comes of it.

use serde_json::Value;

use super::machine::{Machine, Start};
use super::row::Row;
use crate::failure::Outcome;
use crate::progress::Progress;
use crate::protocol::Object;

/// A bench on machines whose CPUs are real, settled before the first of them starts.
pub trait Plan {
    /// Builds the machines.
    ///
    /// # Errors
    /// Something is missing.
    fn machines(&self, progress: &mut Progress) -> Outcome<Vec<Machine>>;

    /// The groups of rows that are measured together, in order: how each machine is started for them.
    fn groups(&self) -> Vec<Vec<Start>>;

    /// Whether rows say more of a failure than the status 1 does.
    fn tells_failure(&self, rows: &[Row]) -> bool;

    /// Whether the rows that a machine has printed for a group are those that were due.
    ///
    /// # Errors
    /// They are not.
    fn check(&self, group: usize, machine: usize, rows: &[Row]) -> Outcome<()>;

    /// What is shown and kept.
    fn view(&self, found: Found) -> View;
}

/// What all machines have said.
#[derive(Default)]
pub struct Found {
    /// The rows of each start, by group; those of machines that started in turn are together.
    pub groups: Vec<Vec<Vec<Row>>>,
    /// What a program said of itself.
    pub about: Option<Object>,
    /// How many host cores others kept busy meanwhile.
    pub others: Option<f64>,
    /// How long it took.
    pub seconds: f64,
}

/// What becomes of it.
pub struct View {
    /// What is to be known of all figures: see [`remarks`](super::report::remarks).
    pub remarks: String,
    /// What people read.
    pub tables: String,
    /// What is kept and written.
    pub result: Value,
    /// What is said before and behind the name of the file in which it is kept.
    pub closing: [String; 2],
    /// What was wrong, if anything.
    pub failure: Option<String>,
}
