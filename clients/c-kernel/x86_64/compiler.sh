# shellcheck shell=sh disable=SC2034  # for build.sh
compiler=${CC:-cc}
# Interrupts may come at any instruction: no red zone, and no registers but those that boot.S saves.
arch_flags="-mno-red-zone -mgeneral-regs-only -fcf-protection=none"
