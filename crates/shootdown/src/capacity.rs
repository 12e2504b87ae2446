//! How many CPUs an engine is built for, and the words that a set of that many needs.
//!
//! Stable Rust cannot write `[u64; N.div_ceil(64)]` for a const parameter `N`. The sealed trait
//! [`Capacity`] states the quotient for every supported `N` instead, which keeps sets at one bit a
//! CPU. A host names one type, `Cpus<N>`, as [`Platform::Cpus`](crate::Platform::Cpus).
//!
//! The CPUs whose bits share a word are a *group*; a CPU's number within its group is its *lane*. Models and the simulator
//! know some further `N` whose words hold two or four CPUs: there a few CPUs have several groups, rings and leaves.

#![allow(
    clippy::declare_interior_mutable_const,
    reason = "they are initializers only"
)]

use core::fmt::Debug;
use core::hash::Hash;

use crate::call::Ring;
use crate::cpu::CpuId;
use crate::sync::{AtomicU64, OwnWord, SetOnce};

/// Room for `N` CPUs: 1 to 64, or a multiple of 64 up to 4096.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
pub struct Cpus<const N: usize>;

mod sealed {
    pub trait Sealed {}
}

/// An array of what protocols are made of.
#[doc(hidden)]
pub trait Array<T>: AsRef<[T]> + Debug + Send + Sync + 'static {
    /// Of these values, where no constant can be one: loom's atomics.
    #[cfg(loom)]
    fn of(value: fn() -> T) -> Self;
}

impl<T: Debug + Send + Sync + 'static, const N: usize> Array<T> for [T; N] {
    #[cfg(loom)]
    fn of(value: fn() -> T) -> Self {
        core::array::from_fn(|_| value())
    }
}

/// Implemented by [`Cpus<N>`](Cpus) for every supported `N`: 1 to 64, and multiples of 64 up to 4096.
#[diagnostic::on_unimplemented(
    message = "an engine for this number of CPUs is not supported",
    note = "use 1 to 64, or a multiple of 64 up to 4096: round your number up"
)]
pub trait Capacity:
    sealed::Sealed + Copy + Default + Eq + Hash + Debug + Send + Sync + 'static
{
    /// How many CPUs there is room for.
    const CPUS: usize;
    /// Plain words, one bit a CPU.
    type Words: Copy + Eq + Hash + Debug + AsRef<[u64]> + AsMut<[u64]> + Send + Sync + 'static;
    /// Atomic words, one bit a CPU.
    #[doc(hidden)]
    type AtomicWords: Array<AtomicU64>;
    /// Words of one CPU, one bit a CPU.
    #[doc(hidden)]
    type OwnWords: Array<OwnWord>;
    /// One word where there are several groups, else nothing.
    #[doc(hidden)]
    type Wide: Array<AtomicU64>;
    /// One ring a group.
    #[doc(hidden)]
    type Rings: Array<Ring<Self>>;
    /// The memory of each CPU that has any.
    #[doc(hidden)]
    type Table: Array<SetOnce<()>>;
    /// No CPU has any.
    #[doc(hidden)]
    const TABLE: Self::Table;
    /// Number of words, which is that of groups.
    const WORDS: usize;
    /// CPUs of a group: bits of a word that are used.
    const GROUP_CPUS: usize;
    /// CPUs of a group that acknowledge a broadcast in one leaf.
    #[doc(hidden)]
    const LEAF_CPUS: usize;
    /// All bits clear.
    #[doc(hidden)]
    const ZERO: Self::Words;
    /// All bits clear.
    #[doc(hidden)]
    const OWN_ZERO: Self::OwnWords;
    /// All bits clear.
    #[doc(hidden)]
    #[cfg(not(loom))]
    const ATOMIC_ZERO: Self::AtomicWords;
    /// Zero.
    #[doc(hidden)]
    #[cfg(not(loom))]
    const WIDE_ZERO: Self::Wide;
    /// Empty.
    #[doc(hidden)]
    #[cfg(not(loom))]
    const RINGS: Self::Rings;

    /// Whether there are several groups.
    #[doc(hidden)]
    const IS_WIDE: bool = Self::WORDS > 1;

    /// The group of `cpu`, which is below `N`. (The remainder changes nothing then, and tells the compiler so.)
    #[doc(hidden)]
    #[inline(always)]
    fn group(cpu: CpuId) -> usize {
        cpu.index() / Self::GROUP_CPUS % Self::WORDS
    }

    /// The bit of `cpu` in the word of its group.
    #[doc(hidden)]
    #[inline(always)]
    fn bit(cpu: CpuId) -> u64 {
        1 << (cpu.index() % Self::GROUP_CPUS)
    }

    /// The CPU in lane `lane` of `group`.
    #[doc(hidden)]
    #[inline(always)]
    fn cpu(group: usize, lane: u32) -> CpuId {
        CpuId::from_index(group * Self::GROUP_CPUS + lane as usize)
    }
}

