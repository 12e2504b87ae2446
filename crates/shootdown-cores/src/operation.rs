//! [`Operation`]: what is measured.

/// Who asks whom for what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// CPU 0 calls so many others.
    Call(usize),
    /// CPU 0 calls CPU 1, by two names in turns: whoever expects the same caller again is wrong each time.
    WrongGuess,
    /// CPUs 0 and 2 call CPU 1 in turns.
    Alternate,
    /// All CPUs call all others.
    AllCall,
    /// CPU 0 makes all CPUs forget so many pages.
    Flush(usize),
    /// All CPUs do, again and again.
    AllFlush(usize),
}

/// Which operations are measured.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum, Debug)]
pub enum Kind {
    /// Calls, all sorts.
    Calls,
    /// Calls by one CPU and by all.
    PlainCalls,
    /// Flushes by one CPU and by all.
    Flushes,
}

impl Operation {
    /// All of these kinds that `cpus` CPUs can do, and what they cannot.
    pub fn all(kinds: &[Kind], pages: &[u32], cpus: usize) -> (Vec<Self>, Vec<Self>) {
        let targets = [1, 2, 4, 8, cpus - 1]
            .into_iter()
            .filter(|most| *most < cpus);
        let mut targets: Vec<usize> = targets.collect();
        targets.sort_unstable();
        targets.dedup();
        let mut all = Vec::new();
        for kind in kinds {
            let pages = || pages.iter().map(|pages| *pages as usize);
            match kind {
                Kind::Calls | Kind::PlainCalls => {
                    all.extend(targets.iter().copied().map(Self::Call));
                    if *kind == Kind::Calls {
                        all.extend([Self::WrongGuess, Self::Alternate]);
                    }
                    all.push(Self::AllCall);
                }
                Kind::Flushes => {
                    all.extend(pages().map(Self::Flush).chain(pages().map(Self::AllFlush)));
                }
            }
        }
        all.into_iter()
            .partition(|operation| operation.needs() <= cpus)
    }

    /// How many CPUs it needs.
    const fn needs(self) -> usize {
        match self {
            Self::Call(targets) => targets + 1,
            Self::Alternate => 3,
            _ => 2,
        }
    }

    /// In results.
    pub fn name(self) -> String {
        match self {
            Self::Call(targets) => format!("call {targets}"),
            Self::WrongGuess => "call behind a wrong guess".into(),
            Self::Alternate => "call, initiators alternate".into(),
            Self::AllCall => "all call all".into(),
            Self::Flush(pages) => format!("flush {}", Self::counted(pages)),
            Self::AllFlush(pages) => format!("all flush {}", Self::counted(pages)),
        }
    }

    fn counted(pages: usize) -> String {
        match pages {
            1 => "1 page".into(),
            pages => format!("{pages} pages"),
        }
    }

    /// How many pages it flushes; none if it is a call.
    pub const fn pages(self) -> Option<usize> {
        match self {
            Self::Flush(pages) | Self::AllFlush(pages) => Some(pages),
            _ => None,
        }
    }

    /// The CPUs that ask.
    pub fn initiators(self, cpus: usize) -> Vec<usize> {
        match self {
            Self::AllCall | Self::AllFlush(_) => (0..cpus).collect(),
            Self::Alternate => vec![0, 2],
            _ => vec![0],
        }
    }

    /// Those whom CPU `initiator` asks.
    pub fn targets(self, initiator: usize, cpus: usize) -> Vec<usize> {
        match self {
            Self::Call(targets) => (1..=targets).collect(),
            Self::WrongGuess | Self::Alternate => vec![1],
            Self::AllCall | Self::Flush(_) | Self::AllFlush(_) => {
                (0..cpus).filter(|cpu| *cpu != initiator).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Kind, Operation};

    #[test]
    fn what_two_cores_cannot_do_is_named() {
        let kinds = [Kind::Calls, Kind::Flushes];
        let (can, cannot) = Operation::all(&kinds, &[1, 32], 2);
        assert_eq!(cannot, [Operation::Alternate]);
        let calls = can.iter().filter(|one| matches!(one, Operation::Call(_)));
        assert_eq!(calls.count(), 1);
        assert_eq!(
            can.iter().filter_map(|one| one.pages()).sum::<usize>(),
            2 * 33
        );
        let (can, cannot) = Operation::all(&kinds, &[1], 16);
        assert!(cannot.is_empty() && can.contains(&Operation::Call(15)));
    }
}
