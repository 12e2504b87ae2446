//! Features and errata, by registers.

use shootdown_arm64::tlb::Granule;
use shootdown_arm64::{AsidBits, Errata, Features, IdRegisters, IrqState};

fn of(registers: IdRegisters) -> Features {
    Features::of(registers)
}

fn model(midr: u64) -> Errata {
    Errata::of(&of(IdRegisters {
        midr,
        ..IdRegisters::default()
    }))
}

fn arm(part: u64) -> Errata {
    model(0x410f_0000 | part << 4)
}

#[test]
fn fields_are_where_the_manual_has_them() {
    let ranges = |tlb: u64| {
        of(IdRegisters {
            isar0: tlb << 56,
            ..IdRegisters::default()
        })
        .has_tlbi_ranges()
    };
    assert_eq!([0, 1, 2, 3].map(ranges), [false, false, true, true]);
    let mmfr0 = |mmfr0| {
        of(IdRegisters {
            mmfr0,
            ..IdRegisters::default()
        })
    };
    assert_eq!(mmfr0(0).asid_bits(), AsidBits::Eight);
    assert_eq!(mmfr0(0x20).asid_bits(), AsidBits::Sixteen);
    assert_eq!(AsidBits::Eight.count() + AsidBits::Sixteen.count(), 24);
    let granules = |value| {
        [Granule::Kib4, Granule::Kib16, Granule::Kib64]
            .map(|granule| mmfr0(value).has_granule(granule))
    };
    assert_eq!(granules(0), [true, false, true]);
    assert_eq!(granules(0xf << 28 | 2 << 20), [false, true, true]);
    assert_eq!(granules(0xf << 24 | 1 << 20), [true, true, false]);
    let all = of(IdRegisters {
        midr: 0,
        isar0: 0,
        mmfr0: 0,
        mmfr1: 2,
        mmfr2: 2 << 52,
        pfr0: 1 << 24,
        pfr1: 1 << 24,
    });
    assert!(all.has_hardware_access_flag());
    assert!(all.has_gic_registers() && all.has_sme());
    assert_eq!(all.break_before_make_level(), 2);
    let none = of(IdRegisters::default());
    assert!(!none.has_hardware_access_flag());
    assert!(!none.has_gic_registers() && !none.has_sme());
    assert_eq!(none.break_before_make_level(), 0);
}

/// Arm's parts by Linux's `cputype.h`: A76, A76AE, N1, A77, A78, A78AE, A78C, V1, A710, X1, X1C, X2, X3, X4, X925, N2, V2, V3, V3AE, C1-Ultra, C1-Premium, A55, A510.
const NEED_REPEAT: [u64; 23] = [
    0xd0b, 0xd0e, 0xd0c, 0xd0d, 0xd41, 0xd42, 0xd4b, 0xd40, 0xd47, 0xd44, 0xd4c, 0xd48, 0xd4e,
    0xd82, 0xd85, 0xd49, 0xd4f, 0xd84, 0xd83, 0xd8c, 0xd90, 0xd05, 0xd46,
];

#[test]
fn what_is_on_a_list_repeats_and_what_is_not_known_too() {
    assert!(NEED_REPEAT.into_iter().all(|part| arm(part).needs_repeat()));
    assert!(model(0x4e0f_0100).needs_repeat(), "Olympus");
    assert!(model(0x510f_c000).needs_repeat(), "Falkor");
    assert!(model(0).needs_repeat());
    let parts = [0xd03, 0xd04, 0xd07, 0xd08, 0xd09];
    assert!(parts.into_iter().all(|part| !arm(part).needs_repeat()));
    // The same part of another implementer, and other revisions.
    assert!(model(0x4e0f_d080).needs_repeat());
    assert!(!model(0x411f_d083).needs_repeat());
}

/// By Linux's `cavium_erratum_27456_cpus` and `qcom_erratum_1003_list`: variant and revision, too.
#[test]
fn errata_of_some_revisions() {
    for (midr, allowed) in [
        (0x430f_0a10, false),
        (0x430f_0a11, false),
        (0x431f_0a11, false),
        (0x431f_0a12, true),
        (0x432f_0a10, true),
        (0x430f_0a20, false),
        (0x430f_0a21, true),
        (0x431f_0a20, true),
        (0x430f_0a30, true),
        (0x410f_0a10, true),
    ] {
        assert_eq!(model(midr).allows_broadcast(), allowed, "{midr:#x}");
    }
    for (midr, splits) in [
        (0x510f_8000, true),
        (0x510f_8001, false),
        // Kryo 2xx Gold, which Linux leaves out.
        (0x51af_8014, false),
        (0x510f_c000, false),
        // Kryos: part 0x2xx, any revision.
        (0x511f_2011, true),
        (0x510f_2050, true),
        (0x410f_2050, false),
    ] {
        assert_eq!(model(midr).needs_split_loads(), splits, "{midr:#x}");
    }
}

#[test]
fn a_machine_is_as_bad_as_its_worst_core() {
    let falkor = model(0x510f_8000);
    assert!(falkor.needs_split_loads() && falkor.allows_broadcast());
    let c1_pro = Errata::of(&of(IdRegisters {
        midr: 0x410f_d8b0,
        pfr1: 1 << 24,
        ..IdRegisters::default()
    }));
    assert!(!c1_pro.needs_split_loads() && !c1_pro.allows_broadcast());
    let good = arm(0xd08);
    assert!(!good.needs_split_loads() && good.allows_broadcast() && !good.needs_repeat());
    for merged in [
        falkor.merge(c1_pro).merge(good),
        good.merge(c1_pro).merge(falkor),
    ] {
        assert!(merged.needs_split_loads() && !merged.allows_broadcast() && merged.needs_repeat());
    }
    assert_eq!(good.merge(good), good);
}

#[test]
fn interrupts_are_on_only_if_both_kinds_are() {
    assert!(IrqState::from_daif(0x300).is_enabled());
    assert!(!IrqState::from_daif(0x80).is_enabled());
    assert!(!IrqState::from_daif(0x40).is_enabled());
    assert_eq!(IrqState::from_daif(0x3c0).daif(), 0x3c0);
}
