//! Interrupt commands: what a local APIC is told to send, and to whom (SDM vol. 3A, "Interrupt Command Register").

/// What is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// An interrupt.
    Fixed(u8),
    /// An NMI.
    Nmi,
    /// To wait for a start-up.
    Init,
    /// To start in real mode in that page.
    Startup(u8),
}

/// To whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Targets {
    /// The CPU with this id; 255 is all.
    Physical(u8),
    /// Those whose logical ids have one of the bits.
    Logical(u8),
    /// The sender.
    Own,
    /// All.
    All,
    /// All but the sender.
    Others,
}

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// What.
    pub message: Message,
    /// To whom.
    pub targets: Targets,
}

/// How a controller is addressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// Its number.
    pub id: u8,
    /// The logical destination register, and the destination format register.
    pub logical: u8,
    /// Flat, not clusters of four.
    pub is_flat: bool,
}

const BROADCAST: u8 = 0xff;
const LOGICAL: u32 = 1 << 11;
const ASSERT: u32 = 1 << 14;

impl Command {
    /// From both halves of the register. `None` for what this machine has not: SMI, an INIT that is taken back.
    pub fn decode(low: u32, high: u32) -> Option<Self> {
        let field = (high >> 24) as u8;
        let message = match low >> 8 & 7 {
            // With the lowest priority: any that is addressed may be chosen, and the hardware's choice is unspecified.
            0 | 1 => Message::Fixed(low as u8),
            4 => Message::Nmi,
            5 if low & ASSERT != 0 => Message::Init,
            6 => Message::Startup(low as u8),
            _ => return None,
        };
        let targets = match low >> 18 & 3 {
            1 => Targets::Own,
            2 => Targets::All,
            3 => Targets::Others,
            _ if low & LOGICAL != 0 => Targets::Logical(field),
            _ => Targets::Physical(field),
        };
        Some(Self { message, targets })
    }
}

impl Targets {
    /// Whether a command of `sender` is for this one.
    pub fn has(self, sender: u8, target: Address) -> bool {
        match self {
            Self::Physical(id) => id == target.id || id == BROADCAST,
            Self::Logical(mask) if target.is_flat => mask & target.logical != 0,
            Self::Logical(mask) => {
                mask >> 4 == target.logical >> 4 && mask & target.logical & 0xf != 0
            }
            Self::Own => target.id == sender,
            Self::All => true,
            Self::Others => target.id != sender,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_manual() {
        let init = Command::decode(0x000c_4500, 0).unwrap();
        assert_eq!(
            (init.message, init.targets),
            (Message::Init, Targets::Others)
        );
        let startup = Command::decode(0x000c_4608, 0).unwrap();
        assert_eq!(startup.message, Message::Startup(8));
        let fixed = Command::decode(0x48f0, 5 << 24).unwrap();
        assert_eq!(
            (fixed.message, fixed.targets),
            (Message::Fixed(0xf0), Targets::Logical(5))
        );
        let nmi = Command::decode(0x4400, 0).map(|command| command.message);
        assert_eq!(nmi, Some(Message::Nmi));
        assert_eq!(Command::decode(0x8500, 0), None);
    }

    #[test]
    fn targets_are_those_addressed() {
        let address = |id, is_flat| Address {
            id,
            logical: 1 << id,
            is_flat,
        };
        let hit = |targets: Targets| {
            let all = (0..4).filter(|&id| targets.has(1, address(id, true)));
            all.collect::<Vec<_>>()
        };
        assert_eq!(hit(Targets::Physical(2)), [2]);
        assert_eq!(hit(Targets::Physical(BROADCAST)), [0, 1, 2, 3]);
        assert_eq!(hit(Targets::Logical(0b1010)), [1, 3]);
        assert_eq!(hit(Targets::Own), [1]);
        assert_eq!(hit(Targets::Others), [0, 2, 3]);
        assert!(!Targets::Logical(0x11).has(0, address(1, false)));
    }
}
