//! What a guest finds when it goes on: exceptions, NMIs and interrupts, which of them comes first, and what becomes of the others.
//!
//! The tests play the processor, by the manual (APM vol. 2, "Event Injection", "Virtual Interrupts", "Interrupt Shadows").

mod support;

use shootdown_kernel_tests::errno::Errno;
use shootdown_kernel_tests::vm::abi::Interrupt;
use shootdown_kernel_tests::vm::vcpu::State;
use shootdown_kernel_tests::vm::vmcb::Field;
use support::Turn;
use support::random::Random;

/// Kinds of events.
const INTERRUPT: u64 = 0;
const NMI: u64 = 2;
const EXCEPTION: u64 = 3;
const SOFTWARE: u64 = 4;

const VALID: u64 = 1 << 31;
const IF: u64 = 1 << 9;
const SHADOW: u64 = 1;
/// V_IRQ, the highest priority, whatever the task priority.
const WINDOW: u64 = 1 << 8 | 0xf << 16 | 1 << 20;
/// A task priority, and V_INTR_MASKING.
const OTHERS: u64 = 5 | 1 << 24;
const IRET: u64 = 1 << 52;

const fn event(kind: u64, vector: u64) -> u64 {
    vector | kind << 8 | VALID
}

const fn with_code(kind: u64, vector: u64, code: u64) -> u64 {
    event(kind, vector) | 1 << 11 | code << 32
}

/// A virtual CPU that takes interrupts.
fn open() -> State {
    let mut state = State::new().expect("memory");
    state.vmcb.set(Field::RFLAGS, 2 | IF);
    state.vmcb.set(Field::RIP, 0x1000);
    state.vmcb.set(Field::V_INTR, OTHERS);
    state
}

fn set_flag(state: &mut State, is_on: bool) {
    let flag = if is_on { IF } else { 0 };
    state.vmcb.set(Field::RFLAGS, 2 | flag);
}

fn send(state: &mut State, vector: u8) {
    let vector = vector.into();
    assert_eq!(state.queue_interrupt(Interrupt { vector }), Ok(()));
}

fn injected(state: &State) -> u64 {
    state.vmcb.get(Field::EVENT_INJ)
}

/// The guest is entered, takes what is there, and is left in the middle of a computation; what it took.
fn enter(state: &mut State) -> Option<u64> {
    state.place_events(false);
    let found = injected(state);
    // The processor clears no other bit.
    state.vmcb.set(Field::EVENT_INJ, found & !VALID);
    state.vmcb.set(Field::EXIT_INT_INFO, 0);
    state.keep_event();
    (found & VALID != 0).then_some(found)
}

/// The guest is entered, and left in the middle of the delivery.
fn enter_and_fail(state: &mut State) {
    state.place_events(false);
    let found = injected(state);
    assert!(found & VALID != 0, "nothing is delivered");
    state.vmcb.set(Field::EVENT_INJ, found & !VALID);
    state.vmcb.set(Field::EXIT_INT_INFO, found);
    state.keep_event();
}

/// All that the guest takes, whose handlers return at once.
fn taken(state: &mut State) -> Vec<u64> {
    let taken: Vec<_> = std::iter::from_fn(|| enter(state)).collect();
    assert_eq!(state.interrupt_bitmap(), [0; 4], "one is left");
    taken
}

fn bitmap_of(vector: Option<u8>) -> [u64; 4] {
    let mut bitmap = [0; 4];
    if let Some(vector) = vector {
        bitmap[usize::from(vector) / 64] = 1 << (vector % 64);
    }
    bitmap
}

#[test]
fn an_interrupt_is_the_next_thing_that_happens() {
    let _turn = Turn::new();
    for vector in [0, 2, 3, 0x20, 63, 64, 255] {
        for (is_on, shadow) in [(true, 0), (true, SHADOW), (false, 0), (false, SHADOW)] {
            let mut state = open();
            set_flag(&mut state, is_on);
            state.vmcb.set(Field::INTERRUPT_SHADOW, shadow);
            send(&mut state, vector);
            assert_eq!(injected(&state), event(INTERRUPT, vector.into()));
            assert_eq!(state.interrupt_bitmap(), bitmap_of(Some(vector)));
            assert!(!state.is_ready_for_interrupt());
            assert_eq!(taken(&mut state), [event(INTERRUPT, vector.into())]);
        }
    }
    let mut state = open();
    for vector in [256, u32::MAX] {
        let refused = state.queue_interrupt(Interrupt { vector });
        assert_eq!(refused, Err(Errno::EINVAL));
    }
    assert_eq!(injected(&state), 0);
}

