#!/usr/bin/env bash
# Builds the machine of one architecture, or lints it:  ./build.sh ARCHITECTURE IMAGE|--lint
# Ends with 77 where something is missing that it takes.
set -euo pipefail
cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/.."
arch=$1 image=$2

missing() {
    echo "$1 is missing: $2" >&2
    exit 77
}

command -v rustup >/dev/null 2>&1 || missing rustup "install it from https://rustup.rs"
case $arch in
# Traps save no floating-point registers.
riscv64) target=riscv64imac-unknown-none-elf ;;
aarch64) target=aarch64-unknown-none-softfloat ;;
loongarch64) target=loongarch64-unknown-none-softfloat ;;
*)
    echo "$arch? riscv64, aarch64 or loongarch64" >&2
    exit 2
    ;;
esac
options=(--quiet --release -p shootdown-ports --target "$target")
if ! rustup target list --installed | grep -q "^$target\$"; then
    # Some mirrors have no library for the target; the compiler builds its own then.
    rustup component list --installed | grep -q '^rust-src' || missing "$target" "rustup target add $target, or rustup component add rust-src"
    export RUSTC_BOOTSTRAP=1
    options+=(-Zbuild-std=core)
fi
if [ "$image" = --lint ]; then
    exec cargo clippy "${options[@]}" -- -D warnings
fi
cargo build "${options[@]}"
cp "${CARGO_TARGET_DIR:-target}/$target/release/shootdown-ports" "$image"
