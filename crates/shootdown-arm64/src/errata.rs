//! Processor models whose TLB invalidation needs care.

use crate::features::Features;

/// A model, by MIDR_EL1 (DDI 0487, D24.2, "MIDR_EL1").
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Midr(u64);

/// MIDR_EL1.Implementer of Arm, Cavium and Qualcomm.
const ARM: u64 = 0x41;
const CAVIUM: u64 = 0x43;
const QUALCOMM: u64 = 0x51;

impl Midr {
    /// The register's value.
    pub const fn new(value: u64) -> Self {
        Self(value)
    }

    const fn is(self, implementer: u64, part: u64) -> bool {
        self.0 >> 24 & 0xff == implementer && self.0 >> 4 & 0xfff == part
    }

    /// Variant and revision.
    const fn revision(self) -> u64 {
        self.0 >> 16 & 0xf0 | self.0 & 0xf
    }

    /// Cavium ThunderX: T88 to pass 2.1 and T81 of pass 1.0 (Linux: `cavium_erratum_27456_cpus`).
    const fn is_thunderx_27456(self) -> bool {
        self.is(CAVIUM, 0x0a1) && self.revision() <= 0x11
            || self.is(CAVIUM, 0x0a2) && self.revision() == 0
    }

    /// Qualcomm Falkor v1, r0p0, and all Kryos of its kind (Linux: `qcom_erratum_1003_list`, `is_kryo_midr`).
    const fn is_falkor_1003(self) -> bool {
        let is_kryo = self.0 >> 24 & 0xff == QUALCOMM && self.0 >> 12 & 0xf == 0x2;
        self.is(QUALCOMM, 0x800) && self.revision() == 0 || is_kryo
    }

    /// Arm C1-Pro (Linux: `ARM_CPU_PART_C1_PRO`).
    const fn is_c1_pro(self) -> bool {
        self.is(ARM, 0xd8b)
    }

    /// The models that are known to complete a broadcast by one TLBI and DSB: Cortex-A35, A53, A57, A72 and A73. They are in none of Linux's lists for
    /// `ARM64_WORKAROUND_REPEAT_TLBI` (`arch/arm64/kernel/cpu_errata.c`, June 2026), nor in FreeBSD's (SA-26:31), and are no longer made anew.
    const fn completes_at_once(self) -> bool {
        let parts = [0xd04, 0xd03, 0xd07, 0xd08, 0xd09];
        let mut index = 0;
        while index < parts.len() {
            if self.is(ARM, parts[index]) {
                return true;
            }
            index += 1;
        }
        false
    }
}

/// What the CPUs of a machine need. Begin with one, and [merge](Errata::merge) the others: a broadcast reaches all of them.
///
/// * **Repeat.** A broadcast TLBI and its DSB may complete before stores that were translated by what it dropped. Arm: C1-Premium and C1-Ultra 4193780, Cortex-A76 4193800 and 1286807,
///   A77 4193798, A78 4193791, A710 and X2 4193788, X3 4193786, X4 4118414, X925 4193781, Neoverse N1 4193800, N2 4193789, V1 4193790, V2 4193787, V3 4193784, with their variants
///   (CVE-2025-10263; Linux commit cfd391e74134, FreeBSD SA-26:31); before those Cortex-A55 2441007 and A510 2441009; NVIDIA Olympus; Qualcomm Falkor 1009. "The additional TLBI can use any operation
///   that is broadcast to affected CPUs." The list has grown for years, so whoever is not on the short list of those that do not need it repeats.
/// * **No broadcast.** C1-Pro 4193714: its unit for SME acknowledges a DVM synchronisation too early. Linux interrupts CPUs that use SME besides (`ARM64_ERRATUM_4193714`, April 2026);
///   here a machine with SME on C1-Pro has no broadcast. Cavium ThunderX 27456: "Broadcast TLBI instructions may cause icache corruption" (Linux: `CAVIUM_ERRATUM_27456`, which empties the instruction
///   cache behind each load of a root); here such a machine has no broadcast, and the host may have none elsewhere.
/// * **Split loads.** Qualcomm Falkor and Kryo E1003: a wrong ASID may be cached when ASID and BADDR change in one write of TTBR0_EL1 (Linux: `QCOM_FALKOR_ERRATUM_1003`, 4.11, which goes by way of a reserved
///   ASID: `pre_ttbr0_update_workaround`). Here loads go by way of the empty table: each write changes one of the two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Errata {
    repeats: bool,
    broadcasts: bool,
    splits: bool,
}

impl Errata {
    /// Those of one CPU.
    pub const fn of(features: &Features) -> Self {
        let midr = features.midr();
        Self {
            repeats: !midr.completes_at_once(),
            broadcasts: !(midr.is_c1_pro() && features.has_sme() || midr.is_thunderx_27456()),
            splits: midr.is_falkor_1003(),
        }
    }

    /// Those of a machine that has both.
    pub const fn merge(self, other: Self) -> Self {
        Self {
            repeats: self.repeats || other.repeats,
            broadcasts: self.broadcasts && other.broadcasts,
            splits: self.splits || other.splits,
        }
    }

    /// Whether a broadcast is completed by a second TLBI and DSB.
    pub const fn needs_repeat(self) -> bool {
        self.repeats
    }

    /// Whether broadcasts may be used.
    pub const fn allows_broadcast(self) -> bool {
        self.broadcasts
    }

    /// Whether one write of TTBR0_EL1 must not change root and ASID.
    pub const fn needs_split_loads(self) -> bool {
        self.splits
    }
}