/// Whatever became of the first one, but its delivery.
#[test]
fn a_second_interrupt_replaces_the_first() {
    let _turn = Turn::new();
    const FAULT: u64 = with_code(EXCEPTION, 14, 6);
    type Before = (&'static str, fn(&mut State), &'static [u64]);
    const BEFORE: [Before; 7] = [
        ("injected", |state| send(state, 0xff), &[]),
        (
            "injected, behind others",
            |state| {
                (0..4).for_each(|vector| send(state, 0x30 + vector));
            },
            &[],
        ),
        (
            "delivered in part",
            |state| {
                send(state, 0xff);
                enter_and_fail(state);
            },
            &[],
        ),
        (
            "waits behind an exception",
            |state| {
                state.inject(14, Some(6));
                send(state, 0xff);
            },
            &[FAULT],
        ),
        (
            "waits behind an exception that was delivered in part",
            |state| {
                state.inject(14, Some(6));
                send(state, 0xff);
                enter_and_fail(state);
            },
            &[FAULT],
        ),
        (
            "waits behind an NMI",
            |state| {
                state.queue_nmi();
                enter_and_fail(state);
                send(state, 0xff);
            },
            &[event(NMI, 2)],
        ),
        (
            "met by an exception",
            |state| {
                send(state, 0xff);
                enter_and_fail(state);
                state.inject(14, Some(6));
            },
            &[FAULT],
        ),
    ];
    for (what, before, first) in BEFORE {
        for by_bitmap in [false, true] {
            let mut state = open();
            before(&mut state);
            match by_bitmap {
                true => state.set_interrupt_bitmap(&bitmap_of(Some(0x21))),
                false => send(&mut state, 0x21),
            }
            assert_eq!(state.interrupt_bitmap(), bitmap_of(Some(0x21)), "{what}");
            let all = [first, &[event(INTERRUPT, 0x21)]].concat();
            assert_eq!(taken(&mut state), all, "{what}");
        }
    }
}

/// An exception that is given up leaves a place, into which the second one goes; the first does not come behind it.
#[test]
fn one_that_waited_does_not_come_back() {
    let _turn = Turn::new();
    let mut state = open();
    state.inject(6, None);
    send(&mut state, 0x20);
    state.forget_exception();
    assert_eq!(injected(&state), 0);
    send(&mut state, 0x21);
    assert_eq!(taken(&mut state), [event(INTERRUPT, 0x21)]);
    // Without a second one the first comes.
    state.inject(6, None);
    send(&mut state, 0x20);
    state.forget_exception();
    assert_eq!(taken(&mut state), [event(INTERRUPT, 0x20)]);
}

#[test]
fn one_that_waits_is_taken_when_the_guest_takes_interrupts() {
    let _turn = Turn::new();
    let mut state = open();
    state.inject(13, Some(0));
    send(&mut state, 0x40);
    assert_eq!(enter(&mut state), Some(with_code(EXCEPTION, 13, 0)));
    for (is_on, shadow) in [(false, 0), (false, SHADOW), (true, SHADOW)] {
        set_flag(&mut state, is_on);
        state.vmcb.set(Field::INTERRUPT_SHADOW, shadow);
        assert_eq!(enter(&mut state), None);
        // The processor says when.
        assert_eq!(state.vmcb.get(Field::V_INTR), OTHERS | WINDOW);
        assert!(!state.is_woken(), "it halts for ever");
    }
    state.vmcb.set(Field::INTERRUPT_SHADOW, 0);
    assert!(state.is_woken() && !state.is_ready_for_interrupt());
    assert_eq!(enter(&mut state), Some(event(INTERRUPT, 0x40)));
    assert_eq!(state.vmcb.get(Field::V_INTR), OTHERS);
    assert!(!state.is_woken() && state.is_ready_for_interrupt());
}

