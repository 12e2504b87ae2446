//! Sending, against a recorder.

use std::cell::RefCell;

use shootdown_arm64::gic::{InterfaceMap, MapError, Port, RangeSelector};
use shootdown_arm64::{Affinity, AffinityMap, Gic2, Gic3, SendError, Sgi};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Op {
    Fence,
    Write(u64),
    Synchronise,
}

#[derive(Default, Debug)]
struct Recorder(RefCell<Vec<Op>>);

impl Port for &Recorder {
    fn fence(&self) {
        self.0.borrow_mut().push(Op::Fence);
    }
    unsafe fn write(&self, value: u64) {
        self.0.borrow_mut().push(Op::Write(value));
    }
    fn synchronise(&self) {
        self.0.borrow_mut().push(Op::Synchronise);
    }
}

const SGI: Sgi = Sgi::new(5).unwrap();

fn mpidr(aff3: u64, aff2: u64, aff1: u64, aff0: u64) -> Affinity {
    // Bit 31 reads as one, bits 30 and 24 have meanings of their own.
    Affinity::from_mpidr(aff3 << 32 | 0xc100_0000 | aff2 << 16 | aff1 << 8 | aff0)
}

fn map<const N: usize>(affinities: [Affinity; N]) -> AffinityMap<128> {
    let map = AffinityMap::new();
    for (cpu, affinity) in affinities.into_iter().enumerate() {
        map.insert(cpu, affinity).unwrap();
    }
    map
}

fn sent(
    map: &AffinityMap<128>,
    selector: RangeSelector,
    targets: &[u64],
) -> (Vec<u64>, Result<(), SendError>) {
    let recorder = Recorder::default();
    // SAFETY: recorded.
    let gic = unsafe { Gic3::new(&recorder, selector) };
    let result = gic.send_many(map, targets, SGI);
    let ops = recorder.0.into_inner();
    assert_eq!(ops.first(), Some(&Op::Fence));
    assert_eq!(ops.last(), Some(&Op::Synchronise));
    let inner = ops[1..ops.len() - 1].iter().map(|op| match op {
        Op::Write(value) => *value,
        other => panic!("{other:?}"),
    });
    (inner.collect(), result)
}

#[test]
fn sixteen_cpus_take_one_write() {
    let map = map::<40>(core::array::from_fn(|cpu| {
        mpidr(0, 0, cpu as u64 / 16, cpu as u64 % 16)
    }));
    let (writes, result) = sent(&map, RangeSelector::Absent, &[0xff_ffff_ffff]);
    assert_eq!(result, Ok(()));
    assert_eq!(writes, [0x0500_ffff, 0x0501_ffff, 0x0502_00ff]);
    assert_eq!(
        sent(&map, RangeSelector::Absent, &[0x8001]).0,
        [0x0500_8001]
    );
    assert_eq!(sent(&map, RangeSelector::Absent, &[0]).0, []);
}

#[test]
fn every_affinity_is_in_its_field() {
    let map = map([mpidr(0x12, 0x34, 0x56, 0x7)]);
    assert_eq!(
        sent(&map, RangeSelector::Absent, &[1]).0,
        [0x0012_0034_0556_0080]
    );
}

#[test]
fn ranges_of_affinity_zero_take_the_selector() {
    let map = map([
        mpidr(0, 0, 1, 0x2f),
        mpidr(0, 0, 1, 0x20),
        mpidr(0, 0, 1, 0x30),
    ]);
    let (writes, result) = sent(&map, RangeSelector::Present, &[7]);
    assert_eq!(
        (writes, result),
        (vec![0x2000_0501_8001, 0x3000_0501_0001], Ok(()))
    );
    let (writes, result) = sent(&map, RangeSelector::Absent, &[7]);
    assert_eq!((writes, result), (vec![], Err(SendError::OutOfReach(0))));
}

