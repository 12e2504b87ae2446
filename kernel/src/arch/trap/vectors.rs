//! Vector numbers (SDM vol. 3A, "Exception and Interrupt Vectors") and the names in messages.

use shootdown_x86::Vector;

/// #DE
pub const DIVIDE_ERROR: usize = 0;
/// #DB
pub const DEBUG: usize = 1;
/// NMI
pub const NMI: usize = 2;
/// #BP
pub const BREAKPOINT: usize = 3;
/// #OF
pub const OVERFLOW: usize = 4;
/// #BR
pub const BOUND_RANGE: usize = 5;
/// #UD
pub const INVALID_OPCODE: usize = 6;
/// #NM
pub const DEVICE_NOT_AVAILABLE: usize = 7;
/// #DF
pub const DOUBLE_FAULT: usize = 8;
/// #NP
pub const SEGMENT_NOT_PRESENT: usize = 11;
/// #SS
pub const STACK_SEGMENT: usize = 12;
/// #GP
pub const GENERAL_PROTECTION: usize = 13;
/// #PF
pub const PAGE_FAULT: usize = 14;
/// #MF
pub const X87: usize = 16;
/// #AC
pub const ALIGNMENT_CHECK: usize = 17;
/// #MC
pub const MACHINE_CHECK: usize = 18;
/// #XM
pub const SIMD: usize = 19;

/// First vector that is not an exception.
pub const FIRST_EXTERNAL: usize = 32;
/// The local APIC's timer.
pub const TIMER: Vector = vector(0xef);
/// The engine's interrupt.
pub const SHOOTDOWN: Vector = vector(0xf0);
/// Asks a CPU to choose a thread anew.
pub const RESCHEDULE: Vector = vector(0xf1);
/// Of the contenders that `calls=` measures. Above the engine's vector: see `calls::machine`.
pub const CALLS: Vector = vector(0xf2);
/// What the local APIC raises when an interrupt went away; ends without an end of interrupt.
pub const SPURIOUS: Vector = vector(0xff);

const fn vector(number: u8) -> Vector {
    match Vector::new(number) {
        Some(vector) => vector,
        None => panic!("vectors below 32 are exceptions"),
    }
}

/// The manual's name of an exception.
pub const fn name(vector: u64) -> &'static str {
    match vector as usize {
        DIVIDE_ERROR => "#DE divide error",
        DEBUG => "#DB debug",
        NMI => "NMI",
        BREAKPOINT => "#BP breakpoint",
        OVERFLOW => "#OF overflow",
        BOUND_RANGE => "#BR bound range",
        INVALID_OPCODE => "#UD invalid opcode",
        DEVICE_NOT_AVAILABLE => "#NM device not available",
        DOUBLE_FAULT => "#DF double fault",
        SEGMENT_NOT_PRESENT => "#NP segment not present",
        STACK_SEGMENT => "#SS stack fault",
        GENERAL_PROTECTION => "#GP general protection",
        PAGE_FAULT => "#PF page fault",
        X87 => "#MF floating point",
        ALIGNMENT_CHECK => "#AC alignment check",
        MACHINE_CHECK => "#MC machine check",
        SIMD => "#XM floating point",
        _ => "exception",
    }
}
