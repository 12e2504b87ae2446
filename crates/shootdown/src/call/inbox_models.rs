//! loom models of the inbox.

extern crate std;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use std::vec::Vec;

use super::Inbox;
use crate::capacity::Capacity;
use crate::cpu::CpuId;

const ME: CpuId = CpuId::new(0);

/// How many initiators are found.
fn take<C: Capacity>(inbox: &Inbox<C>, mut each: impl FnMut(usize, u64)) -> u32 {
    let mut count = 0;
    inbox.take(ME, false, |group, word| {
        count += word.count_ones();
        each(group, word);
    });
    count
}

/// Two initiators, one responder that looks when it is interrupted and now and then on its
/// own, putting back what it found the first time: every initiator is found after it announced itself, or
/// an interrupt that was sent for it is still to be taken (I7).
fn no_initiator_is_lost(initiators: [u32; 2]) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(3);
    builder.check(move || {
        let inbox = Arc::new(Inbox::<crate::Cpus<5>>::new());
        let interrupts = Arc::new(AtomicU64::new(0));
        let initiators: Vec<_> = initiators
            .into_iter()
            .map(|number| {
                let (inbox, interrupts) = (inbox.clone(), interrupts.clone());
                loom::thread::spawn(move || {
                    if inbox.add(CpuId::new(number), false) {
                        interrupts.fetch_add(1, Ordering::AcqRel);
                    }
                })
            })
            .collect();
        let mut back = Vec::new();
        take(&inbox, |group, word| back.push((group, word)));
        for (group, word) in back {
            inbox.put_back(group, word);
        }
        let mut found = take(&inbox, |_, _| ());
        for initiator in initiators {
            initiator.join().unwrap();
        }
        // What the interrupt handler does, once for all interrupts since; the put-back needs no
        // interrupt because the responder looks again by itself.
        if interrupts.swap(0, Ordering::AcqRel) > 0 {
            found += take(&inbox, |_, _| ());
        }
        assert_eq!(found, 2, "an initiator was lost");
        assert!(inbox.is_quiet(ME));
    });
}

#[test]
fn a_wide_inbox_loses_no_initiator() {
    no_initiator_is_lost([1, 4]);
}

/// Only the first of a word rings.
#[test]
fn a_wide_inbox_loses_no_initiator_of_one_word() {
    no_initiator_is_lost([2, 3]);
}

/// The same without interrupts between: an initiator that is told not to send may rely on the responder that is
/// about to look.
fn who_need_not_interrupt_is_seen_by_the_next_look([first, second]: [u32; 2]) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(3);
    builder.check(move || {
        let inbox = Arc::new(Inbox::<crate::Cpus<5>>::new());
        let rung = inbox.add(CpuId::new(first), false);
        assert!(rung, "the first initiator must interrupt");
        let told = Arc::new(AtomicU64::new(0));
        let adding = {
            let (inbox, told) = (inbox.clone(), told.clone());
            loom::thread::spawn(move || {
                let interrupts = inbox.add(CpuId::new(second), false);
                told.store(1 + u64::from(interrupts), Ordering::Relaxed);
            })
        };
        // The interrupt for the first.
        let found = take(&inbox, |_, _| ());
        adding.join().unwrap();
        let need_not = told.load(Ordering::Relaxed) == 1;
        assert!(!need_not || found == 2, "nobody will look for {second}");
    });
}

#[test]
fn an_initiator_that_need_not_interrupt_is_seen_by_the_next_look() {
    who_need_not_interrupt_is_seen_by_the_next_look([1, 4]);
    who_need_not_interrupt_is_seen_by_the_next_look([2, 3]);
}

