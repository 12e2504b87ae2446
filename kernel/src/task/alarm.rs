//! Alarms: timers of processes that send signals when they are due (`setitimer`, `timer_create`).
//!
//! One thread of the kernel sleeps until the first is due and posts the signals, in thread context. It is urgent, so that programs that loop do not
//! keep it away, and has a limit: a batch, then a pause. How often a timer was due meanwhile, or while its signal was pending, is its overrun.
//!
//! A timer that counts run time cannot be due before its process has had the CPUs for so long: it is looked at then, and again.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use super::current::current;
use super::scheduling::{Rule, Scheduling};
use super::signal::{self, SigInfo, Signal};
use super::timer::Deadline;
use super::{Pid, Process, Thread, Tid, id, kernel_thread, sched};
use crate::errno::Errno;
use crate::sync::Mutex;
use crate::time;

/// Most timers of one process, beside its three interval timers.
const MOST: usize = 128;

/// Most of all processes.
const MOST_IN_ALL: usize = 1024;

/// Most that are looked at in one go, and how long the others wait then.
const BATCH: usize = 32;
const PAUSE_NS: u64 = 200_000;

/// How often a timer of run time is looked at that is nearly due: as often as run time is counted.
const NEARLY_DUE_NS: u64 = 1_000_000;

/// Of the thread that keeps the alarms.
const PRIORITY: u32 = 90;

/// Which timer of a process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum AlarmId {
    /// `ITIMER_REAL`, which is that of `alarm`.
    Real,
    /// `ITIMER_VIRTUAL`.
    Virtual,
    /// `ITIMER_PROF`.
    Profiling,
    /// Made by `timer_create`.
    Made(u32),
}

/// What a timer counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Count {
    /// The monotonic clock.
    Time,
    /// The real-time clock, which is never set.
    RealTime,
    /// The time that the process has run.
    RunTime,
    /// The part of it in user mode.
    UserTime,
}

impl Count {
    fn now_ns(self, process: &Process) -> u64 {
        match self {
            Self::Time => time::now_ns(),
            Self::RealTime => time::realtime_ns(),
            Self::RunTime => process.usage().run_ns,
            Self::UserTime => process.usage().user_ns(),
        }
    }
}

/// Who gets which signal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Notify {
    /// Nobody: the timer can be asked only.
    Nobody,
    /// The process.
    Process(Signal),
    /// One thread of it.
    Thread(Signal, Tid),
}

/// When a timer is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    /// Never.
    Never,
    /// So long from now.
    After(u64),
    /// When its count is that.
    At(u64),
}

/// What a timer is set to: how long until it is due, 0 for never, and how long from then to the next time, 0 for no other.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Setting {
    /// Until it is due.
    pub left_ns: u64,
    /// The period.
    pub period_ns: u64,
}

#[derive(Debug)]
struct Alarm {
    process: Weak<Process>,
    count: Count,
    notify: Notify,
    /// For the handler.
    value: u64,
    /// When it is due, by its count.
    due_ns: Option<u64>,
    period_ns: u64,
    /// Its place among those that are to be looked at.
    look_ns: Option<u64>,
    /// That of the signal delivered last.
    overrun: u32,
}

type Key = (Pid, AlarmId);

#[derive(Debug)]
struct Alarms {
    all: BTreeMap<Key, Alarm>,
    /// When which is to be looked at, on the monotonic clock.
    looks: BTreeSet<(u64, Pid, AlarmId)>,
    keeper: Option<Arc<Thread>>,
}

static ALARMS: Mutex<Alarms> = Mutex::new(Alarms {
    all: BTreeMap::new(),
    looks: BTreeSet::new(),
    keeper: None,
});

/// Makes a timer, which is not set.
///
/// # Errors
/// EAGAIN when there are too many.
pub fn create(
    process: &Arc<Process>,
    count: Count,
    notify: impl FnOnce(u32) -> (Notify, u64),
) -> Result<u32, Errno> {
    start_keeper()?;
    let mut alarms = ALARMS.lock();
    let own = (process.pid(), AlarmId::Made(0))..=(process.pid(), AlarmId::Made(u32::MAX));
    let mut id = 0;
    for (&(_, taken), _) in alarms.all.range(own) {
        if taken == AlarmId::Made(id) {
            id += 1;
        }
    }
    if id as usize >= MOST {
        return Err(Errno::EAGAIN);
    }
    let (notify, value) = notify(id);
    alarms.add(process, AlarmId::Made(id), count, notify, value)?;
    Ok(id)
}

