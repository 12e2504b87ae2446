//! The programs as a whole, on the kernel that runs this test: they must pass on Linux.

use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

fn run(program: &str, arguments: &[&str]) -> Output {
    Command::new(program)
        .args(arguments)
        .output()
        .expect("the program was built for this test")
}

/// The rows that it prints when all is well.
fn run_line(program: &str, line: &str) -> Vec<Value> {
    let arguments: Vec<&str> = line.split(' ').collect();
    let output = run(program, &arguments);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    let rows = text.lines().filter_map(|line| line.strip_prefix("@row "));
    rows.map(|row| serde_json::from_str(row).expect("a row is JSON"))
        .collect()
}

#[test]
fn madvise_prints_a_clean_row_for_each_shape() {
    let line = "--threads 1 --pages 1,3 --slice-ms 5 --rounds 2";
    let rows = run_line(env!("CARGO_BIN_EXE_madvise"), line);
    assert_eq!(rows.len(), 2);
    for (row, pages) in rows.iter().zip([1, 3]) {
        assert_eq!((&row["pages"], &row["stale"]), (&pages.into(), &0.into()));
        let figure = |name: &str| row[name].as_u64().expect(name);
        assert!(0 < figure("min_ns") && figure("min_ns") <= figure("median_ns"));
        assert!(figure("median_ns") <= figure("p99_ns"));
        assert!(0 < figure("call_median_ns") && figure("call_median_ns") < figure("median_ns"));
        assert!(figure("call_median_ns") <= figure("call_p99_ns"));
        assert!(!row["samples"].as_array().expect("samples").is_empty());
    }
}

#[test]
fn pingpong_prints_a_clean_row_for_each_shape() {
    let line = "--spaces 2,5 --pages 0,64 --slice-ms 5 --rounds 2 --self-check";
    let rows = run_line(env!("CARGO_BIN_EXE_pingpong"), line);
    let shapes = [(2, 0), (2, 64), (5, 0), (5, 64)];
    assert_eq!(rows.len(), shapes.len());
    for (row, (spaces, pages)) in rows.iter().zip(shapes) {
        let shape = (&row["spaces"], &row["pages"]);
        assert_eq!(shape, (&spaces.into(), &pages.into()));
        assert_eq!(row["stale"], 0);
        let figure = |name: &str| row[name].as_f64().expect(name);
        assert!(0.0 < figure("min_ns") && figure("min_ns") <= figure("median_ns"));
        assert!(figure("median_ns") <= figure("p99_ns"));
        assert!(figure("check_rounds") >= 8.0);
        assert!(!row["samples"].as_array().expect("samples").is_empty());
    }
}

#[test]
fn preemptoff_prints_a_clean_row_for_each_shape() {
    let line = "--threads 1 --pages 1,5 --slice-ms 30 --rounds 3 --warmup-ms 5 --samples 20";
    let rows = run_line(env!("CARGO_BIN_EXE_preemptoff"), line);
    assert_eq!(rows.len(), 2);
    for (row, pages) in rows.iter().zip([1, 5]) {
        assert_eq!((&row["pages"], &row["stale"]), (&pages.into(), &0.into()));
        let figure = |name: &str| row[name].as_u64().expect(name);
        assert!(figure("min_ns") <= figure("median_ns"));
        assert!(figure("p99_ns") <= figure("max_ns"));
        assert!(figure("wakeups") > 0 && figure("iterations") > 0);
        assert_eq!(figure("check_reads"), 3 * pages * figure("iterations"));
        // Linux lets no program keep interrupts off, and this record is the reference kernel's.
        assert_eq!((figure("keepers"), figure("irq_offs")), (0, 0));
        assert!(row.get("off_p99_ns").is_none());
    }
}

