//! The eventfds through which the token goes round: one for each seat, on which its process waits.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use super::token::Token;

/// One eventfd a seat; forked processes share them.
#[derive(Debug)]
pub struct Ring {
    seats: Vec<OwnedFd>,
}

impl Ring {
    /// A ring for `seats` processes.
    pub fn new(seats: usize) -> io::Result<Self> {
        let seat = |_| {
            // SAFETY: makes a new descriptor and touches no memory.
            let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
            if fd < 0 {
                return Err(failed("eventfd"));
            }
            // SAFETY: the descriptor was just made and belongs to nobody else.
            Ok(unsafe { OwnedFd::from_raw_fd(fd) })
        };
        Ok(Self {
            seats: (0..seats).map(seat).collect::<io::Result<_>>()?,
        })
    }

    /// How many seats there are.
    pub fn seats(&self) -> usize {
        self.seats.len()
    }

    /// The descriptor on which the process on `seat` waits.
    pub fn descriptor(&self, seat: usize) -> RawFd {
        self.seats[seat].as_raw_fd()
    }

    /// Hands `token` to the process on the seat after `seat`.
    #[inline(always)]
    pub fn pass(&self, seat: usize, token: Token) -> io::Result<()> {
        let next = (seat + 1) % self.seats.len();
        signal(self.descriptor(next), token.to_bits())
    }

    /// Waits on `seat` for the token.
    ///
    /// # Errors
    /// A process of the ring has died, or the read failed.
    #[inline(always)]
    pub fn wait(&self, seat: usize) -> io::Result<Token> {
        let mut bits = 0u64;
        loop {
            let into = (&raw mut bits).cast();
            // SAFETY: `bits` is eight bytes of our own, as many as are read.
            let read = unsafe { libc::read(self.descriptor(seat), into, size_of::<u64>()) };
            if read == size_of::<u64>() as isize {
                return Token::from_bits(bits)
                    .ok_or_else(|| io::Error::other("a process of the ring has died"));
            }
            let error = failed("read from an eventfd");
            // A signal came first; the token is still to come.
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }
}

/// Adds `bits` to the counter of an eventfd; legal in a signal handler.
pub fn signal(descriptor: RawFd, bits: u64) -> io::Result<()> {
    let from = (&raw const bits).cast();
    // SAFETY: `bits` is eight bytes, as many as are written.
    let written = unsafe { libc::write(descriptor, from, size_of::<u64>()) };
    if written == size_of::<u64>() as isize {
        Ok(())
    } else {
        Err(failed("write to an eventfd"))
    }
}

/// The error that the system call `what` has just left.
pub fn failed(what: &str) -> io::Error {
    let error = io::Error::last_os_error();
    io::Error::new(error.kind(), format!("{what}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::super::token::Task;
    use super::*;

    #[test]
    fn a_token_reaches_the_next_seat_and_the_last_hands_to_the_first() {
        let ring = Ring::new(3).unwrap();
        let token = Token::new(Task::Play).plus(5);
        ring.pass(0, token).unwrap();
        assert_eq!(ring.wait(1).unwrap(), token);
        ring.pass(2, token).unwrap();
        assert_eq!(ring.wait(0).unwrap(), token);
    }

    #[test]
    fn a_death_ends_the_wait_whether_the_token_is_there_or_not() {
        let ring = Ring::new(2).unwrap();
        for token in [None, Some(Token::new(Task::Check))] {
            token.map_or(Ok(()), |token| ring.pass(1, token)).unwrap();
            signal(ring.descriptor(0), Token::LOST_BITS).unwrap();
            assert!(ring.wait(0).unwrap_err().to_string().contains("died"));
        }
    }
}