/// A CPU that polls, or runs functions, takes the inbox only when the hint says so: where a flush is, the hint is too.
fn the_hint_is_not_lost<C: Capacity>(initiators: [u32; 2]) {
    loom::model(move || {
        let inbox = Arc::new(Inbox::<C>::new());
        let _ = inbox.add(CpuId::new(initiators[0]), true);
        let initiator = {
            let inbox = inbox.clone();
            loom::thread::spawn(move || inbox.add(CpuId::new(initiators[1]), true))
        };
        let mut found = take(&inbox, |_, _| ());
        initiator.join().unwrap();
        if inbox.is_urgent() {
            found += take(&inbox, |_, _| ());
        }
        assert_eq!(found, 2, "the flush waits for another interrupt");
    });
}

#[test]
fn the_hint_about_a_flush_is_not_lost() {
    the_hint_is_not_lost::<crate::Cpus<3>>([1, 2]);
    the_hint_is_not_lost::<crate::Cpus<5>>([1, 4]);
}

/// The same where the hint is about a flush that was served before it came.
fn a_late_hint_hides_no_flush<C: Capacity>(initiator: u32) {
    loom::model(move || {
        let inbox = Arc::new(Inbox::<C>::new());
        inbox.hint();
        let adding = {
            let inbox = inbox.clone();
            loom::thread::spawn(move || inbox.add(CpuId::new(initiator), true))
        };
        let found = take(&inbox, |_, _| ());
        let _ = adding.join().unwrap();
        assert!(found == 1 || inbox.is_urgent(), "polling does not look");
    });
}

#[test]
fn a_late_hint_about_a_flush_hides_no_other() {
    a_late_hint_hides_no_flush::<crate::Cpus<3>>(1);
    a_late_hint_hides_no_flush::<crate::Cpus<5>>(4);
}

/// The same where another of its word has come before, a function's, which has not rung yet, or is found and put back.
fn a_hint_beside_a_function_is_not_lost(first: u32, function: Option<u32>) {
    const FLUSH: u32 = 3;
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(3);
    builder.check(move || {
        let inbox = Arc::new(Inbox::<crate::Cpus<5>>::new());
        let _ = inbox.add(CpuId::new(first), false);
        let add = |number, is_flush| {
            let inbox = inbox.clone();
            loom::thread::spawn(move || inbox.add(CpuId::new(number), is_flush))
        };
        let function = function.map(|number| add(number, false));
        let flush = add(FLUSH, true);
        let mut is_found = false;
        let mut look = |group, word| is_found |= (group, word & 0b10) == (1, 0b10);
        let mut back = Vec::new();
        take(&inbox, |group, word| {
            look(group, word);
            back.push((group, word));
        });
        for (group, word) in back {
            inbox.put_back(group, word);
        }
        for thread in function.into_iter().chain([flush]) {
            let _ = thread.join().unwrap();
        }
        if inbox.is_urgent() {
            take(&inbox, look);
        }
        assert!(
            is_found,
            "the flush waits until the function that polls has ended"
        );
    });
}

#[test]
fn a_hint_beside_an_initiator_that_has_not_rung_is_not_lost() {
    a_hint_beside_a_function_is_not_lost(4, Some(2));
}

#[test]
fn a_hint_beside_an_initiator_that_was_put_back_is_not_lost() {
    a_hint_beside_a_function_is_not_lost(2, None);
}

/// An initiator that is done has announced itself, though another one of its word, which is to ring, has not: who then looks at every word
/// finds it.
#[test]
fn who_looks_at_every_word_finds_those_that_nobody_has_rung_for() {
    loom::model(|| {
        let inbox = Arc::new(Inbox::<crate::Cpus<5>>::new());
        let add = |number, is_flush| {
            let inbox = inbox.clone();
            loom::thread::spawn(move || inbox.add(CpuId::new(number), is_flush))
        };
        let (late, done) = (add(2, true), add(3, false));
        let _ = done.join().unwrap();
        inbox.ring_all();
        let mut is_found = false;
        take(&inbox, |group, word| {
            is_found |= (group, word & 0b10) == (1, 0b10)
        });
        let _ = late.join().unwrap();
        assert!(is_found, "its function never runs");
    });
}
