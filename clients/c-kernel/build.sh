#!/bin/sh
# Builds the kernel: build.sh LIBRARY OUTPUT, where LIBRARY is libshootdown_c.a for x86_64-unknown-none, with the feature panic-handler.
#   CC=clang build.sh ...    with another compiler than cc
set -eu
library=$1 output=$2
folder=$(cd -- "$(dirname -- "$0")" && pwd)
# The platform's functions are given a pointer that this kernel does not use.
# Interrupts may come at any instruction: no red zone, and no registers but those that boot.S saves.
flags="-std=c11 -O2 -g -Wall -Wextra -Werror -Wno-unused-parameter -ffreestanding -fno-pic -fno-pie -fno-stack-protector -fno-asynchronous-unwind-tables
    -mno-red-zone -mgeneral-regs-only -fcf-protection=none"
# shellcheck disable=SC2086
exec "${CC:-cc}" $flags -I "$folder/../../crates/shootdown-c/include" -nostdlib -static \
    -Wl,-T,"$folder/kernel.ld" -Wl,--build-id=none -Wl,-z,max-page-size=4096 -Wl,-z,noexecstack -Wl,--no-warn-rwx-segments -Wl,--gc-sections \
    "$folder"/*.S "$folder"/*.c "$library" -o "$output"
