//! What every command that boots machines needs: emulator, kernels and programs, found or built.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::cargo::{self, Flavour};
use crate::cli::{Emulator, MAX_CPUS, MachineKind};
use crate::failure::{Failure, Outcome};
use crate::machine::{self, Kernel};

/// The emulator and the Linux image, as the caller or the environment names them.
#[derive(Debug)]
pub struct Session {
    /// The emulator.
    pub qemu: PathBuf,
    /// A Linux image, where there is one.
    pub linux: Option<PathBuf>,
    /// Which of the reference kernels.
    pub flavour: Flavour,
}

impl Session {
    /// Finds the emulator (or installs it) and a Linux image; fetches one if `machines` has Linux.
    pub fn open(emulator: &Emulator, machines: &[MachineKind]) -> Outcome<Self> {
        let boots_nothing =
            |kind: &MachineKind| matches!(kind, MachineKind::Sim | MachineKind::Cores);
        if machines.iter().any(boots_nothing) {
            return Err(runs_no_programs());
        }
        let mut linux = machine::find_linux(linux_name(emulator).as_deref())?;
        if linux.is_none() && machines.contains(&MachineKind::Linux) {
            machine::fetch_linux()?;
            linux = machine::find_linux(None)?;
        }
        let qemu = machine::find_or_install(qemu_name(emulator).as_deref())?;
        let flavour = Flavour::Plain.isolated(emulator.isolation);
        Ok(Self {
            qemu,
            linux,
            flavour,
        })
    }

    /// The kernel for a machine, built if it is ours.
    pub fn kernel(&self, kind: MachineKind) -> Outcome<Kernel> {
        match kind {
            MachineKind::Qemu => cargo::build_kernel(self.flavour).map(Kernel::Shootdown),
            MachineKind::Linux => self.linux.clone().map(Kernel::Linux).ok_or_else(|| {
                Failure::input(
                    "no Linux kernel image found",
                    "name one with --kernel or SHOOTDOWN_LINUX; `./lab doctor` says how to get one",
                )
            }),
            MachineKind::Sim | MachineKind::Cores => Err(runs_no_programs()),
        }
    }
}

fn runs_no_programs() -> Failure {
    Failure::input(
        "neither the simulated machine nor --machine cores runs programs, only workloads of bench",
        "use --machine qemu or linux",
    )
}

/// The emulator that the caller names, by option or environment.
pub fn qemu_name(emulator: &Emulator) -> Option<PathBuf> {
    named(&emulator.qemu, "SHOOTDOWN_QEMU")
}

/// The Linux image that the caller names, by option or environment.
pub fn linux_name(emulator: &Emulator) -> Option<PathBuf> {
    named(&emulator.kernel, "SHOOTDOWN_LINUX")
}

fn named(option: &Option<PathBuf>, variable: &str) -> Option<PathBuf> {
    let environment = || std::env::var_os(variable).filter(|value| !value.is_empty());
    option.clone().or_else(|| environment().map(PathBuf::from))
}

/// The user programs, built, with their images.
pub fn load_programs() -> Outcome<BTreeMap<String, Vec<u8>>> {
    let read = |(name, path): (String, PathBuf)| Ok((name, crate::program::read(&path)?));
    cargo::build_user()?.into_iter().map(read).collect()
}

/// One user program, built.
pub fn built(name: &str) -> Outcome<Vec<u8>> {
    let mut built = cargo::build_user_program(name)?;
    let missing = || Failure::work(format!("cargo built no {name}"));
    crate::program::read(&built.remove(name).ok_or_else(missing)?)
}

/// One of the user programs.
pub fn image<'a>(programs: &'a BTreeMap<String, Vec<u8>>, name: &str) -> Outcome<&'a [u8]> {
    programs.get(name).map(Vec::as_slice).ok_or_else(|| {
        let known: Vec<&str> = programs.keys().map(String::as_str).collect();
        let known = known.join(", ");
        Failure::work(format!(
            "there is no user program {name}; there are: {known}"
        ))
    })
}

/// The number of virtual CPUs that the caller asked for with `--cpus`.
///
/// # Errors
/// The reference kernel does not support that many.
pub fn cpus(asked: i64) -> Outcome<usize> {
    cpus_by("--cpus", asked)
}

/// The same, asked for with this option.
///
/// # Errors
/// The same.
pub fn cpus_by(option: &str, asked: i64) -> Outcome<usize> {
    match usize::try_from(asked) {
        Ok(cpus @ 1..) if asked <= MAX_CPUS => Ok(cpus),
        _ => Err(Failure::input(
            format!("a machine of {asked} CPUs cannot be booted"),
            format!("{option} takes 1 to {MAX_CPUS}"),
        )),
    }
}

/// The name under which a program from the host is put into the machine.
pub fn guest_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let is_safe = |c: &char| c.is_ascii_alphanumeric() || "._-".contains(*c);
    let safe = |c| Some(c).filter(is_safe).unwrap_or('_');
    let name: String = name.chars().map(safe).take(64).collect();
    match name.trim_matches('.').is_empty() {
        true => "program".into(),
        false => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_outside_the_kernels_range_are_refused() {
        assert_eq!(cpus(1).unwrap(), 1);
        assert_eq!(cpus(64).unwrap(), 64);
        for wrong in [0, 65, -1, i64::MAX, i64::MIN] {
            let text = cpus(wrong).unwrap_err().to_string();
            assert!(text.contains("1 to 64") && !text.contains('\n'), "{text}");
        }
    }

    #[test]
    fn guest_names_are_one_word() {
        assert_eq!(guest_name(Path::new("/a/my prog")), "my_prog");
        assert_eq!(guest_name(Path::new("/..")), "program");
    }
}
