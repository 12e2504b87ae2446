//! [`Schedule`]: the answers of a run that are not 0.

use std::fmt;
use std::str::FromStr;

/// An answer other than 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Deviation {
    /// The number of the question, from 0.
    pub at: u32,
    /// The answer.
    pub answer: u16,
}

/// All answers other than 0, by number. Written as `17:2,40:1`.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Schedule(pub Vec<Deviation>);

impl Schedule {
    /// The answer to question `asked`, 0 unless it says another; `next` is the first deviation that is still ahead.
    pub(super) fn answer(&self, next: &mut usize, asked: u32) -> usize {
        while let Some(deviation) = self.0.get(*next) {
            if deviation.at > asked {
                break;
            }
            *next += 1;
            if deviation.at == asked {
                return usize::from(deviation.answer);
            }
        }
        0
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, deviation) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{}:{}", deviation.at, deviation.answer)?;
        }
        Ok(())
    }
}

impl FromStr for Schedule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut deviations = Vec::new();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let parsed = part.split_once(':').and_then(|(at, answer)| {
                Some(Deviation {
                    at: at.trim().parse().ok()?,
                    answer: answer.trim().parse().ok()?,
                })
            });
            let deviation = parsed.ok_or_else(|| format!("`{part}` is not NUMBER:ANSWER"))?;
            if deviations
                .last()
                .is_some_and(|last: &Deviation| last.at >= deviation.at)
            {
                return Err(format!("`{part}` is out of order: numbers must rise"));
            }
            deviations.push(deviation);
        }
        Ok(Self(deviations))
    }
}

#[cfg(test)]
mod tests {
    use super::Schedule;

    #[test]
    fn schedules_that_make_no_sense_are_refused() {
        for text in ["x", "1", "1:", "2:1,2:1", "3:1,2:1", "1:99999999"] {
            assert!(text.parse::<Schedule>().is_err(), "{text}");
        }
        assert_eq!("".parse(), Ok(Schedule::default()));
    }
}
