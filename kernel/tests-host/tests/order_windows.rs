//! Lent pages, in windows of one CPU and in areas of the whole process: who has them no more cannot reach them when the call returns.

mod support;

use shootdown::CpuId;
use shootdown_kernel_tests::arch::percpu::as_cpu;
use shootdown_kernel_tests::mm::frames::Share;
use shootdown_kernel_tests::mm::layout::{TOP_ENTRY_BYTES, WINDOWS};
use shootdown_kernel_tests::mm::{AreaKind, Lending, MapRequest};
use shootdown_kernel_tests::mm::{MemorySpace, PAGE_SIZE, Populate, Prot, Window, lend};
use shootdown_kernel_tests::witness::{Watch, at_interrupt, at_wait, watch};
use std::sync::Arc;
use support::watched::{Watched, locked, unlocked};
use support::*;

const PAGES: usize = 5;
const BYTES: usize = PAGES * PAGE_SIZE;
/// The window's.
const CPU: CpuId = CpuId::new(1);

fn lent(space: &MemorySpace, lending: Lending) -> Vec<Share> {
    support::lent(space, PAGES, lending)
}

/// A server with an open window, which its CPU has loaded.
struct Server {
    watch: Watch,
    space: Arc<MemorySpace>,
    window: Arc<Window>,
}

impl Server {
    fn new() -> Self {
        let watch = watch();
        let space = MemorySpace::new().unwrap();
        let window = Arc::new(Window::new(space.clone(), CPU, BYTES).unwrap());
        as_cpu(CPU, || {
            window.open();
            window.activate(None);
        });
        Self {
            watch,
            space,
            window,
        }
    }

    fn map(&self, addr: usize, kind: AreaKind) {
        let request = MapRequest {
            populate: Populate::Now,
            kind,
            ..request(addr, 1)
        };
        self.space.map(request).unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        as_cpu(CPU, || {
            self.space.deactivate();
            self.window.retire();
        });
    }
}

#[test]
fn a_page_that_is_hidden_is_out_of_reach() {
    let _turn = Turn::new();
    let client = written(PAGES);
    let server = Server::new();
    for lending in [Lending::Reading, Lending::Writing] {
        let mut pages = lent(&client, lending);
        as_cpu(CPU, || {
            assert!(server.window.show(&pages, lending));
            server.watch.settle();
            assert!(server.window.hide(PAGES));
        });
        server.watch.settle();
        lend::release(&mut pages);
    }
    assert_eq!(server.watch.seen().interrupts, 0);
    assert!(!server.window.hide(PAGES), "on another CPU");
}

/// The client takes its pages back while the server has them, and the server has them on.
#[test]
fn a_client_that_unmaps_leaves_the_server_its_pages() {
    let _turn = Turn::new();
    let client = written(PAGES);
    let server = Server::new();
    let mut pages = lent(&client, Lending::Writing);
    let shown = as_cpu(CPU, || server.window.show(&pages, Lending::Writing));
    assert!(shown);
    unmap(&client, 0, 2);
    server.watch.settle();
    as_cpu(CPU, || assert!(server.window.hide(PAGES)));
    lend::release(&mut pages);
    assert_eq!(read(&client, 3), 4);
}

/// What the process maps and unmaps under new top-level entries is found by the private root, and lost by it in time.
#[test]
fn the_rest_of_the_space_comes_and_goes_under_a_window() {
    let _turn = Turn::new();
    come_and_go(&Server::new());
}

/// The same where the window's CPU takes each interrupt before the flush is so much as submitted.
#[test]
fn the_rest_of_the_space_goes_under_a_prompt_window() {
    let _turn = Turn::new();
    let server = Server::new();
    server.watch.be_prompt();
    come_and_go(&server);
}

fn come_and_go(server: &Server) {
    for place in [BASE, WINDOWS.end, 7 * TOP_ENTRY_BYTES] {
        server.map(place, AreaKind::Anonymous);
        let refreshed = as_cpu(CPU, || server.window.refresh());
        assert!(refreshed, "{place:#x} is news");
        assert!(!as_cpu(CPU, || server.window.refresh()), "and no more");
        server.space.protect(place, PAGE_SIZE, Prot::READ).unwrap();
        server.watch.settle();
        // With all its tables.
        server.space.unmap(place, PAGE_SIZE).unwrap();
        server.watch.settle();
        assert_eq!(server.watch.seen().interrupts, 2);
    }
}

