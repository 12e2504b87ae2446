//! Who gets an interrupt, and with how many commands: the decoded ICR writes of `send_many`.

use std::collections::BTreeSet;

use proptest::prelude::*;
use shootdown_x86::apic::ApicId;
use shootdown_x86::{ApicMap, Delivery};

use crate::machine::{Machine, VECTOR, accepted, x2apic, xapic};

/// CPUs in the maps tested here: three words of bits.
pub const CPUS: usize = 192;
pub type Map = ApicMap<CPUS>;

/// A map, and the ids by index for the model.
pub fn map_of(delivery: Delivery, ids: &[u32]) -> (Map, Vec<Option<ApicId>>) {
    let map = Map::new();
    map.configure(delivery).unwrap();
    for (cpu, &id) in ids.iter().enumerate() {
        map.insert(cpu, ApicId(id)).unwrap();
    }
    (map, ids.iter().map(|&id| Some(ApicId(id))).collect())
}

fn words_of(cpus: &BTreeSet<usize>) -> Vec<u64> {
    let mut words = vec![0; CPUS / 64];
    for cpu in cpus {
        words[cpu / 64] |= 1 << (cpu % 64);
    }
    words
}

/// Sends, and returns the number of commands after checking that they reach `targets`, each once.
pub fn send_and_check(
    map: &Map,
    ids: &[Option<ApicId>],
    initiator: usize,
    targets: &BTreeSet<usize>,
) -> usize {
    let machine = Machine::default();
    let delivery = map.delivery();
    let apic = match delivery {
        Delivery::XapicFlat | Delivery::XapicPhysical => xapic(&machine),
        Delivery::X2Cluster | Delivery::X2Physical => x2apic(&machine),
    };
    apic.send_many(map, initiator, &words_of(targets), VECTOR)
        .unwrap();
    let sent = machine.sent.borrow();
    let mut reached = BTreeSet::new();
    for &sent in sent.iter() {
        assert_eq!(sent.low & 0xff, u32::from(VECTOR.as_u8()));
        let got = accepted(sent, delivery, ids, initiator);
        assert!(!got.is_empty(), "{sent:x?} reaches nobody");
        assert!(reached.is_disjoint(&got), "{sent:x?} reaches a CPU twice");
        reached.extend(got);
    }
    assert_eq!(&reached, targets);
    sent.len()
}

/// The fewest commands without a shorthand, counted from the ids alone.
fn fewest(delivery: Delivery, ids: &[Option<ApicId>], targets: &BTreeSet<usize>) -> usize {
    match delivery {
        Delivery::XapicFlat => usize::from(!targets.is_empty()),
        Delivery::XapicPhysical | Delivery::X2Physical => targets.len(),
        Delivery::X2Cluster => {
            let id = |cpu: &usize| ids[*cpu].unwrap().0;
            let (near, far): (Vec<u32>, Vec<u32>) =
                targets.iter().map(id).partition(|id| *id < 1 << 20);
            let clusters: BTreeSet<u32> = near.iter().map(|id| id / 16).collect();
            clusters.len() + far.len()
        }
    }
}

/// The members of a bit mask.
pub fn set_of(mask: usize) -> BTreeSet<usize> {
    (0..usize::BITS as usize)
        .filter(|cpu| mask >> cpu & 1 != 0)
        .collect()
}

#[test]
fn every_subset_of_eight_flat_cpus_takes_one_command() {
    let (map, ids) = map_of(Delivery::XapicFlat, &[0, 2, 4, 6, 1, 3, 5, 200]);
    for mask in 0..256 {
        let targets = set_of(mask);
        let commands = send_and_check(&map, &ids, 0, &targets);
        assert_eq!(commands, fewest(Delivery::XapicFlat, &ids, &targets));
    }
}

#[test]
fn more_than_eight_xapic_cpus_take_one_command_each() {
    let (map, ids) = map_of(
        Delivery::XapicPhysical,
        &[0, 1, 2, 3, 4, 5, 6, 7, 16, 18, 254],
    );
    for mask in 0..1 << ids.len() {
        let targets = set_of(mask);
        assert_eq!(send_and_check(&map, &ids, 3, &targets), targets.len());
    }
}

#[test]
fn every_subset_of_interleaved_clusters_takes_one_command_a_cluster() {
    // Neighbours by index are in different clusters; one id has no logical address.
    let sparse = [0, 16, 33, 1, 31, 47, 15, 0x10_0000, 20, 2, 0xf_ffff];
    let (map, ids) = map_of(Delivery::X2Cluster, &sparse);
    for mask in 0..1 << sparse.len() {
        let targets = set_of(mask);
        let commands = send_and_check(&map, &ids, 0, &targets);
        assert_eq!(
            commands,
            fewest(Delivery::X2Cluster, &ids, &targets),
            "{targets:?}"
        );
    }
}