#[test]
fn the_vmm_is_told_when_the_guest_takes_interrupts() {
    let _turn = Turn::new();
    let mut state = open();
    for (is_wanted, bits) in [
        (true, OTHERS | WINDOW),
        (true, OTHERS | WINDOW),
        (false, OTHERS),
    ] {
        state.place_events(is_wanted);
        assert_eq!(state.vmcb.get(Field::V_INTR), bits);
    }
    for is_on in [false, true] {
        for shadow in [0, SHADOW] {
            for pending in [
                0,
                event(EXCEPTION, 6),
                event(INTERRUPT, 0x20),
                event(NMI, 2),
            ] {
                set_flag(&mut state, is_on);
                state.vmcb.set(Field::INTERRUPT_SHADOW, shadow);
                state.vmcb.set(Field::EVENT_INJ, pending);
                let is_ready = is_on && shadow == 0 && pending == 0;
                assert_eq!(state.is_ready_for_interrupt(), is_ready);
                assert_eq!(state.has_interrupts_on(), is_on);
            }
        }
    }
}

/// What an exit has cut short comes again, with its error code, but for what its instruction raises again.
#[test]
fn a_delivery_that_was_cut_short_is_made_again() {
    let _turn = Turn::new();
    let mut state = open();
    for (found, is_kept) in [
        (event(INTERRUPT, 0x20), true),
        (event(INTERRUPT, 3), true),
        (event(INTERRUPT, 4), true),
        (event(NMI, 2), true),
        (event(EXCEPTION, 6), true),
        (with_code(EXCEPTION, 14, 0xffff_fff7), true),
        (event(EXCEPTION, 3), false),
        (event(EXCEPTION, 4), false),
        (event(SOFTWARE, 0x80), false),
        (event(INTERRUPT, 0x20) & !VALID, false),
        (with_code(EXCEPTION, 14, 2) & !VALID, false),
    ] {
        state.vmcb.set(Field::EVENT_INJ, event(INTERRUPT, 0x99));
        state.vmcb.set(Field::EXIT_INT_INFO, found);
        state.keep_event();
        let kept = if is_kept { found } else { 0 };
        assert_eq!(injected(&state), kept, "{found:#x}");
    }
}

/// An exception that meets a delivery goes first, and what it met is not lost.
#[test]
fn exceptions_go_first() {
    let _turn = Turn::new();
    let mut state = open();
    let fault = with_code(EXCEPTION, 17, 0);
    send(&mut state, 0x50);
    enter_and_fail(&mut state);
    state.inject(17, Some(0));
    assert_eq!(state.interrupt_bitmap(), bitmap_of(Some(0x50)));
    assert_eq!(taken(&mut state), [fault, event(INTERRUPT, 0x50)]);
    // In the place of another one only the second, with a code of its own or without.
    state.inject(6, None);
    enter_and_fail(&mut state);
    state.inject(17, Some(0));
    enter_and_fail(&mut state);
    assert_eq!(injected(&state), fault);
    state.inject(6, None);
    assert_eq!(taken(&mut state), [event(EXCEPTION, 6)]);
    // No handler of the NMI has begun.
    state.queue_nmi();
    enter_and_fail(&mut state);
    state.inject(17, Some(0));
    assert!(!has_iret_intercept(&state) && state.is_woken());
    assert_eq!(taken(&mut state), [fault, event(NMI, 2)]);
    state.leave_nmi_handler();
    state.vmcb.set(Field::RIP, 0x2000);
    // The exceptions that instructions get.
    state.undefined();
    assert_eq!(taken(&mut state), [event(EXCEPTION, 6)]);
    state.refuse();
    assert_eq!(taken(&mut state), [with_code(EXCEPTION, 13, 0)]);
}

/// Registers that the VMM sets take an exception away, and nothing else.
#[test]
fn only_exceptions_are_forgotten() {
    let _turn = Turn::new();
    for (pending, is_kept) in [
        (event(EXCEPTION, 6), false),
        (with_code(EXCEPTION, 14, 2), false),
        (event(INTERRUPT, 0x20), true),
        (event(NMI, 2), true),
    ] {
        let mut state = open();
        state.vmcb.set(Field::EVENT_INJ, pending);
        state.forget_exception();
        let kept = if is_kept { pending } else { 0 };
        assert_eq!(injected(&state), kept, "{pending:#x}");
    }
}

