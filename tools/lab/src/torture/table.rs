//! The tables that people read.

use super::hearing::{Counted, Hearing};
use crate::bench::grid;

/// What was done, what was checked, and what the engine counted, side by side.
pub fn render(hearing: &Hearing) -> String {
    let seconds = hearing.verdict.map_or(0.0, |verdict| verdict.seconds());
    let is_name = |index| index == 0;
    let rate = |count: u64| format!("{:.0}", count as f64 / seconds.max(1e-9));
    let rated = |heading: [&str; 2], counted: &Counted| {
        let row =
            |(name, count): &(String, u64)| vec![name.clone(), count.to_string(), rate(*count)];
        let heading = [heading[0], heading[1], "per second"];
        grid(heading, counted.iter().map(row).collect(), is_name)
    };
    let promise = |(name, count): &(String, u64)| vec![name.clone(), count.to_string()];
    let promises = hearing.promises.iter().map(promise);
    format!(
        "{}\n{}\n{}",
        rated(["operation", "done"], &hearing.operations),
        rated(["engine", "count"], &hearing.engine),
        grid(["promise", "broken"], promises.collect(), is_name),
    )
}
