//! From the number to the function.

use linux_raw_sys::general as nr;

use super::args::Args;
use super::outcome::Outcome;
use super::{
    alarms, clock, credentials, descriptors, epoll, files, futex, identity, io, memory, paths,
    poll, process, random, realtime, resident, schedule, signals, system, unknown,
};
use crate::arch::trap::TrapFrame;
use crate::errno::Errno;
use crate::fs::LastLink;
use crate::task::{self, Current};

/// Hook of the system call entry. Interrupts are on. The result goes to `frame.rax`; a call that
/// ends its thread does not return.
pub fn dispatch(frame: &mut TrapFrame) {
    let me = task::current();
    let number = frame.rax;
    if number == u64::from(nr::__NR_rt_sigreturn) {
        let resumed = task::signal::sigreturn(&me, frame);
        frame.rax = resumed;
        return;
    }
    let outcome = call(&me, number, &Args::of(frame), frame);
    frame.rax = match outcome {
        Ok(value) => value as u64,
        Err(Errno::RESTART) => {
            me.interrupted_call(number);
            Errno::EINTR.as_return()
        }
        Err(errno) => errno.as_return(),
    };
}

fn call(me: &Current, number: u64, a: &Args, frame: &mut TrapFrame) -> Outcome {
    let Ok(short) = u32::try_from(number) else {
        return unknown::call(me, number);
    };
    match short {
        nr::__NR_read => io::read(me, a),
        nr::__NR_write => io::write(me, a),
        nr::__NR_readv => io::readv(me, a),
        nr::__NR_writev => io::writev(me, a),
        nr::__NR_pread64 => io::pread(me, a),
        nr::__NR_pwrite64 => io::pwrite(me, a),
        nr::__NR_lseek => io::lseek(me, a),
        nr::__NR_poll => poll::poll(me, a),
        nr::__NR_ppoll => poll::ppoll(me, a),
        nr::__NR_epoll_create => epoll::old_create(me, a),
        nr::__NR_epoll_create1 => epoll::create(me, a.u32(0)),
        nr::__NR_epoll_ctl => epoll::control(me, a),
        nr::__NR_epoll_wait => epoll::wait(me, a),
        nr::__NR_epoll_pwait => epoll::pwait(me, a),
        nr::__NR_epoll_pwait2 => epoll::pwait2(me, a),
        nr::__NR_timerfd_create => epoll::timerfd_create(me, a),
        nr::__NR_timerfd_settime => epoll::timerfd_settime(me, a),
        nr::__NR_timerfd_gettime => epoll::timerfd_gettime(me, a),
        nr::__NR_select => poll::select(me, a),
        nr::__NR_pselect6 => poll::pselect6(me, a),
        nr::__NR_ioctl => io::ioctl(me, a),
        nr::__NR_fsync | nr::__NR_fdatasync => io::sync(me, a),
        nr::__NR_sync => io::sync_all(),
        nr::__NR_sync_file_range | nr::__NR_syncfs => io::sync(me, a),

        nr::__NR_close => descriptors::close(me, a),
        nr::__NR_dup => descriptors::dup(me, a),
        nr::__NR_dup2 => descriptors::dup2(me, a),
        nr::__NR_dup3 => descriptors::dup3(me, a),
        nr::__NR_fcntl => descriptors::fcntl(me, a),
        nr::__NR_pipe => descriptors::pipe(me, a),
        nr::__NR_eventfd => descriptors::eventfd(me, a),
        nr::__NR_eventfd2 => descriptors::eventfd2(me, a),
        nr::__NR_pipe2 => descriptors::pipe2(me, a),

        nr::__NR_open => files::open(me, a),
        nr::__NR_openat => files::openat(me, a),
        nr::__NR_creat => files::creat(me, a),
        nr::__NR_memfd_create => descriptors::memfd_create(me, a),
        nr::__NR_ftruncate => io::ftruncate(me, a),
        nr::__NR_truncate => paths::truncate(me, a),
        nr::__NR_unlink => paths::unlink(me, a),
        nr::__NR_unlinkat => paths::unlinkat(me, a),
        nr::__NR_stat => files::stat(me, a, LastLink::Follow),
        nr::__NR_lstat => files::stat(me, a, LastLink::Stay),
        nr::__NR_fstat => files::fstat(me, a),
        nr::__NR_newfstatat => files::newfstatat(me, a),
        nr::__NR_statx => files::statx(me, a),
        nr::__NR_getdents64 => files::getdents64(me, a),
        nr::__NR_fadvise64 => files::fadvise(me, a),
        nr::__NR_fallocate => files::fallocate(me, a),
        nr::__NR_statfs => files::statfs(me, a),
        nr::__NR_fstatfs => files::fstatfs(me, a),
        nr::__NR_access => paths::access(me, a),
        nr::__NR_faccessat | nr::__NR_faccessat2 => paths::faccessat(me, a),
        nr::__NR_readlink => paths::readlink(me, a),
        nr::__NR_readlinkat => paths::readlinkat(me, a),
        nr::__NR_getcwd => paths::getcwd(me, a),
        nr::__NR_chdir => paths::chdir(me, a),
        nr::__NR_fchdir => paths::fchdir(me, a),
        nr::__NR_mkdir => paths::mkdir(me, a),
        nr::__NR_mkdirat => paths::mkdirat(me, a),
        nr::__NR_rmdir => paths::rmdir(me, a),
        nr::__NR_rename => paths::rename(me, a),
        nr::__NR_renameat => paths::renameat(me, a),
        nr::__NR_renameat2 => paths::renameat2(me, a),
        nr::__NR_link => paths::link(me, a),
        nr::__NR_linkat => paths::linkat(me, a),
        nr::__NR_symlink => paths::symlink(me, a),
        nr::__NR_symlinkat => paths::symlinkat(me, a),
        nr::__NR_chmod => paths::chmod(me, a),
        nr::__NR_fchmod => paths::fchmod(me, a),
        nr::__NR_fchmodat => paths::fchmodat(me, a),
        nr::__NR_chown => paths::chown(me, a),
        nr::__NR_lchown => paths::lchown(me, a),
        nr::__NR_fchown => paths::fchown(me, a),
        nr::__NR_fchownat => paths::fchownat(me, a),
        nr::__NR_utimensat => paths::utimensat(me, a),
        nr::__NR_mount => paths::mount(me, a),

        nr::__NR_mmap => memory::mmap(me, a),
        nr::__NR_munmap => memory::munmap(a),
        nr::__NR_mprotect => memory::mprotect(a),
        nr::__NR_mremap => memory::mremap(a),
        nr::__NR_madvise => memory::madvise(me, a),
        nr::__NR_msync => memory::msync(a),
        nr::__NR_mlock => resident::mlock(me, a, 0),
        nr::__NR_mlock2 => resident::mlock(me, a, a.u32(2)),
        nr::__NR_munlock => resident::munlock(a),
        nr::__NR_mlockall => resident::mlockall(a),
        nr::__NR_munlockall => Ok(0),
        nr::__NR_mincore => resident::mincore(a),
        nr::__NR_process_vm_readv => resident::process_vm(me, a, false),
        nr::__NR_process_vm_writev => resident::process_vm(me, a, true),
        nr::__NR_brk => memory::brk(a),

        nr::__NR_clone => process::clone(me, a, frame),
        nr::__NR_fork => process::fork(me, frame),
        nr::__NR_vfork => process::vfork(me, frame),
        nr::__NR_execve => process::execve(me, a, frame),
        nr::__NR_exit => process::exit(a),
        nr::__NR_exit_group => process::exit_group(a),
        nr::__NR_waitid => process::waitid(me, a),
        nr::__NR_wait4 => process::wait4(me, a),
        nr::__NR_set_tid_address => process::set_tid_address(me, a),
        nr::__NR_arch_prctl => process::arch_prctl(me, a),
        nr::__NR_prctl => process::prctl(me, a),

        nr::__NR_set_robust_list => futex::set_robust_list(me, a),
        nr::__NR_get_robust_list => futex::get_robust_list(me, a),
        nr::__NR_futex => futex::futex(a),

        nr::__NR_sched_yield => schedule::sched_yield(),
        nr::__NR_sched_setaffinity => schedule::sched_setaffinity(me, a),
        nr::__NR_sched_getaffinity => schedule::sched_getaffinity(me, a),
        nr::__NR_sched_setscheduler => realtime::sched_setscheduler(me, a),
        nr::__NR_sched_getscheduler => realtime::sched_getscheduler(me, a),
        nr::__NR_sched_setparam => realtime::sched_setparam(me, a),
        nr::__NR_sched_getparam => realtime::sched_getparam(me, a),
        nr::__NR_sched_get_priority_max => realtime::sched_get_priority_max(a),
        nr::__NR_sched_get_priority_min => realtime::sched_get_priority_min(a),
        nr::__NR_sched_rr_get_interval => realtime::sched_rr_get_interval(me, a),
        nr::__NR_sched_getattr => realtime::sched_getattr(me, a),
        nr::__NR_sched_setattr => realtime::sched_setattr(me, a),
        nr::__NR_getcpu => schedule::getcpu(a),

        nr::__NR_nanosleep => clock::nanosleep(a),
        nr::__NR_clock_nanosleep => clock::clock_nanosleep(a),
        nr::__NR_clock_gettime => clock::clock_gettime(me, a),
        nr::__NR_clock_getres => clock::clock_getres(a),
        nr::__NR_gettimeofday => clock::gettimeofday(a),
        nr::__NR_time => clock::time(a),
        nr::__NR_times => clock::times(me, a),
        nr::__NR_getrusage => clock::getrusage(me, a),

        nr::__NR_alarm => alarms::alarm(me, a),
        nr::__NR_getitimer => alarms::getitimer(me, a),
        nr::__NR_setitimer => alarms::setitimer(me, a),
        nr::__NR_timer_create => alarms::timer_create(me, a),
        nr::__NR_timer_settime => alarms::timer_settime(me, a),
        nr::__NR_timer_gettime => alarms::timer_gettime(me, a),
        nr::__NR_timer_getoverrun => alarms::timer_getoverrun(me, a),
        nr::__NR_timer_delete => alarms::timer_delete(me, a),

        nr::__NR_rt_sigaction => signals::rt_sigaction(me, a),
        nr::__NR_rt_sigprocmask => signals::rt_sigprocmask(me, a),
        nr::__NR_rt_sigpending => signals::rt_sigpending(me, a),
        nr::__NR_rt_sigsuspend => signals::rt_sigsuspend(me, a),
        nr::__NR_rt_sigtimedwait => signals::rt_sigtimedwait(me, a),
        nr::__NR_sigaltstack => signals::sigaltstack(me, a, frame),
        nr::__NR_pause => signals::pause(me),
        nr::__NR_kill => signals::kill(me, a),
        nr::__NR_tkill => signals::tkill(me, a),
        nr::__NR_rt_sigqueueinfo => signals::rt_sigqueueinfo(me, a),
        nr::__NR_rt_tgsigqueueinfo => signals::rt_tgsigqueueinfo(me, a),
        nr::__NR_tgkill => signals::tgkill(me, a),

        nr::__NR_getpid => identity::getpid(me),
        nr::__NR_gettid => identity::gettid(me),
        nr::__NR_getppid => identity::getppid(me),
        nr::__NR_getuid | nr::__NR_geteuid | nr::__NR_getgid | nr::__NR_getegid => Ok(0),
        nr::__NR_getresuid | nr::__NR_getresgid => credentials::get_three(a),
        nr::__NR_setuid | nr::__NR_setgid => credentials::set(a, 1),
        nr::__NR_setreuid | nr::__NR_setregid => credentials::set(a, 2),
        nr::__NR_setresuid | nr::__NR_setresgid => credentials::set(a, 3),
        // The one before, whatever is asked for.
        nr::__NR_setfsuid | nr::__NR_setfsgid => Ok(0),
        nr::__NR_getgroups => credentials::getgroups(a),
        nr::__NR_setgroups => credentials::setgroups(a),
        nr::__NR_capget => credentials::capget(me, a),
        nr::__NR_capset => credentials::capset(me, a),
        nr::__NR_personality => credentials::personality(a),
        nr::__NR_umask => credentials::umask(me, a),
        nr::__NR_getpriority => credentials::getpriority(me, a),
        nr::__NR_setpriority => credentials::setpriority(me, a),
        nr::__NR_getpgrp => identity::getpgrp(me),
        nr::__NR_getpgid => identity::getpgid(me, a),
        nr::__NR_getsid => identity::getsid(me, a),
        nr::__NR_setpgid => identity::setpgid(me, a),
        nr::__NR_setsid => identity::setsid(me),

        nr::__NR_uname => system::uname(a),
        nr::__NR_sysinfo => system::sysinfo(a),
        nr::__NR_getrlimit => system::getrlimit(me, a),
        nr::__NR_setrlimit => system::setrlimit(me, a),
        nr::__NR_prlimit64 => system::prlimit64(me, a),
        nr::__NR_getrandom => random::getrandom(a),
        nr::__NR_membarrier => memory::membarrier(a),
        nr::__NR_rseq | nr::__NR_clone3 => {
            // Asked for by C libraries at start, which do without.
            Err(Errno::ENOSYS)
        }
        nr::__NR_socket | nr::__NR_socketpair => Err(Errno::EAFNOSUPPORT),
        nr::__NR_getxattr
        | nr::__NR_lgetxattr
        | nr::__NR_fgetxattr
        | nr::__NR_listxattr
        | nr::__NR_llistxattr
        | nr::__NR_flistxattr
        | nr::__NR_setxattr
        | nr::__NR_lsetxattr
        | nr::__NR_fsetxattr => Err(Errno::EOPNOTSUPP),
        _ => unknown::call(me, number),
    }
}