fn has_iret_intercept(state: &State) -> bool {
    state.vmcb.get(Field::INTERCEPT_EVENTS) & IRET != 0
}

#[test]
fn nmis_come_one_by_one() {
    let _turn = Turn::new();
    let mut state = open();
    state.vmcb.set(Field::INTERCEPT_EVENTS, 0xf | 1 << 51);
    set_flag(&mut state, false);
    state.vmcb.set(Field::INTERRUPT_SHADOW, SHADOW);
    state.queue_nmi();
    assert_eq!(enter(&mut state), None, "in the shadow");
    assert!(state.is_woken());
    state.vmcb.set(Field::INTERRUPT_SHADOW, 0);
    assert_eq!(enter(&mut state), Some(event(NMI, 2)));
    assert!(has_iret_intercept(&state) && !state.is_woken());
    // Two more are one, which waits for the end of the handler.
    state.queue_nmi();
    state.queue_nmi();
    assert_eq!(enter(&mut state), None);
    assert!(!state.is_woken(), "it halts in the handler");
    state.leave_nmi_handler();
    assert!(!has_iret_intercept(&state));
    assert_eq!(enter(&mut state), None, "before the IRET");
    state.vmcb.set(Field::RIP, 0x2000);
    assert!(state.is_woken());
    assert_eq!(enter(&mut state), Some(event(NMI, 2)));
    state.leave_nmi_handler();
    state.vmcb.set(Field::RIP, 0x3000);
    assert_eq!(enter(&mut state), None);
    assert_eq!(state.vmcb.get(Field::INTERCEPT_EVENTS), 0xf | 1 << 51);
}

/// An interrupt at the handler's IRET comes before it, and its own handler's IRET ends what keeps NMIs off, as in a processor.
#[test]
fn an_interrupt_before_the_iret_does_not_end_the_handler() {
    let _turn = Turn::new();
    let mut state = open();
    state.queue_nmi();
    assert_eq!(enter(&mut state), Some(event(NMI, 2)));
    state.queue_nmi();
    state.leave_nmi_handler();
    send(&mut state, 0x20);
    assert_eq!(enter(&mut state), Some(event(INTERRUPT, 0x20)));
    state.vmcb.set(Field::RIP, 0x2000);
    assert!(has_iret_intercept(&state) && !state.is_woken());
    assert_eq!(enter(&mut state), None);
    state.leave_nmi_handler();
    state.vmcb.set(Field::RIP, 0x3000);
    assert_eq!(enter(&mut state), Some(event(NMI, 2)));
}

/// Who is there first is first.
#[test]
fn an_nmi_and_an_interrupt_both_come() {
    let _turn = Turn::new();
    let (nmi, interrupt) = (event(NMI, 2), event(INTERRUPT, 0x20));
    let mut state = open();
    state.queue_nmi();
    send(&mut state, 0x20);
    assert_eq!(taken(&mut state), [interrupt, nmi]);
    let mut state = open();
    state.queue_nmi();
    enter_and_fail(&mut state);
    send(&mut state, 0x20);
    assert_eq!(taken(&mut state), [nmi, interrupt]);
}

#[test]
fn registers_have_the_interrupt_that_waits() {
    let _turn = Turn::new();
    let mut state = open();
    send(&mut state, 0x20);
    // Of none nothing is changed.
    state.set_interrupt_bitmap(&[0; 4]);
    assert_eq!(state.interrupt_bitmap(), bitmap_of(Some(0x20)));
    // The lowest of several.
    state.set_interrupt_bitmap(&[0, 1 << 63 | 1 << 7, 0, 1]);
    assert_eq!(state.interrupt_bitmap(), bitmap_of(Some(71)));
    assert_eq!(taken(&mut state), [event(INTERRUPT, 71)]);
    // Neither an exception nor an NMI is an interrupt.
    state.inject(33, None);
    assert_eq!(state.interrupt_bitmap(), [0; 4]);
    assert_eq!(enter(&mut state), Some(event(EXCEPTION, 33)));
    state.queue_nmi();
    enter_and_fail(&mut state);
    assert_eq!(state.interrupt_bitmap(), [0; 4]);
}

