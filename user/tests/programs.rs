//! The programs as a whole, on the kernel that runs this test: they must pass on Linux.

use std::process::{Command, Output};

use serde_json::Value;

fn run(program: &str, arguments: &[&str]) -> Output {
    Command::new(program)
        .args(arguments)
        .output()
        .expect("the program was built for this test")
}

fn rows(output: &Output) -> Vec<Value> {
    let text = String::from_utf8_lossy(&output.stdout);
    let rows = text.lines().filter_map(|line| line.strip_prefix("@row "));
    rows.map(|row| serde_json::from_str(row).expect("a row is JSON"))
        .collect()
}

#[test]
fn madvise_prints_a_clean_row_for_each_shape() {
    let arguments = [
        "--threads",
        "1",
        "--pages",
        "1,3",
        "--slice-ms",
        "5",
        "--rounds",
        "2",
    ];
    let output = run(env!("CARGO_BIN_EXE_madvise"), &arguments);
    assert!(output.status.success(), "{output:?}");
    let rows = rows(&output);
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
fn tlbtorture_passes_with_more_threads_than_cpus_too() {
    let cpus = shootdown_user::machine::allowed_cpus()
        .expect("affinity")
        .len();
    let threads = (2 * cpus).to_string();
    let output = run(
        env!("CARGO_BIN_EXE_tlbtorture"),
        &["--seconds", "2", "--threads", &threads],
    );
    assert!(output.status.success(), "{output:?}");
    let rows = rows(&output);
    assert_eq!((rows.len(), &rows[0]["stale"]), (1, &0.into()));
    for name in [
        "operations",
        "accesses_exact",
        "faults_expected",
        "private_touches",
    ] {
        assert!(
            rows[0][name].as_u64().expect(name) > 0,
            "{name} stood still"
        );
    }
}

#[test]
fn bad_arguments_are_one_line_and_status_2() {
    for program in [
        env!("CARGO_BIN_EXE_madvise"),
        env!("CARGO_BIN_EXE_tlbtorture"),
    ] {
        for arguments in [
            &["--threads", "1000"][..],
            &["--threads"],
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
