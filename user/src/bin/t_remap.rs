//! Growing, shrinking and moving mappings keeps their contents.

use std::process::ExitCode;
use std::ptr;

use shootdown_user::machine;

const PAGE: usize = 4096;

fn map(pages: usize) -> *mut u64 {
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    ptr::with_exposed_provenance_mut(machine::map(0, pages * PAGE, rights, 0).unwrap())
}

fn remap(at: *mut u64, from: usize, to: usize) -> *mut u64 {
    // SAFETY: the mapping is this program's and is used through the result only.
    let new = unsafe { libc::mremap(at.cast(), from * PAGE, to * PAGE, libc::MREMAP_MAYMOVE) };
    assert_ne!(new, libc::MAP_FAILED, "{from} to {to} pages");
    new.cast()
}

fn word(at: *mut u64, page: usize) -> *mut u64 {
    at.wrapping_byte_add(page * PAGE)
}

fn check(at: *mut u64, tagged: usize, pages: usize, step: &str) -> usize {
    let mut wrong = 0;
    for page in 0..pages {
        // SAFETY: inside the mapping.
        let found = unsafe { word(at, page).read_volatile() };
        let wanted = if page < tagged { page as u64 + 1 } else { 0 };
        if found != wanted {
            if wrong == 0 {
                let place = word(at, page);
                println!("t_remap: {step}: page {page} at {place:p} has {found}, not {wanted}");
            }
            wrong += 1;
        }
    }
    wrong
}

fn main() -> ExitCode {
    machine::prepare();
    let mut wrong = 0;
    let mut random = fastrand::Rng::with_seed(7);
    for round in 0..40 {
        let mut pages = random.usize(1..600);
        let mut at = map(pages);
        let _neighbour = map(random.usize(1..4));
        for step in 0..6 {
            for page in 0..pages {
                // SAFETY: inside the mapping.
                unsafe { word(at, page).write_volatile(page as u64 + 1) };
            }
            let new = random.usize(1..1500);
            let moved = remap(at, pages, new);
            let name =
                format!("round {round} step {step}: {pages} pages at {at:p} to {new} at {moved:p}");
            wrong += check(moved, pages.min(new), new, &name);
            (at, pages) = (moved, new);
        }
        // SAFETY: the mapping is not used any more.
        assert_eq!(unsafe { libc::munmap(at.cast(), pages * PAGE) }, 0);
    }
    println!("t_remap: {}", if wrong == 0 { "OK" } else { "FAILED" });
    ExitCode::from(u8::from(wrong != 0))
}
