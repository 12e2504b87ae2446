//! The header is what the source says, and compilers accept it.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Set, the test writes the header.
const UPDATE: &str = "SHOOTDOWN_UPDATE_HEADER";
/// Compilers, the language that they are told, and its standard.
const COMPILERS: [(&str, &str, &str); 4] = [
    ("gcc", "c", "c11"),
    ("clang", "c", "c11"),
    ("g++", "c++", "c++11"),
    ("clang++", "c++", "c++11"),
];
const WARNINGS: [&str; 5] = ["-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only"];

/// C and C++, with something of every kind.
const BOTH: &str = r#"
#include "shootdown.h"
#include "shootdown.h"

static shootdown_engine_t engine;
static shootdown_memory_t memory[SHOOTDOWN_MAX_CPUS];

static void hit(void *data, uint32_t cpu)
{
    (void)data;
    (void)cpu;
}

int main(void)
{
    shootdown_ticket_t ticket = SHOOTDOWN_TICKET_INIT;
    shootdown_walk_t walk = SHOOTDOWN_WALK_INIT;
    shootdown_reclaim_t reclaim = SHOOTDOWN_RECLAIM_INIT;
    shootdown_node_t node = SHOOTDOWN_NODE_INIT;
    shootdown_cpus_t ran;
    shootdown_range_t all = {0, SHOOTDOWN_ALL_PAGES, 12};
    shootdown_status_t status = shootdown_attach(&engine, 0, &memory[0]);
    status |= shootdown_submit_flush_kernel(&engine, &all, 1, SHOOTDOWN_FREED_TABLES, &ticket);
    status |= shootdown_node_init(&engine, &node, hit, NULL);
    status |= shootdown_call_all(&engine, hit, NULL, &ran);
    status |= shootdown_walk_end(&walk);
    status |= shootdown_listen(&engine, NULL, &node);
    status |= shootdown_reclaim_submit(&reclaim, &ticket);
    return shootdown_ticket_drop(&ticket) == SHOOTDOWN_OK ? status : 1;
}
"#;

fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The header as the source has it now.
fn generated() -> String {
    let config = cbindgen::Config::from_file(folder().join("cbindgen.toml")).expect("it is valid");
    let bindings = cbindgen::Builder::new()
        .with_config(config)
        .with_src(folder().join("src/lib.rs"))
        .generate()
        .expect("the source is valid");
    let mut bytes = Vec::new();
    bindings.write(&mut bytes);
    without_safety(&String::from_utf8(bytes).expect("it is text"))
}

/// Leaves out the sections that tell callers in Rust their duties: the header states these at its beginning.
fn without_safety(header: &str) -> String {
    let mut lines: Vec<&str> = Vec::new();
    let mut is_inside = false;
    for line in header.lines() {
        is_inside = line.starts_with("//") && (is_inside || line == "// # Safety");
        match is_inside {
            true => {
                if lines.last() == Some(&"//") {
                    lines.pop();
                }
            }
            false => lines.push(line),
        }
    }
    lines.join("\n") + "\n"
}

#[test]
fn the_header_is_what_the_source_says() {
    let path = folder().join("include/shootdown.h");
    let now = generated();
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(&path, &now).expect("the source folder can be written");
    }
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    let differs = kept.lines().zip(now.lines()).find(|(old, new)| old != new);
    assert!(
        kept == now,
        "include/shootdown.h is not what the source says ({differs:?}); run this test with {UPDATE}=1 and commit it"
    );
}

#[test]
fn compilers_accept_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let source = write(directory.path(), BOTH);
    for compiler in COMPILERS {
        accepts(compiler, &[], &source);
        accepts(compiler, &["-DSHOOTDOWN_CPUS_256"], &source);
    }
}

#[test]
fn compilers_accept_the_example_of_the_readme() {
    let readme = std::fs::read_to_string(folder().join("README.md")).expect("it is there");
    let (_, rest) = readme.split_once("```c\n").expect("it has an example");
    let (example, _) = rest.split_once("```").expect("the example ends");
    let directory = tempfile::tempdir().expect("a directory");
    let source = write(directory.path(), example);
    for compiler in COMPILERS.iter().filter(|(_, language, _)| *language == "c") {
        accepts(*compiler, &[], &source);
    }
}

/// Has a compiler, if it is here, read the file.
#[track_caller]
fn accepts((compiler, language, standard): (&str, &str, &str), defines: &[&str], source: &Path) {
    if which::which(compiler).is_err() {
        return;
    }
    let output = Command::new(compiler)
        .args(WARNINGS)
        .args(defines)
        .args(["-x", language, &format!("-std={standard}")])
        .arg("-I")
        .arg(folder().join("include"))
        .arg(source)
        .output()
        .expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{compiler} {defines:?}: {said}");
}

fn write(directory: &Path, text: &str) -> PathBuf {
    let path = directory.join("source.c");
    std::fs::write(&path, text).expect("it can be written");
    path
}
