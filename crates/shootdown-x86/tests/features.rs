//! CPUID decoding against made-up and real processors.

use std::arch::x86_64::CpuidResult;

use shootdown_x86::features::FeatureFlags;
use shootdown_x86::processor::{Microcode, Processor, Vendor};
use shootdown_x86::tlb::InvlpgMiss;
use shootdown_x86::{ApicMode, Features, Hypervisor, PcidSupport};

const NOTHING: CpuidResult = leaf([0; 4]);

/// EAX to EDX.
const fn leaf([eax, ebx, ecx, edx]: [u32; 4]) -> CpuidResult {
    CpuidResult { eax, ebx, ecx, edx }
}

/// Twelve letters, four to a register.
fn letters(name: &[u8; 12]) -> [u32; 3] {
    [0, 4, 8].map(|from| u32::from_le_bytes(name[from..from + 4].try_into().unwrap()))
}

fn processor(vendor: Vendor, family: u16, model: u8, stepping: u8) -> Processor {
    Processor {
        vendor,
        family,
        model,
        stepping,
    }
}

/// A processor with this name and signature; its leaf 1 has these bits in ECX and EDX.
fn named(name: &[u8; 12], signature: u32, [ecx, edx]: [u32; 2]) -> Features {
    let [one, two, three] = letters(name);
    Features::from_leaves(|number, _| match number {
        0 => leaf([1, one, three, two]),
        1 => leaf([signature, 0, ecx, edx]),
        _ => NOTHING,
    })
}

/// A processor with the leaves given, and the highest leaf numbers to match.
fn with_leaves(leaves: &[(u32, CpuidResult)]) -> Features {
    let highest = |base: u32| {
        let same_range = |number: u32| number >= base && number < base + 0x1000;
        leaves
            .iter()
            .map(|leaf| leaf.0)
            .filter(|&number| same_range(number))
            .max()
            .unwrap_or(base)
    };
    Features::from_leaves(|leaf, _| match leaf {
        0 | 0x8000_0000 => self::leaf([highest(leaf), 0, 0, 0]),
        _ => leaves
            .iter()
            .find(|&&(number, _)| number == leaf)
            .map_or(NOTHING, |&(_, leaf)| leaf),
    })
}

/// Leaf, register, bit: one row of the manuals' tables each.
const TABLE: [(FeatureFlags, u32, char, u32); 14] = [
    (FeatureFlags::X2APIC, 1, 'c', 21),
    (FeatureFlags::PGE, 1, 'd', 13),
    (FeatureFlags::PCID, 1, 'c', 17),
    (FeatureFlags::INVPCID, 7, 'b', 10),
    (FeatureFlags::SMEP, 7, 'b', 7),
    (FeatureFlags::SMAP, 7, 'b', 20),
    (FeatureFlags::INVLPGB, 0x8000_0008, 'b', 3),
    (FeatureFlags::TSC_DEADLINE, 1, 'c', 24),
    (FeatureFlags::NX, 0x8000_0001, 'd', 20),
    (FeatureFlags::TCE, 0x8000_0001, 'c', 17),
    (FeatureFlags::PAGE_1G, 0x8000_0001, 'd', 26),
    (FeatureFlags::FSGSBASE, 7, 'b', 0),
    (FeatureFlags::INVARIANT_TSC, 0x8000_0007, 'd', 8),
    (FeatureFlags::HYPERVISOR, 1, 'c', 31),
];

/// Intel processors answer a leaf beyond the last of its range with what another leaf says; the end of one range says nothing
/// about the other.
#[test]
fn leaves_beyond_the_last_of_their_range_do_not_count() {
    const ALL: CpuidResult = leaf([u32::MAX; 4]);
    for (basic, extended) in [
        (0, 0x8000_0008),
        (1, 0x8000_0008),
        (6, 0x8000_0008),
        (7, 0x8000_0000),
        (7, 0x8000_0001),
        (7, 0x8000_0007),
        (7, 0x8000_0008),
    ] {
        let features = Features::from_leaves(|leaf, _| match leaf {
            0 => CpuidResult { eax: basic, ..ALL },
            0x8000_0000 => CpuidResult {
                eax: extended,
                ..ALL
            },
            _ => ALL,
        });
        for (flag, leaf, ..) in TABLE {
            let last = if leaf < 0x8000_0000 { basic } else { extended };
            assert_eq!(
                features.flags().contains(flag),
                leaf <= last,
                "{flag:?} with {last:#x}"
            );
        }
    }
}

#[test]
fn each_bit_gives_its_flag_and_no_other() {
    for (flag, leaf, register, bit) in TABLE {
        let mut values = NOTHING;
        match register {
            'b' => values.ebx = 1 << bit,
            'c' => values.ecx = 1 << bit,
            _ => values.edx = 1 << bit,
        }
        assert_eq!(with_leaves(&[(leaf, values)]).flags(), flag);
    }
    let covered = TABLE
        .iter()
        .fold(FeatureFlags::empty(), |all, row| all | row.0);
    assert_eq!(covered, FeatureFlags::all());
}

#[test]
fn nothing_is_read_but_the_first_of_several_subleaves() {
    let features = Features::from_leaves(|_, subleaf| {
        assert_eq!(subleaf, 0);
        leaf([!0, 0, 0, 0])
    });
    assert_eq!(features.flags(), FeatureFlags::empty());
}