#[test]
fn evacuate_prints_a_clean_row_or_says_that_there_is_no_kvm() {
    let arguments = "--threads 1 --pages 64 --vms 1 --slice-ms 5 --rounds 2 --warmup-ms 0";
    let arguments: Vec<&str> = arguments.split(' ').collect();
    let output = run(env!("CARGO_BIN_EXE_evacuate"), &arguments);
    let (text, errors) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    if output.status.code() == Some(2) {
        assert!(errors.contains("cannot open /dev/kvm"), "{errors}");
        return;
    }
    assert!(output.status.success(), "{errors}");
    let row = text.lines().find_map(|line| line.strip_prefix("@row "));
    let row: Value = serde_json::from_str(row.expect("a row")).expect("a row is JSON");
    assert_eq!(row["stale"], 0);
    let figure = |name: &str| row[name].as_f64().expect(name);
    assert!(figure("evacuations") >= 2.0 && figure("iterations") > 0.0);
    assert!(figure("writes_per_op") >= 0.5 && figure("per_s") > 0.0);
}

#[test]
fn pingpong_notices_that_one_of_its_processes_died() {
    let arguments = ["--spaces", "3", "--pages", "0", "--slice-ms", "60000"];
    let program = Command::new(env!("CARGO_BIN_EXE_pingpong"))
        .args(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program was built for this test");
    // Both others are there, and in the middle of a slice that would take a minute.
    let patience = Instant::now() + Duration::from_secs(20);
    let children = loop {
        let children = children_of(program.id());
        if children.len() == 2 || Instant::now() > patience {
            break children;
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    std::thread::sleep(Duration::from_millis(100));
    let victim = children.last().expect("it has children").to_string();
    let killed = Command::new("kill").args(["-KILL", &victim]).status();
    assert!(killed.is_ok_and(|status| status.success()));
    let started = Instant::now();
    let output = program.wait_with_output().expect("its end");
    assert!(started.elapsed() < Duration::from_secs(30), "it went on");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("has died"));
    for child in children {
        assert!(!std::path::Path::new(&format!("/proc/{child}")).exists());
    }
}

/// The processes whose parent is `parent`.
fn children_of(parent: u32) -> Vec<u32> {
    let is_child = |pid: &u32| {
        // The parent's number is the second word after the name, which is in brackets.
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let after_name = stat.rsplit(')').next().unwrap_or_default();
        after_name.split_whitespace().nth(1) == Some(parent.to_string().as_str())
    };
    let entries = std::fs::read_dir("/proc").expect("/proc").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(is_child).collect()
}

#[test]
fn tlbtorture_passes_with_more_threads_than_cpus_too() {
    let cpus = shootdown_user::machine::allowed_cpus();
    let threads = 2 * cpus.expect("affinity").len();
    let line = format!("--seconds 2 --threads {threads}");
    let rows = run_line(env!("CARGO_BIN_EXE_tlbtorture"), &line);
    assert_eq!((rows.len(), &rows[0]["stale"]), (1, &0.into()));
    let names = "operations accesses_exact faults_expected private_touches forks";
    for name in names.split(' ') {
        let figure = rows[0][name].as_u64().expect(name) > 0;
        assert!(figure, "{name} stood still");
    }
}

#[test]
fn bad_arguments_are_one_line_and_status_2() {
    for program in [
        env!("CARGO_BIN_EXE_madvise"),
        env!("CARGO_BIN_EXE_pingpong"),
        env!("CARGO_BIN_EXE_preemptoff"),
        env!("CARGO_BIN_EXE_tlbtorture"),
    ] {
        for arguments in [
            &["--threads", "1000"][..],
            &["--threads"],
            &["--spaces", "1"],
            &["--what"],
            &["stray"],
        ] {
            let output = run(program, arguments);
            assert_eq!(output.status.code(), Some(2), "{program} {arguments:?}");
            assert_eq!(String::from_utf8_lossy(&output.stderr).lines().count(), 1);
            assert!(output.stdout.is_empty());
        }
        assert!(run(program, &["--help"]).status.success());
    }
}

#[test]
fn badcalls_and_hello_pass() {
    assert!(run(env!("CARGO_BIN_EXE_badcalls"), &[]).status.success());
    let output = run(env!("CARGO_BIN_EXE_hello"), &["a", "b"]);
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).contains(r#"["a", "b"]"#));
}
