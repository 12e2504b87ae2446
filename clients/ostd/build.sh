#!/bin/sh
# Builds OSTD with the engine beside it, by OSTD's own tool: build.sh kernel OUTPUT.
set -eu
what=$1 output=$2
folder=$(cd -- "$(dirname -- "$0")" && pwd)
cd "$folder"

# Something is missing: 77 says so.
fail() {
    echo "$1" >&2
    exit 77
}

[ "$what" = kernel ] || fail "no image $what: kernel is known"
command -v rustup >/dev/null || fail "rustup is missing: install it, as OSTD needs a nightly compiler"
toolchain=$(sed -n 's/^channel = "\(.*\)"/\1/p' rust-toolchain.toml)
version=$(sed -n 's/^ostd = "=\(.*\)"/\1/p' Cargo.toml)
# `cargo` of another toolchain may have started this.
unset RUSTC RUSTDOC CARGO CARGO_ENCODED_RUSTFLAGS CARGO_BUILD_TARGET RUSTFLAGS
export RUSTUP_TOOLCHAIN="$toolchain" RUSTUP_AUTO_INSTALL=0
sysroot=$(rustc --print sysroot 2>/dev/null) && [ -d "$sysroot/lib/rustlib/src/rust/library" ] ||
    fail "no compiler with sources: rustup toolchain install $toolchain --profile minimal --component rust-src"
tool=$(command -v cargo-osdk) && [ "$("$tool" osdk --version 2>/dev/null)" = "cargo-osdk $version" ] ||
    fail "no cargo-osdk $version: cargo install cargo-osdk --locked --version $version"

# The tool starts cargo in a package of its own, which has to find the toolchain's file above it.
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$folder/target}/ostd"
mkdir -p "$CARGO_TARGET_DIR"
cp rust-toolchain.toml "$CARGO_TARGET_DIR"
"$tool" osdk build >&2
cp "$CARGO_TARGET_DIR/osdk/shootdown-ostd/shootdown-ostd-osdk-bin.elf" "$output"
