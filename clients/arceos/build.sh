#!/bin/sh
# Builds ArceOS with the engine: build.sh ARCH CPUS OUTPUT, where ARCH is x86_64, riscv64 or aarch64. ArceOS learns its number of CPUs when it is built.
#   EXAMPLE=FILE build.sh ...    with a program of ArceOS's own, which the image runs instead of its checks
set -eu
arch=$1 cpus=$2 output=$3
example=${EXAMPLE:+$(realpath -- "$EXAMPLE")}
folder=$(cd -- "$(dirname -- "$0")" && pwd)
cd "$folder"

# Something is missing: 77 says so.
fail() {
    echo "$1" >&2
    exit 77
}

case $arch in
x86_64) target=x86_64-unknown-none platform=x86-pc model=pic ;;
riscv64) target=riscv64gc-unknown-none-elf platform=riscv64-qemu-virt model=static ;;
aarch64) target=aarch64-unknown-none-softfloat platform=aarch64-qemu-virt model=static ;;
*) fail "no architecture $arch: x86_64, riscv64 and aarch64 are known" ;;
esac
command -v rustup >/dev/null || fail "rustup is missing: install it, as ArceOS needs a nightly compiler"
toolchain=$(sed -n 's/^channel = "\(.*\)"/\1/p' rust-toolchain.toml)
# `cargo` of another toolchain may have started this.
unset RUSTC RUSTDOC CARGO CARGO_ENCODED_RUSTFLAGS CARGO_BUILD_TARGET
export RUSTUP_TOOLCHAIN=$toolchain RUSTUP_AUTO_INSTALL=0
rustup target list --installed 2>/dev/null | grep -qx "$target" ||
    fail "no compiler for $target: rustup toolchain install $toolchain --profile minimal --target $target"
# Comes with the compiler, and knows all targets.
sysroot=$(rustc --print sysroot)
objcopy=$sysroot/lib/rustlib/$(rustc -vV | sed -n 's/^host: //p')/bin/rust-objcopy
[ -x "$objcopy" ] || fail "this compiler has no rust-objcopy: rustup toolchain install $toolchain --profile minimal"

work=${CARGO_TARGET_DIR:-$folder/target}/arceos-$arch-$cpus
mkdir -p "$work"
# The platform's own configuration, with this number of CPUs and with what its tool would add.
manifest=$(cargo metadata --format-version 1 --locked | grep -o "\"manifest_path\":\"[^\"]*/axplat-$platform-[^\"]*\"" | head -n 1 | cut -d '"' -f 4)
[ -n "$manifest" ] || fail "cargo does not find axplat-$platform: is the registry within reach?"
sed -e "s/^max-cpu-num = 1 /max-cpu-num = $cpus /" \
    -e 's/^\[plat\]/task-stack-size = 0x40000 # uint\nticks-per-sec = 100 # uint\n\n[plat]/' \
    "$(dirname "$manifest")/axconfig.toml" >"$work/axconfig.new"
cmp -s "$work/axconfig.new" "$work/axconfig.toml" || cp "$work/axconfig.new" "$work/axconfig.toml"

export AX_CONFIG_PATH="$work/axconfig.toml" AX_LOG="${AX_LOG:-warn}" CARGO_TARGET_DIR="$work"
# Also in the place of what this repository's configuration has for its own kernel.
export RUSTFLAGS="-Crelocation-model=$model"
set --
if [ -n "$example" ]; then
    # It becomes a module: what says that it is a crate goes.
    sed -e '/^#!\[/d' -e '/no_mangle/d' -e '/^#\[macro_use\]/d' -e '/^extern crate axstd as std;/d' "$example" >"$work/example.rs"
    export EXAMPLE_SOURCE="$work/example.rs"
    set -- --cfg example --cfg 'feature="axstd"' -Aunexpected_cfgs
fi
# A crate of ArceOS writes the linker script.
cargo rustc --release --locked --target "$target" -- "$@" "-Clink-arg=-T$work/$target/release/linker_$platform.lds" \
    -Clink-arg=-no-pie -Clink-arg=-znostart-stop-gc
LD_LIBRARY_PATH="$sysroot/lib" "$objcopy" --strip-all -O binary "$work/$target/release/shootdown-arceos" "$output"
# The header of an image for multiboot promises whole pages.
truncate -s %4096 "$output"
