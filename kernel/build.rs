//! Hands the linker script to the linker, and refuses flags that would give a kernel that cannot
//! boot.

use std::env;

/// What `.cargo/config.toml` sets for the bare target.
const NEEDED: [&str; 2] = ["relocation-model=static", "force-frame-pointers=yes"];

fn main() {
    println!("cargo::rerun-if-changed=linker.ld");
    println!("cargo::rerun-if-env-changed=CARGO_ENCODED_RUSTFLAGS");
    let target = env::var("TARGET").unwrap_or_default();
    if target != "x86_64-unknown-none" {
        println!(
            "cargo::error=the kernel builds for x86_64-unknown-none only; add \
             `--target x86_64-unknown-none`"
        );
        return;
    }
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    for needed in NEEDED {
        if !flags.contains(needed) {
            println!(
                "cargo::error=rustc flag `-C {needed}` is missing; run cargo inside the \
                 workspace and unset RUSTFLAGS"
            );
        }
    }
    let folder = env::var("CARGO_MANIFEST_DIR").expect("cargo sets this for build scripts");
    println!("cargo::rustc-link-arg-bins=-T{folder}/linker.ld");
    // Sections differ in permissions, so none may share a page with another.
    println!("cargo::rustc-link-arg-bins=-zmax-page-size=4096");
    println!("cargo::rustc-link-arg-bins=-znoexecstack");
}
