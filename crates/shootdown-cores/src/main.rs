//! Measures calls and flushes on real cores, for `lab bench shoot --machine cores`.

fn main() -> std::process::ExitCode {
    shootdown_cores::main()
}
