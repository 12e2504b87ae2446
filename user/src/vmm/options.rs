//! The command line of `vmm`.

use std::ffi::OsString;

use crate::args::{self, UsageError};

/// What `--help` prints.
pub const HELP: &str = "\
vmm [OPTIONS]: boots a kernel in a virtual machine of /dev/kvm
  --kernel FILE      an ELF file with a PVH entry [/boot/guest]
  --initrd FILE      its initial file system [/boot/guest.cpio]
  --append WORDS     its command line; again: more of it
  --vcpus N          virtual CPUs, 1 to 8 [2]
  --memory-mib N     its memory, 16 to 2048 [128]
  --deadline N       seconds until the machine is ended [60]
  --pv-flush on|off  whether it is told of steal time and flushes before entry [on]
  --drop-ipis N      lose each Nth interrupt between virtual CPUs, to see who notices
It ends with the number that the guest writes to port 0xf4, or with 124.";

/// Most virtual CPUs: as many as logical ids are flat.
const MOST_VCPUS: u8 = 8;

/// What it is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The kernel's file.
    pub kernel: String,
    /// The initial file system's.
    pub initrd: String,
    /// Virtual CPUs.
    pub vcpus: u8,
    /// Memory.
    pub memory_mib: u64,
    /// How long it may take.
    pub deadline_s: u64,
    /// Whether CPUID tells of flushes before entry.
    pub pv_flush: bool,
    /// Each so many interrupts one is lost.
    pub drop_each: Option<u64>,
    /// The guest's command line.
    pub line: String,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            kernel: "/boot/guest".into(),
            initrd: "/boot/guest.cpio".into(),
            vcpus: 2,
            memory_mib: 128,
            deadline_s: 60,
            pv_flush: true,
            drop_each: None,
            line: String::new(),
        }
    }
}

impl Options {
    /// Reads it; `None` where help is asked for.
    ///
    /// # Errors
    /// It makes no sense.
    pub fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Option<Self>, UsageError> {
        let mut options = Self::default();
        let is_run = args::read(words, |name, value| options.set(name, value))?;
        Ok(is_run.then_some(options))
    }

    fn set(&mut self, name: &str, value: args::Value<'_>) -> Result<(), UsageError> {
        match name {
            "--kernel" => self.kernel = value()?,
            "--initrd" => self.initrd = value()?,
            "--append" => {
                let space = if self.line.is_empty() { "" } else { " " };
                self.line = [&self.line, space, &value()?].concat();
            }
            "--vcpus" => self.vcpus = args::number(name, &value()?, 1..=MOST_VCPUS)?,
            "--memory-mib" => self.memory_mib = args::number(name, &value()?, 16..=2048)?,
            "--deadline" => self.deadline_s = args::number(name, &value()?, 1..=86_400)?,
            "--pv-flush" => self.pv_flush = switch(name, &value()?)?,
            "--drop-ipis" => self.drop_each = Some(args::number(name, &value()?, 1..=u64::MAX)?),
            _ => return Err(UsageError::unknown(name)),
        }
        Ok(())
    }
}

fn switch(name: &str, value: &str) -> Result<bool, UsageError> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(UsageError::new(format!(
            "{name} wants on or off, not {value:?}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &str) -> Result<Option<Options>, UsageError> {
        Options::parse(words.split_whitespace().map(OsString::from))
    }

    #[test]
    fn the_guests_words_come_one_by_one() {
        let words = "--append=init=/bin/x --append=-- --append=--vcpus=9";
        let options = parse(&format!("--vcpus 4 {words} --pv-flush=off"));
        let wanted = Options {
            vcpus: 4,
            pv_flush: false,
            line: "init=/bin/x -- --vcpus=9".into(),
            ..Options::default()
        };
        assert_eq!(options.unwrap(), Some(wanted));
        assert_eq!(parse("--help").unwrap(), None);
    }

    #[test]
    fn nonsense_is_refused() {
        for words in [
            "--vcpus 0",
            "--vcpus 9",
            "--pv-flush maybe",
            "--nothing",
            "x",
        ] {
            assert!(parse(words).is_err(), "{words}");
        }
    }
}
