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
}

impl Operation {
    /// All that `cpus` CPUs can do, and what they cannot.
    pub fn all(cpus: usize) -> (Vec<Self>, Vec<Self>) {
        let targets = [1, 2, 4, 8, cpus - 1]
            .into_iter()
            .filter(|most| *most < cpus);
        let mut targets: Vec<usize> = targets.collect();
        targets.sort_unstable();
        targets.dedup();
        let calls = targets.into_iter().map(Self::Call);
        let others = [
            Self::WrongGuess,
            Self::Alternate,
            Self::AllCall,
            Self::Flush(1),
            Self::Flush(32),
        ];
        calls
            .chain(others)
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
            Self::Flush(1) => "flush 1 page".into(),
            Self::Flush(pages) => format!("flush {pages} pages"),
        }
    }

    /// The CPUs that ask.
    pub fn initiators(self, cpus: usize) -> Vec<usize> {
        match self {
            Self::AllCall => (0..cpus).collect(),
            Self::Alternate => vec![0, 2],
            _ => vec![0],
        }
    }

    /// Those whom CPU `initiator` asks.
    pub fn targets(self, initiator: usize, cpus: usize) -> Vec<usize> {
        match self {
            Self::Call(targets) => (1..=targets).collect(),
            Self::WrongGuess | Self::Alternate => vec![1],
            Self::AllCall | Self::Flush(_) => (0..cpus).filter(|cpu| *cpu != initiator).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Operation;

    #[test]
    fn what_two_cores_cannot_do_is_named() {
        let (can, cannot) = Operation::all(2);
        assert_eq!(cannot, [Operation::Alternate]);
        assert_eq!(
            can.iter()
                .filter(|one| matches!(one, Operation::Call(_)))
                .count(),
            1
        );
        let (can, cannot) = Operation::all(16);
        assert!(cannot.is_empty() && can.contains(&Operation::Call(15)));
    }
}