#[test]
fn neighbours_without_a_logical_address_take_one_command_each() {
    let far = [
        0x10_0000,
        0x10_0001,
        0,
        0x10_0002,
        1,
        0xffff_fff0,
        0xffff_fff1,
    ];
    let (map, ids) = map_of(Delivery::X2Cluster, &far);
    for mask in 0..1 << far.len() {
        let targets = set_of(mask);
        let commands = send_and_check(&map, &ids, 2, &targets);
        assert_eq!(commands, fewest(Delivery::X2Cluster, &ids, &targets));
    }
}

#[test]
fn shorthand_is_for_exactly_everyone_else_online() {
    for delivery in [Delivery::XapicPhysical, Delivery::X2Cluster] {
        let (map, ids) = map_of(delivery, &[0, 16, 32, 48, 64]);
        map.permit_shorthand();
        (0..5).for_each(|cpu| map.set_online(cpu));
        for initiator in 0..5 {
            for mask in 0..32 {
                let targets = set_of(mask);
                let commands = send_and_check(&map, &ids, initiator, &targets);
                let everyone_else = mask == 0b11111 & !(1 << initiator);
                assert_eq!(commands, if everyone_else { 1 } else { targets.len() });
            }
        }
    }
}

#[test]
fn shorthand_waits_for_permission_and_for_the_last_cpu() {
    let (map, ids) = map_of(Delivery::XapicPhysical, &[0, 1, 2, 3]);
    let others = set_of(0b1110);
    let commands = || send_and_check(&map, &ids, 0, &others);
    (0..4).for_each(|cpu| map.set_online(cpu));
    assert_eq!(commands(), 3, "not permitted");
    map.permit_shorthand();
    assert_eq!(commands(), 1);
    map.set_offline(3);
    assert_eq!(commands(), 3, "a target is offline");
    assert_eq!(map.online(), 3);
    map.set_offline(3);
    map.set_online(3);
    map.set_online(3);
    assert_eq!(map.online(), 4, "repeating counts once");
    map.set_offline(0);
    assert_eq!(commands(), 3, "the initiator is offline");
}

#[test]
fn shorthand_compares_sets_and_not_their_sizes() {
    let (map, ids) = map_of(Delivery::XapicPhysical, &[0, 1, 2, 3, 4]);
    let commands = || send_and_check(&map, &ids, 0, &set_of(0b01110));
    map.permit_shorthand();
    (0..5).for_each(|cpu| map.set_online(cpu));
    map.set_offline(3);
    // With the one that is offline.
    assert_eq!(commands(), 3);
    map.set_online(3);
    map.set_offline(0);
    assert_eq!(commands(), 3, "the initiator is not counted");
}

/// Distinct ids, clustered and sparse, in any order of index.
fn any_ids(limit: u32, most: usize) -> impl Strategy<Value = Vec<u32>> {
    let id = prop_oneof![0..64.min(limit), 0..limit];
    prop::collection::hash_set(id, 1..=most)
        .prop_map(|ids| ids.into_iter().collect::<Vec<_>>())
        .prop_shuffle()
}

fn any_machine() -> impl Strategy<Value = (Delivery, Vec<u32>)> {
    prop_oneof![
        any_ids(255, 8).prop_map(|ids| (Delivery::XapicFlat, ids)),
        any_ids(255, 100).prop_map(|ids| (Delivery::XapicPhysical, ids)),
        any_ids(1 << 21, CPUS).prop_map(|ids| (Delivery::X2Cluster, ids)),
        any_ids(u32::MAX, CPUS).prop_map(|ids| (Delivery::X2Physical, ids)),
    ]
}

proptest! {
    #[test]
    fn any_targets_are_reached_once_with_the_fewest_commands(
        (delivery, ids) in any_machine(),
        bits in prop::collection::vec(any::<bool>(), CPUS),
        initiator in 0..CPUS,
    ) {
        let (map, ids) = map_of(delivery, &ids);
        let targets: BTreeSet<usize> = (0..ids.len()).filter(|&cpu| bits[cpu]).collect();
        let commands = send_and_check(&map, &ids, initiator % ids.len(), &targets);
        prop_assert_eq!(commands, fewest(delivery, &ids, &targets));
    }

    #[test]
    fn order_of_insertion_does_not_matter(
        order in Just((0..64).collect::<Vec<usize>>()).prop_shuffle(),
        mask in any::<u64>(),
    ) {
        // Four clusters of 16, four neighbours by index each.
        let id = |cpu: usize| ApicId((cpu % 4 * 16 + cpu / 4) as u32);
        let map = Map::new();
        map.configure(Delivery::X2Cluster).unwrap();
        for &cpu in &order {
            map.insert(cpu, id(cpu)).unwrap();
        }
        let ids: Vec<_> = (0..64).map(|cpu| Some(id(cpu))).collect();
        let targets = set_of(mask as usize);
        let commands = send_and_check(&map, &ids, 0, &targets);
        prop_assert_eq!(commands, fewest(Delivery::X2Cluster, &ids, &targets));
    }
}
