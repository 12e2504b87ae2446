//! All local APICs: what virtual CPUs send each other, who sleeps, and who is called out of the guest.

use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::apic::Apic;
use super::command::{Command, Message};
use super::ports::lock;
use crate::kvm::interrupt;

/// What a virtual CPU does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Nothing before a start-up.
    Waits,
    /// It runs.
    Runs,
    /// It has halted; whether it takes interrupts.
    Halted(bool),
}

/// What its thread does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Has it begin in real mode in that page.
    Begin(u8),
    /// Enters the guest, with that interrupt, to be told when another can be sent, and with an NMI.
    Enter(Option<u8>, bool, bool),
}

#[derive(Debug)]
struct State {
    apic: Apic,
    phase: Phase,
    startup: Option<u8>,
    nmi: bool,
    /// It is in the guest, or about to be: a signal calls it out.
    is_inside: bool,
}

#[derive(Debug)]
struct Cpu {
    state: Mutex<State>,
    rouse: Condvar,
    thread: AtomicI32,
}

/// What was counted.
#[derive(Debug, Default)]
pub struct Counts {
    /// Interrupts that virtual CPUs sent, one a target.
    pub sent: AtomicU64,
    /// Of these, those that were left out on purpose.
    pub dropped: AtomicU64,
    /// Signals that called a thread out of the guest.
    pub kicks: AtomicU64,
}

/// The controllers of a machine.
#[derive(Debug)]
pub struct Bus {
    cpus: Vec<Cpu>,
    began: Instant,
    /// Each so many interrupts between CPUs one gets lost.
    drop_each: Option<u64>,
    /// Until when the thread that watches timers sleeps.
    alarm_ns: AtomicU64,
    watch: (Mutex<()>, Condvar),
    /// What was counted.
    pub counts: Counts,
}

impl Bus {
    /// For so many virtual CPUs, of which the first runs.
    pub fn new(cpus: u8, drop_each: Option<u64>) -> Self {
        let cpu = |id: u8| Cpu {
            state: Mutex::new(State {
                apic: Apic::new(id),
                phase: if id == 0 { Phase::Runs } else { Phase::Waits },
                startup: None,
                nmi: false,
                is_inside: false,
            }),
            rouse: Condvar::new(),
            thread: AtomicI32::new(0),
        };
        Self {
            cpus: (0..cpus).map(cpu).collect(),
            began: Instant::now(),
            drop_each,
            alarm_ns: AtomicU64::new(0),
            watch: Default::default(),
            counts: Counts::default(),
        }
    }

    /// The machine's clock.
    pub fn now_ns(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    /// The calling thread runs that virtual CPU.
    pub fn settle(&self, cpu: usize) {
        // SAFETY: takes nothing.
        let thread = unsafe { libc::gettid() };
        self.cpus[cpu].thread.store(thread, Ordering::Release);
    }

    /// Waits until the virtual CPU has something to do. `ready`: the guest can take an interrupt now.
    pub fn next(&self, cpu: usize, ready: bool) -> Next {
        let mut state = lock(&self.cpus[cpu].state);
        loop {
            state.apic.expire(self.now_ns());
            if let Some(page) = state.startup.take() {
                state.phase = Phase::Runs;
                return Next::Begin(page);
            }
            let goes_on = match state.phase {
                Phase::Waits => false,
                Phase::Runs => true,
                Phase::Halted(takes) => state.nmi || takes && state.apic.next().is_some(),
            };
            if goes_on {
                break;
            }
            state = self.sleep(cpu, state);
        }
        state.phase = Phase::Runs;
        let vector = match ready {
            true => state.apic.acknowledge(),
            false => None,
        };
        let more = state.apic.next().is_some();
        let nmi = std::mem::take(&mut state.nmi);
        state.is_inside = true;
        let due_ns = state.apic.timer.due_ns();
        drop(state);
        self.set_alarm(due_ns);
        Next::Enter(vector, more, nmi)
    }

    fn sleep<'a>(&self, cpu: usize, state: MutexGuard<'a, State>) -> MutexGuard<'a, State>
    where
        Self: 'a,
    {
        let rouse = &self.cpus[cpu].rouse;
        let Some(due_ns) = state.apic.timer.due_ns() else {
            return rouse.wait(state).unwrap_or_else(PoisonError::into_inner);
        };
        let left = Duration::from_nanos(due_ns.saturating_sub(self.now_ns()));
        let woken = rouse.wait_timeout(state, left);
        woken.unwrap_or_else(PoisonError::into_inner).0
    }