/// Numbers that go back and forth between clusters cost writes, and lose nobody.
#[test]
fn whatever_the_numbers_every_cpu_is_sent_one() {
    let map = map::<100>(core::array::from_fn(|cpu| {
        mpidr(
            cpu as u64 % 3,
            cpu as u64 % 2,
            cpu as u64 % 5,
            cpu as u64 / 30 * 8 + cpu as u64 % 7,
        )
    }));
    for seed in 1..200u64 {
        let word = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let targets = [word, word.rotate_left(17) & 0xf_ffff_ffff];
        let (writes, result) = sent(&map, RangeSelector::Present, &targets);
        assert_eq!(result, Ok(()));
        let mut reached = Vec::new();
        for value in writes {
            assert_eq!(value >> 24 & 0xf, 5);
            let (aff3, aff2, aff1) = (value >> 48, value >> 32 & 0xff, value >> 16 & 0xff);
            let bits = (0..16).filter(|bit| value >> bit & 1 != 0);
            let aff0 = bits.map(|bit| (value >> 44 & 0xf) * 16 + bit);
            reached.extend(aff0.map(|aff0| mpidr(aff3, aff2, aff1, aff0).as_u64()));
        }
        let named = (0..100).filter(|&cpu| targets[cpu / 64] >> (cpu % 64) & 1 != 0);
        let mut named: Vec<_> = named
            .map(|cpu| map.affinity(cpu).unwrap().as_u64())
            .collect();
        reached.sort_unstable();
        named.sort_unstable();
        assert_eq!(reached, named);
    }
}

#[test]
fn one_that_is_missing_keeps_no_other_from_its_interrupt() {
    let map = map([mpidr(0, 0, 0, 0), mpidr(0, 0, 0, 1)]);
    let (writes, result) = sent(&map, RangeSelector::Absent, &[7, 1]);
    assert_eq!(
        (writes, result),
        (vec![0x0500_0003], Err(SendError::UnknownCpu(2)))
    );
    let recorder = Recorder::default();
    // SAFETY: recorded.
    let gic = unsafe { Gic3::new(&recorder, RangeSelector::Absent) };
    assert_eq!(gic.send(&map, 1, SGI), Ok(()));
    assert_eq!(gic.send(&map, 500, SGI), Err(SendError::UnknownCpu(500)));
    assert_eq!(
        recorder.0.borrow()[..3],
        [Op::Fence, Op::Write(0x0500_0002), Op::Synchronise]
    );
}

#[test]
fn firmware_and_the_register_name_the_same_cpu() {
    let register = Affinity::from_mpidr(0x12_c134_5678);
    assert_eq!(register, Affinity::from_mpidr(0x12_0034_5678));
    assert_eq!(register.as_u64(), 0x12_0034_5678);
}

#[test]
fn maps_refuse_what_would_mislead() {
    let map = AffinityMap::<2>::new();
    assert_eq!(map.insert(0, mpidr(0, 0, 0, 0)), Ok(()));
    assert_eq!(
        map.insert(1, mpidr(0, 0, 0, 0)),
        Err(MapError::AffinityTaken(0))
    );
    assert_eq!(
        map.insert(0, mpidr(0, 0, 0, 1)),
        Err(MapError::IndexTaken(0))
    );
    assert_eq!(
        map.insert(2, mpidr(0, 0, 0, 1)),
        Err(MapError::IndexTooLarge(2))
    );
    assert_eq!(map.affinity(1), None);
    assert_eq!(map.affinity(2), None);
    assert!(Sgi::new(16).is_none() && Sgi::new(15).is_some());
}

#[test]
fn the_distributor_takes_one_write_for_all() {
    let map = InterfaceMap::new();
    for (cpu, interface) in [(0, 1), (1, 4), (7, 128)] {
        map.insert(cpu, interface).unwrap();
    }
    assert_eq!(map.insert(2, 4), Err(MapError::AffinityTaken(2)));
    assert_eq!(map.insert(2, 3), Err(MapError::AffinityTaken(2)));
    assert_eq!(map.insert(0, 2), Err(MapError::IndexTaken(0)));
    assert_eq!(map.insert(8, 2), Err(MapError::IndexTooLarge(8)));
    let send = |targets: &[u64]| {
        let recorder = Recorder::default();
        // SAFETY: recorded.
        let gic = unsafe { Gic2::new(&recorder) };
        let result = gic.send_many(&map, targets, SGI);
        (recorder.0.into_inner(), result)
    };
    assert_eq!(
        send(&[0x83]),
        (vec![Op::Fence, Op::Write(0x0085_0005)], Ok(()))
    );
    let some = (
        vec![Op::Fence, Op::Write(0x0001_0005)],
        Err(SendError::UnknownCpu(2)),
    );
    assert_eq!(send(&[5]), some);
    assert_eq!(send(&[0]), (vec![], Ok(())));
}
