//! Interrupts, acknowledgements and remote fences against recorders; and against a hart whose accesses are not ordered unless a FENCE says so.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ptr::NonNull;

use shootdown_riscv::ipi::{
    Doorbell, DoorbellMap, Extension, HartId, HartMap, HartMask, ImsicIdentity, Ipi, MapError,
    Port, RemoteFences, SbiArguments, SbiError, SbiReturn, SendError, Way, probe,
};
use shootdown_riscv::{Features, Processor};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Op {
    Fence,
    Sbi(u64, u64, SbiArguments),
    Word(usize, u32),
    Clear,
    Claim,
}

#[derive(Default, Debug)]
struct Recorder {
    ops: RefCell<Vec<Op>>,
    /// What calls of the firmware return, by their number.
    answers: RefCell<Vec<SbiReturn>>,
    top: Cell<u64>,
}

impl Recorder {
    fn push(&self, op: Op) {
        self.ops.borrow_mut().push(op);
    }

    fn take(&self) -> Vec<Op> {
        self.ops.take()
    }
}

const OK: SbiReturn = SbiReturn { error: 0, value: 0 };

impl Port for &Recorder {
    fn fence(&self) {
        self.push(Op::Fence);
    }
    unsafe fn sbi_call(&self, extension: u64, function: u64, arguments: SbiArguments) -> SbiReturn {
        self.push(Op::Sbi(extension, function, arguments));
        let mut answers = self.answers.borrow_mut();
        if answers.is_empty() {
            OK
        } else {
            answers.remove(0)
        }
    }
    unsafe fn write_word(&self, register: NonNull<u32>, value: u32) {
        self.push(Op::Word(register.as_ptr() as usize, value));
    }
    fn clear_software_interrupt(&self) {
        self.push(Op::Clear);
    }
    unsafe fn claim_external_interrupt(&self) -> u64 {
        self.push(Op::Claim);
        self.top.get()
    }
}

const SOUND: Processor = Processor {
    vendor: 0,
    architecture: 0,
    implementation: 0,
};
const CIP_1200: Processor = Processor {
    vendor: 0x489,
    architecture: 1,
    implementation: 0x20_0630,
};

fn id(id: u64) -> HartId {
    HartId::new(id).unwrap()
}

fn map<const CPUS: usize>(ids: [u64; CPUS]) -> HartMap<CPUS> {
    let map = HartMap::new();
    for (cpu, hart) in ids.into_iter().enumerate() {
        assert_eq!(map.insert(cpu, id(hart)), Ok(()));
    }
    map
}

/// The harts of all masks, each checked to be well formed.
fn harts(masks: impl Iterator<Item = HartMask>) -> Vec<u64> {
    let mut found = Vec::new();
    for HartMask { base, mask } in masks {
        assert_eq!(mask & 1, 1, "a base that is no target");
        found.extend(
            (0..64)
                .filter(|bit| mask >> bit & 1 != 0)
                .map(|bit| base + bit),
        );
    }
    found
}

#[test]
fn masks_are_few_and_begin_at_a_hart() {
    let map = map([70, 3, 66, 4, 1 << 40]);
    let masks: Vec<_> = map.masks(&[0b11111]).collect();
    let mask = |base, mask| HartMask { base, mask };
    let expected = [mask(3, 1 << 63 | 0b11), mask(70, 1), mask(1 << 40, 1)];
    assert_eq!(masks, expected);
    assert_eq!(map.masks(&[0b00100]).collect::<Vec<_>>(), [mask(66, 1)]);
    assert_eq!(map.masks(&[0]).count(), 0);
    assert_eq!(map.masks(&[1 << 5, 1]).count(), 0);
}

