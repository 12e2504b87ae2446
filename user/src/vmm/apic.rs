//! One local APIC in xAPIC mode: its registers and which interrupt is next (SDM vol. 3A, "Advanced Programmable Interrupt Controller").

use super::command::{Address, Command};
use super::timer::Timer;

const ID: u32 = 0x20;
const VERSION: u32 = 0x30;
const TASK_PRIORITY: u32 = 0x80;
const PROCESSOR_PRIORITY: u32 = 0xa0;
const END_OF_INTERRUPT: u32 = 0xb0;
const LOGICAL_DESTINATION: u32 = 0xd0;
const DESTINATION_FORMAT: u32 = 0xe0;
const SPURIOUS_VECTOR: u32 = 0xf0;
const IN_SERVICE: u32 = 0x100;
const TRIGGER_MODE: u32 = 0x180;
const REQUESTS: u32 = 0x200;
const COMMAND_LOW: u32 = 0x300;
const COMMAND_HIGH: u32 = 0x310;
const LVT_TIMER: u32 = 0x320;
/// Thermal, performance, LINT0, LINT1, error.
const LVT_OTHERS: u32 = 0x330;
const LVT_LAST: u32 = 0x370;
const TIMER_INITIAL: u32 = 0x380;
const TIMER_CURRENT: u32 = 0x390;
const TIMER_DIVIDE: u32 = 0x3e0;

/// Version 0x14, whose highest entry of the local vector table is number 5.
const VERSION_WORD: u32 = 0x0005_0014;
const SOFTWARE_ENABLE: u32 = 1 << 8;
const MASKED: u32 = 1 << 16;
const FLAT: u32 = u32::MAX;

/// A bit for each vector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Vectors([u32; 8]);

impl Vectors {
    fn set(&mut self, vector: u8) {
        self.0[usize::from(vector) / 32] |= 1 << (vector % 32);
    }

    fn clear(&mut self, vector: u8) {
        self.0[usize::from(vector) / 32] &= !(1 << (vector % 32));
    }

    fn highest(&self) -> Option<u8> {
        let word = self.0.iter().rposition(|&word| word != 0)?;
        Some((32 * word) as u8 + self.0[word].ilog2() as u8)
    }
}

/// The controller.
#[derive(Debug)]
pub struct Apic {
    id: u8,
    task_priority: u8,
    logical_destination: u32,
    destination_format: u32,
    spurious_vector: u32,
    command_high: u32,
    lvt: [u32; 5],
    requests: Vectors,
    in_service: Vectors,
    /// The timer.
    pub timer: Timer,
}

impl Apic {
    /// As after a reset.
    pub fn new(id: u8) -> Self {
        Self {
            id,
            task_priority: 0,
            logical_destination: 0,
            destination_format: FLAT,
            spurious_vector: 0xff,
            command_high: 0,
            lvt: [MASKED; 5],
            requests: Vectors::default(),
            in_service: Vectors::default(),
            timer: Timer::new(),
        }
    }

    /// Reads a register by its offset in the page.
    pub fn read(&self, offset: u32, now_ns: u64) -> u32 {
        let vectors = |of: &Vectors, from: u32| of.0[((offset - from) >> 4) as usize & 7];
        match offset {
            ID => u32::from(self.id) << 24,
            VERSION => VERSION_WORD,
            TASK_PRIORITY => self.task_priority.into(),
            PROCESSOR_PRIORITY => self.priority().into(),
            LOGICAL_DESTINATION => self.logical_destination,
            DESTINATION_FORMAT => self.destination_format,
            SPURIOUS_VECTOR => self.spurious_vector,
            IN_SERVICE..TRIGGER_MODE => vectors(&self.in_service, IN_SERVICE),
            REQUESTS..0x280 => vectors(&self.requests, REQUESTS),
            COMMAND_HIGH => self.command_high,
            LVT_TIMER => self.timer.lvt(),
            LVT_OTHERS..=LVT_LAST => self.lvt[((offset - LVT_OTHERS) >> 4) as usize],
            TIMER_INITIAL => self.timer.initial(),
            TIMER_CURRENT => self.timer.current(now_ns),
            TIMER_DIVIDE => self.timer.divide(),
            // All interrupts are edges, commands are sent at once, and there are no errors.
            _ => 0,
        }
    }

