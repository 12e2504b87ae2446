//! What gets into a map, when it is refused, and what plans make of it.

use std::collections::BTreeSet;
use std::sync::Barrier;

use shootdown_x86::apic::{ApicId, Destination, MapError, SendError};
use shootdown_x86::{ApicMode, Delivery, FadtFlags};

use crate::multicast::{CPUS, Map, map_of, send_and_check, set_of};

#[test]
fn insertions_at_once_are_refused_or_whole() {
    const ROUNDS: usize = 300;
    for _ in 0..ROUNDS {
        let map = Map::new();
        map.configure(Delivery::X2Cluster).unwrap();
        let start = Barrier::new(2);
        // Both want the same ids at different places, in one cluster.
        let insert = |base: usize| {
            start.wait();
            (0..8u32)
                .filter(|&nth| map.insert(base + nth as usize, ApicId(nth)).is_ok())
                .count()
        };
        let (first, second) = std::thread::scope(|scope| {
            let other = scope.spawn(|| insert(CPUS - 8));
            (insert(0), other.join().unwrap())
        });
        assert_eq!(first + second, map.mapped());
        let ids: Vec<_> = (0..CPUS).map(|cpu| map.id(cpu)).collect();
        let targets: BTreeSet<usize> = (0..CPUS).filter(|&cpu| ids[cpu].is_some()).collect();
        let distinct: BTreeSet<_> = ids.iter().flatten().collect();
        assert_eq!(distinct.len(), targets.len(), "an id was taken twice");
        send_and_check(&map, &ids, 0, &targets);
    }
}

#[test]
fn a_cpu_that_is_not_in_the_map_does_not_count_as_online() {
    let (map, ids) = map_of(Delivery::XapicPhysical, &[0, 1, 2, 3]);
    map.permit_shorthand();
    (0..4).for_each(|cpu| map.set_online(cpu));
    map.set_online(7);
    map.set_offline(8);
    map.set_online(CPUS);
    map.set_offline(usize::MAX);
    assert_eq!(map.online(), 4);
    assert_eq!(send_and_check(&map, &ids, 0, &set_of(0b1110)), 1);
}

#[test]
fn plans_for_old_cpus_hold_while_new_ones_are_inserted() {
    // Even indices are old, odd ones arrive between them, in the same clusters.
    let map = Map::new();
    map.configure(Delivery::X2Cluster).unwrap();
    let id = |cpu: usize| ApicId(cpu as u32);
    (0..CPUS)
        .step_by(2)
        .for_each(|cpu| map.insert(cpu, id(cpu)).unwrap());
    let ids: Vec<_> = (0..CPUS).map(|cpu| Some(id(cpu))).collect();
    let targets: BTreeSet<usize> = (0..CPUS).step_by(2).collect();
    std::thread::scope(|scope| {
        let inserter = scope.spawn(|| {
            (1..CPUS)
                .step_by(2)
                .for_each(|cpu| map.insert(cpu, id(cpu)).unwrap());
        });
        loop {
            let last = inserter.is_finished();
            assert_eq!(send_and_check(&map, &ids, 0, &targets), CPUS / 16);
            if last {
                break;
            }
        }
    });
    assert_eq!(map.mapped(), CPUS);
}

#[test]
fn unknown_targets_are_an_error_not_an_omission() {
    let (map, _) = map_of(Delivery::X2Cluster, &[0, 1, 2]);
    assert_eq!(map.plan(0, &[0b1010]).err(), Some(SendError::Unmapped(3)));
    assert_eq!(
        map.plan(0, &[0, 0, 0, 1]).err(),
        Some(SendError::Unmapped(192))
    );
    assert_eq!(map.plan(0, &[]).unwrap().next(), None);
}