#[test]
fn a_reset_forgets_all() {
    let _turn = Turn::new();
    let mut state = open();
    state.queue_nmi();
    enter_and_fail(&mut state);
    state.queue_nmi();
    send(&mut state, 0x20);
    state.place_events(true);
    state.vmcb.set(Field::INTERRUPT_SHADOW, SHADOW);
    state.forget_events();
    assert_eq!(injected(&state), 0);
    assert_eq!(state.vmcb.get(Field::INTERRUPT_SHADOW), 0);
    assert_eq!(state.vmcb.get(Field::V_INTR), 1 << 24);
    assert!(!has_iret_intercept(&state));
    assert_eq!(taken(&mut state), []);
    // No handler of an NMI runs.
    state.queue_nmi();
    assert_eq!(taken(&mut state), [event(NMI, 2)]);
}

/// What ends guest mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exit {
    /// Nothing of the guest's.
    Host,
    Window,
    Iret,
    Halt,
    Debug,
}

/// A guest that computes at random, and the processor it runs on. What the VMM has sent and what has arrived are compared all the time.
struct Guest {
    state: State,
    random: Random,
    /// RFLAGS.IF of what handlers have interrupted.
    stack: Vec<bool>,
    in_nmi: bool,
    /// An intercepted IRET is the next instruction.
    at_iret: bool,
    /// The last interrupt, if it has not arrived.
    sent: Option<u8>,
    /// It was sent when the guest was ready for it, and nothing has happened to the guest since then.
    is_next: bool,
    exception: Option<u64>,
    /// NMIs that have not arrived: one that waits, and one that is injected.
    nmis: u32,
    wants_window: bool,
}

impl Guest {
    fn new(seed: u64) -> Self {
        Self {
            state: open(),
            random: Random::new(seed),
            stack: Vec::new(),
            in_nmi: false,
            at_iret: false,
            sent: None,
            is_next: false,
            exception: None,
            nmis: 0,
            wants_window: false,
        }
    }

    fn chance(&mut self, one_in: usize) -> bool {
        self.random.below(one_in) == 0
    }

    fn takes_interrupts(&self) -> bool {
        let vmcb = &self.state.vmcb;
        vmcb.get(Field::RFLAGS) & IF != 0 && vmcb.get(Field::INTERRUPT_SHADOW) & SHADOW == 0
    }

    fn go_on(&mut self) {
        let vmcb = &mut self.state.vmcb;
        vmcb.set(Field::RIP, vmcb.get(Field::RIP) + 1);
        vmcb.set(Field::INTERRUPT_SHADOW, 0);
    }

    /// What a VMM does; a rude one sends whenever it likes.
    fn vmm(&mut self, is_rude: bool) {
        let is_ready = self.state.is_ready_for_interrupt();
        let nothing_else = self.exception.is_none() && self.sent.is_none();
        if is_ready {
            assert!(nothing_else && self.takes_interrupts());
        }
        if (is_rude || is_ready) && self.chance(3) {
            let vector = 0x20 + self.random.below(200) as u8;
            send(&mut self.state, vector);
            (self.sent, self.is_next) = (Some(vector), is_ready);
        }
        if self.chance(8) {
            self.state.queue_nmi();
            self.nmis = 1 + u32::from(injected(&self.state) == event(NMI, 2));
        }
        self.wants_window = self.chance(2);
    }

    /// The guest runs, and the kernel sees to why it has stopped.
    fn run(&mut self) {
        self.state.place_events(self.wants_window);
        let v_intr = self.state.vmcb.get(Field::V_INTR);
        assert_eq!(v_intr & !WINDOW, OTHERS);
        if self.chance(8) {
            // A signal comes first.
            return;
        }
        let exit = self.compute();
        let valid = self.state.vmcb.get(Field::EVENT_INJ) & VALID;
        assert_eq!(valid, 0, "the processor takes what is there");
        self.state.keep_event();
        match exit {
            Exit::Host => {}
            Exit::Window => assert!(self.wants_window || self.sent.is_some()),
            Exit::Iret => self.state.leave_nmi_handler(),
            Exit::Halt => {
                self.go_on();
                let has_interrupt = self.sent.is_some() && self.takes_interrupts();
                let has_nmi = self.nmis > 0 && !self.in_nmi;
                assert_eq!(self.state.is_woken(), has_interrupt || has_nmi);
            }
            Exit::Debug => {
                self.nmis = self.nmis.min(1);
                self.state.inject(1, None);
                self.exception = Some(event(EXCEPTION, 1));
                self.is_next = false;
            }
        }
        assert_eq!(self.state.interrupt_bitmap(), bitmap_of(self.sent));
    }

