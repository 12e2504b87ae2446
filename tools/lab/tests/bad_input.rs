//! Bad input gets one clear line that names cause and remedy, exit code 2, and never hangs.

mod support;

use std::path::Path;
use std::process::{Command, Stdio};

use support::{Answer, Fixture};

/// One line on standard error, nothing on standard output, exit code 2.
#[track_caller]
fn assert_refused(answer: &Answer, words: &[&str]) {
    assert_eq!(answer.code, Some(2), "{answer:?}");
    assert_eq!(answer.output, "", "{answer:?}");
    assert_eq!(answer.errors.lines().count(), 1, "{answer:?}");
    assert!(answer.errors.starts_with("lab: "), "{answer:?}");
    for word in words {
        assert!(answer.errors.contains(word), "no {word:?} in {answer:?}");
    }
}

#[test]
fn program_that_is_no_elf_file() {
    let fixture = Fixture::new();
    let program = fixture.file("script", b"#!/bin/sh\n");
    assert_refused(
        &fixture.lab(&["run", &program]),
        &["script", "not an ELF file", "static x86-64"],
    );
}

#[test]
fn program_that_is_empty_missing_or_a_directory() {
    let fixture = Fixture::new();
    let empty = fixture.file("empty", b"");
    assert_refused(&fixture.lab(&["run", &empty]), &["not an ELF file"]);
    assert_refused(
        &fixture.lab(&["run", "nowhere/at/all"]),
        &["nowhere/at/all", "cannot read"],
    );
    assert_refused(
        &fixture.lab(&["run", fixture.path()]),
        &["not a regular file"],
    );
}

#[test]
fn remedies_name_the_command_that_was_asked_wrongly() {
    let fixture = Fixture::new();
    for (words, remedy) in [
        (&["bench", "--nonsense"][..], "`./lab bench --help`"),
        (&["bench", "shoot", "--cpus"], "`./lab bench shoot --help`"),
        (&["sim", "replay"], "`./lab sim replay --help`"),
        (&["tset"], "`./lab --help`"),
    ] {
        assert_refused(&fixture.lab(words), &[remedy]);
    }
}

#[test]
fn word_that_is_no_text() {
    use std::os::unix::ffi::OsStrExt;
    let fixture = Fixture::new();
    let mut lab = Command::new(env!("CARGO_BIN_EXE_lab"));
    lab.arg("bench").arg(std::ffi::OsStr::from_bytes(b"\xff"));
    assert_refused(&fixture.run(&mut lab, &[]), &["`./lab bench --help`"]);
}

#[test]
fn reader_that_has_seen_enough_leaves_no_files() {
    let fixture = Fixture::new();
    let temporary = fixture.directory("temporary");
    let mut lab = fixture.start(&["doctor"], &[("TMPDIR", &temporary)]);
    drop(lab.stdout.take());
    lab.wait().unwrap();
    assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 0);
}

#[test]
fn doctor_requires_a_c_compiler_and_no_emulator() {
    let fixture = Fixture::new();
    let compiler = fixture.executable("cc", "#!/bin/sh\necho made-up cc 1\n");
    let answer = fixture.lab_alone(&["doctor"]);
    let line = |name: &str| {
        let mut lines = answer.output.lines();
        let line = lines.find(|line| line.split_whitespace().nth(1) == Some(name));
        line.unwrap_or_default().to_owned()
    };
    assert!(line("qemu").starts_with("optional"), "{answer:?}");
    assert!(line("cc").ends_with("made-up cc 1"), "{answer:?}");
    std::fs::remove_file(compiler).unwrap();
    let answer = fixture.lab_alone(&["doctor"]);
    assert!(answer.output.contains("MISSING   cc "), "{answer:?}");
    assert_eq!(answer.code, Some(1));
}

