//! Hyper-V's protocol against a fake hypervisor that reads the input as the TLFS describes it, stops in the middle of lists, and fails.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

use core::arch::x86_64::CpuidResult;
use proptest::prelude::*;
use shootdown_x86::pv::hyperv::{Flushed, Hypercall, HypervFeatures, Input, Refused, flush};

const ROOT: u64 = 0x1234_5000;
const PAGE: usize = 4096;

/// What one call asked for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Asked {
    space: u64,
    flags: u64,
    processors: BTreeSet<u32>,
    /// Pages, by number; none if all.
    pages: Option<BTreeSet<usize>>,
}

/// Does so many repetitions a call, and fails at a call.
struct Fake {
    step: u64,
    fails_at: Option<u32>,
    calls: Cell<u32>,
    done: RefCell<Asked>,
}

impl Hypercall for Fake {
    fn call(&self, control: u64, input: &Input) -> u64 {
        let calls = self.calls.replace(self.calls.get() + 1);
        let words = input.words();
        assert_eq!(input.words().as_ptr().addr() % PAGE, 0);
        assert_eq!(
            control & (1 << 16 | 0xf << 27 | 0xf << 44 | 0xf << 60),
            0,
            "reserved"
        );
        let (code, header) = (control & 0xffff, control >> 17 & 0x3ff);
        let (count, start) = (control >> 32 & 0xfff, control >> 48 & 0xfff);
        let mut asked = Asked {
            space: words[0],
            flags: words[1],
            ..Asked::default()
        };
        let bits = |bank: usize, word: u64| {
            (0..64)
                .filter(move |bit| word >> bit & 1 != 0)
                .map(move |bit| bank as u32 * 64 + bit)
        };
        let is_list = matches!(code, 0x3 | 0x14);
        assert!(is_list || matches!(code, 0x2 | 0x13), "{code:#x}");
        let mut at = 3;
        if matches!(code, 0x13 | 0x14) {
            assert_eq!((words[2], words[3].count_ones() as u64), (0, header));
            at = 4;
            for bank in (0..64).filter(|bank| words[3] >> bank & 1 != 0) {
                asked.processors.extend(bits(bank, words[at]));
                at += 1;
            }
        } else {
            assert_eq!(header, 0);
            asked.processors.extend(bits(0, words[2]));
        }
        if self.fails_at == Some(calls) {
            return 5;
        }
        if !is_list {
            assert_eq!((count, start), (0, 0));
            self.done.replace(asked);
            return 0;
        }
        assert!(start < count);
        let end = count.min(start + self.step);
        let pages = (start..end).flat_map(|index| {
            let word = words[at + index as usize] as usize;
            (0..=word % PAGE).map(move |page| word / PAGE + page)
        });
        asked.pages = Some(pages.collect());
        let before = self.done.take();
        asked
            .pages
            .get_or_insert_default()
            .extend(before.pages.into_iter().flatten());
        self.done.replace(asked);
        end << 32
    }
}

fn features(recommendations: u32) -> HypervFeatures {
    HypervFeatures::from_leaves(|leaf, _| {
        let mut result = CpuidResult {
            eax: 0,
            ebx: 0,
            ecx: 0,
            edx: 0,
        };
        match leaf {
            1 => result.ecx = 1 << 31,
            0x4000_0001 => result.eax = u32::from_le_bytes(*b"Hv#1"),
            0x4000_0004 => result.eax = recommendations,
            _ => {}
        }
        result
    })
}

const BOTH: u32 = 1 << 2 | 1 << 11;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn the_hypervisor_is_asked_for_what_was_meant(
        processors in proptest::collection::btree_set(prop_oneof![0..64u32, 0..4096u32], 1..20),
        ranges in proptest::collection::vec((0..1usize << 20, 1..9000usize), 1..5),
        step in 1..5u64,
        fails_at in proptest::option::of(0..6u32),
    ) {
        let fake = Fake { step, fails_at, calls: Cell::new(0), done: RefCell::default() };
        let ranges: Vec<_> = ranges.into_iter().map(|(page, pages)| (page * PAGE, pages)).collect();
        let mut input = Input::new();
        let flushed = Flushed::Ranges(ROOT, &ranges);
        let outcome = flush(&fake, features(BOTH), &mut input, processors.iter().copied(), flushed);
        if fails_at.is_some_and(|at| at < fake.calls.get()) {
            prop_assert_eq!(outcome, Err(Refused { status: Some(5) }));
            return Ok(());
        }
        prop_assert_eq!(outcome, Ok(()));
        let pages = ranges.iter().flat_map(|(start, pages)| start / PAGE..start / PAGE + pages);
        let wanted = Asked { space: ROOT, flags: 0, processors, pages: Some(pages.collect()) };
        prop_assert_eq!(fake.done.take(), wanted);
    }
}

fn fake() -> Fake {
    Fake {
        step: u64::MAX >> 1,
        fails_at: None,
        calls: Cell::new(0),
        done: RefCell::default(),
    }
}

