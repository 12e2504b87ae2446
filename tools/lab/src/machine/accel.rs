//! How the guest's processors are made: by the host's (KVM) or by translation (TCG).

use std::fmt;
use std::path::Path;

use crate::failure::{Failure, Outcome};

/// What the caller asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum AccelChoice {
    /// KVM where the processor offers it, else TCG.
    #[default]
    Auto,
    /// The host's own processors.
    Kvm,
    /// Translation.
    Tcg,
    /// Translation, on a clock of guest instructions: times are counts, the same on every host, whatever else it does.
    Icount,
}

/// What a machine runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accel {
    /// The host's own processors.
    Kvm,
    /// Translation, in one host thread a virtual CPU.
    Multi,
    /// Translation, in one host thread for all virtual CPUs, which takes turns.
    Single,
    /// As `Single`, on a clock that goes on by a nanosecond with each instruction: times are counts, the same on every host.
    Counting,
}

impl AccelChoice {
    /// Settles the choice for a machine whose programs keep `busy_cpus` virtual CPUs busy.
    ///
    /// # Errors
    /// KVM was asked for and this host has none.
    pub fn settle(self, busy_cpus: usize) -> Outcome<Accel> {
        let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let has_kvm = offers_virtualisation(&cpuinfo) && Path::new("/dev/kvm").exists();
        match self {
            Self::Kvm if !has_kvm => Err(Failure::input(
                "this host offers no KVM (neither vmx nor svm in /proc/cpuinfo, or no /dev/kvm)",
                "use --accel tcg",
            )),
            Self::Kvm => Ok(Accel::Kvm),
            Self::Icount => Ok(Accel::Counting),
            Self::Auto if has_kvm => Ok(Accel::Kvm),
            Self::Auto | Self::Tcg => Ok(Accel::translated(busy_cpus, host_cores())),
        }
    }
}

impl Accel {
    /// One host thread a virtual CPU while the host has a core for each busy one. Beyond that a
    /// spinning virtual CPU holds a core for a whole slice of the host's scheduler while the one
    /// that it waits for is off; one thread that takes turns changes over at every PAUSE.
    fn translated(busy_cpus: usize, cores: usize) -> Self {
        match busy_cpus <= cores {
            true => Self::Multi,
            false => Self::Single,
        }
    }

    /// QEMU's options for it.
    pub fn arguments(self) -> &'static str {
        // Linux would walk five levels where `max` has LA57, the reference kernel four. QEMU 7.2's
        // CMPXCHG16B is broken with one thread a virtual CPU: Linux dies of it in one boot of five.
        match self {
            Self::Kvm => "-accel kvm -cpu host",
            Self::Multi => "-accel tcg,thread=multi -cpu max,la57=off,cx16=off",
            Self::Single => "-accel tcg,thread=single -cpu max,la57=off,cx16=off",
            Self::Counting => {
                "-accel tcg,thread=single -cpu max,la57=off,cx16=off -icount shift=0,sleep=off"
            }
        }
    }
}

impl fmt::Display for Accel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kvm => "kvm",
            Self::Multi => "tcg,thread=multi",
            Self::Single => "tcg,thread=single",
            Self::Counting => "tcg,icount",
        })
    }
}

/// How many cores this process may use; in tests two, for they are to find the same everywhere.
pub fn host_cores() -> usize {
    match cfg!(test) {
        true => 2,
        false => std::thread::available_parallelism().map_or(1, usize::from),
    }
}

/// Whether the processor says that it can run guests itself.
fn offers_virtualisation(cpuinfo: &str) -> bool {
    let mut flags = cpuinfo.lines().filter(|line| line.starts_with("flags"));
    flags.any(|line| {
        line.split_whitespace()
            .any(|flag| ["vmx", "svm"].contains(&flag))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn virtualisation_is_read_from_the_flags_only() {
        assert!(offers_virtualisation("flags\t\t: fpu vmx sse\n"));
        assert!(offers_virtualisation("flags : svm\n"));
        assert!(!offers_virtualisation(
            "model name : vmx svm\nflags : fpu\n"
        ));
    }

    #[test]
    fn busy_cpus_beyond_the_cores_share_one_thread() {
        assert_eq!(Accel::translated(2, 2), Accel::Multi);
        assert_eq!(Accel::translated(3, 2), Accel::Single);
    }
}