/// Sets a timer anew; what it was set to.
///
/// # Errors
/// EINVAL for a timer that is not there; EAGAIN when the interval timer would be one too many.
pub fn set(
    process: &Arc<Process>,
    id: AlarmId,
    when: When,
    period_ns: u64,
) -> Result<Setting, Errno> {
    let interval = match id {
        AlarmId::Real => Some((Count::Time, Signal::ALRM)),
        AlarmId::Virtual => Some((Count::UserTime, Signal::VTALRM)),
        AlarmId::Profiling => Some((Count::RunTime, Signal::PROF)),
        AlarmId::Made(_) => None,
    };
    if when != When::Never {
        start_keeper()?;
    }
    let key = (process.pid(), id);
    let mut alarms = ALARMS.lock();
    if let (false, Some((count, signal))) = (alarms.all.contains_key(&key), interval) {
        if when == When::Never {
            return Ok(Setting::default());
        }
        alarms.add(process, id, count, Notify::Process(signal), 0)?;
    }
    let alarm = alarms.all.get_mut(&key).ok_or(Errno::EINVAL)?;
    let now_ns = alarm.count.now_ns(process);
    let before = alarm.setting(now_ns);
    alarm.due_ns = match when {
        When::Never => None,
        When::After(span_ns) => Some(now_ns.saturating_add(span_ns)),
        When::At(at_ns) => Some(at_ns),
    };
    alarm.period_ns = period_ns;
    alarm.overrun = 0;
    let is_first = alarms.look_again(key, process, now_ns);
    let keeper = alarms.keeper.clone().filter(|_| is_first);
    drop(alarms);
    keeper.iter().for_each(sched::unpark);
    Ok(before)
}

/// What a timer is set to.
///
/// # Errors
/// EINVAL for one that is not there.
pub fn get(process: &Process, id: AlarmId) -> Result<Setting, Errno> {
    let alarms = ALARMS.lock();
    match (alarms.all.get(&(process.pid(), id)), id) {
        (Some(alarm), _) => Ok(alarm.setting(alarm.count.now_ns(process))),
        (None, AlarmId::Made(_)) => Err(Errno::EINVAL),
        (None, _) => Ok(Setting::default()),
    }
}

/// How often more a timer was due than its signal was delivered, the last time.
///
/// # Errors
/// EINVAL for a timer that is not there.
pub fn overrun(process: &Process, id: u32) -> Result<u32, Errno> {
    let alarms = ALARMS.lock();
    let alarm = alarms.all.get(&(process.pid(), AlarmId::Made(id)));
    Ok(alarm.ok_or(Errno::EINVAL)?.overrun)
}

/// Deletes a timer.
///
/// # Errors
/// EINVAL for one that is not there.
pub fn delete(process: &Process, id: u32) -> Result<(), Errno> {
    let key = (process.pid(), AlarmId::Made(id));
    ALARMS.lock().remove(key).ok_or(Errno::EINVAL)
}

/// The process ends.
pub(super) fn forget_all(pid: Pid) {
    forget(pid, AlarmId::Real);
}

/// It runs another program, which keeps the interval timers only.
pub(super) fn forget_made(pid: Pid) {
    forget(pid, AlarmId::Made(0));
}

fn forget(pid: Pid, from: AlarmId) {
    let mut alarms = ALARMS.lock();
    let own = (pid, from)..=(pid, AlarmId::Made(u32::MAX));
    while let Some((&key, _)) = alarms.all.range(own.clone()).next() {
        alarms.remove(key);
    }
}

/// The signal is delivered now.
pub(super) fn note_delivered(process: &Process, info: SigInfo) {
    let Some((id, overrun)) = info.timer() else {
        return;
    };
    let mut alarms = ALARMS.lock();
    if let Some(alarm) = alarms.all.get_mut(&(process.pid(), AlarmId::Made(id))) {
        alarm.overrun = overrun;
    }
}

impl Alarm {
    fn setting(&self, now_ns: u64) -> Setting {
        Setting {
            // One that is due is told as nearly so: 0 would be never.
            left_ns: self
                .due_ns
                .map_or(0, |due_ns| due_ns.saturating_sub(now_ns).max(1)),
            period_ns: self.period_ns,
        }
    }

    /// If it is due: how often more it was, and it is set to its next time.
    fn take_turn(&mut self, now_ns: u64) -> Option<u32> {
        let due_ns = self.due_ns.filter(|due_ns| *due_ns <= now_ns)?;
        let more = (now_ns - due_ns).checked_div(self.period_ns).unwrap_or(0);
        let next_ns = due_ns.saturating_add((more + 1).saturating_mul(self.period_ns));
        self.due_ns = (self.period_ns > 0).then_some(next_ns);
        Some(u32::try_from(more).unwrap_or(u32::MAX).min(i32::MAX as u32))
    }

    /// When to look at it, on the monotonic clock.
    fn next_look_ns(&self, process: &Process, now_ns: u64) -> Option<u64> {
        let due_ns = self.due_ns?;
        let left_ns = due_ns.saturating_sub(now_ns);
        if matches!(self.count, Count::Time | Count::RealTime) {
            return Some(time::now_ns().saturating_add(left_ns));
        }
        let runners = process.thread_count().clamp(1, sched::cpu_count().max(1));
        let span_ns = left_ns / runners as u64;
        Some(time::now_ns().saturating_add(span_ns.max(NEARLY_DUE_NS)))
    }
}

