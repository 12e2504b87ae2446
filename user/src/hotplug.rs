//! CPUs that leave and come back, as `/sys` shows and takes it.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::PathBuf;

const DIRECTORY: &str = "/sys/devices/system/cpu";

/// The file that shows whether `cpu` is online, and takes it offline.
pub fn switch(cpu: usize) -> PathBuf {
    PathBuf::from(format!("{DIRECTORY}/cpu{cpu}/online"))
}

/// Those of `cpus` that can leave.
///
/// # Errors
/// None can.
pub fn leaving(cpus: &[usize]) -> io::Result<Vec<usize>> {
    let can = |cpu: &usize| switch(*cpu).exists();
    let leaving: Vec<usize> = cpus.iter().copied().filter(can).collect();
    match leaving.is_empty() {
        false => Ok(leaving),
        true => Err(io::Error::other(
            "no CPU can go offline here; leave out --churn, or use two CPUs or more",
        )),
    }
}

/// Writes `word` to the file of `cpu`; never makes one.
///
/// # Errors
/// The CPU has no such file, or the kernel refuses.
pub fn tell(cpu: usize, word: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).open(switch(cpu))?;
    file.write_all(word.as_bytes())
}

/// Takes `cpu` offline.
///
/// # Errors
/// As [`tell`].
pub fn take_offline(cpu: usize) -> io::Result<()> {
    tell(cpu, "0")
}

/// Brings `cpu` back.
///
/// # Errors
/// As [`tell`].
pub fn bring_online(cpu: usize) -> io::Result<()> {
    tell(cpu, "1")
}

/// The CPUs of one of the kernel's lists: `online`, `possible`.
///
/// # Errors
/// There is no such list, or it is none.
pub fn list(name: &str) -> io::Result<Vec<usize>> {
    let text = fs::read_to_string(format!("{DIRECTORY}/{name}"))?;
    parse(text.trim_end())
        .ok_or_else(|| io::Error::other(format!("{DIRECTORY}/{name} holds no list: {text:?}")))
}

/// The CPUs that `/proc/cpuinfo` has.
///
/// # Errors
/// There is no such file.
pub fn processors() -> io::Result<Vec<usize>> {
    let text = fs::read_to_string("/proc/cpuinfo")?;
    let number = |line: &str| {
        let (name, value) = line.split_once(':')?;
        (name.trim_end() == "processor").then(|| value.trim().parse().ok())?
    };
    Ok(text.lines().filter_map(number).collect())
}

/// `0-3,5` and the like.
fn parse(text: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        cpus.extend(first.parse::<usize>().ok()?..=last.parse::<usize>().ok()?);
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_have_ranges_and_gaps() {
        assert_eq!(parse("0-2,4,6-7"), Some(vec![0, 1, 2, 4, 6, 7]));
        assert_eq!(parse("0"), Some(vec![0]));
        assert_eq!(parse(""), Some(vec![]));
        assert_eq!(parse("a-b"), None);
    }

    #[test]
    fn this_machine_has_a_cpu() {
        let online = list("online").unwrap();
        assert!(online.contains(&0) && processors().unwrap().len() <= online.len());
    }
}