#[test]
fn result_that_is_not_reached_leaves_no_file() {
    let fixture = Fixture::new();
    let path = format!("{}/new.json", fixture.path());
    let words = [
        "bench",
        "--json",
        &path,
        "--machine",
        "qemu",
        "--qemu",
        "/nonexistent",
    ];
    assert_eq!(fixture.lab(&words).code, Some(2));
    assert!(!std::path::Path::new(&path).exists());
}

#[test]
fn instructions_of_threads_that_do_not_take_turns() {
    let fixture = Fixture::new();
    let words = ["bench", "madvise", "--machine", "qemu", "--accel", "icount"];
    assert_refused(&fixture.lab(&words), &["icount", "--threads 1"]);
}

#[test]
fn deferral_without_system_calls() {
    let fixture = Fixture::new();
    let words = [
        "bench",
        "madvise",
        "--machine",
        "sim",
        "--policies",
        "best+defer",
    ];
    assert_refused(&fixture.lab(&words), &["best+defer", "--machine qemu"]);
}

#[test]
fn calls_that_no_machine_could_make() {
    let fixture = Fixture::new();
    for (words, remedy) in [
        (["--cpus", "1"], "2 to 64"),
        (["--peers", "windows"], "xen-before"),
        (["--initiators", "some"], "1 to 4096"),
        (["--masks", "round"], "identical"),
    ] {
        let words = ["bench", "selected", "--machine", "hosted"]
            .into_iter()
            .chain(words);
        assert_refused(&fixture.lab(&words.collect::<Vec<_>>()), &[remedy]);
    }
}

#[test]
fn program_that_is_truncated() {
    let fixture = Fixture::new();
    let whole = std::fs::read(env!("CARGO_BIN_EXE_lab")).unwrap();
    for length in [3, 20, 63, 100, whole.len() / 2] {
        let program = fixture.file("cut", &whole[..length]);
        assert_refused(&fixture.lab(&["run", &program]), &["cut"]);
    }
}

#[test]
fn program_that_is_dynamic_names_its_loader() {
    // The lab itself is a dynamic program on every host where these tests are built for glibc.
    let fixture = Fixture::new();
    let answer = fixture.lab(&["run", env!("CARGO_BIN_EXE_lab")]);
    assert_refused(
        &answer,
        &[
            "dynamically linked",
            "ld-linux",
            "x86_64-unknown-linux-musl",
        ],
    );
}

#[test]
fn program_for_another_processor() {
    let fixture = Fixture::new();
    let mut image = std::fs::read(env!("CARGO_BIN_EXE_lab")).unwrap();
    image[18] = 183;
    let foreign = fixture.file("foreign", &image);
    assert_refused(&fixture.lab(&["run", &foreign]), &["another processor"]);
    image[4] = 1;
    let narrow = fixture.file("narrow", &image);
    assert_refused(&fixture.lab(&["run", &narrow]), &["32-bit"]);
}

#[test]
fn cpus_outside_1_to_64() {
    let fixture = Fixture::new();
    let program = fixture.program();
    for cpus in ["0", "65", "-3", "99999999999"] {
        assert_refused(
            &fixture.lab(&["run", "--cpus", cpus, &program]),
            &["1 to 64", cpus],
        );
        let bench = ["bench", "--machine", "qemu", "--cpus", cpus];
        assert_refused(&fixture.lab(&bench), &["1 to 64", cpus]);
        assert_refused(
            &fixture.lab(&["run", "--machine", "sim", &program]),
            &["runs programs, only workloads", "--machine qemu"],
        );
    }
}

#[test]
fn arguments_that_cannot_reach_the_program() {
    let fixture = Fixture::new();
    let program = fixture.program();
    assert_refused(
        &fixture.lab(&["run", &program, "two words"]),
        &["white space"],
    );
    assert_refused(
        &fixture.lab(&["run", "--deadline", "0", &program]),
        &["--deadline"],
    );
}

#[test]
fn images_that_are_none() {
    let fixture = Fixture::new();
    assert_refused(
        &fixture.lab(&["run", "--image", "not-made", "ls"]),
        &["no image not-made", "./lab image --name not-made"],
    );
    for words in [["image", "no package"], ["image", "--name=../up"]] {
        let answer = fixture.lab(&[words[0], words[1], "dash"]);
        assert_refused(&answer, &["is no name"]);
    }
}

