//! Remote actions on an emulated machine. No processor and no emulator with them was at hand.

mod machine;

use machine::{CPUS, Entry, FIRST, LARGE, Machine, SLOTS, SMALL, Table, WORDS, set};
use proptest::prelude::*;
use shootdown_x86::rar::{BeginError, Flight, Payload, State};
use shootdown_x86::tlb::{Depth, Pcid};
use std::sync::atomic::Ordering;

const ALL: u64 = (1 << CPUS) - 1;

fn entries() -> impl Strategy<Value = Entry> {
    let bytes = prop_oneof![Just(SMALL), Just(LARGE)];
    (0..70usize, bytes, 1..3u16, any::<bool>(), any::<bool>()).prop_map(
        |(page, bytes, pcid, is_global, is_table)| Entry {
            pcid,
            start: page * bytes,
            bytes: if is_table { LARGE } else { bytes },
            is_global: is_global && !is_table,
            is_table,
        },
    )
}

/// What is asked for: a payload, and what must be gone after it.
#[derive(Clone, Copy, Debug)]
enum Asked {
    Pages(u16, (usize, usize, usize), bool),
    Context(u16),
    All,
    AllNonGlobal,
}

impl Asked {
    fn payload(self) -> Payload {
        let pcid = |pcid| Pcid::new(pcid).unwrap();
        match self {
            Self::Pages(tag, range, true) => Payload::pages(pcid(tag), range, Depth::Tables),
            Self::Pages(tag, range, false) => Payload::pages(pcid(tag), range, Depth::Leaf),
            Self::Context(tag) => Payload::context(pcid(tag)),
            Self::All => Payload::all(),
            Self::AllNonGlobal => Payload::all_non_global(),
        }
    }

    fn names(self, entry: &Entry) -> bool {
        match self {
            Self::Pages(pcid, (start, stride, pages), are_tables_freed) => {
                let mut addresses = (0..pages).map(|page| start + page * stride);
                let is_there = addresses.any(|address| entry.covers(address));
                let is_leading = are_tables_freed && entry.is_table;
                entry.pcid == pcid && !entry.is_global && (is_there || is_leading)
            }
            Self::Context(pcid) => entry.pcid == pcid && !entry.is_global,
            Self::All => true,
            Self::AllNonGlobal => !entry.is_global,
        }
    }
}

fn requests() -> impl Strategy<Value = (Asked, u64, bool, usize)> {
    let stride = prop_oneof![Just(SMALL), Just(LARGE)];
    let range = (0..70usize, stride, 1..70usize)
        .prop_map(|(page, stride, pages)| (page * stride, stride, pages));
    let asked = prop_oneof![
        4 => (1..3u16, range, any::<bool>()).prop_map(|(pcid, range, tables)| Asked::Pages(pcid, range, tables)),
        1 => (1..3u16).prop_map(Asked::Context),
        1 => Just(Asked::All),
        1 => Just(Asked::AllNonGlobal),
    ];
    (asked, 0..=ALL, prop::bool::weighted(0.15), 0..4usize)
}

fn who_says_so_has_flushed(
    machine: &Machine,
    flight: &Flight<'_, WORDS>,
    asked: Asked,
    bits: u64,
) -> Result<(), TestCaseError> {
    for cpu in 0..CPUS {
        let state = flight.poll(machine, FIRST + cpu);
        let is_target = bits >> cpu & 1 != 0;
        prop_assert!(is_target || state == State::Failed, "{cpu} was not asked");
        if state == State::Done {
            let left = &machine.cpus.borrow()[cpu].cached;
            let stale = left.iter().find(|entry| asked.names(entry));
            prop_assert!(stale.is_none(), "{cpu} has {stale:x?} after {asked:x?}");
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(3000) })]

    /// A target that says that it is done has nothing left of what was asked, whatever became of the requests before.
    #[test]
    fn who_is_done_has_flushed(
        cached in proptest::collection::vec(entries(), 1..30),
        requests in proptest::collection::vec(requests(), 1..8),
        choices in proptest::collection::vec(0..CPUS * 120, 0..250),
        slots in 1..4u64,
    ) {
        let machine = Machine::new(&cached, &choices, slots);
        let table = machine.start();
        let mut flights: Vec<(Flight<'_, WORDS>, Asked, u64)> = Vec::new();
        for (asked, bits, is_stuck, polls) in requests {
            // What the target loses now it may have cached again: before the request, not after.
            for cpu in machine.cpus.borrow_mut().iter_mut() {
                cpu.cached.clone_from(&cached);
            }
            flights.clear();
            machine.is_stuck.set(is_stuck);
            match table.begin(&machine, &set(bits), asked.payload()) {
                Ok(flight) => flights.push((flight, asked, bits)),
                Err(error) => prop_assert!(matches!(error, BeginError::NoSlot | BeginError::Send(_))),
            }
            for _ in 0..polls {
                for (flight, asked, bits) in &flights {
                    who_says_so_has_flushed(&machine, flight, *asked, *bits)?;
                }
            }
        }
        flights.clear();
        // Nothing is lost: when all are through every slot is free.
        machine.choices.borrow_mut().clear();
        machine.cpus.borrow_mut().iter_mut().for_each(|cpu| cpu.is_looking = true);
        machine.drain();
        machine.is_stuck.set(false);
        for _ in 0..slots {
            flights.push((table.begin(&machine, &set(ALL), Payload::all()).unwrap(), Asked::All, ALL));
        }
        let more = table.begin(&machine, &set(ALL), Payload::all());
        prop_assert_eq!(more.err(), Some(BeginError::NoSlot));
    }
}