#[test]
fn masks_hold_each_target_once_and_are_as_few_as_can_be() {
    let mut state = 0x1234_5678_9abc_def1_u64;
    let mut next = move |limit: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) % limit
    };
    for round in 0..2000 {
        let spread = [80, 200, 5000, u64::MAX][round % 4];
        let mut used = BTreeSet::new();
        let map = HartMap::<100>::new();
        for cpu in 0..100 {
            let mut hart = next(spread);
            while spread > 100 && !used.insert(hart) {
                hart = next(spread);
            }
            map.insert(cpu, id(hart)).unwrap();
        }
        let targets = [next(u64::MAX), next(1 << 36)];
        let is_target = |cpu: &usize| targets[cpu / 64] >> (cpu % 64) & 1 != 0;
        let all = (0..100).filter(is_target);
        let expected: BTreeSet<u64> = all.map(|cpu| map.hart(cpu).unwrap().as_u64()).collect();
        let found = harts(map.masks(&targets));
        assert!(found.iter().eq(&expected), "in order, each once");
        let (mut fewest, mut end) = (0, None);
        for &hart in &expected {
            if end.is_none_or(|end| hart > end) {
                (fewest, end) = (fewest + 1, Some(hart.saturating_add(63)));
            }
        }
        assert_eq!(map.masks(&targets).count(), fewest);
    }
}

#[test]
fn the_highest_hart_ids_end_the_masks() {
    let map = map([u64::MAX - 1, u64::MAX - 64]);
    let masks: Vec<_> = map.masks(&[0b11]).collect();
    let base = u64::MAX - 64;
    assert_eq!(
        masks,
        [HartMask {
            base,
            mask: 1 << 63 | 1
        }]
    );
    assert_eq!(HartId::new(u64::MAX), None);
}

#[test]
fn a_cpu_is_one_hart() {
    let map = HartMap::<2>::default();
    assert_eq!(map.insert(0, id(7)), Ok(()));
    assert_eq!(map.insert(0, id(7)), Ok(()));
    assert_eq!(map.insert(0, id(8)), Err(MapError::Taken));
    assert_eq!(map.insert(2, id(9)), Err(MapError::NoSuchCpu));
    assert_eq!(
        (map.hart(0), map.hart(1), map.hart(2)),
        (Some(id(7)), None, None)
    );
}

#[test]
fn the_firmware_interrupts_many_with_one_call() {
    let (recorder, map) = (Recorder::default(), map([10, 12, 200]));
    let ipi = Ipi::new(&recorder, Way::Sbi(&map));
    assert_eq!(ipi.send(1), Ok(()));
    let call = |mask, base| Op::Sbi(Extension::IPI, 0, [mask, base, 0, 0]);
    assert_eq!(recorder.take(), [Op::Fence, call(1, 12)]);
    assert_eq!(ipi.send_many(&[0b111]), Ok(()));
    assert_eq!(recorder.take(), [Op::Fence, call(0b101, 10), call(1, 200)]);
}

#[test]
fn what_the_firmware_refuses_is_said() {
    let (recorder, map) = (Recorder::default(), map([10, 200, 400]));
    let ipi = Ipi::new(&recorder, Way::Sbi(&map));
    let refused = SbiReturn {
        error: -3,
        value: 0,
    };
    recorder.answers.replace(vec![OK, refused]);
    let error = SendError::Refused(SbiError::INVALID_PARAM);
    assert_eq!(ipi.send_many(&[0b111]), Err(error));
    recorder.answers.replace(vec![refused]);
    assert_eq!(ipi.send(0), Err(error));
}

#[test]
fn unknown_cpus_are_refused_before_anybody_is_interrupted() {
    let (recorder, map) = (Recorder::default(), map([10]));
    let ipi = Ipi::new(&recorder, Way::Sbi(&map));
    assert_eq!(ipi.send(1), Err(SendError::NoSuchCpu(1)));
    assert_eq!(ipi.send_many(&[0b1001]), Err(SendError::NoSuchCpu(3)));
    let doorbells = DoorbellMap::<1>::new(Doorbell::sswi());
    let ipi = Ipi::new(&recorder, Way::Doorbells(&doorbells));
    assert_eq!(ipi.send(0), Err(SendError::NoSuchCpu(0)));
    assert_eq!(ipi.send_many(&[1]), Err(SendError::NoSuchCpu(0)));
    assert_eq!(recorder.take(), []);
}

