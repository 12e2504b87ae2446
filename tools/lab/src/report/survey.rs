//! [`Survey`]: the results of several benches in one file, as `lab iso --read` writes them.

use serde_json::Value;

use super::document::Document;
use crate::protocol::Object;

/// Where the results of benches are.
pub const BENCHES: &str = "benches";

/// A file that holds several results.
#[derive(Debug)]
pub struct Survey {
    /// Those that have rows, at least one, in order.
    pub benches: Vec<Document>,
    /// What the machine said of itself.
    pub about: Value,
    /// What is missing, in sentences.
    pub missing: Vec<String>,
}

impl Survey {
    /// Takes a result; otherwise says what is wrong with it, as a sentence without its subject.
    pub fn of(name: &str, mut head: Object) -> Result<Self, String> {
        let Some(Value::Array(results)) = head.remove(BENCHES) else {
            return Err("is no survey: it has no list of benches".into());
        };
        let (mut benches, mut missing) = (Vec::new(), Vec::new());
        if head.get("is_done") != Some(&true.into()) {
            missing.push("The survey did not come to its end.".to_owned());
        }
        for result in results {
            let workload = result["workload"].as_str().unwrap_or("a bench").to_owned();
            match Document::of(name.to_owned(), result) {
                Ok(document) => benches.push(document),
                Err(cause) => missing.push(format!("{workload} {cause}.")),
            }
        }
        match benches.is_empty() {
            true => Err("has no bench with rows".into()),
            false => Ok(Self {
                benches,
                about: head.remove("params").unwrap_or_default(),
                missing,
            }),
        }
    }
}