    /// It has left the guest.
    pub fn left(&self, cpu: usize) {
        lock(&self.cpus[cpu].state).is_inside = false;
    }

    /// It has halted. An INIT that has come since is stronger.
    pub fn halted(&self, cpu: usize, takes_interrupts: bool) {
        let mut state = lock(&self.cpus[cpu].state);
        if state.phase == Phase::Runs {
            state.phase = Phase::Halted(takes_interrupts);
        }
    }

    /// It reads a register of its controller.
    pub fn read(&self, cpu: usize, offset: u32) -> u32 {
        let now_ns = self.now_ns();
        lock(&self.cpus[cpu].state).apic.read(offset, now_ns)
    }

    /// It writes one.
    pub fn write(&self, cpu: usize, offset: u32, value: u32) {
        let now_ns = self.now_ns();
        let command = lock(&self.cpus[cpu].state)
            .apic
            .write(offset, value, now_ns);
        if let Some(command) = command {
            self.send(cpu, command);
        }
    }

    fn send(&self, sender: usize, command: Command) {
        for (index, cpu) in self.cpus.iter().enumerate() {
            let mut state = lock(&cpu.state);
            if !command.targets.has(sender as u8, state.apic.address()) {
                continue;
            }
            match command.message {
                Message::Fixed(_) if index != sender && self.drops() => continue,
                Message::Fixed(vector) => state.apic.accept(vector),
                Message::Nmi => state.nmi = true,
                Message::Init => {
                    state.apic = Apic::new(index as u8);
                    (state.phase, state.startup) = (Phase::Waits, None);
                    state.nmi = false;
                }
                Message::Startup(page) if state.phase == Phase::Waits => {
                    state.startup = Some(page);
                }
                Message::Startup(_) => continue,
            }
            self.rouse(cpu, state);
        }
    }

    /// Counts an interrupt; whether it gets lost.
    fn drops(&self) -> bool {
        let sent = self.counts.sent.fetch_add(1, Ordering::Relaxed) + 1;
        let drops = self.drop_each.is_some_and(|each| sent.is_multiple_of(each));
        self.counts
            .dropped
            .fetch_add(drops.into(), Ordering::Relaxed);
        drops
    }

    fn rouse(&self, cpu: &Cpu, mut state: MutexGuard<'_, State>) {
        let was_inside = std::mem::replace(&mut state.is_inside, false);
        drop(state);
        match was_inside {
            true => {
                self.counts.kicks.fetch_add(1, Ordering::Relaxed);
                interrupt(cpu.thread.load(Ordering::Acquire));
            }
            false => cpu.rouse.notify_one(),
        }
    }

    /// Has the watching thread look again if it sleeps beyond that moment.
    fn set_alarm(&self, due_ns: Option<u64>) {
        // ORDERING: SeqCst, with `watch`: either this sees until when it sleeps, or it sees the CPU in the guest.
        let until_ns = self.alarm_ns.load(Ordering::SeqCst);
        if due_ns.is_some_and(|due_ns| due_ns < until_ns) {
            drop(lock(&self.watch.0));
            self.watch.1.notify_one();
        }
    }

    /// Calls virtual CPUs out of the guest when their timers are due, until `end_ns`.
    pub fn watch(&self, end_ns: u64) {
        let mut guard = lock(&self.watch.0);
        while self.now_ns() < end_ns {
            // ORDERING: as in `set_alarm`: while it looks, each new alarm is worth another look.
            self.alarm_ns.store(u64::MAX, Ordering::SeqCst);
            let due_ns = self.call_out().unwrap_or(u64::MAX).min(end_ns);
            self.alarm_ns.store(due_ns, Ordering::SeqCst);
            let left = Duration::from_nanos(due_ns.saturating_sub(self.now_ns()));
            let woken = self.watch.1.wait_timeout(guard, left);
            guard = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Calls out those that are due; when the next one is.
    fn call_out(&self) -> Option<u64> {
        let mut first: Option<u64> = None;
        for cpu in &self.cpus {
            let state = lock(&cpu.state);
            let Some(due_ns) = state.apic.timer.due_ns().filter(|_| state.is_inside) else {
                continue;
            };
            if due_ns <= self.now_ns() {
                self.rouse(cpu, state);
            } else {
                first = Some(first.map_or(due_ns, |first| first.min(due_ns)));
            }
        }
        first
    }
}
