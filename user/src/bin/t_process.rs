//! Children that die in every way there is: each dies alone, with the right status, and gives back
//! what it held.

use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use shootdown_user::checks;

/// How a child ends, and what its parent must see: an exit code or a signal.
const ENDS: &[(&str, Option<i32>, Option<i32>)] = &[
    ("exit", Some(7), None),
    ("threads", Some(0), None),
    ("leave-threads", Some(3), None),
    ("segv", None, Some(libc::SIGSEGV)),
    ("null-call", None, Some(libc::SIGSEGV)),
    ("kernel-read", None, Some(libc::SIGSEGV)),
    ("kernel-jump", None, Some(libc::SIGSEGV)),
    ("no-stack", None, Some(libc::SIGSEGV)),
    ("ud2", None, Some(libc::SIGILL)),
    ("hlt", None, Some(libc::SIGSEGV)),
    ("int3", None, Some(libc::SIGTRAP)),
    ("divide", None, Some(libc::SIGFPE)),
    // std knows the guard page of threads only: with musl, the main thread's end is a plain fault.
    ("stack-overflow", None, Some(libc::SIGSEGV)),
    ("thread-overflow", None, Some(libc::SIGABRT)),
    ("abort", None, Some(libc::SIGABRT)),
    ("panic", Some(101), None),
    ("bad-frame", None, Some(libc::SIGSEGV)),
    ("kill-self", None, Some(libc::SIGKILL)),
];

#[allow(unconditional_recursion, reason = "to overflow the stack")]
fn recurse(depth: usize) -> usize {
    let frame = std::hint::black_box([depth; 64]);
    frame[depth % 64] + recurse(depth + 1)
}

fn busy_threads(count: usize) {
    for at in 0..count {
        thread::spawn(move || {
            loop {
                if at % 2 == 0 {
                    thread::sleep(Duration::from_millis(1));
                }
                std::hint::spin_loop();
            }
        });
    }
    thread::sleep(Duration::from_millis(10));
}

/// The child's side.
#[allow(
    clippy::multiple_unsafe_ops_per_block,
    reason = "one reason for all: the process ends"
)]
fn end(how: &str) -> ExitCode {
    use std::arch::asm;
    // SAFETY: every assembly line below ends this process, which is what the test is about.
    unsafe {
        match how {
            "exit" => return ExitCode::from(7),
            "threads" => {
                let threads = [(); 8].map(|()| thread::spawn(|| {}));
                threads.into_iter().for_each(|t| t.join().unwrap());
            }
            "leave-threads" => {
                busy_threads(6);
                std::process::exit(3);
            }
            "segv" => {
                busy_threads(3);
                asm!("mov rax, [{}]", in(reg) 0x0dea_d000_0000usize, out("rax") _);
            }
            "null-call" => asm!("call {}", in(reg) 0usize, clobber_abi("C")),
            "kernel-read" => {
                asm!("mov rax, [{}]", in(reg) 0xffff_ffff_8010_0000usize, out("rax") _)
            }
            "kernel-jump" => asm!("jmp {}", in(reg) 0x8000_0000_0000_0000usize, options(noreturn)),
            "no-stack" => asm!("xor esp, esp", "push rax", options(noreturn)),
            "ud2" => asm!("ud2"),
            "hlt" => asm!("hlt"),
            "int3" => asm!("int3"),
            "divide" => {
                asm!("div {z}", z = in(reg) 0usize, inout("rax") 1usize => _, inout("rdx") 0usize => _)
            }
            "stack-overflow" => drop(std::hint::black_box(recurse(0))),
            "thread-overflow" => {
                drop(thread::spawn(|| std::hint::black_box(recurse(0))).join());
            }
            "abort" => std::process::abort(),
            "panic" => panic!("on purpose"),
            // A return from no signal, with garbage where the frame would be.
            "bad-frame" => {
                asm!(
                    "and rsp, -4096",
                    "mov eax, 15",
                    "syscall",
                    "ud2",
                    options(noreturn)
                )
            }
            "kill-self" => drop(libc::kill(libc::getpid(), libc::SIGKILL)),
            other => panic!("unknown end {other}"),
        }
    }
    ExitCode::SUCCESS
}

/// This program, to be started with an argument.
fn own(argument: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg(argument);
    command
}

fn child(how: &str) -> Command {
    let mut command = own(how);
    command.stderr(Stdio::null()).stdout(Stdio::null());
    command
}

fn every_end_is_told() {
    for &(how, code, signal) in ENDS {
        let start = Instant::now();
        let status = child(how).status().unwrap();
        let end = (status.code(), status.signal());
        assert_eq!(end, (code, signal), "{how}: {status}");
        println!("t_process: {how} ok, {} ms", start.elapsed().as_millis());
    }
}

fn nothing_leaks() {
    // Caches and tables of this process may have grown; children have megabytes each.
    checks::must_not_lose_again(4, 1024, || {
        for how in ["leave-threads", "segv", "exit"] {
            child(how).status().unwrap();
        }
    });
}

fn running_children_can_be_killed() {
    let mut spinning = own("spin").spawn().unwrap();
    thread::sleep(Duration::from_millis(30));
    assert!(spinning.try_wait().unwrap().is_none());
    spinning.kill().unwrap();
    assert_eq!(spinning.wait().unwrap().signal(), Some(libc::SIGKILL));
}

fn output_comes_through_pipes() {
    let output = own("talk").output().unwrap();
    assert!(output.status.success());
    assert_eq!(output.stdout.len(), 200_000);
    assert!(output.stdout.iter().all(|&b| b == b'x'));
    assert_eq!(output.stderr, b"done\n");
}

fn reads_see_the_end() {
    let (mut reader, writer) = std::io::pipe().unwrap();
    drop(writer);
    let mut bytes = Vec::new();
    assert_eq!(reader.read_to_end(&mut bytes).unwrap(), 0);
}

fn missing_programs_are_told() {
    checks::expect(libc::ENOENT, Command::new("/bin/nonexistent").status());
    checks::expect(libc::EACCES, Command::new("/proc/cpuinfo").status());
}

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        None => {}
        Some("spin") => loop {
            std::hint::spin_loop();
        },
        Some("talk") => {
            print!("{}", "x".repeat(200_000));
            eprintln!("done");
            return ExitCode::SUCCESS;
        }
        Some(how) => return end(how),
    }
    checks::run(
        "t_process",
        &checks::named![
            every_end_is_told,
            nothing_leaks,
            running_children_can_be_killed,
            output_comes_through_pipes,
            reads_see_the_end,
            missing_programs_are_told,
        ],
    )
}