    /// Writes one; a command that is to be carried out.
    pub fn write(&mut self, offset: u32, value: u32, now_ns: u64) -> Option<Command> {
        match offset {
            TASK_PRIORITY => self.task_priority = value as u8,
            END_OF_INTERRUPT => {
                if let Some(vector) = self.in_service.highest() {
                    self.in_service.clear(vector);
                }
            }
            LOGICAL_DESTINATION => self.logical_destination = value & 0xff00_0000,
            DESTINATION_FORMAT => self.destination_format = value | 0x0fff_ffff,
            SPURIOUS_VECTOR => self.spurious_vector = value & 0x1ff,
            COMMAND_HIGH => self.command_high = value & 0xff00_0000,
            COMMAND_LOW => return Command::decode(value, self.command_high),
            LVT_TIMER => {
                // What ran out before goes by what was there before.
                self.expire(now_ns);
                self.timer.set_lvt(value);
            }
            LVT_OTHERS..=LVT_LAST => self.lvt[((offset - LVT_OTHERS) >> 4) as usize] = value,
            TIMER_INITIAL => self.timer.start(value, now_ns),
            TIMER_DIVIDE => self.timer.set_divide(value),
            _ => {}
        }
        None
    }

    /// How commands address it.
    pub fn address(&self) -> Address {
        Address {
            id: self.id,
            logical: (self.logical_destination >> 24) as u8,
            is_flat: self.destination_format == FLAT,
        }
    }

    /// Takes an interrupt, unless it is switched off.
    pub fn accept(&mut self, vector: u8) {
        if self.spurious_vector & SOFTWARE_ENABLE != 0 {
            self.requests.set(vector);
        }
    }

    /// Takes the timer's interrupt if it is due.
    pub fn expire(&mut self, now_ns: u64) {
        if let Some(vector) = self.timer.take_due(now_ns) {
            self.accept(vector);
        }
    }

    /// The interrupt that is next, if its priority is above what goes on.
    pub fn next(&self) -> Option<u8> {
        let vector = self.requests.highest()?;
        (vector >> 4 > self.priority() >> 4).then_some(vector)
    }

    /// The same, which is in service from now on.
    pub fn acknowledge(&mut self) -> Option<u8> {
        let vector = self.next()?;
        self.requests.clear(vector);
        self.in_service.set(vector);
        Some(vector)
    }

    fn priority(&self) -> u8 {
        let serving = self.in_service.highest().map_or(0, |vector| vector & 0xf0);
        match self.task_priority >= serving {
            true => self.task_priority,
            false => serving,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupt_waits_for_the_end_of_one_as_urgent() {
        let mut apic = Apic::new(1);
        apic.accept(0x40);
        assert_eq!(apic.next(), None, "it is off");
        apic.write(SPURIOUS_VECTOR, SOFTWARE_ENABLE | 0xff, 0);
        for vector in [0xf0, 0xf1, 0x40] {
            apic.accept(vector);
        }
        assert_eq!(apic.acknowledge(), Some(0xf1));
        assert_eq!(apic.next(), None, "of the same class");
        assert_eq!(apic.read(IN_SERVICE + 0x70, 0), 1 << 17);
        apic.write(END_OF_INTERRUPT, 0, 0);
        assert_eq!(apic.acknowledge(), Some(0xf0));
        apic.write(END_OF_INTERRUPT, 0, 0);
        apic.write(TASK_PRIORITY, 0x40, 0);
        assert_eq!(apic.next(), None);
        apic.write(TASK_PRIORITY, 0, 0);
        assert_eq!(apic.next(), Some(0x40));
    }

    #[test]
    fn the_timer_interrupts() {
        let mut apic = Apic::new(0);
        apic.write(SPURIOUS_VECTOR, SOFTWARE_ENABLE | 0xff, 0);
        apic.write(LVT_TIMER, 0xef, 0);
        apic.write(TIMER_INITIAL, 100, 0);
        apic.expire(199);
        assert_eq!((apic.next(), apic.read(TIMER_CURRENT, 199)), (None, 0));
        apic.expire(200);
        assert_eq!(apic.next(), Some(0xef));
    }
}