/// A slot is not given out before its targets are through, even if nobody waits for them any more.
#[test]
fn a_slot_waits_for_its_targets() {
    let machine = Machine::new(&[], &[], SLOTS as u64);
    let table = machine.start();
    let begin = || table.begin(&machine, &set(ALL), Payload::all());
    let flights: Vec<_> = (0..SLOTS).map(|_| begin().unwrap()).collect();
    assert_eq!(begin().err(), Some(BeginError::NoSlot));
    drop(flights);
    assert_eq!(begin().err(), Some(BeginError::NoSlot));
    for cpu in 1..CPUS {
        while machine.step(cpu, 0) {}
    }
    // One target is not through, and has begun one of them.
    assert!(machine.step(0, 7));
    assert_eq!(begin().err(), Some(BeginError::NoSlot));
    assert!(machine.step(0, 0));
    let flight = begin().unwrap();
    assert_eq!(flight.poll(&machine, FIRST), State::Pending);
    machine.drain();
    assert!(flight.is_settled(&machine) && begin().is_ok());
}

/// All that a byte can say, but for what a target does.
#[test]
fn a_byte_says_how_far_a_target_is() {
    let machine = Machine::new(&[], &[], 1);
    let table = machine.start();
    let flight = table.begin(&machine, &set(1), Payload::all()).unwrap();
    for byte in 0..=u8::MAX {
        let state = match byte {
            0 => State::Done,
            0x80 => State::Failed,
            _ => State::Pending,
        };
        machine.byte(0, 0).store(byte, Ordering::SeqCst);
        assert_eq!(flight.poll(&machine, FIRST), state, "{byte:#x}");
        assert_eq!(flight.is_settled(&machine), state != State::Pending);
    }
    assert_eq!(flight.poll(&machine, FIRST + 1), State::Failed);
    assert_eq!(flight.poll(&machine, 64 * WORDS), State::Failed);
}

/// A processor that fails has its slot back, and the next request begins anew.
#[test]
fn a_failure_is_not_the_next_requests() {
    let machine = Machine::new(&[], &[], 1);
    let table = machine.start();
    machine.cpus.borrow_mut()[0].is_broken = true;
    let flight = table.begin(&machine, &set(0b11), Payload::all()).unwrap();
    machine.drain();
    let states = |flight: &Flight<'_, WORDS>| [0, 1].map(|cpu| flight.poll(&machine, FIRST + cpu));
    assert_eq!(states(&flight), [State::Failed, State::Done]);
    drop(flight);
    machine.cpus.borrow_mut()[0].is_broken = false;
    let flight = table.begin(&machine, &set(0b11), Payload::all()).unwrap();
    assert_eq!(states(&flight), [State::Pending; 2]);
    machine.drain();
    assert_eq!(states(&flight), [State::Done; 2]);
}

#[test]
fn whom_it_cannot_name_it_refuses() {
    let machine = Machine::new(&[], &[], 1);
    let table = machine.start();
    let refused = table.begin(&machine, &[0, 0, 1], Payload::all());
    assert_eq!(refused.err(), Some(BeginError::TooMany));
    let last = [0, 1 << 63, 0];
    assert!(table.begin(&machine, &last, Payload::all()).is_ok());
}

/// Control is last: from then on the processor reads what the others name. The register of vectors differs.
#[test]
fn a_processor_starts_when_its_registers_are_set() {
    let machine = Machine::new(&[], &[], 1);
    let table = machine.start();
    let base = std::ptr::from_ref(table).addr() as u64;
    let expected = (0..CPUS).flat_map(|cpu| {
        let vector = base + 4096 + 64 * (FIRST + cpu) as u64;
        [(0xee, vector), (0xef, base), (0xed, 0b11 << 30)]
    });
    assert_eq!(machine.log.take(), expected.collect::<Vec<_>>());
    // SAFETY: the emulated processor has it.
    unsafe { Table::stop(&machine) };
    assert_eq!(machine.log.take(), [(0xed, 0)]);
    // SAFETY: as above.
    assert!(unsafe { Table::is_supported(&machine) });
}

/// What is pending when a CPU starts is forgotten: it begins with an empty TLB.
#[test]
fn a_start_forgets() {
    let machine = Machine::new(&[], &[], 1);
    let table = machine.start();
    machine.byte(0, 5).store(1, Ordering::SeqCst);
    machine.current.set(0);
    let physical = std::ptr::from_ref(table).addr() as u64;
    // SAFETY: the emulated processor has them, and the address is the table's.
    unsafe { table.start(&machine, FIRST, physical) };
    assert_eq!(machine.byte(0, 5).load(Ordering::SeqCst), 0);
}

/// Processors that look at once, and then not before the next signal, find what they were signalled for.
#[test]
fn a_signal_finds_its_request() {
    let entry = Entry {
        pcid: 1,
        start: 0,
        bytes: SMALL,
        is_global: true,
        is_table: false,
    };
    let machine = Machine::new(&[entry], &[], 1);
    let table = machine.start();
    machine.is_eager.set(true);
    let flight = table.begin(&machine, &set(ALL), Payload::all()).unwrap();
    for cpu in 0..CPUS {
        assert_eq!(flight.poll(&machine, FIRST + cpu), State::Done, "{cpu}");
        assert!(machine.cpus.borrow()[cpu].cached.is_empty());
    }
}
