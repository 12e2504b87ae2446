//! What the lab makes of an emulator that dies, hangs, or prints what it should not.
//!
//! The emulators here are shell scripts; the Linux image is one in its first bytes only.

mod support;

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::time::{Duration, Instant};

use support::{Answer, Fixture};

/// Runs the fixture's program on a scripted emulator.
fn run(script: &str, options: &[&str]) -> Answer {
    let fixture = Fixture::new();
    let qemu = fixture.executable("qemu", &format!("#!/bin/sh\n{script}\n"));
    let (image, program) = (fixture.linux_image(), fixture.program());
    let fixed = [
        "run",
        "--machine",
        "linux",
        "--kernel",
        &image,
        "--qemu",
        &qemu,
    ];
    fixture.lab(&[&fixed[..], options, &[&program, "--flag", "value"]].concat())
}

#[test]
fn emulator_that_dies_at_once_is_quoted() {
    let answer = run("echo 'qemu: -device frob: no such device' >&2; exit 1", &[]);
    assert_eq!(answer.code, Some(125), "{answer:?}");
    assert!(answer.errors.contains("no such device"), "{answer:?}");
}

#[test]
fn emulator_that_dies_in_silence_is_named() {
    let answer = run("exit 1", &[]);
    assert_eq!(answer.code, Some(125), "{answer:?}");
    assert!(
        answer.errors.contains("code 1") && answer.errors.contains("said nothing"),
        "{answer:?}"
    );
    let killed = run("kill -SEGV $$", &[]);
    assert!(killed.errors.contains("SIGSEGV"), "{killed:?}");
}

#[test]
fn machine_that_hangs_is_ended_at_the_deadline() {
    let started = Instant::now();
    let answer = run("echo last words; sleep 60", &["--deadline", "3"]);
    assert!(started.elapsed() < Duration::from_secs(40));
    assert_eq!(answer.code, Some(125), "{answer:?}");
    assert!(
        answer.errors.contains("after 3 s") && answer.errors.contains("| last words"),
        "{answer:?}"
    );
}

#[test]
fn status_of_the_program_becomes_ours() {
    let answer = run(
        "echo out; echo '[    1.0] Kernel panic exitcode=0x00000300'",
        &[],
    );
    assert_eq!(
        (answer.code, answer.output.as_str()),
        (Some(3), "out\n"),
        "{answer:?}"
    );
    let answer = run("echo '[    1.0] Kernel panic exitcode=0x00000000'", &[]);
    assert_eq!(
        (answer.code, answer.errors.as_str()),
        (Some(0), ""),
        "{answer:?}"
    );
    let answer = run("echo '[    1.0] Kernel panic exitcode=0x0000000b'", &[]);
    assert_eq!(answer.code, Some(139), "{answer:?}");
    assert!(answer.errors.contains("SIGSEGV"), "{answer:?}");
}

#[test]
fn interrupted_boot_leaves_no_files() {
    let fixture = Fixture::new();
    let temporary = fixture.directory("temporary");
    let mark = format!("{}/started", fixture.path());
    let script = format!("#!/bin/sh\n: > {mark}\nexec sleep 60\n");
    let qemu = fixture.executable("qemu", &script);
    let (image, program) = (fixture.linux_image(), fixture.program());
    let words = [
        "run",
        "--machine",
        "linux",
        "--kernel",
        &image,
        "--qemu",
        &qemu,
        &program,
    ];
    let mut lab = fixture.start(&words, &[("TMPDIR", &temporary)]);
    while !Path::new(&mark).exists() {
        assert_eq!(lab.try_wait().unwrap(), None);
        std::thread::sleep(Duration::from_millis(10));
    }
    let files = || std::fs::read_dir(&temporary).unwrap().count();
    assert_eq!(files(), 1, "the lab's directory is there");
    // Not SIGINT, which whoever runs this in the background has everybody ignore.
    // SAFETY: the process has not been waited for.
    unsafe { libc::kill(lab.id() as i32, libc::SIGTERM) };
    let status = lab.wait().unwrap();
    assert_eq!(status.signal(), Some(libc::SIGTERM));
    assert_eq!(files(), 0);
}

#[test]
fn panic_before_the_program_is_the_machines_failure() {
    let answer = run(
        "echo '[    1.0] Kernel panic - not syncing: VFS: no init'",
        &[],
    );
    assert_eq!(answer.code, Some(125), "{answer:?}");
    assert!(answer.errors.contains("no init"), "{answer:?}");
}

#[test]
fn binary_garbage_on_the_console_is_survived() {
    let answer = run(
        "head -c 100000 /dev/urandom; echo; echo '[    1.0] exitcode=0x00000000'",
        &[],
    );
    assert_eq!(answer.code, Some(0), "{:?}", answer.errors);
}

#[test]
fn emulator_gets_program_arguments_cpus_and_console() {
    let answer = run(
        "for word in \"$@\"; do echo \"<$word>\"; done; echo exitcode=0x00000000",
        &["--cpus", "3", "--accel", "tcg"],
    );
    assert_eq!(answer.code, Some(0), "{answer:?}");
    for words in [
        "<-smp>\n<3>",
        "<-accel>\n<tcg,thread=",
        "rdinit=/bin/program",
        " -- --flag value>",
        "<-display>\n<none>",
        "<-no-reboot>",
    ] {
        assert!(
            answer.output.contains(words),
            "no {words:?} in {}",
            answer.output
        );
    }
}