macro_rules! capacity {
    ($group:literal CPUs a group, $leaf:literal a leaf; $($words:literal: $($cpus:literal)+;)+) => {$($(
        const _: () = assert!(
            $cpus <= $words * $group && $cpus > ($words - 1) * $group,
            "a bit for each CPU, and no word too many"
        );
        impl sealed::Sealed for Cpus<$cpus> {}
        impl Capacity for Cpus<$cpus> {
            type Words = [u64; $words];
            type AtomicWords = [AtomicU64; $words];
            type OwnWords = [OwnWord; $words];
            type Wide = [AtomicU64; ($words > 1) as usize];
            type Rings = [Ring<Self>; $words];
            type Table = [SetOnce<()>; $cpus];
            const CPUS: usize = $cpus;
            const TABLE: Self::Table = [const { SetOnce::new() }; $cpus];
            const WORDS: usize = $words;
            const GROUP_CPUS: usize = $group;
            const LEAF_CPUS: usize = $leaf;
            const ZERO: Self::Words = [0; $words];
            const OWN_ZERO: Self::OwnWords = [const { OwnWord::new() }; $words];
            #[cfg(not(loom))]
            const ATOMIC_ZERO: Self::AtomicWords = [const { AtomicU64::new(0) }; $words];
            #[cfg(not(loom))]
            const WIDE_ZERO: Self::Wide = [const { AtomicU64::new(0) }; ($words > 1) as usize];
            #[cfg(not(loom))]
            const RINGS: Self::Rings = [const { Ring::new() }; $words];
        }
    )+)+};
}

capacity! {
    64 CPUs a group, 8 a leaf;
    1: 1 2 3 4 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32
       33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 64;
    2: 128; 3: 192; 4: 256; 5: 320; 6: 384; 7: 448; 8: 512; 9: 576; 10: 640; 11: 704; 12: 768;
    13: 832; 14: 896; 15: 960; 16: 1024; 17: 1088; 18: 1152; 19: 1216; 20: 1280; 21: 1344;
    22: 1408; 23: 1472; 24: 1536; 25: 1600; 26: 1664; 27: 1728; 28: 1792; 29: 1856; 30: 1920;
    31: 1984; 32: 2048; 33: 2112; 34: 2176; 35: 2240; 36: 2304; 37: 2368; 38: 2432; 39: 2496;
    40: 2560; 41: 2624; 42: 2688; 43: 2752; 44: 2816; 45: 2880; 46: 2944; 47: 3008; 48: 3072;
    49: 3136; 50: 3200; 51: 3264; 52: 3328; 53: 3392; 54: 3456; 55: 3520; 56: 3584; 57: 3648;
    58: 3712; 59: 3776; 60: 3840; 61: 3904; 62: 3968; 63: 4032; 64: 4096;
}

#[cfg(not(loom))]
capacity! { 64 CPUs a group, 8 a leaf; 1: 5 6; }
// For models and the simulator: several groups with few CPUs.
#[cfg(loom)]
capacity! { 2 CPUs a group, 1 a leaf; 3: 5 6; }
#[cfg(all(feature = "sim", not(loom)))]
capacity! { 2 CPUs a group, 1 a leaf; 33: 66; }
#[cfg(all(feature = "sim", not(loom)))]
capacity! { 4 CPUs a group, 2 a leaf; 17: 68; }
