//! Choosing the kernel's flush policy, where there is a choice.

use std::fs;
use std::path::PathBuf;

use crate::args::UsageError;

/// Where the reference kernel shows and takes the name of the policy.
const POLICY_FILE: &str = "/proc/shootdown/policy";

/// The name of what a kernel without that file does.
const ONLY_POLICY: &str = "linux";

/// The policy other rows are compared with.
pub const REFERENCE_POLICY: &str = "before";

/// The policies that are compared unless the caller says otherwise.
pub const USUAL: [&str; 3] = [REFERENCE_POLICY, "published", "best"];

/// The kernel's policy switch.
#[derive(Debug, Clone)]
pub struct PolicySwitch {
    file: Option<PathBuf>,
}

impl PolicySwitch {
    /// The switch of the kernel this runs on.
    pub fn of_this_kernel() -> Self {
        let file = PathBuf::from(POLICY_FILE);
        Self {
            file: file.exists().then_some(file),
        }
    }

    /// The policies to run: those `wanted`, or the only one there is.
    ///
    /// Each is tried once, so that a wrong name is an error now and not in the middle of a run.
    pub fn resolve(&self, wanted: &[String]) -> Result<Vec<String>, UsageError> {
        self.resolve_rows(wanted, |name| name)
    }

    /// The same of rows whose policies are what `policy` makes of their names.
    pub fn resolve_rows(
        &self,
        wanted: &[String],
        policy: impl Fn(&str) -> &str,
    ) -> Result<Vec<String>, UsageError> {
        if self.file.is_none() {
            return Ok(vec![ONLY_POLICY.to_owned()]);
        }
        for name in wanted {
            self.select(policy(name))?;
        }
        Ok(wanted.to_vec())
    }

    /// Makes the kernel use policy `name` from now on.
    pub fn select(&self, name: &str) -> Result<(), UsageError> {
        let Some(file) = &self.file else {
            return Ok(());
        };
        fs::write(file, name).map_err(|error| {
            UsageError::new(format!(
                "the kernel refused the policy {name:?} ({error}); it knows before, published, best, and each with +defer"
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_switch_there_is_one_policy() {
        let switch = PolicySwitch { file: None };
        let wanted = ["before".to_owned(), "best".to_owned()];
        assert_eq!(switch.resolve(&wanted).unwrap(), ["linux"]);
        assert!(switch.select("anything").is_ok());
    }

    #[test]
    fn a_refused_name_is_one_clear_line() {
        let switch = PolicySwitch {
            file: Some(PathBuf::from("/proc/no-such-directory/policy")),
        };
        let error = switch
            .resolve(&["fastest".to_owned()])
            .unwrap_err()
            .to_string();
        let is_clear = error.contains("fastest") && !error.contains('\n');
        assert!(is_clear, "{error}");
    }
}