#[test]
fn no_qemu() {
    let fixture = Fixture::new();
    let program = fixture.program();
    let answer = fixture.lab(&["run", "--qemu", "/nowhere/qemu", &program]);
    assert_refused(
        &answer,
        &[
            "/nowhere/qemu",
            "apt-get install --no-install-recommends qemu-system-x86",
        ],
    );
    let plain = fixture.file("qemu-text", b"not executable");
    assert_refused(
        &fixture.lab(&["run", "--qemu", &plain, &program]),
        &["qemu-text"],
    );
    let broken = fixture.executable("qemu-broken", "#!/nowhere/interpreter\n");
    let image = fixture.linux_image();
    let answer = fixture.lab(&[
        "run",
        "--machine",
        "linux",
        "--kernel",
        &image,
        "--qemu",
        &broken,
        &program,
    ]);
    assert_refused(&answer, &["cannot start", "--qemu"]);
}

#[test]
fn image_where_nothing_can_make_one() {
    let answer = Fixture::new().lab_alone(&["iso"]);
    assert_refused(
        &answer,
        &[
            "grub-mkrescue is missing",
            "apt-get install --no-install-recommends grub-common",
        ],
    );
}

#[test]
fn text_that_is_of_no_survey() {
    let fixture = Fixture::new();
    let text = fixture.file("hello.txt", b"hello\n");
    for path in ["nowhere.txt", fixture.path(), &text] {
        assert_refused(&fixture.lab(&["iso", "--read", path]), &[path, "--read"]);
    }
    let words = ["iso", "--read", &text, "--json", "nowhere/at.json"];
    assert_refused(&fixture.lab(&words), &["nowhere/at.json", "--json"]);
}

#[test]
fn kernel_image_that_cannot_be_used() {
    let fixture = Fixture::new();
    let program = fixture.program();
    let garbage = fixture.file("garbage", &[0; 4096]);
    for image in ["/nowhere/vmlinuz", &garbage, fixture.path()] {
        let answer = fixture.lab(&["run", "--machine", "linux", "--kernel", image, &program]);
        assert_refused(&answer, &[image, "doctor"]);
        assert_refused(
            &fixture.lab(&["bench", "--kernel", image]),
            &[image, "doctor"],
        );
    }
}

#[test]
fn garbage_on_the_command_line() {
    let fixture = Fixture::new();
    for words in [
        &["frobnicate"][..],
        &["bench", "--frob"],
        &["bench", "frobwork"],
        &["bench", "--cpus", "two"],
        &["bench", "--machine", "toaster"],
        &["bench", "--seed", "-"],
        &["bench", "--accel", "warp"],
        &["run"],
        &["run", "--cpus"],
        &["iso", "--json", "x"],
        &["iso", "--quick", "--read", "x"],
        &["test", "--fast", "--soak"],
    ] {
        assert_refused(&fixture.lab(words), &["--help"]);
    }
    let odd = std::ffi::OsStr::new("\u{1b}[2J");
    assert_refused(&fixture.lab(&[odd.to_str().unwrap()]), &["--help"]);
}

#[test]
fn without_words_it_says_what_there_is() {
    let answer = Fixture::new().lab(&[]);
    assert_eq!(answer.code, Some(2), "{answer:?}");
    for command in ["bench", "test", "doctor"] {
        assert!(answer.errors.contains(command), "{answer:?}");
    }
}

#[test]
fn a_reader_that_goes_away_ends_it_quietly() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut lab = Command::new(env!("CARGO_BIN_EXE_lab"));
    let output = lab
        .arg("--help")
        .stdout(writer)
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn axes_that_cannot_be_measured() {
    let fixture = Fixture::new();
    let qemu = fixture.executable("qemu", "#!/bin/sh\nexit 9\n");
    for (words, remedy) in [
        (["--threads", "0"], "--threads"),
        (["--threads", "65"], "--threads takes 1 to 64"),
        (["--pages", "0"], "--pages"),
        (["--policies", "magic"], "published"),
        (["--json", "/nowhere/result.json"], "--json"),
    ] {
        assert_refused(
            &fixture.lab(&[&["bench", "--qemu", &qemu], &words[..]].concat()),
            &[remedy],
        );
    }
}