#[test]
fn leaves_beyond_the_highest_are_not_believed() {
    let features = Features::from_leaves(|_, _| leaf([1, !0, !0, !0]));
    assert!(features.has_pge(), "leaf 1 is within");
    assert!(!features.has_smep(), "leaf 7 is beyond");
    assert!(!features.has_nx(), "the extended range is absent");
}

#[test]
fn invlpgb_reports_one_page_more_than_its_field() {
    // The field has 16 bits; what is above is something else.
    for (ebx, edx, pages) in [(1 << 3, 7, 8), (1 << 3, 0xabcd_ffff, 0x1_0000), (0, 7, 0)] {
        let features = with_leaves(&[(0x8000_0008, leaf([0, ebx, 0, edx]))]);
        assert_eq!(features.invlpgb_max_pages(), pages);
    }
}

#[test]
fn hypervisors_are_told_by_signature_and_only_if_announced() {
    let named = |signature: &[u8; 12], announced: bool| {
        let [one, two, three] = letters(signature);
        let basic = leaf([0, 0, u32::from(announced) << 31, 0]);
        let hypervisor = leaf([0x4000_0001, one, two, three]);
        with_leaves(&[(1, basic), (0x4000_0000, hypervisor)]).hypervisor()
    };
    assert_eq!(named(b"TCGTCGTCGTCG", true), Hypervisor::Tcg);
    assert_eq!(named(b"KVMKVMKVM\0\0\0", true), Hypervisor::Kvm);
    assert_eq!(
        named(b"Microsoft Hv", true),
        Hypervisor::Other(*b"Microsoft Hv")
    );
    assert_eq!(named(b"TCGTCGTCGTCG", false), Hypervisor::None);
}

#[test]
fn x2apic_is_preferred_where_it_exists() {
    let x2apic = Features::with_flags(FeatureFlags::X2APIC);
    assert_eq!(ApicMode::detect(&x2apic), ApicMode::X2Apic);
    let old = Features::with_flags(FeatureFlags::all() - FeatureFlags::X2APIC);
    assert_eq!(ApicMode::detect(&old), ApicMode::XApic);
}

#[test]
fn this_processor_has_what_every_x86_64_has() {
    assert!(Features::detect().has_pge());
}

#[test]
fn processors_are_told_by_vendor_and_signature() {
    // Alder Lake, Zen 3, and a family that does not extend its model.
    for (name, signature, expected) in [
        (
            b"GenuineIntel",
            0x0009_0672,
            processor(Vendor::Intel, 6, 0x97, 2),
        ),
        (
            b"AuthenticAMD",
            0x00a2_0f10,
            processor(Vendor::Amd, 0x19, 0x21, 0),
        ),
        (
            b"CentaurHauls",
            0x0001_0543,
            processor(Vendor::Other, 5, 4, 3),
        ),
    ] {
        assert_eq!(named(name, signature, [0, 0]).processor(), expected);
    }
}

fn support(processor: Processor, microcode: u32) -> PcidSupport {
    let features = Features::with_flags(FeatureFlags::all()).with_processor(processor);
    PcidSupport::judge(&features, || Microcode(microcode))
}

#[test]
fn pcids_stay_off_where_invlpg_misses_global_pages() {
    for (model, fixed_in) in [
        (0x97, 0x2e),
        (0x9a, 0x42c),
        (0xbe, 0x11),
        (0xb7, 0x118),
        (0xba, 0x4117),
        (0xbf, 0x2e),
    ] {
        let affected = processor(Vendor::Intel, 6, model, 2);
        let miss = InvlpgMiss::of_processor(affected).unwrap();
        assert_eq!(miss.fixed_in(), Microcode(fixed_in));
        assert_eq!(
            support(affected, fixed_in - 1),
            PcidSupport::InvlpgMisses(miss)
        );
        assert_eq!(support(affected, fixed_in), PcidSupport::Usable);
        for other in [
            processor(Vendor::Amd, 6, model, 2),
            processor(Vendor::Intel, 0x13, model, 2),
            processor(Vendor::Intel, 6, 0x55, 2),
        ] {
            assert_eq!(support(other, 0), PcidSupport::Usable, "{other:?}");
        }
    }
}

#[test]
fn a_hypervisors_word_on_microcode_is_not_taken() {
    let features = named(b"GenuineIntel", 0x0009_0672, [1 << 31 | 1 << 17, 1 << 13]);
    let asked = || unreachable!("a hypervisor was asked for its microcode");
    assert!(matches!(
        PcidSupport::judge(&features, asked),
        PcidSupport::InvlpgMisses(_)
    ));
}

#[test]
fn pcids_need_a_way_to_drop_all_of_them() {
    let judge = |flags| {
        PcidSupport::judge(&Features::with_flags(flags), || {
            unreachable!("no model on the list")
        })
    };
    let pcid = FeatureFlags::PCID;
    assert_eq!(judge(pcid), PcidSupport::NoFlushAll);
    assert!(judge(pcid | FeatureFlags::PGE).is_usable());
    assert!(judge(pcid | FeatureFlags::INVPCID).is_usable());
    assert_eq!(judge(FeatureFlags::all() - pcid), PcidSupport::Absent);
}
