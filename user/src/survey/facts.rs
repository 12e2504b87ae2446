//! What the machine is.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::options::Options;
use super::table;
use crate::machine;

/// What the reference kernel says of the machine, as `name value` lines.
const FILE: &str = "/proc/shootdown/info";

/// What the kernel says.
#[derive(Debug, Default)]
pub struct Facts {
    /// The CPUs that may be used.
    pub cpus: usize,
    said: BTreeMap<String, String>,
}

impl Facts {
    /// Those of this machine; another kernel says nothing.
    pub fn of_this_machine(cpus: usize) -> Self {
        let text = std::fs::read_to_string(FILE).unwrap_or_default();
        Self::read(cpus, &text)
    }

    fn read(cpus: usize, text: &str) -> Self {
        let pairs = text.lines().filter_map(|line| line.split_once(' '));
        let said = pairs.map(|(name, value)| (name.to_owned(), value.trim().to_owned()));
        let said = said.collect();
        Self { cpus, said }
    }

    fn word(&self, name: &str) -> &str {
        self.said.get(name).map_or("unknown", String::as_str)
    }

    fn number(&self, name: &str) -> u64 {
        self.word(name).parse().unwrap_or(0)
    }

    /// One line for the screen.
    pub fn headline(&self) -> String {
        let invpcid = if self.number("invpcid") > 0 {
            ", INVPCID"
        } else {
            ""
        };
        let line = format!(
            "shootdown {}: {} CPUs, {}, {} tags a CPU{invpcid}; {}",
            env!("CARGO_PKG_VERSION"),
            self.cpus,
            self.word("apic"),
            self.number("tags"),
            self.word("processor"),
        );
        table::cut(&line)
    }

    /// The same for the lab, with what the caller chose.
    pub fn info(&self, options: &Options) -> Value {
        json!({
            "program": "survey",
            "effort": options.effort.name(),
            "commit": options.commit,
            "kernel": machine::kernel_name(),
            "cpus": self.cpus,
            "apic": self.word("apic"),
            "hypervisor": self.word("accel_hint"),
            "tags": self.number("tags"),
            "invpcid": self.number("invpcid") > 0,
            "processor": self.word("processor"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_headline_fits_the_screen_whatever_the_processor_is_called() {
        let text = format!(
            "apic x2apic\ntags 64\ninvpcid 1\nprocessor {}\n",
            "x".repeat(99)
        );
        let facts = Facts::read(16, &text);
        let line = facts.headline();
        assert_eq!(line.len(), table::COLUMNS, "{line}");
        assert!(
            line.contains("16 CPUs, x2apic, 64 tags a CPU, INVPCID; xxx"),
            "{line}"
        );
        let info = facts.info(&Options::default());
        assert_eq!(
            (&info["tags"], &info["invpcid"]),
            (&64.into(), &true.into())
        );
        assert_eq!(
            Facts::read(1, "").info(&Options::default())["apic"],
            "unknown"
        );
    }
}