#[test]
fn version_and_help_are_no_mistakes() {
    let fixture = Fixture::new();
    for words in [
        &["--version"][..],
        &["--help"],
        &["bench", "--help"],
        &["help", "run"],
    ] {
        let answer = fixture.lab(words);
        assert_eq!(
            (answer.code, answer.errors.as_str()),
            (Some(0), ""),
            "{answer:?}"
        );
        assert!(answer.output.contains("lab"), "{answer:?}");
    }
    assert!(Path::new(fixture.path()).exists());
}

#[test]
fn mutants_that_do_not_exist_and_efforts_that_prove_nothing() {
    let fixture = Fixture::new();
    std::fs::create_dir_all(Path::new(fixture.path()).join("verify/mutants")).unwrap();
    for (arguments, words) in [
        (&["mutants", "nobody"][..], "no mutant nobody"),
        (&["mutants", "--runs", "0"], "--runs"),
        (&["mutants", "--jobs", "0"], "--jobs"),
        (&["mutants", "--seed", "x"], "--seed"),
    ] {
        assert_refused(&fixture.lab(arguments), &[words]);
    }
}

#[test]
fn stories_that_are_none() {
    let fixture = Fixture::new();
    let lab = |words: &[&str]| fixture.lab(&[&["stories"], words].concat());
    assert_refused(&lab(&["no-such"]), &["no-such", "no-wait", "--help"]);
    assert_refused(&lab(&["no-wait", "--runs", "0"]), &["--runs"]);
    assert_refused(&lab(&["--html", "page.html"]), &["NAME"]);
    let page = ["no-wait", "--html", "/"];
    assert_refused(&lab(&page), &["cannot write /", "--html"]);
}

#[test]
fn traces_and_pictures_that_cannot_be_written() {
    let fixture = Fixture::new();
    for option in ["--trace", "--picture", "--html"] {
        assert_refused(
            &fixture.lab(&["bench", "madvise", option, "/nonexistent/file"]),
            &["/nonexistent/file", option, "can be written"],
        );
    }
    let page = ["sim", "replay", "--cpus", "2", "--seed", "1", "--html", "/"];
    assert_refused(&fixture.lab(&page), &["cannot write /", "--html"]);
    let trace = ["bench", "--trace", "/dev/null", "--policies", "fast"];
    assert_refused(&fixture.lab(&trace), &["no policy is called fast"]);
    let picture = ["bench", "--picture", "/dev/null", "--machine", "qemu"];
    assert_refused(
        &fixture.lab(&picture),
        &["--picture shows the simulated machine"],
    );
}

#[test]
fn simulations_that_cannot_be() {
    let fixture = Fixture::new();
    for (arguments, words) in [
        ("sim fuzz --cpus 0", "--cpus"),
        ("sim fuzz --cpus 65", "--cpus"),
        ("sim fuzz --runs 0", "--runs"),
        ("sim fuzz --seed many", "--seed"),
        ("sim replay --cpus 4", "--seed"),
        ("sim replay --cpus 4 --seed 1 --schedule 3", "NUMBER:ANSWER"),
        (
            "sim replay --cpus 4 --seed 1 --schedule 9:1,3:1",
            "out of order",
        ),
        (
            "sim replay --cpus 4 --seed 1 --operations 0",
            "--operations",
        ),
    ] {
        let arguments: Vec<&str> = arguments.split(' ').collect();
        assert_refused(&fixture.lab(&arguments), &[words]);
    }
}

