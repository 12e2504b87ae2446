//! Interrupts and mailboxes against a recorder.

use std::cell::{Cell, RefCell};

use shootdown_loongarch::ipi::{Mailbox, NoAnswer, Patience, Port, Register};
use shootdown_loongarch::{CoreId, Ipi, Vector};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Op {
    Dbar,
    Read(Register),
    Write32(Register, u32),
    Write64(Register, u64),
}

/// What is pending at the recorder.
const PENDING: u32 = 0b1010;

#[derive(Default, Debug)]
struct Recorder {
    ops: RefCell<Vec<Op>>,
}

impl Recorder {
    fn push(&self, op: Op) {
        self.ops.borrow_mut().push(op);
    }
}

impl Port for &Recorder {
    fn dbar(&self) {
        self.push(Op::Dbar);
    }
    fn read32(&self, register: Register) -> u32 {
        self.push(Op::Read(register));
        PENDING
    }
    unsafe fn write32(&self, register: Register, value: u32) {
        self.push(Op::Write32(register, value));
    }
    fn read64(&self, register: Register) -> u64 {
        self.push(Op::Read(register));
        0
    }
    unsafe fn write64(&self, register: Register, value: u64) {
        self.push(Op::Write64(register, value));
    }
    fn relax(&self) {}
}

fn ops(act: impl FnOnce(Ipi<&Recorder>)) -> Vec<Op> {
    let recorder = Recorder::default();
    // SAFETY: the recorder takes everything.
    act(unsafe { Ipi::with_port(&recorder) });
    recorder.ops.into_inner()
}

fn core(number: u16) -> CoreId {
    CoreId::new(number).unwrap()
}

const VECTOR: Vector = Vector::new(5).unwrap();

#[test]
fn many_are_interrupted_behind_one_barrier_and_nobody_is_waited_for() {
    let sent = ops(|ipi| ipi.send_many([1, 0, 1023].map(core), VECTOR));
    let send = |command| Op::Write32(Register::IpiSend, command);
    assert_eq!(sent, [Op::Dbar, send(0x1_0005), send(5), send(0x3ff_0005)]);
    assert_eq!(
        ops(|ipi| ipi.send(core(2), Vector::START)),
        [Op::Dbar, send(0x2_0000)]
    );
}

#[test]
fn interrupts_are_acknowledged_before_anybody_looks() {
    let taken = Cell::new(0);
    // SAFETY: recorded only.
    let seen = ops(|ipi| taken.set(unsafe { ipi.acknowledge() }));
    assert_eq!(taken.get(), PENDING);
    assert_eq!(
        seen,
        [
            Op::Read(Register::Status),
            Op::Write32(Register::Clear, PENDING),
            Op::Dbar
        ]
    );
}

#[test]
fn a_cpu_comes_online_with_nothing_pending() {
    assert_eq!(
        // SAFETY: recorded only.
        ops(|ipi| unsafe { ipi.enable(VECTOR.mask()) }),
        [
            Op::Write32(Register::Clear, u32::MAX),
            Op::Write32(Register::Enable, 1 << 5)
        ]
    );
}

#[test]
fn mail_is_sent_in_halves_the_lower_last() {
    // SAFETY: recorded only.
    let sent = ops(|ipi| unsafe { ipi.send_mail(core(3), Mailbox::One, 0x1234_5678_9abc_def0) });
    let send = |value| Op::Write64(Register::MailSend, value);
    let place = 1 << 31 | 3 << 16;
    assert_eq!(
        sent,
        [
            send(0x1234_5678 << 32 | place | 3 << 2),
            send(0x9abc_def0 << 32 | place | 2 << 2)
        ]
    );
}

#[test]
fn own_mail_is_read_and_cleared() {
    let boxes = [
        (Mailbox::Zero, Register::MailBox0),
        (Mailbox::One, Register::MailBox1),
        (Mailbox::Two, Register::MailBox2),
        (Mailbox::Three, Register::MailBox3),
    ];
    for (mailbox, register) in boxes {
        assert_eq!(
            ops(|ipi| assert_eq!(ipi.mail(mailbox), 0)),
            [Op::Read(register)]
        );
        assert_eq!(
            ops(|ipi| ipi.clear_mail(mailbox)),
            [Op::Write64(register, 0)]
        );
    }
}

/// Starts a CPU that answers at the look with this number, and counts how often it was sent for.
fn attempts(answers_at: u32) -> (Result<(), NoAnswer>, usize) {
    let patience = Patience {
        attempts: 3,
        looks: 10,
    };
    let (mut looks, mut result) = (0, Ok(()));
    let sent = ops(|ipi| {
        let has_answered = || {
            looks += 1;
            looks == answers_at
        };
        // SAFETY: recorded only.
        result = unsafe { ipi.start_cpu(core(1), 0x9000, patience, has_answered) };
    });
    let one = [
        Op::Write64(Register::MailSend, 1 << 31 | 1 << 16 | 1 << 2),
        Op::Write64(Register::MailSend, 0x9000 << 32 | 1 << 31 | 1 << 16),
        Op::Dbar,
        Op::Write32(Register::IpiSend, 1 << 16),
    ];
    let rounds = sent.chunks(4).inspect(|&round| assert_eq!(round, one));
    (result, rounds.count())
}

#[test]
fn a_cpu_is_sent_for_until_it_answers() {
    assert_eq!(attempts(1), (Ok(()), 1));
    assert_eq!(attempts(10), (Ok(()), 1));
    assert_eq!(attempts(11), (Ok(()), 2));
    assert_eq!(attempts(30), (Ok(()), 3));
    assert_eq!(attempts(31), (Err(NoAnswer), 3));
}

#[test]
fn numbers_end_where_the_register_does() {
    assert!(CoreId::new(1023).is_some() && CoreId::new(1024).is_none());
    assert!(Vector::new(31).is_some() && Vector::new(32).is_none());
    assert_eq!(core(7).as_u16(), 7);
}