    fn compute(&mut self) -> Exit {
        self.state.vmcb.set(Field::EXIT_INT_INFO, 0);
        let found = injected(&self.state);
        self.state.vmcb.set(Field::EVENT_INJ, found & !VALID);
        if found & VALID != 0 {
            if self.chance(4) {
                self.state.vmcb.set(Field::EXIT_INT_INFO, found);
                return if self.chance(4) {
                    Exit::Debug
                } else {
                    Exit::Host
                };
            }
            self.deliver(found);
        }
        loop {
            if self.takes_interrupts() {
                if self.state.vmcb.get(Field::V_INTR) & WINDOW == WINDOW {
                    return Exit::Window;
                }
                assert!(!self.wants_window && self.sent.is_none(), "nobody is told");
            }
            if self.chance(4) {
                return Exit::Host;
            }
            if let Some(exit) = self.step() {
                return exit;
            }
        }
    }

    fn deliver(&mut self, found: u64) {
        match found >> 8 & 7 {
            INTERRUPT => {
                assert_eq!(Some(found as u8), self.sent.take(), "another one was sent");
                assert_eq!(found, event(INTERRUPT, found & 0xff));
            }
            NMI => {
                assert!(!self.in_nmi, "in the handler of another");
                assert!(self.nmis > 0, "nobody has sent it");
                assert_eq!(found, event(NMI, 2));
                self.nmis -= 1;
                self.in_nmi = true;
            }
            _ => assert_eq!(Some(found), self.exception.take()),
        }
        assert!(
            !self.is_next || self.sent.is_none(),
            "something came before"
        );
        self.is_next = false;
        self.at_iret = false;
        self.stack.push(self.state.has_interrupts_on());
        set_flag(&mut self.state, false);
        self.go_on();
    }

    /// One instruction, or why it is none.
    fn step(&mut self) -> Option<Exit> {
        assert!(!self.is_next, "the interrupt comes first");
        assert_eq!(self.exception, None, "the exception comes first");
        let returns = self.at_iret || !self.stack.is_empty() && self.chance(3);
        if returns {
            if has_iret_intercept(&self.state) {
                self.at_iret = true;
                return Some(Exit::Iret);
            }
            (self.at_iret, self.in_nmi) = (false, false);
            self.go_on();
            if let Some(is_on) = self.stack.pop() {
                set_flag(&mut self.state, is_on);
            }
            return None;
        }
        match self.random.below(8) {
            0 => return Some(Exit::Halt),
            1 => return Some(Exit::Debug),
            2 => {
                let was_on = self.state.has_interrupts_on();
                self.go_on();
                set_flag(&mut self.state, true);
                let shadow = if was_on { 0 } else { SHADOW };
                self.state.vmcb.set(Field::INTERRUPT_SHADOW, shadow);
            }
            3 => {
                self.go_on();
                set_flag(&mut self.state, false);
            }
            _ => self.go_on(),
        }
        None
    }
}

/// Whatever guest, VMM and host do, each event arrives once, in its turn.
#[test]
fn nothing_gets_lost_and_nothing_comes_twice() {
    const RUNS: usize = 400;
    const SEEDS: u64 = 200;
    let _turn = Turn::new();
    for seed in 0..SEEDS {
        let mut guest = Guest::new(seed);
        for _ in 0..RUNS {
            guest.vmm(seed % 2 == 0);
            guest.run();
        }
        // The VMM is silent, and what is left arrives.
        guest.wants_window = false;
        for _ in 0..RUNS {
            guest.run();
        }
        assert_eq!(guest.sent, None, "seed {seed}: an interrupt got lost");
        assert_eq!(guest.nmis, 0, "seed {seed}: an NMI got lost");
    }
}