#[test]
fn bad_insertions_are_refused_and_leave_the_map_alone() {
    let map = Map::new();
    map.configure(Delivery::XapicFlat).unwrap();
    assert_eq!(map.insert(8, ApicId(8)), Err(MapError::IndexTooLarge(8)));
    assert_eq!(map.insert(0, ApicId(255)), Err(MapError::IdTooWide(255)));
    map.insert(0, ApicId(254)).unwrap();
    assert_eq!(map.insert(0, ApicId(1)), Err(MapError::IndexTaken(0)));
    assert_eq!(map.insert(1, ApicId(254)), Err(MapError::IdTaken(254)));
    assert_eq!(map.configure(Delivery::X2Cluster), Err(MapError::NotEmpty));
    assert_eq!(map.mapped(), 1);
    assert_eq!(map.cpu_of(ApicId(254)), Some(0));
    assert_eq!(map.flat_id(0).map(|flat| flat.bit()), Some(1));
    let wide = Map::new();
    wide.configure(Delivery::X2Cluster).unwrap();
    assert_eq!(
        wide.insert(CPUS, ApicId(0)),
        Err(MapError::IndexTooLarge(CPUS))
    );
    assert_eq!(
        wide.insert(0, ApicId(u32::MAX)),
        Err(MapError::IdTooWide(u32::MAX))
    );
    assert_eq!(wide.flat_id(0), None);
}

#[test]
fn the_delivery_with_the_fewest_commands_is_chosen() {
    let chosen = |mode, cpus| Delivery::choose(mode, cpus, FadtFlags::empty());
    assert_eq!(chosen(ApicMode::XApic, 8), Delivery::XapicFlat);
    assert_eq!(chosen(ApicMode::XApic, 9), Delivery::XapicPhysical);
    assert_eq!(chosen(ApicMode::X2Apic, 2), Delivery::X2Cluster);
}

/// Logical destinations of a kind that the firmware forbids are not used, and its other flags change nothing.
#[test]
fn the_firmware_forbids_kinds_of_destinations() {
    let (cluster, physical) = (1 << 18, 1 << 19);
    let flat = (Delivery::XapicFlat, Delivery::X2Cluster);
    for (flags, expected) in [
        (!(cluster | physical), flat),
        (cluster, (Delivery::XapicPhysical, Delivery::X2Cluster)),
        (physical, (Delivery::XapicPhysical, Delivery::X2Physical)),
        (!0, (Delivery::XapicPhysical, Delivery::X2Physical)),
    ] {
        let firmware = FadtFlags::from_bits_retain(flags);
        let chosen = |mode| Delivery::choose(mode, 8, firmware);
        let chosen = (chosen(ApicMode::XApic), chosen(ApicMode::X2Apic));
        assert_eq!(chosen, expected, "{flags:#x}");
    }
}

/// The last id that names one CPU, and the first that does not.
#[test]
fn ids_end_below_the_broadcast_address() {
    for (delivery, end) in [
        (Delivery::XapicFlat, 0xff),
        (Delivery::XapicPhysical, 0xff),
        (Delivery::X2Physical, u32::MAX),
        (Delivery::X2Cluster, u32::MAX),
    ] {
        let map = Map::new();
        map.configure(delivery).unwrap();
        let insert = |cpu, id| map.insert(cpu, ApicId(id));
        assert_eq!(insert(1, end), Err(MapError::IdTooWide(end)));
        assert_eq!((insert(1, end - 1), insert(0, 0)), (Ok(()), Ok(())));
        let last = if delivery == Delivery::XapicFlat {
            7
        } else {
            CPUS - 1
        };
        assert_eq!(insert(last, 2), Ok(()));
        assert_eq!(insert(last + 1, 3), Err(MapError::IndexTooLarge(last + 1)));
    }
}

#[test]
fn a_single_target_takes_its_own_id_whatever_else_would_do() {
    for delivery in [
        Delivery::XapicFlat,
        Delivery::XapicPhysical,
        Delivery::X2Physical,
        Delivery::X2Cluster,
    ] {
        let (map, _) = map_of(delivery, &[4, 5]);
        map.permit_shorthand();
        (0..2).for_each(|cpu| map.set_online(cpu));
        let plan: Vec<_> = map.plan(0, &[0b10]).unwrap().collect();
        assert_eq!(plan, [Destination::Physical(ApicId(5))]);
    }
}