#[test]
fn doorbells_are_rung_one_by_one_with_their_value() {
    let mut words = [0_u32; 3];
    let registers = words.each_mut().map(NonNull::from);
    let at = |index: usize| registers[index].as_ptr() as usize;
    let identity = ImsicIdentity::new(37).unwrap();
    for (kind, value) in [(Doorbell::imsic(identity), 37), (Doorbell::sswi(), 1)] {
        let (recorder, map) = (Recorder::default(), DoorbellMap::<3>::new(kind));
        for (cpu, &register) in registers.iter().enumerate() {
            // SAFETY: the recorder writes nowhere.
            assert_eq!(unsafe { map.insert(cpu, register) }, Ok(()));
        }
        let ipi = Ipi::new(&recorder, Way::Doorbells(&map));
        assert_eq!(ipi.send(1), Ok(()));
        assert_eq!(recorder.take(), [Op::Fence, Op::Word(at(1), value)]);
        assert_eq!(ipi.send_many(&[0b101]), Ok(()));
        let both = [Op::Word(at(0), value), Op::Word(at(2), value)];
        assert_eq!(recorder.take(), [&[Op::Fence][..], &both].concat());
        // SAFETY: as above.
        let again = unsafe { map.insert(0, registers[1]) };
        // SAFETY: as above.
        let beyond = unsafe { map.insert(3, registers[0]) };
        let errors = (Err(MapError::Taken), Err(MapError::NoSuchCpu));
        assert_eq!((again, beyond), errors);
    }
    let known = [0, 1, 2047, 2048].map(|number| ImsicIdentity::new(number).is_some());
    assert_eq!(known, [false, true, true, false]);
}

#[test]
fn interrupts_are_acknowledged_before_a_fence() {
    let (recorder, map) = (Recorder::default(), map([0]));
    let ipi = Ipi::new(&recorder, Way::Sbi(&map));
    ipi.acknowledge();
    assert_eq!(recorder.take(), [Op::Clear, Op::Fence]);
    recorder.top.set(37 << 16 | 37);
    // SAFETY: the recorder takes everything.
    let claimed = unsafe { ipi.claim() };
    assert_eq!(claimed.map(ImsicIdentity::as_u16), Some(37));
    assert_eq!(recorder.take(), [Op::Claim, Op::Fence]);
    recorder.top.set(0);
    // SAFETY: as above.
    assert_eq!(unsafe { ipi.claim() }, None);
}

#[test]
fn remote_fences_name_no_asid_and_everything_for_tables() {
    let (recorder, map) = (Recorder::default(), map([10, 12, 200]));
    // SAFETY: emulated.
    let fences = unsafe { RemoteFences::new(&recorder, &map, SOUND) };
    let call = |mask, base, start, size| Op::Sbi(0x5246_4e43, 1, [mask, base, start, size]);
    assert_eq!(fences.flush_range(&[0b101], 0x1000, 0x3000), Ok(()));
    let near = call(1, 10, 0x1000, 0x3000);
    assert_eq!(
        recorder.take(),
        [Op::Fence, near, call(1, 200, 0x1000, 0x3000)]
    );
    assert_eq!(fences.flush_all(&[0b11]), Ok(()));
    assert_eq!(recorder.take(), [Op::Fence, call(0b101, 10, 0, u64::MAX)]);
    // To the firmware that would be everything.
    assert_eq!(fences.flush_range(&[0b1], 0, 0), Ok(()));
    assert_eq!(fences.flush_all(&[0b1001]), Err(SendError::NoSuchCpu(3)));
    assert_eq!(recorder.take(), []);
    recorder.answers.replace(vec![SbiReturn {
        error: -2,
        value: 0,
    }]);
    let error = SendError::Refused(SbiError::NOT_SUPPORTED);
    assert_eq!(fences.flush_all(&[0b101]), Err(error));
}

#[test]
fn with_the_erratum_the_firmware_is_given_no_address() {
    let (recorder, map) = (Recorder::default(), map([10]));
    // SAFETY: emulated.
    let fences = unsafe { RemoteFences::new(&recorder, &map, CIP_1200) };
    let all = [Op::Fence, Op::Sbi(0x5246_4e43, 1, [1, 10, 0, u64::MAX])];
    assert_eq!(fences.flush_range(&[1], 0x1000, 0x1000), Ok(()));
    assert_eq!(recorder.take(), all);
    assert_eq!(fences.flush_range(&[1], 0x1000, 0), Ok(()));
    assert_eq!(recorder.take(), []);
    assert_eq!(fences.flush_all(&[1]), Ok(()));
    assert_eq!(recorder.take(), all);
}

