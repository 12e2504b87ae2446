#!/bin/sh
# Builds OSTD with the engine beside it, by OSTD's own tool: build.sh OUTPUT.
set -eu
output=$1
folder=$(cd -- "$(dirname -- "$0")" && pwd)
. "$folder/tools.sh"
cd "$folder"

# The tool starts cargo in a package of its own, which has to find the toolchain's file above it.
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$folder/target}/ostd"
mkdir -p "$CARGO_TARGET_DIR"
cp rust-toolchain.toml "$CARGO_TARGET_DIR"
"$tool" osdk build >&2
cp "$CARGO_TARGET_DIR/osdk/shootdown-ostd/shootdown-ostd-osdk-bin.elf" "$output"
