#!/bin/sh
# Builds the kernel: build.sh ARCH LIBRARY OUTPUT, where ARCH is a folder here, and LIBRARY libshootdown_c.a for its bare target, with the feature panic-handler.
#   CC=clang build.sh x86_64 ...    with another compiler than cc; RISCV_CC for riscv64
set -eu
arch=$1 library=$2 output=$3
folder=$(cd -- "$(dirname -- "$0")" && pwd)
# shellcheck source=x86_64/compiler.sh
. "$folder/$arch/compiler.sh"
# The platform's functions are given a pointer that this kernel does not use.
flags="-std=c11 -O2 -g -Wall -Wextra -Werror -Wno-unused-parameter -ffreestanding -fno-pic -fno-pie -fno-stack-protector -fno-asynchronous-unwind-tables"
# shellcheck disable=SC2086
exec "$compiler" $flags $arch_flags -I "$folder" -I "$folder/$arch" -I "$folder/../../crates/shootdown-c/include" -nostdlib -static \
    -Wl,-T,"$folder/$arch/kernel.ld" -Wl,--build-id=none -Wl,-z,max-page-size=4096 -Wl,-z,noexecstack -Wl,--no-warn-rwx-segments -Wl,--gc-sections \
    "$folder/$arch"/*.S "$folder/$arch"/*.c "$folder"/*.c "$library" -o "$output"
