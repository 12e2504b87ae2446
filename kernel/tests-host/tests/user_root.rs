//! With isolation: the root that user mode has leads to what the root of its space leads to, and never to less or more of the user half.
#![cfg(feature = "isolation")]

mod support;

use shootdown::FlushRange;
use shootdown_kernel_tests::arch::{paging, top};
use shootdown_kernel_tests::mm::frames;
use shootdown_kernel_tests::mm::layout::{PhysAddr, USER_END, WINDOWS};
use shootdown_kernel_tests::mm::page_table::PageTable;
use shootdown_kernel_tests::mm::range::UserRange;
use support::*;

const NO_EXECUTE: u64 = 1 << 63;

fn entries(root: PhysAddr) -> &'static [u64; 512] {
    // SAFETY: a root of a table that lives, in simulated memory; nobody changes it meanwhile.
    unsafe { &*root.to_direct().cast() }
}

/// The user root of a table, and how many entries its user half has; all are those of the table's root, where nothing can be executed.
fn followed(table: &PageTable) -> (PhysAddr, usize) {
    let user = top::user_root(table.root()).expect("it has one");
    assert_eq!(entries(user)[256..], paging::user_half());
    let mut used = 0;
    for (&entry, &own) in entries(user)[..256].iter().zip(entries(table.root())) {
        match entry {
            0 => assert_eq!(own, 0),
            _ => assert_eq!((own, entry & NO_EXECUTE), (entry | NO_EXECUTE, 0)),
        }
        used += usize::from(entry != 0);
    }
    (user, used)
}

#[test]
fn a_user_root_follows_as_tables_come_and_go() {
    let turn = Turn::new();
    let mut table = PageTable::new().unwrap();
    assert_eq!(followed(&table).1, 0);
    for (count, addr) in [BASE, WINDOWS.start, USER_END - 1].into_iter().enumerate() {
        table.leaf_or_create(addr).unwrap();
        table.leaf_or_create(addr).unwrap();
        assert_eq!(followed(&table).1, count + 1);
    }
    let range = UserRange::new(BASE, 1).unwrap();
    let below = (0, WINDOWS.start);
    table.prune(range, below, |_, _, table| frames::free(table));
    assert_eq!(followed(&table).1, 2);
    assert_eq!(entries(followed(&table).0)[0], 0);
    drop(table);
    assert_eq!(frames::free_count(), turn.frames);
}

#[test]
fn a_private_user_root_has_what_the_shared_one_has() {
    let turn = Turn::new();
    let mut shared = PageTable::new().unwrap();
    let mut private = PageTable::new().unwrap();
    shared.leaf_or_create(BASE).unwrap();
    private.leaf_or_create(WINDOWS.start).unwrap();
    top::copy_top(shared.root(), private.root(), FlushRange::WHOLE);
    let (user, used) = followed(&private);
    assert_eq!(used, 2);
    assert_eq!(entries(user)[0], entries(followed(&shared).0)[0]);
    private.forget_shared_top();
    drop((shared, private));
    assert_eq!(frames::free_count(), turn.frames);
}

#[test]
fn without_memory_for_both_roots_there_is_none() {
    let turn = Turn::new();
    let mut all: Vec<_> = std::iter::from_fn(frames::alloc_zeroed).collect();
    all.pop().into_iter().for_each(frames::free);
    assert!(PageTable::new().is_none());
    all.into_iter().for_each(frames::free);
    assert_eq!(frames::free_count(), turn.frames);
}