/// The window's CPU has left, and has the tables of another area; it loads the window again at `moment` of the unmapping of that area.
fn come_back(kind: AreaKind, moment: fn(Box<dyn FnOnce()>)) {
    let server = Server::new();
    let other = CpuId::new(2);
    as_cpu(other, || server.space.activate(None));
    server.map(WINDOWS.end, kind);
    server.space.fault(WINDOWS.end, WRITE).unwrap();
    as_cpu(CPU, || {
        assert!(server.window.refresh(), "it has the new tables");
        server.space.deactivate();
    });
    let window = server.window.clone();
    moment(Box::new(move || as_cpu(CPU, || window.activate(None))));
    server.space.unmap(WINDOWS.end, PAGE_SIZE).unwrap();
    server.watch.settle();
    as_cpu(other, || server.space.deactivate());
}

/// While others are being waited for, under the lock of the space: a file's page is writable there.
#[test]
fn a_window_that_comes_back_does_not_walk_what_is_being_removed() {
    let _turn = Turn::new();
    let file = file_of(1);
    come_back(shown(&file, 0), at_wait);
}

/// While the flush is being submitted, when nobody waits yet.
#[test]
fn a_window_that_comes_back_early_does_not_walk_what_is_being_removed() {
    let _turn = Turn::new();
    come_back(AreaKind::Anonymous, at_interrupt);
}

/// A second one who wants the root while the first has it in hand goes without.
#[test]
fn who_interrupts_a_window_s_cpu_does_not_wait_for_its_root() {
    let _turn = Turn::new();
    let server = Server::new();
    let mut tries = [0; 2];
    let [outer, inner] = &mut tries;
    server.window.try_with_root(&mut |_| {
        *outer += 1;
        server.window.try_with_root(&mut |_| *inner += 1);
    });
    assert_eq!(tries, [1, 0]);
}

/// A page that is lent has another owner, so whoever asks for its rights anew gets no right to write: the old one is flushed.
#[test]
fn rights_to_a_lent_page_that_are_asked_for_anew_are_fewer() {
    let _turn = Turn::new();
    let client = written(PAGES);
    let watched = Watched::new(&[&client]);
    let mut pages = lent(&client, Lending::Reading);
    watched.costs(unlocked(1), || {
        protect(&client, 0, PAGES, Prot::READ_WRITE);
    });
    lend::release(&mut pages);
}

#[test]
fn areas_for_guests_are_flushed_as_other_memory() {
    let _turn = Turn::new();
    let (client, server) = (written(PAGES), MemorySpace::new().unwrap());
    let watched = Watched::new(&[&server, &client]);
    let guests = server.make_room_for_guests(BYTES).unwrap();
    for lending in [Lending::Reading, Lending::Writing] {
        let mut pages = watched.costs(unlocked(0), || lent(&client, lending));
        watched.costs(unlocked(0), || {
            server.show_guests(&guests, &mut pages, lending)
        });
        watched.costs(unlocked(1), || server.hide_guests(&guests));
    }
    let mut pages = lent(&client, Lending::Reading);
    server.show_guests(&guests, &mut pages, Lending::Reading);
    watched.costs(unlocked(1), || unmap(&client, 0, 1));
    let child = watched.costs(unlocked(0), || server.fork().unwrap());
    assert!(child.areas().unwrap().is_empty());
    watched.costs(unlocked(1), || server.remove_guests(&guests));
}

/// A forked client's pages are copied before they are lent for writing.
#[test]
fn what_is_lent_for_writing_is_copied_first() {
    let _turn = Turn::new();
    let client = written(PAGES);
    let child = client.fork().unwrap();
    let watched = Watched::new(&[&client, &child]);
    let mut pages = watched.costs(locked(PAGES), || lent(&client, Lending::Writing));
    let first = pages[0].address().to_direct().cast::<u64>();
    // SAFETY: a word of a frame of the simulated memory.
    unsafe { first.write(9) };
    assert_eq!((read(&client, 0), read(&child, 0)), (9, 1));
    lend::release(&mut pages);
}
