//! Accesses that may fault: alone in its process, because the handler is the process's.

use std::thread;

use shootdown_user::{fault, machine};

/// What a page with these rights answers to a load, a store and a call at its first byte: nothing, or signal and code.
fn answers(rights: i32) -> [Option<(i32, i32)>; 3] {
    let page = machine::map(0, 4096, libc::PROT_READ | libc::PROT_WRITE, 0).unwrap();
    fault::store_word(page, 0xc3).unwrap();
    let at = std::ptr::without_provenance_mut(page);
    // SAFETY: a page of this function's, to which no reference leads.
    machine::done(unsafe { libc::mprotect(at, 4096, rights) }).unwrap();
    let answers = [
        fault::load(page).map(drop),
        fault::store(page, 0xc3),
        fault::call(page),
    ];
    // SAFETY: as above.
    machine::done(unsafe { libc::munmap(at, 4096) }).unwrap();
    answers.map(|answer| {
        let fault = answer.err()?;
        assert_eq!(fault.address, page);
        Some((fault.signal, fault.code))
    })
}

#[test]
fn each_fault_is_told_to_its_own_thread() {
    fault::handle().unwrap();
    // SEGV_ACCERR.
    let refused = Some((libc::SIGSEGV, 2));
    let (read, write, run) = (libc::PROT_READ, libc::PROT_WRITE, libc::PROT_EXEC);
    let cases = [
        (libc::PROT_NONE, [refused, refused, refused]),
        (read, [None, refused, refused]),
        (read | write, [None, None, refused]),
        (read | run, [None, refused, None]),
    ];
    thread::scope(|scope| {
        for (rights, expected) in cases {
            scope.spawn(move || (0..200).for_each(|_| assert_eq!(answers(rights), expected)));
        }
    });
}