#[test]
fn spaces_and_everything_are_named_by_flags() {
    for (flushed, space, flags) in [(Flushed::Space(ROOT), ROOT, 4), (Flushed::All, 0, 2)] {
        let fake = fake();
        let mut input = Input::new();
        assert_eq!(
            flush(&fake, features(BOTH), &mut input, [70].into_iter(), flushed),
            Ok(())
        );
        let wanted = Asked {
            space,
            flags,
            processors: [70].into(),
            pages: None,
        };
        assert_eq!(fake.done.take(), wanted);
    }
}

#[test]
fn a_space_that_the_hypervisor_does_not_flush_is_refused() {
    let fake = Fake {
        fails_at: Some(0),
        ..fake()
    };
    let flushed = Flushed::Space(ROOT);
    let outcome = flush(
        &fake,
        features(BOTH),
        &mut Input::new(),
        [1].into_iter(),
        flushed,
    );
    assert_eq!(outcome, Err(Refused { status: Some(5) }));
}

/// Ranges that do not fit into the page are the whole space, with its global translations.
#[test]
fn what_does_not_fit_is_everything() {
    let ranges: Vec<_> = (0..600).map(|page| (page * 2 * PAGE, 1)).collect();
    let (fake, mut input) = (fake(), Input::new());
    let flushed = Flushed::Ranges(ROOT, &ranges);
    assert_eq!(
        flush(&fake, features(BOTH), &mut input, [1].into_iter(), flushed),
        Ok(())
    );
    let wanted = Asked {
        space: ROOT,
        flags: 0,
        processors: [1].into(),
        pages: None,
    };
    assert_eq!(fake.done.take(), wanted);
}

#[test]
fn whom_it_cannot_name_it_refuses() {
    let mut input = Input::new();
    let asked = |features, processors: &[u32], input: &mut Input| {
        flush(
            &fake(),
            features,
            input,
            processors.iter().copied(),
            Flushed::All,
        )
    };
    let refused = Err(Refused { status: None });
    assert_eq!(asked(features(BOTH), &[4096], &mut input), refused);
    assert_eq!(asked(features(BOTH), &[4095], &mut input), Ok(()));
    assert_eq!(asked(features(1 << 2), &[64], &mut input), refused);
    assert_eq!(asked(features(1 << 2), &[63], &mut input), Ok(()));
    assert_eq!(asked(features(BOTH), &[], &mut input), Ok(()));
}

/// One that says success without a step.
#[test]
fn a_hypervisor_that_stands_still_is_not_asked_for_ever() {
    let (fake, mut input) = (Fake { step: 0, ..fake() }, Input::new());
    let flushed = Flushed::Ranges(ROOT, &[(0, 1)]);
    let outcome = flush(&fake, features(BOTH), &mut input, [1].into_iter(), flushed);
    assert_eq!(
        (outcome, fake.calls.get()),
        (Err(Refused { status: Some(0) }), 1)
    );
}

/// One that has done more than it was asked for.
#[test]
fn a_hypervisor_that_goes_too_far_is_not_believed() {
    struct TooFar;
    impl Hypercall for TooFar {
        fn call(&self, control: u64, _: &Input) -> u64 {
            ((control >> 32 & 0xfff) + 1) << 32
        }
    }
    let (features, flushed) = (features(BOTH), Flushed::Ranges(ROOT, &[(0, 1)]));
    let outcome = flush(
        &TooFar,
        features,
        &mut Input::new(),
        [1].into_iter(),
        flushed,
    );
    assert_eq!(outcome, Err(Refused { status: Some(0) }));
}

#[test]
fn only_hyper_v_recommends() {
    assert!(features(1 << 2).has_remote_flush() && !features(1 << 2).has_extended_sets());
    assert!(!features(1 << 11).has_remote_flush() && features(1 << 11).has_extended_sets());
    let nobody = |_, _| CpuidResult {
        eax: u32::MAX,
        ebx: 0,
        ecx: 0,
        edx: 0,
    };
    assert!(!HypervFeatures::from_leaves(nobody).has_remote_flush());
}

/// Notes the words of a list.
struct Noted(RefCell<Vec<u64>>);

impl Hypercall for Noted {
    fn call(&self, control: u64, input: &Input) -> u64 {
        let count = control >> 32 & 0xfff;
        self.0
            .borrow_mut()
            .extend(&input.words()[3..3 + count as usize]);
        count << 32
    }
}

/// The part of a range that lies beyond the end of the address space is left out, also inside one word.
#[test]
fn a_list_ends_with_the_address_space() {
    let features = HypervFeatures::from_leaves(|leaf, _| CpuidResult {
        eax: match leaf {
            0x4000_0001 => u32::from_le_bytes(*b"Hv#1"),
            _ => 1 << 2,
        },
        ebx: 0,
        ecx: 1 << 31,
        edx: 0,
    });
    let fake = Noted(RefCell::default());
    let top = usize::MAX & !0xfff;
    let ranges = [(top, 3)];
    let mut input = Input::new();
    let flushed = Flushed::Ranges(0x1000, &ranges);
    flush(&fake, features, &mut input, [1].into_iter(), flushed).unwrap();
    let words = fake.0.take();
    assert_eq!(words, [top as u64], "{words:x?}: pages behind the last");
}