#[test]
fn a_replay_runs_the_same_twice() {
    let fixture = Fixture::new();
    let replay = || fixture.lab(&["sim", "replay", "--cpus", "3", "--seed", "7"]);
    let first = replay();
    assert_eq!(first.code, Some(0), "{first:?}");
    assert_eq!(first.output, replay().output);
}

#[test]
fn calls_that_cannot_be_simulated() {
    let fixture = Fixture::new();
    for (words, remedy) in [
        ("selected --initiators 0", "1 to 4095, or all"),
        ("selected --targets 4096", "1 to 4095, or all"),
        ("selected --targets many", "many"),
        ("selected --cpus 1", "2 to 4096"),
        ("selected --cpus 5000", "2 to 4096"),
        (
            "selected --cpus 8 --initiators 4 --targets 5",
            "more --cpus",
        ),
        (
            "selected --cpus 8 --initiators 9 --targets all",
            "more --cpus",
        ),
        ("selected --function-us 1000001", "0 to 1000000"),
        ("selected --function-us fast", "fast"),
        ("selected --calls 0", "1 to 100000"),
        ("selected --masks oval", "disjoint"),
        ("selected --peers windows", "freebsd"),
        ("selected --pages 1", "--pages"),
        ("selected --preset nonsense", "40-core"),
        ("selected --set clock=1", "clock_ns"),
        ("selected --rest halt", "--machine qemu"),
        ("shoot --machine hosted --lines", "--machine sim"),
        ("selected --lines", "bench shoot"),
        ("shoot --initiators 2", "1 and all"),
        ("shoot --masks random", "leave out --masks"),
        ("shoot --cpus 8 --targets 8", "more --cpus"),
    ] {
        let words: Vec<&str> = ["bench"].into_iter().chain(words.split(' ')).collect();
        assert_refused(&fixture.lab(&words), &[remedy]);
    }
}

#[test]
fn results_that_are_none() {
    let fixture = Fixture::new();
    let result = br#"{"workload": "w", "rows": [{"policy": "a", "ratio": 1, "median_ns": 1}]}"#;
    let good = fixture.file("good.json", result);
    for (text, words) in [
        (&b""[..], "is empty"),
        (b"no json", "is not JSON"),
        (b"\xff\xfe", "is not JSON"),
        (b"{}", "names no workload"),
        (br#"{"workload": "w", "rows": []}"#, "has no rows"),
    ] {
        let bad = fixture.file("bad.json", text);
        for words_given in [vec!["report", &bad], vec!["report", &good, &bad]] {
            assert_refused(
                &fixture.lab(&words_given),
                &["bad.json", words, "bench --json"],
            );
        }
    }
    assert_refused(
        &fixture.lab(&["report", "/nowhere.json"]),
        &["/nowhere.json", "bench --json"],
    );
    assert_refused(&fixture.lab(&["report", fixture.path()]), &["cannot read"]);
    assert_refused(&fixture.lab(&["report"]), &["--help"]);
}

#[test]
fn pages_that_cannot_be_written_and_results_that_have_nothing_in_common() {
    let fixture = Fixture::new();
    let result = |workload: &str, policy: &str| {
        format!(
            r#"{{"workload": "{workload}", "rows": [{{"policy": "{policy}", "ratio": 1, "median_ns": 1}}]}}"#
        )
    };
    let good = fixture.file("good.json", result("w", "a").as_bytes());
    let workload = fixture.file("workload.json", result("v", "a").as_bytes());
    let policy = fixture.file("policy.json", result("w", "b").as_bytes());
    let page = fixture.file("page.html", result("w", "a").as_bytes());
    for (words, remedy) in [
        (&["report", &good, &workload][..], "same workload"),
        (&["report", &good, &policy], "no row in common"),
        (&["report", &good, "-o", "/nowhere/page.html"], "give -o"),
        (&["report", &good, "-o", &good], "would replace"),
        (&["report", &good, &policy, "-o", &policy], "would replace"),
        (&["report", &page], "would replace"),
    ] {
        assert_refused(&fixture.lab(words), &[remedy]);
    }
}