#[test]
fn the_firmware_says_what_it_has_and_where_it_runs() {
    let recorder = Recorder::default();
    let value = |value| SbiReturn { error: 0, value };
    recorder
        .answers
        .replace(vec![value(1), value(0), value(0x489), value(1), value(7)]);
    assert!(probe(&&recorder, Extension::RFENCE));
    assert!(!probe(&&recorder, Extension::IPI));
    let processor = Processor::read(&&recorder).unwrap();
    let expected = Processor {
        vendor: 0x489,
        architecture: 1,
        implementation: 7,
    };
    assert_eq!(processor, expected);
    assert!(processor.has_cip_1200());
    let base = |function, first| Op::Sbi(0x10, function, [first, 0, 0, 0]);
    let asked = [
        base(3, 0x5246_4e43),
        base(3, 0x73_5049),
        base(4, 0),
        base(5, 0),
        base(6, 0),
    ];
    assert_eq!(recorder.take(), asked);
    assert!(!Features::NONE.has(Features::SSAIA));
}

/// Two harts, a mailbox and a pending bit: each access is carried out as late, or as early, as no FENCE forbids.
#[derive(Default, Debug)]
struct Weak {
    /// What was stored, and what others see of it.
    stored: Cell<u32>,
    visible: Cell<u32>,
    pending: Cell<bool>,
    /// A clearing that is not carried out yet.
    clears: Cell<bool>,
    /// What the other hart stores, and sends, at the next FENCE of this one or when it looks.
    other_sends: Cell<bool>,
}

impl Weak {
    fn ring(&self) {
        self.pending.set(true);
    }

    /// The handler's look at the mailbox. The clearing may come behind it, and the other's store and interrupt in between.
    fn look(&self) -> u32 {
        let seen = self.visible.get();
        if self.other_sends.take() {
            self.visible.set(self.visible.get() + 1);
            self.ring();
        }
        if self.clears.take() {
            self.pending.set(false);
        }
        seen
    }
}

impl Port for &Weak {
    fn fence(&self) {
        self.visible.set(self.stored.get().max(self.visible.get()));
        if self.clears.take() {
            self.pending.set(false);
        }
    }
    unsafe fn sbi_call(&self, _: u64, _: u64, _: SbiArguments) -> SbiReturn {
        self.ring();
        OK
    }
    unsafe fn write_word(&self, _: NonNull<u32>, _: u32) {
        self.ring();
    }
    fn clear_software_interrupt(&self) {
        self.clears.set(true);
    }
    unsafe fn claim_external_interrupt(&self) -> u64 {
        self.clears.set(true);
        if self.pending.get() { 37 << 16 } else { 0 }
    }
}

#[test]
fn what_was_stored_before_is_seen_by_the_handler() {
    let mut word = 0_u32;
    let (harts, doorbells) = (map([0]), DoorbellMap::<1>::new(Doorbell::sswi()));
    // SAFETY: nothing writes there.
    unsafe { doorbells.insert(0, NonNull::from(&mut word)) }.unwrap();
    for way in [Way::Sbi(&harts), Way::Doorbells(&doorbells)] {
        for many in [false, true] {
            let weak = Weak::default();
            let ipi = Ipi::new(&weak, way);
            weak.stored.set(1);
            let sent = if many {
                ipi.send_many(&[1])
            } else {
                ipi.send(0)
            };
            assert_eq!(sent, Ok(()));
            assert_eq!((weak.pending.get(), weak.look()), (true, 1));
        }
    }
    let weak = Weak::default();
    weak.stored.set(1);
    // SAFETY: emulated.
    unsafe { RemoteFences::new(&weak, &harts, SOUND) }
        .flush_all(&[1])
        .unwrap();
    assert_eq!(weak.look(), 1);
}

#[test]
fn an_interrupt_that_comes_while_the_handler_looks_is_not_lost() {
    let harts = map([0]);
    for claims in [false, true] {
        let weak = Weak::default();
        let ipi = Ipi::new(&weak, Way::Sbi(&harts));
        weak.ring();
        weak.other_sends.set(true);
        if claims {
            // SAFETY: emulated.
            assert!(unsafe { ipi.claim() }.is_some());
        } else {
            ipi.acknowledge();
        }
        assert_eq!(weak.look(), 0);
        // It comes again, and sees what was missed.
        assert!(weak.pending.get());
        assert_eq!(weak.look(), 1);
    }
}
