//! Misuse that does not compile.

#![cfg(all(not(loom), not(miri)))]

// Cases whose messages would name `core` are in `guard.rs`: with the component rust-src the compiler shows lines of it as well.
#[test]
fn misuse_does_not_compile() {
    let cases = trybuild::TestCases::new();
    // The same kernel and calls, used as meant: the cases below fail for their own reason only.
    cases.pass("tests/ui_pass/adopt.rs");
    cases.compile_fail("tests/ui/*.rs");
}
