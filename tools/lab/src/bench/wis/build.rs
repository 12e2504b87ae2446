//! One program of will-it-scale's tests and the driver (`user/src/wis/driver.c`): by the C compiler of this host, static, against the C
//! library that it has.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::{Doing, Failure, Outcome, last_lines};
use crate::place;
use crate::program;
use crate::progress::Progress;

/// What a test defines, and the driver or other tests must not take for another's.
const OF_A_TEST: [&str; 4] = ["", "_description", "_prepare", "_cleanup"];
/// How much of the compiler's output an error shows.
const TAIL_LINES: usize = 12;
/// What the reference kernel has nothing for. Its test does not look whether it got any, and counts failures.
const SOCKETS: &str = "unix1";

/// The tests in a clone that were asked for, in order; without a choice all that both kernels can run.
///
/// # Errors
/// It is no such clone, or lacks one.
pub fn tests(source: &Path, asked: &[String]) -> Outcome<Vec<String>> {
    let remedy = "give --source a clone of https://github.com/antonblanchard/will-it-scale";
    let directory = source.join("tests");
    let entries = std::fs::read_dir(&directory).map_err(|error| {
        let cause = format!("cannot read {}: {error}", directory.display());
        Failure::input(cause, remedy)
    })?;
    let names = entries.flatten().filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let name = name.strip_suffix(".c")?;
        // It becomes a part of names in C.
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        name.chars().all(is_word).then(|| name.to_owned())
    });
    let mut all: Vec<String> = names.collect();
    all.sort();
    if let Some(unknown) = asked.iter().find(|name| !all.contains(name)) {
        let cause = format!("there is no test {unknown}");
        return Err(Failure::input(cause, format!("it has {}", all.join(", "))));
    }
    all.retain(|name| match asked {
        [] => name != SOCKETS,
        asked => asked.contains(name),
    });
    match all.is_empty() {
        true => Err(Failure::input("it has no tests", remedy)),
        false => Ok(all),
    }
}

/// Builds the program of these tests, and reads it.
///
/// # Errors
/// There is no compiler, or it failed.
pub fn program(source: &Path, tests: &[String], progress: &mut Progress) -> Outcome<Vec<u8>> {
    let directory = tempfile::Builder::new().prefix("wis-").tempdir();
    let directory = directory.doing("make a temporary directory")?;
    let at = |name: &str| directory.path().join(name);
    let list: String = tests.iter().map(|name| format!("TEST({name})\n")).collect();
    std::fs::write(at("tests.h"), list).doing("write the list of tests")?;
    let mut objects = Vec::new();
    for (over, name) in (0..).zip(tests) {
        progress.step(over, tests.len() as u64, &format!("building {name}"));
        objects.push(object(source, name, at(&format!("{name}.o")))?);
    }
    let built = at("wis");
    let mut link = Command::new("cc");
    link.args(["-O2", "-static", "-pthread", "-s", "-I"])
        .arg(directory.path())
        .arg(place::root().join("user/src/wis/driver.c"))
        .args(objects)
        .arg("-o")
        .arg(&built);
    carry_out(&mut link, "link the tests")?;
    program::read(&built)
}

/// Compiles a test under names of its own; what else it defines stays within it.
fn object(source: &Path, name: &str, object: PathBuf) -> Outcome<PathBuf> {
    let own = |part: &str| format!("{name}_testcase{part}");
    let mut compile = Command::new("cc");
    compile.args(["-O2", "-w", "-c", "-D__assert_fail=wis_assert_fail"]);
    compile.args(OF_A_TEST.map(|part| format!("-Dtestcase{part}={}", own(part))));
    compile.arg(source.join(format!("tests/{name}.c")));
    carry_out(
        compile.arg("-o").arg(&object),
        &format!("compile the test {name}"),
    )?;
    let mut hide = Command::new("objcopy");
    hide.args(OF_A_TEST.map(|part| format!("--keep-global-symbol={}", own(part))));
    carry_out(
        hide.arg(&object),
        &format!("keep the names of the test {name} apart"),
    )?;
    Ok(object)
}

fn carry_out(command: &mut Command, what: &str) -> Outcome<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| {
        let cause = format!("cannot {what}, for {program} cannot be started: {error}");
        Failure::input(
            cause,
            "install a C compiler: apt-get install gcc binutils libc6-dev",
        )
    })?;
    if output.status.success() {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    let tail = last_lines(errors.lines(), TAIL_LINES).join("\n");
    Err(Failure::work(format!("cannot {what}:\n{tail}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_those_of_the_clone_and_sockets_only_where_asked_for() {
        let clone = tempfile::tempdir().unwrap();
        let directory = clone.path().join("tests");
        std::fs::create_dir(&directory).unwrap();
        for file in ["unix1.c", "read1.c", "a-b.c", "brk1.c", "notes.txt"] {
            std::fs::write(directory.join(file), "").unwrap();
        }
        let of = |words: &[&str]| {
            let asked: Vec<String> = words.iter().map(ToString::to_string).collect();
            tests(clone.path(), &asked)
        };
        assert_eq!(of(&[]).unwrap(), ["brk1", "read1"]);
        assert_eq!(of(&["unix1", "brk1"]).unwrap(), ["brk1", "unix1"]);
        let text = of(&["brk3"]).unwrap_err().to_string();
        assert!(text.contains("it has brk1, read1, unix1"), "{text}");
        let text = tests(&directory, &[]).unwrap_err().to_string();
        assert!(text.contains("--source"), "{text}");
    }
}
