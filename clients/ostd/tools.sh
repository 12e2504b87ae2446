# What `build.sh` and `tests.sh` need: sets `toolchain`, `version` and `tool`, and ends with 77 where something is missing.

fail() {
    echo "$1" >&2
    exit 77
}

command -v rustup >/dev/null || fail "rustup is missing: install it, as OSTD needs a nightly compiler"
toolchain=$(sed -n 's/^channel = "\(.*\)"/\1/p' "$folder/rust-toolchain.toml")
version=$(sed -n 's/^ostd = "=\(.*\)"/\1/p' "$folder/Cargo.toml")
# `cargo` of another toolchain may have started this.
unset RUSTC RUSTDOC CARGO CARGO_ENCODED_RUSTFLAGS CARGO_BUILD_TARGET RUSTFLAGS
export RUSTUP_TOOLCHAIN="$toolchain" RUSTUP_AUTO_INSTALL=0
sysroot=$(rustc --print sysroot 2>/dev/null) && [ -d "$sysroot/lib/rustlib/src/rust/library" ] ||
    fail "no compiler with sources: rustup toolchain install $toolchain --profile minimal --component rust-src"
tool=$(command -v cargo-osdk) && [ "$("$tool" osdk --version 2>/dev/null)" = "cargo-osdk $version" ] ||
    fail "no cargo-osdk $version: cargo install cargo-osdk --locked --version $version"
