# shellcheck shell=sh disable=SC2034  # for build.sh
compiler=${RISCV_CC:-riscv64-linux-gnu-gcc}
# The ABI is that of the library, for the linker refuses to mix them. Nobody uses floating point: boot.S turns it off.
arch_flags="-march=rv64gc -mabi=lp64d -mcmodel=medany"
