//! The thread that measures: it sleeps until a moment, and looks at the clock as soon as it runs.

use std::io;
use std::time::Duration;

use crate::course::Sample;
use crate::realtime::{self, Moment};

/// Above everything else in the machine.
const PRIORITY: i32 = 50;

/// What one interval found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heard {
    /// Samples written, from the front of the buffer.
    pub taken: usize,
    /// Moments that had passed before the thread came to wait for them.
    pub missed: u64,
}

/// Gives the calling thread its priority; whether there is such a thing here.
pub fn take_priority() -> io::Result<()> {
    realtime::become_fifo(PRIORITY)
}

/// For `length`, wakes up once every `period`, and writes how late it was each time, in nanoseconds.
///
/// A moment that has passed already is missed and not waited for, so one long delay is one sample, however many moments it
/// covers.
pub fn ring(length: Duration, period: Duration, samples: &mut [Sample]) -> io::Result<Heard> {
    let mut heard = Heard {
        taken: 0,
        missed: 0,
    };
    let start = Moment::now();
    let (end, mut next) = (start.after(length), start.after(period));
    for sample in samples {
        if next > end {
            break;
        }
        next.wait()?;
        let now = Moment::now();
        *sample = Sample::of(now.since(next).as_nanos() as u64);
        heard.taken += 1;
        next = next.after(period);
        while next < now {
            next = next.after(period);
            heard.missed += 1;
        }
    }
    Ok(heard)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_moment_is_taken_or_missed() {
        let unwritten = Sample::of(u64::MAX);
        let mut samples = [unwritten; 100];
        let (length, period) = (Duration::from_millis(20), Duration::from_millis(2));
        let heard = ring(length, period, &mut samples).unwrap();
        // After a long delay the moments beyond the end count as missed.
        assert!(heard.taken >= 1 && heard.taken as u64 + heard.missed >= 10);
        assert!(
            samples[heard.taken..]
                .iter()
                .all(|&sample| sample == unwritten)
        );
    }

    #[test]
    fn a_full_buffer_ends_it() {
        let mut samples = [Sample::default(); 3];
        let period = Duration::from_micros(100);
        let heard = ring(Duration::from_secs(60), period, &mut samples).unwrap();
        assert_eq!(heard.taken, 3);
    }
}
