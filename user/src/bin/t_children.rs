//! Children as their parents see them: waiting, signals, orphans, limits, and programs started after a fork.

use std::io::{Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::process::ExitCode;
use std::sync::atomic::AtomicI32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use shootdown_user::checks::{self, errno, error_of};
use shootdown_user::child::{Child, End, end, sleep_for_ever, wait_for};
use shootdown_user::machine;
use shootdown_user::region::Region;
use shootdown_user::signals;

/// More children than the reference kernel lets one machine have.
const BOMB: usize = 300;

/// What a program started with this argument does instead of the tests.
const SUCCESSOR: &str = "successor";

fn waiting_tells_who_and_how() {
    assert_eq!(error_of(wait_for(-1, 0)), Some(libc::ECHILD));
    let sleeper = Child::start(|| sleep_for_ever()).unwrap();
    assert_eq!(wait_for(-1, libc::WNOHANG).unwrap(), None);
    let quick = Child::start(|| 77).unwrap();
    let ended = wait_for(-1, 0).unwrap();
    assert_eq!(ended, Some((quick.pid(), End::Exited(77))));
    let foreign = error_of(wait_for(quick.pid(), 0));
    assert_eq!(foreign, Some(libc::ECHILD), "it has been waited for");
    assert_eq!(sleeper.kill().unwrap(), End::Killed(libc::SIGKILL));
    // SAFETY: no pointer is used.
    let status = unsafe { libc::waitpid(-1, std::ptr::null_mut(), 0x10) };
    assert_eq!((status, errno()), (-1, libc::EINVAL));
}

fn faults_end_the_child_alone() {
    let child = Child::start(|| {
        // SAFETY: nothing is mapped there, and that is what is tested.
        unsafe { std::ptr::without_provenance_mut::<u8>(8).write_volatile(1) };
        0
    });
    assert_eq!(child.unwrap().wait().unwrap(), End::Killed(libc::SIGSEGV));
}

/// The last child that SIGCHLD told of, and its status.
static TOLD: [AtomicI32; 3] = [const { AtomicI32::new(0) }; 3];

extern "C" fn on_end(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel hands a handler with SA_SIGINFO valid information.
    let info = unsafe { &*info };
    // SAFETY: for SIGCHLD this field is filled in.
    let pid = unsafe { info.si_pid() };
    // SAFETY: and this one.
    let status = unsafe { info.si_status() };
    for (told, value) in TOLD.iter().zip([pid, status, info.si_code]) {
        told.store(value, Relaxed);
    }
}

fn act_on_sigchld(handler: libc::sighandler_t, flags: i32) {
    // SAFETY: 1. the handlers here only store to atomics.
    unsafe { signals::handle(libc::SIGCHLD, handler, flags) }.unwrap();
}

fn the_end_of_a_child_is_a_signal() {
    let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_end;
    act_on_sigchld(handler as usize, libc::SA_SIGINFO | libc::SA_RESTART);
    let told = || TOLD.each_ref().map(|value| value.load(Relaxed));
    let child = Child::start(|| 9).unwrap();
    let pid = child.pid();
    assert_eq!(child.wait().unwrap(), End::Exited(9));
    assert_eq!(told(), [pid, 9, libc::CLD_EXITED]);
    let child = Child::start(|| sleep_for_ever()).unwrap();
    let pid = child.pid();
    assert_eq!(child.kill().unwrap(), End::Killed(libc::SIGKILL));
    assert_eq!(told(), [pid, libc::SIGKILL, libc::CLD_KILLED]);
    act_on_sigchld(libc::SIG_DFL, 0);
}

fn ignored_children_are_forgotten() {
    act_on_sigchld(libc::SIG_IGN, 0);
    let child = Child::start(|| 0).unwrap();
    let waited = error_of(child.wait());
    assert_eq!(waited, Some(libc::ECHILD), "awaited, but not told");
    act_on_sigchld(libc::SIG_DFL, 0);
}

fn orphans_go_to_the_first_process() {
    let (mut reader, mut writer) = std::io::pipe().unwrap();
    let child = Child::start(|| {
        let parent = std::process::id() as libc::pid_t;
        let grandchild = Child::start(|| {
            // SAFETY: asks for a number.
            while unsafe { libc::getppid() } == parent {
                std::thread::yield_now();
            }
            // SAFETY: as above.
            let adopter = unsafe { libc::getppid() };
            i32::from(writer.write_all(&adopter.to_ne_bytes()).is_err())
        });
        i32::from(grandchild.is_err())
    });
    let child = child.unwrap();
    let parent = child.pid();
    assert_eq!(child.wait().unwrap(), End::Exited(0));
    let mut bytes = [0; 4];
    reader.read_exact(&mut bytes).unwrap();
    let adopter = i32::from_ne_bytes(bytes);
    assert_ne!(adopter, parent);
    if std::process::id() == 1 {
        assert_eq!(adopter, 1);
        // The orphan is ours now.
        let ended = wait_for(-1, 0).unwrap().map(|(_, end)| end);
        assert_eq!(ended, Some(End::Exited(0)));
    }
}

fn is_open(fd: RawFd) -> bool {
    // SAFETY: asks for the flags of a descriptor, if it is one.
    unsafe { libc::fcntl(fd, libc::F_GETFD) >= 0 }
}

fn programs_start_after_a_fork() {
    // Opened by std, hence closed when a program starts.
    let (closed, _writer) = std::io::pipe().unwrap();
    // SAFETY: copies a descriptor of ours; the copy stays open when a program starts.
    let kept = unsafe { libc::dup(closed.as_raw_fd()) };
    let (own, fds) = (std::env::current_exe().unwrap(), [closed.as_raw_fd(), kept]);
    let [closed_fd, kept_fd] = fds.map(|fd| fd.to_string());
    let words = [own.to_str().unwrap(), SUCCESSOR, &closed_fd, &kept_fd];
    let words = words.map(|word| std::ffi::CString::new(word).unwrap());
    let [path, first, second, third] = words.each_ref().map(|word| word.as_ptr());
    let pointers = [path, first, second, third, std::ptr::null()];
    let cpus = machine::allowed_cpus().unwrap();
    let child = Child::start(|| {
        machine::pin_to(*cpus.last().unwrap()).unwrap();
        // SAFETY: null-terminated strings in a null-terminated array.
        unsafe { libc::execv(path, pointers.as_ptr()) };
        200
    });
    assert_eq!(child.unwrap().wait().unwrap(), End::Exited(0));
    // SAFETY: our own copy.
    unsafe { libc::close(kept) };
    let now = machine::allowed_cpus().unwrap();
    assert_eq!(now, cpus, "the child pinned itself alone");
}

/// What the program does that was started by the test above.
fn succeed(arguments: &[String]) -> ExitCode {
    let fds: Vec<RawFd> = arguments.iter().map(|text| text.parse().unwrap()).collect();
    assert!(!is_open(fds[0]) && is_open(fds[1]));
    let allowed = machine::allowed_cpus().unwrap().len();
    assert_eq!(allowed, 1, "affinity is inherited");
    ExitCode::SUCCESS
}

/// Raw, because the C library asks for nothing but what makes sense. The child ends with that status.
fn clone(flags: i32, status: i32) -> i64 {
    // SAFETY: without CLONE_VM the child has memory of its own.
    match unsafe { libc::syscall(libc::SYS_clone, i64::from(flags), 0, 0, 0, 0) } {
        0 => end(status),
        child => child,
    }
}

fn nonsense_is_refused() {
    for flags in [
        libc::CLONE_SIGHAND,
        libc::CLONE_THREAD,
        libc::CLONE_THREAD | libc::CLONE_VM,
    ] {
        let child = clone(flags | libc::SIGCHLD, 0);
        assert_eq!((child, errno()), (-1, libc::EINVAL), "flags {flags:#x}");
    }
    let child = clone(libc::SIGCHLD, 5);
    let ended = wait_for(child as i32, 0).unwrap();
    assert_eq!(ended, Some((child as i32, End::Exited(5))));
}

/// The group of a process, 0 for the caller.
fn group_of(pid: libc::pid_t) -> Option<libc::pid_t> {
    // SAFETY: takes a number.
    Some(unsafe { libc::getpgid(pid) }).filter(|&group| group >= 0)
}

fn set_group(pid: libc::pid_t, group: libc::pid_t) -> Option<i32> {
    // SAFETY: takes numbers.
    error_of(machine::done(unsafe { libc::setpgid(pid, group) }))
}

/// Signals go to groups, and waits are for them. In a session of its own: what has started this program is in none of them.
fn groups_are_signalled_and_awaited() {
    let leader = Child::start(|| {
        let own = std::process::id() as libc::pid_t;
        // SAFETY: takes nothing.
        let session = unsafe { libc::setsid() };
        assert_eq!((session, group_of(0)), (own, Some(own)));
        // SAFETY: takes a number.
        assert_eq!(unsafe { libc::getsid(0) }, own);
        // SAFETY: refused.
        let again = unsafe { libc::setsid() };
        assert_eq!((again, errno()), (-1, libc::EPERM));
        assert_eq!(set_group(0, 0), Some(libc::EPERM), "it leads a session");
        check_groups(own);
        0
    });
    assert_eq!(leader.unwrap().wait().unwrap(), End::Exited(0));
}

fn check_groups(own: libc::pid_t) {
    const NOBODY: libc::pid_t = 4_000_000;
    let kill = |pid, signal| {
        // SAFETY: a signal to children of this function's own, or to nobody.
        error_of(machine::done(unsafe { libc::kill(pid, signal) }))
    };
    let sleepers = [0; 4].map(|_| Child::start(|| sleep_for_ever()).unwrap());
    let [first, second, third, fourth] = sleepers.each_ref().map(Child::pid);
    assert_eq!(group_of(first), Some(own), "it is inherited");
    assert_eq!(set_group(first, 0), None);
    assert_eq!(set_group(second, first), None);
    assert_eq!(group_of(second), Some(first));
    assert_eq!(set_group(third, 0), None);
    // Who is not there, no number, not a child, not there.
    assert_eq!(set_group(fourth, NOBODY), Some(libc::EPERM));
    assert_eq!(set_group(fourth, -1), Some(libc::EINVAL));
    assert_eq!(set_group(1, 0), Some(libc::ESRCH));
    assert_eq!(group_of(NOBODY), None);
    assert_eq!(kill(-NOBODY, 0), Some(libc::ESRCH));
    assert_eq!(error_of(wait_for(-NOBODY, 0)), Some(libc::ECHILD));

    assert_eq!(kill(-first, libc::SIGTERM), None);
    for _ in 0..2 {
        let (pid, how) = wait_for(-first, 0).unwrap().unwrap();
        assert!(pid == first || pid == second);
        assert_eq!(how, End::Killed(libc::SIGTERM));
    }
    assert_eq!(error_of(wait_for(-first, 0)), Some(libc::ECHILD));
    assert_eq!(wait_for(-1, libc::WNOHANG).unwrap(), None);

    // SAFETY: ignoring a signal runs nothing.
    unsafe { signals::handle(libc::SIGUSR2, libc::SIG_IGN, 0) }.unwrap();
    assert_eq!(kill(0, libc::SIGUSR2), None);
    let killed = End::Killed(libc::SIGUSR2);
    assert_eq!(wait_for(0, 0).unwrap(), Some((fourth, killed)));
    assert_eq!(error_of(wait_for(0, 0)), Some(libc::ECHILD));
    assert_eq!(kill(third, libc::SIGKILL), None);
    let killed = End::Killed(libc::SIGKILL);
    assert_eq!(wait_for(-third, 0).unwrap(), Some((third, killed)));
}

/// Forks until that fails, or often enough. Everything must work afterwards.
fn a_bomb_is_contained() {
    let mut children = Vec::new();
    for _ in 0..BOMB {
        match Child::start(|| sleep_for_ever()) {
            Ok(child) => children.push(child),
            Err(error) => {
                let errno = error.raw_os_error();
                assert!(matches!(errno, Some(libc::EAGAIN | libc::ENOMEM)));
                break;
            }
        }
    }
    let started = children.len();
    for child in &children {
        child.signal(libc::SIGKILL).unwrap();
    }
    for child in children {
        assert_eq!(child.wait().unwrap(), End::Killed(libc::SIGKILL));
    }
    assert!(started > 20, "only {started} children");
    if machine::is_reference_kernel() {
        assert!(started < BOMB, "no limit is in force");
    }
    println!("t_children: {started} children at one time");
    assert_eq!(Child::start(|| 3).unwrap().wait().unwrap(), End::Exited(3));
}

/// Forks children until that fails, or often enough, then ends them all; 0 if all went as it must.
fn family_of(most: usize) -> i32 {
    let mut children = Vec::new();
    while children.len() < most
        && let Ok(child) = Child::start(|| sleep_for_ever())
    {
        children.push(child);
    }
    let mut wrong = 0;
    for child in children {
        let killed = child.kill();
        wrong += i32::from(killed.ok() != Some(End::Killed(libc::SIGKILL)));
    }
    wrong
}

fn bombs_side_by_side_are_contained() {
    const BOMBS: usize = 6;
    // The first families may leave no room for the later ones.
    let bombs = (0..BOMBS).filter_map(|_| Child::start(|| family_of(BOMB / 4)).ok());
    let bombs: Vec<_> = bombs.collect();
    assert!(!bombs.is_empty());
    for bomb in bombs {
        assert_eq!(bomb.wait().unwrap(), End::Exited(0));
    }
    assert_eq!(Child::start(|| 3).unwrap().wait().unwrap(), End::Exited(3));
}

/// A child that cannot have its page tables is no child, and its parent goes on.
fn no_memory_is_no_child() {
    const FAR_PAGES: usize = 300;
    /// Of two tables that each page needs; three quarters of that are left.
    const LEFT_KIB: u64 = FAR_PAGES as u64 * 2 * 4 * 3 / 4;
    const PAGES: usize = 16;
    if !machine::is_reference_kernel() {
        // Linux would kill somebody.
        return;
    }
    // The children before may be on their way out.
    std::thread::sleep(Duration::from_millis(1));
    (0..FAR_PAGES).for_each(touch_far_page);
    let mut hoard = Vec::new();
    while machine::free_kib().unwrap() > LEFT_KIB {
        let region = Region::new(PAGES).unwrap();
        (0..PAGES).for_each(|page| region.word(page, 0).store(7, Relaxed));
        hoard.push(region);
    }
    checks::must_not_lose(256, || {
        for _ in 0..20 {
            assert_eq!(error_of(Child::start(|| 0)), Some(libc::ENOMEM));
        }
    });
    let is_full = |region: &Region| region.word(PAGES - 1, 0).load(Relaxed) == 7;
    assert!(hoard.iter().all(is_full));
    drop(hoard);
    assert_eq!(Child::start(|| 4).unwrap().wait().unwrap(), End::Exited(4));
}

/// Touches a page that no other shares a table of its own or of the next level with; it is never given back.
fn touch_far_page(number: usize) {
    let address = 0x2000_0000_0000 + (number << 30);
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    // Nothing else is mapped that high.
    let page = machine::map(address, 4096, rights, libc::MAP_FIXED_NOREPLACE).unwrap();
    assert_eq!(page, address);
    let byte: *mut u8 = std::ptr::with_exposed_provenance_mut(page);
    // SAFETY: just mapped.
    unsafe { byte.write_volatile(1) };
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == SUCCESSOR) {
        return succeed(&arguments[1..]);
    }
    checks::run(
        "t_children",
        &checks::named![
            waiting_tells_who_and_how,
            faults_end_the_child_alone,
            the_end_of_a_child_is_a_signal,
            ignored_children_are_forgotten,
            orphans_go_to_the_first_process,
            programs_start_after_a_fork,
            nonsense_is_refused,
            groups_are_signalled_and_awaited,
            a_bomb_is_contained,
            bombs_side_by_side_are_contained,
            no_memory_is_no_child,
        ],
    )
}
