//! KVM's protocol against a fake hypervisor that takes a vCPU away, and gives it back, between any two accesses of the initiator.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU8, Ordering};

use shootdown_x86::Features;
use shootdown_x86::features::FeatureFlags;
use shootdown_x86::pv::kvm::{FLUSH, KvmFeatures, PREEMPTED, Preempted, StealTime, ask};

/// A vCPU and its hypervisor.
#[derive(Default)]
struct Vcpu {
    byte: Cell<u8>,
    runs: Cell<bool>,
    /// It has cached what the page tables said at this time.
    cached: Cell<u32>,
    /// The page tables have changed so often.
    changes: Cell<u32>,
    /// What the hypervisor does before each access, and behind a load: the next one last.
    script: RefCell<Vec<Act>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Act {
    Nothing,
    /// It takes the vCPU away.
    Preempt,
    /// It lets it run: takes both bits by one exchange, and flushes.
    Enter,
    /// Away, and back: the bits are as they were.
    PreemptAndEnterAndPreempt,
}

impl Vcpu {
    fn act(&self, act: Act) {
        match act {
            Act::Nothing => {}
            // Running or not: it does not clear a request that is there.
            Act::Preempt => {
                self.runs.set(false);
                self.byte.set(self.byte.get() | PREEMPTED);
            }
            Act::Enter => {
                let was_asked = self.byte.replace(0) & FLUSH != 0;
                self.runs.set(true);
                if was_asked {
                    self.cached.set(self.changes.get());
                }
            }
            Act::PreemptAndEnterAndPreempt => {
                for act in [Act::Preempt, Act::Enter, Act::Preempt] {
                    self.act(act);
                }
            }
        }
    }

    fn next(&self) {
        let act = self.script.borrow_mut().pop();
        self.act(act.unwrap_or(Act::Nothing));
    }
}

impl Preempted for Vcpu {
    fn load(&self) -> u8 {
        self.next();
        let seen = self.byte.get();
        // A load may be early: what was seen may be over when its user goes on.
        self.next();
        seen
    }

    fn compare_exchange(&self, seen: u8, new: u8) -> Result<u8, u8> {
        self.next();
        let now = self.byte.get();
        if now != seen {
            return Err(now);
        }
        self.byte.set(new);
        Ok(now)
    }
}

const ACTS: [Act; 4] = [
    Act::Nothing,
    Act::Preempt,
    Act::Enter,
    Act::PreemptAndEnterAndPreempt,
];

/// Every script of six acts, from every state: a vCPU that was said to be flushed before it runs has no old translation when it runs,
/// however often it was asked before.
#[test]
fn who_is_flushed_before_entry_runs_on_nothing_old() {
    let (mut covered, mut interrupted) = (0, 0);
    for script in 0..ACTS.len().pow(6) {
        for start in [0, PREEMPTED, PREEMPTED | FLUSH] {
            let vcpu = Vcpu {
                byte: Cell::new(start),
                runs: Cell::new(start == 0),
                ..Vcpu::default()
            };
            let acts = (0..6).map(|at| ACTS[script / ACTS.len().pow(at) % ACTS.len()]);
            vcpu.script.replace(acts.collect());
            // Two changes, one after the other, as by two initiators.
            for _ in 0..2 {
                vcpu.changes.set(vcpu.changes.get() + 1);
                let change = vcpu.changes.get();
                if ask(&vcpu) {
                    covered += 1;
                    assert!(!vcpu.runs.get(), "{script}: it runs");
                    vcpu.act(Act::Enter);
                    assert!(
                        vcpu.cached.get() >= change,
                        "{script}: it runs on what was before {change}"
                    );
                    vcpu.act(Act::Preempt);
                } else {
                    interrupted += 1;
                    vcpu.cached.set(change);
                }
            }
        }
    }
    assert!(
        covered > 500 && interrupted > 200,
        "{covered}, {interrupted}"
    );
}

/// The byte itself, without a hypervisor that acts in between: KVM has let the vCPU run since it was seen preempted.
#[test]
fn the_byte_is_written_only_as_it_was_seen() {
    let byte = AtomicU8::new(0);
    assert_eq!(
        Preempted::compare_exchange(&byte, PREEMPTED, PREEMPTED | FLUSH),
        Err(0)
    );
    assert_eq!(Preempted::load(&byte), 0);
}

#[test]
fn the_record_is_as_kvm_knows_it() {
    assert_eq!((size_of::<StealTime>(), align_of::<StealTime>()), (64, 64));
    static RECORD: StealTime = StealTime::new();
    assert!(!RECORD.flush_before_entry(), "it runs");
    let record = (&raw const RECORD).cast_mut().cast::<u8>();
    // SAFETY: within the record, at the place of `preempted` in struct kvm_steal_time.
    let byte = unsafe { record.add(16) };
    // SAFETY: it is an atomic byte there, too.
    let byte = unsafe { AtomicU8::from_ptr(byte) };
    byte.store(PREEMPTED, Ordering::Relaxed);
    assert!(RECORD.flush_before_entry());
    assert_eq!(byte.load(Ordering::Relaxed), PREEMPTED | FLUSH);
}

#[test]
fn only_kvm_with_both_features_and_without_the_hint_is_asked() {
    let leaves = |signature: &'static [u8; 12], (eax, edx): (u32, u32)| {
        move |leaf: u32, _: u32| {
            let word = |at: usize| u32::from_le_bytes(signature[at..at + 4].try_into().unwrap());
            let mut result = core::arch::x86_64::CpuidResult {
                eax: 7,
                ebx: 0,
                ecx: 0,
                edx: 0,
            };
            match leaf {
                1 => result.ecx = 1 << 31,
                0x4000_0000 => (result.ebx, result.ecx, result.edx) = (word(0), word(4), word(8)),
                0x4000_0001 => (result.eax, result.edx) = (eax, edx),
                _ => {}
            }
            result
        }
    };
    let both = 1 << 5 | 1 << 9;
    for (signature, registers, expected) in [
        (b"KVMKVMKVM\0\0\0", (both, 0), true),
        (b"KVMKVMKVM\0\0\0", (1 << 5, 0), false),
        (b"KVMKVMKVM\0\0\0", (1 << 9, 0), false),
        (b"KVMKVMKVM\0\0\0", (both, 1), false),
        (b"TCGTCGTCGTCG", (both, 0), false),
    ] {
        let leaves = leaves(signature, registers);
        let features = Features::from_leaves(leaves);
        let has = KvmFeatures::from_leaves(&features, leaves).has_flush_before_entry();
        assert_eq!(has, expected, "{registers:?}");
    }
    let bare = Features::with_flags(FeatureFlags::empty());
    assert!(!KvmFeatures::detect(&bare).has_flush_before_entry());
}
