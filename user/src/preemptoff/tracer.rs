//! The kernel's record of its longest spans with preemption off, where it keeps one.
//!
//! The reference kernel has it in `/proc/shootdown/latency`, one line for each CPU since the last reset:
//! `cpu 0 preempt_off_ns 12345 at kernel/src/mm/space.rs:77 ... ipi_wait_ns 2345`.

use std::fs;
use std::io;

const FILE: &str = "/proc/shootdown/latency";

/// The record.
#[derive(Debug)]
pub struct Tracer {
    is_there: bool,
}

/// The longest spans of one CPU since the last reset.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Longest {
    /// Which CPU.
    pub cpu: usize,
    /// With preemption off, in ns.
    pub off_ns: u64,
    /// Where that began.
    pub off_at: Option<String>,
    /// Waiting for other CPUs with preemption off, in ns; where the kernel tells.
    pub ipi_wait_ns: Option<u64>,
}

impl Tracer {
    /// Switches the record on, where there is one.
    pub fn start() -> io::Result<Self> {
        let is_there = fs::exists(FILE)?;
        let tracer = Self { is_there };
        tracer.tell("on")?;
        Ok(tracer)
    }

    /// Whether this kernel keeps one.
    pub fn is_there(&self) -> bool {
        self.is_there
    }

    /// Begins a new interval.
    pub fn reset(&self) -> io::Result<()> {
        self.tell("reset")
    }

    /// What happened on `cpus` since the last reset.
    pub fn read(&self, cpus: &[usize]) -> io::Result<Vec<Longest>> {
        if !self.is_there {
            return Ok(Vec::new());
        }
        let text = fs::read_to_string(FILE)?;
        let all = text.lines().filter_map(parse);
        let ours: Vec<Longest> = all.filter(|line| cpus.contains(&line.cpu)).collect();
        if ours.len() == cpus.len() {
            return Ok(ours);
        }
        let found = ours.len();
        Err(io::Error::other(format!(
            "{FILE} has lines for {found} of {} CPUs",
            cpus.len()
        )))
    }

    fn tell(&self, word: &str) -> io::Result<()> {
        if self.is_there {
            fs::write(FILE, word)
                .map_err(|error| io::Error::other(format!("writing {word} to {FILE}: {error}")))?;
        }
        Ok(())
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        // It costs little when left on.
        let _ignored = self.tell("off");
    }
}

/// A line is names, each with a value; `at` names the place of what stands before it.
fn parse(line: &str) -> Option<Longest> {
    let mut longest = Longest::default();
    let (mut words, mut last, mut is_cpu) = (line.split_whitespace(), "", false);
    while let (Some(name), Some(value)) = (words.next(), words.next()) {
        match name {
            "cpu" => {
                longest.cpu = value.parse().ok()?;
                is_cpu = true;
            }
            "preempt_off_ns" => longest.off_ns = value.parse().unwrap_or(0),
            "ipi_wait_ns" => longest.ipi_wait_ns = Some(value.parse().unwrap_or(0)),
            "at" if last == "preempt_off_ns" && value != "-" => {
                longest.off_at = Some(value.to_owned());
            }
            _ => {}
        }
        last = name;
    }
    is_cpu.then_some(longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_spans_of_a_cpu() {
        let line = "cpu 3 preempt_off_ns 12345 at kernel/src/mm/space.rs:77 irq_off_ns 2345 at kernel/src/x.rs:12 \
                    preempt_off_sum_ns 99 preempt_off_count 4 ipi_wait_ns 1000";
        let expected = Longest {
            cpu: 3,
            off_ns: 12345,
            off_at: Some("kernel/src/mm/space.rs:77".to_owned()),
            ipi_wait_ns: Some(1000),
        };
        assert_eq!(parse(line), Some(expected));
    }

    #[test]
    fn nothing_yet_is_no_time_and_no_place() {
        let expected = Longest {
            cpu: 1,
            ..Longest::default()
        };
        let parsed = parse("cpu 1 preempt_off_ns - at - irq_off_ns 5 at a:1");
        assert_eq!(parsed, Some(expected));
        assert_eq!(parse("tracing off"), None);
        assert_eq!(parse(""), None);
    }

    #[test]
    fn where_there_is_none_nothing_is_read() {
        let tracer = Tracer { is_there: false };
        assert!(tracer.reset().is_ok());
        assert!(tracer.read(&[0, 1]).unwrap().is_empty());
    }
}
