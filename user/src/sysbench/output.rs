//! What sysbench prints at the end of a run.

use std::time::Duration;

/// Its totals.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Output {
    /// Writes and syncs.
    pub events: u64,
    /// From the first event to the last.
    pub elapsed: Duration,
}

impl Output {
    /// Reads them.
    ///
    /// # Errors
    /// Names what is missing.
    pub fn parse(text: &str) -> Result<Self, String> {
        let value = |name: &str| {
            let mut lines = text.lines().map(str::trim);
            let found = lines
                .find_map(|line| line.strip_prefix(name))
                .map(str::trim);
            found.ok_or_else(|| format!("sysbench printed no {name:?}"))
        };
        let bad = |name: &str| format!("sysbench printed something odd for {name}");
        let events = value("total number of events:")?;
        let seconds = value("total time:")?.trim_end_matches('s');
        let seconds: f64 = seconds.parse().map_err(|_| bad("total time"))?;
        Ok(Self {
            events: events.parse().map_err(|_| bad("events"))?,
            elapsed: Duration::try_from_secs_f64(seconds).map_err(|_| bad("total time"))?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_read_and_what_is_missing_is_named() {
        let text = "General statistics:\n    total time:                          3.0228s\n    \
                    total number of events:              4521\n";
        let expected = Output {
            events: 4521,
            elapsed: Duration::from_micros(3_022_800),
        };
        assert_eq!(Output::parse(text), Ok(expected));
        let refused = |text: &str| Output::parse(text).unwrap_err();
        assert!(refused("total time: 1s").contains("events"));
        assert!(refused("total number of events: 3").contains("time"));
        assert!(refused("total number of events: x\ntotal time: 1s").contains("odd"));
    }
}
