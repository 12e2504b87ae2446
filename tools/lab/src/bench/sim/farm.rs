//! [`all`]: rows on all processors of this host. They change nothing but the time.

use rayon::prelude::*;

use super::steps::Steps;
use crate::failure::{Failure, Outcome};

/// Machines of 4096 CPUs are built on the stack.
const STACK_BYTES: usize = 512 << 20;

/// Runs all `rows` and shows how that gets on; the results in their order.
///
/// # Errors
/// This host starts no threads.
pub fn all<Row: Sync, R: Send>(rows: &[Row], run: impl Fn(&Row) -> R + Sync) -> Outcome<Vec<R>> {
    let pool = rayon::ThreadPoolBuilder::new()
        .stack_size(STACK_BYTES)
        .build()
        .map_err(|error| Failure::work(format!("cannot start threads: {error}")))?;
    let steps = Steps::new(rows.len(), "rows");
    let run_one = |row: &Row| {
        let result = run(row);
        steps.one_is_done();
        result
    };
    Ok(pool.install(|| rows.par_iter().with_max_len(1).map(run_one).collect()))
}
