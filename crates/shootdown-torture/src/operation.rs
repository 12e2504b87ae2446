//! What a step may do, how often, and where.

macro_rules! operations {
    ($($(#[$doc:meta])* $name:ident $text:literal $weight:literal,)+) => {
        /// One kind of step.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Operation {
            $($(#[$doc])* $name,)+
        }

        impl Operation {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// Its name in tables and protocols.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }

            const fn usual_weight(self) -> u16 {
                match self { $(Self::$name => $weight,)+ }
            }
        }
    };
}

operations! {
    /// A borrowed function on one CPU.
    CallOne "call_one" 12,
    /// On several.
    CallMany "call_many" 12,
    /// On all.
    CallAll "call_all" 4,
    /// On one of several.
    CallAny "call_any" 6,
    /// On several, with other work (a flush, a post, preemption) between the sending and the wait.
    CallWith "call_many_with" 6,
    /// Up to three copied functions at once, waited for in any order and perhaps on another CPU.
    SubmitDone "submit_done" 8,
    /// A copied function, waited for until it is received.
    SubmitReceived "submit_received" 6,
    /// A copied function that nobody waits for.
    Post "post" 10,
    /// The same, or nothing if every slot is busy.
    TryPost "try_post" 6,
    /// A called function that flushes, or posts.
    Nested "nested" 4,
    /// A called function that takes long.
    LongHandler "long_handler" 1,
    /// Pages that get other frames: one batch, one flush.
    Change "change" 16,
    /// The same with a page table that is replaced.
    ChangeTable "change_table" 3,
    /// The same in the kernel's part.
    ChangeKernel "change_kernel" 4,
    /// Pages that are unmapped. Once that flush is over, whoever loads one of them maps it anew, without a flush.
    Unmap "unmap" 6,
    /// The same as `Change` in this CPU's windows: no other CPU is asked.
    ChangeWindow "change_window" 6,
    /// A flush of everything without a change.
    FlushWhole "flush_whole" 1,
    /// Reading a page table without its lock, with polls in between.
    Walk "walk" 8,
    /// A request that only wants to be answered.
    Kick "kick" 4,
    /// A function that its target runs wherever it polls.
    Ask "ask" 6,
    /// CPUs that come together, and run a function in two steps.
    Rendezvous "rendezvous" 1,
    /// Loads of pages.
    Access "access" 40,
    /// Another space for this task, or none.
    Enter "enter" 8,
    /// Interrupts off for long.
    IrqsOff "irqs_off" 2,
    /// A wait with interrupts off that polls, as for a lock.
    Poll "poll" 4,
    /// The CPU goes to another task.
    Preempt "preempt" 6,
    /// A task that wants no CPU for a while: if nobody else does, the CPU is idle.
    Rest "rest" 6,
    /// A CPU goes offline, or comes back.
    Churn "churn" 1,
    /// Another policy for all.
    SetPolicy "set_policy" 1,
}

impl Operation {
    pub(crate) const COUNT: usize = Self::ALL.len();

    /// Whether only a task may do it, with interrupts on.
    pub(crate) const fn is_for_tasks(self) -> bool {
        matches!(self, Self::Enter | Self::Preempt | Self::Rest | Self::Churn)
    }

    /// Whether it waits for functions on other CPUs, or for a slot that they keep.
    pub(crate) const fn waits_for_functions(self) -> bool {
        matches!(
            self,
            Self::CallOne
                | Self::CallMany
                | Self::CallAll
                | Self::CallAny
                | Self::CallWith
                | Self::SubmitDone
                | Self::SubmitReceived
                | Self::Post
                | Self::Nested
                | Self::LongHandler
        )
    }

    /// Whether it serves flushes only, so that with interrupts off no function may run before it ends.
    pub(crate) const fn is_flushes_only(self) -> bool {
        matches!(
            self,
            Self::Change
                | Self::ChangeTable
                | Self::ChangeKernel
                | Self::ChangeWindow
                | Self::Unmap
                | Self::FlushWhole
                | Self::Walk
                | Self::Kick
                | Self::Access
                | Self::IrqsOff
                | Self::Poll
        )
    }

    /// Whether it needs [`Memory`](crate::Memory) with spaces.
    pub(crate) const fn needs_spaces(self) -> bool {
        matches!(
            self,
            Self::Change | Self::ChangeTable | Self::FlushWhole | Self::Walk | Self::Enter
        )
    }
}

/// How often each operation comes, relative to the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mix([u16; Operation::COUNT]);

impl Mix {
    /// A bit of everything; much of what is quick, little of what is slow.
    pub const USUAL: Self = {
        let mut weights = [0; Operation::COUNT];
        let mut index = 0;
        while index < Operation::COUNT {
            weights[index] = Operation::ALL[index].usual_weight();
            index += 1;
        }
        Self(weights)
    };

    /// The weight of `operation`.
    pub const fn weight(&self, operation: Operation) -> u16 {
        self.0[operation as usize]
    }

    /// With another weight for one operation; zero leaves it out.
    #[must_use]
    pub const fn with(mut self, operation: Operation, weight: u16) -> Self {
        self.0[operation as usize] = weight;
        self
    }
}

/// A whole run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plan {
    /// Where all random choices come from.
    pub seed: u64,
    /// What is done how often.
    pub mix: Mix,
    /// How long a long handler, or a stretch with interrupts off, may last, in nanoseconds.
    pub long_ns: u64,
}

impl Plan {
    /// The usual mix; long is up to a fifth of a millisecond.
    pub const fn new(seed: u64) -> Self {
        Self {
            seed,
            mix: Mix::USUAL,
            long_ns: 200_000,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mix_without_an_operation_never_names_it() {
        let mix = Mix::USUAL.with(Operation::Churn, 0);
        assert_eq!(mix.weight(Operation::Churn), 0);
        assert_eq!(
            mix.weight(Operation::Post),
            Mix::USUAL.weight(Operation::Post)
        );
    }

    #[test]
    fn names_are_distinct_words() {
        for (index, operation) in Operation::ALL.iter().enumerate() {
            assert_eq!(*operation as usize, index);
            let same = Operation::ALL
                .iter()
                .filter(|other| other.name() == operation.name());
            assert_eq!(same.count(), 1, "{operation:?}");
        }
    }
}