impl Alarms {
    fn add(
        &mut self,
        process: &Arc<Process>,
        id: AlarmId,
        count: Count,
        notify: Notify,
        value: u64,
    ) -> Result<(), Errno> {
        if self.all.len() >= MOST_IN_ALL {
            return Err(Errno::EAGAIN);
        }
        let alarm = Alarm {
            process: Arc::downgrade(process),
            count,
            notify,
            value,
            due_ns: None,
            period_ns: 0,
            look_ns: None,
            overrun: 0,
        };
        self.all.insert((process.pid(), id), alarm);
        Ok(())
    }

    fn remove(&mut self, key: Key) -> Option<()> {
        let alarm = self.all.remove(&key)?;
        if let Some(look_ns) = alarm.look_ns {
            self.looks.remove(&(look_ns, key.0, key.1));
        }
        Some(())
    }

    /// Puts a timer, whose count is `now_ns`, where it belongs; whether it comes first.
    fn look_again(&mut self, key: Key, process: &Process, now_ns: u64) -> bool {
        let Some(alarm) = self.all.get_mut(&key) else {
            return false;
        };
        let look_ns = alarm.next_look_ns(process, now_ns);
        if let Some(before_ns) = core::mem::replace(&mut alarm.look_ns, look_ns) {
            self.looks.remove(&(before_ns, key.0, key.1));
        }
        let Some(look_ns) = look_ns else {
            return false;
        };
        let look = (look_ns, key.0, key.1);
        self.looks.insert(look);
        self.looks.first() == Some(&look)
    }

    /// Takes those that are due, a batch at most.
    fn take_due(&mut self, due: &mut Vec<(Arc<Process>, Notify, SigInfo)>) {
        let now_ns = time::now_ns();
        while due.len() < BATCH
            && let Some(&(look_ns, pid, id)) = self.looks.first()
            && look_ns <= now_ns
        {
            let key = (pid, id);
            let Some(alarm) = self.all.get_mut(&key) else {
                self.looks.pop_first();
                continue;
            };
            let Some(process) = alarm.process.upgrade() else {
                self.remove(key);
                continue;
            };
            let count_ns = alarm.count.now_ns(&process);
            let turn = alarm.take_turn(count_ns);
            let (notify, value) = (alarm.notify, alarm.value);
            self.look_again(key, &process, count_ns);
            let info = match (turn, notify, id) {
                (Some(more), Notify::Process(signal) | Notify::Thread(signal, _), _) => match id {
                    AlarmId::Made(id) => SigInfo::from_timer(signal, id, more, value),
                    _ => SigInfo::from_kernel(signal),
                },
                // The process is let go without the lock.
                _ => {
                    due.push((process, Notify::Nobody, SigInfo::from_kernel(Signal::ALRM)));
                    continue;
                }
            };
            due.push((process, notify, info));
        }
    }
}

/// Starts the thread unless it runs.
fn start_keeper() -> Result<(), Errno> {
    static STARTED: AtomicBool = AtomicBool::new(false);
    if STARTED.swap(true, Ordering::Relaxed) {
        return Ok(());
    }
    let started = kernel_thread::start_kernel_thread("alarms", keep, 0);
    if started.is_err() {
        STARTED.store(false, Ordering::Relaxed);
    }
    started.map(|_| ()).map_err(|_| Errno::EAGAIN)
}

/// What it does.
fn keep(_: usize) -> ! {
    let me = current().to_arc();
    if let Some(urgent) = Scheduling::new(Rule::Fifo, PRIORITY, false) {
        sched::set_scheduling(&me, urgent);
    }
    ALARMS.lock().keeper = Some(me);
    let mut due = Vec::with_capacity(BATCH);
    loop {
        let next_ns = {
            let mut alarms = ALARMS.lock();
            alarms.take_due(&mut due);
            alarms.looks.first().map(|look| look.0)
        };
        let earliest_ns = match due.len() {
            0 => 0,
            _ => time::now_ns() + PAUSE_NS,
        };
        for (process, notify, info) in due.drain(..) {
            post(&process, notify, info);
        }
        sched::park(next_ns.map(|at_ns| Deadline::at_ns(at_ns.max(earliest_ns))));
    }
}

fn post(process: &Arc<Process>, notify: Notify, info: SigInfo) {
    match notify {
        Notify::Nobody => {}
        Notify::Process(_) => signal::post_to_process(process, info),
        Notify::Thread(_, tid) => {
            let thread = id::find_thread(tid).filter(|it| Arc::ptr_eq(it.process(), process));
            if let Some(thread) = thread {
                signal::post_to_thread(&thread, info);
            }
        }
    }
}
