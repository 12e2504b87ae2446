#!/bin/sh
# OSTD's own tests by its own tool, on 2 CPUs: as they are, and with the engine doing its calls and flushes. Prints both totals.
set -eu
folder=$(cd -- "$(dirname -- "$0")" && pwd)
. "$folder/tools.sh"
command -v qemu-system-x86_64 >/dev/null || fail "qemu-system-x86_64 is missing: install qemu-system-x86"

# Where cargo has put OSTD.
manifest=$(cargo metadata --format-version 1 --manifest-path "$folder/Cargo.toml" | grep -o '"manifest_path":"[^"]*/ostd-'"$version"'/Cargo.toml"' | head -n 1 | cut -d '"' -f 4)
[ -n "$manifest" ] || fail "cargo does not find ostd $version: is the registry within reach?"
scratch=${CARGO_TARGET_DIR:-$folder/target}/ostd-tests

# A copy of OSTD in the folder `$1`, as a workspace of its own whose dependants take it, too.
copy() {
    rm -rf "$1/src"
    mkdir -p "$1/.cargo"
    cp -r "$(dirname "$manifest")/src" "$(dirname "$manifest")/README.md" "$folder/rust-toolchain.toml" "$1"
    # 0.2.11 does not build with this compiler.
    sed -e 's/^version = "0.2.10"$/version = "=0.2.10"/' "$manifest" >"$1/Cargo.toml"
    printf '\n[workspace]\n' >>"$1/Cargo.toml"
    printf '[patch.crates-io]\nostd = { path = "." }\n' >"$1/.cargo/config.toml"
    cp "$folder/tests.OSDK.toml" "$1/OSDK.toml"
}

# Its tests in the folder `$1`, within ten minutes: prints the total.
run() {
    (
        unset CARGO_TARGET_DIR
        cd "$1"
        timeout 600 "$tool" osdk test >tests.log 2>&1
    ) || true
    sed -n 's/^test result: [^.]*\. \(.*\)$/\1/p' "$1/tests.log" | grep . || tail -n 20 "$1/tests.log" >&2
}

copy "$scratch/before"
before=$(run "$scratch/before")
echo "ostd's tests before: $before"
copy "$scratch/after"
cp -r "$folder/over/src" "$scratch/after"
sed -n '/^#\[cfg(ktest)\]/,$p' "$(dirname "$manifest")/src/smp.rs" >>"$scratch/after/src/smp.rs"
printf '\n[dependencies.shootdown]\npath = "%s"\n' "$(realpath "$folder/../../crates/shootdown")" >>"$scratch/after/Cargo.toml"
after=$(run "$scratch/after")
echo "ostd's tests after: $after"
[ -n "$after" ] && [ "$after" = "$before" ]
