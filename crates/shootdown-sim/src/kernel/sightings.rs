//! [`Sightings`]: how often a run came upon what it is to find now and then. Without these a fuzzer that has lost its way passes.

use std::cell::Cell;
use std::fmt;

/// Something that must happen now and then.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Sight {
    /// A responder took over top-level entries into the private root that was loaded.
    TopCopiedByResponder,
    /// The same, and an entry was removed: the table that it led to waits for this.
    TopEntryRemovedByResponder,
    /// Top-level entries were taken over at a page fault.
    TopRefreshedAtFault,
    /// A window changed whose root was loaded.
    WindowChangedLoaded,
    /// A window changed whose root its CPU only kept.
    WindowChangedLazily,
    /// A window changed while its CPU had loaded another root.
    WindowChangedUnloaded,
    /// A window shows a frame that a space maps too.
    FrameShared,
    /// The table of windows was unlinked.
    WindowTableUnlinked,
    /// A window was used.
    WindowUsed,
    /// A window's address was used where it leads nowhere.
    WindowMissed,
    /// A space went from one of its roots to another.
    RootChanged,
    /// A host loaded a root itself, between the halves of a switch.
    SwitchedInHalves,
    /// A private root was given up.
    RootRetired,
    /// Windows were asked for on another CPU.
    PinRefused,
    /// A flush passed by a CPU that was elsewhere, although in the space's set for its windows' sake.
    AbsentPassedBy,
    /// A CPU that was not online did something.
    ActedUnseen,
    /// A function ran on a CPU that was going offline.
    CalledLeaving,
    /// A kick had a target out of a stretch without interrupts.
    KickedOut,
    /// A request was announced in rings.
    Broadcast,
    /// A ring was full.
    RingFull,
    /// All slots of a CPU were busy.
    SlotsBusy,
    /// An interrupt was refused.
    Refused,
    /// The watchdog sent an interrupt once more.
    Resent,
    /// A function ran once for several callers.
    Merged,
    /// Call data were posted.
    DataPosted,
    /// Call data were refused, because they still waited for a CPU.
    DataBusy,
    /// A back end flushed a CPU that was not interrupted.
    Taken,
    /// A back end flushed all CPUs by a tag.
    Everywhere,
    /// It did so for another space than before under that tag.
    TagGivenAgain,
    /// A virtual CPU entered its guest and kept what it had cached.
    GuestKept,
    /// It entered, and dropped its tag.
    GuestDropped,
    /// It was to enter, and did not.
    GuestNotEntered,
    /// It ran on another CPU than before.
    VcpuMoved,
    /// An interrupt made it leave its guest.
    GuestInterrupted,
    /// A flush of a guest interrupted CPUs that ran it.
    GuestFlushKicks,
    /// A flush of a guest found no CPU in it.
    GuestFlushAlone,
    /// A guest flushed what it had changed itself.
    GuestFlushedItself,
    /// A nested table was freed.
    NestedTableFreed,
    /// A guest got more rights, without a flush.
    GuestWidened,
    /// A guest was left for a page that it could have used.
    GuestSpurious,
    /// The first store to a page was recorded.
    DirtyRecorded,
    /// A page was in the log of what was written.
    DirtyFound,
    /// A virtual machine was destroyed.
    GuestDestroyed,
}

/// Number of sights.
const SIGHTS: usize = 43;

impl Sight {
    /// All of them, in words.
    pub const NAMES: [(Self, &'static str); SIGHTS] = [
        (Self::TopCopiedByResponder, "tops copied by responders"),
        (Self::TopEntryRemovedByResponder, "entries removed by them"),
        (Self::TopRefreshedAtFault, "tops refreshed at faults"),
        (Self::WindowChangedLoaded, "windows changed while loaded"),
        (Self::WindowChangedLazily, "while lazy"),
        (Self::WindowChangedUnloaded, "while not loaded"),
        (Self::FrameShared, "frames shared"),
        (Self::WindowTableUnlinked, "window tables unlinked"),
        (Self::WindowUsed, "windows used"),
        (Self::WindowMissed, "missed"),
        (Self::RootChanged, "roots changed"),
        (Self::SwitchedInHalves, "loaded by the host"),
        (Self::RootRetired, "roots retired"),
        (Self::PinRefused, "pins refused"),
        (Self::AbsentPassedBy, "absent CPUs passed by"),
        (Self::ActedUnseen, "operations of CPUs not online"),
        (Self::CalledLeaving, "functions on CPUs that leave"),
        (Self::KickedOut, "kicked out of stretches"),
        (Self::Broadcast, "broadcasts"),
        (Self::RingFull, "rings full"),
        (Self::SlotsBusy, "slots busy"),
        (Self::Refused, "interrupts refused"),
        (Self::Resent, "sent again"),
        (Self::Merged, "functions merged"),
        (Self::DataPosted, "call data posted"),
        (Self::DataBusy, "call data busy"),
        (Self::Taken, "CPUs taken by back ends"),
        (Self::Everywhere, "flushes everywhere"),
        (Self::TagGivenAgain, "their tags given again"),
        (Self::GuestKept, "guests entered with their tags"),
        (Self::GuestDropped, "without"),
        (Self::GuestNotEntered, "not entered"),
        (Self::VcpuMoved, "virtual CPUs moved"),
        (Self::GuestInterrupted, "guests interrupted"),
        (Self::GuestFlushKicks, "guest flushes that kicked"),
        (Self::GuestFlushAlone, "that found nobody"),
        (Self::GuestFlushedItself, "by guests themselves"),
        (Self::NestedTableFreed, "nested tables freed"),
        (Self::GuestWidened, "rights widened"),
        (Self::GuestSpurious, "spurious violations"),
        (Self::DirtyRecorded, "first stores recorded"),
        (Self::DirtyFound, "dirty pages found"),
        (Self::GuestDestroyed, "guests destroyed"),
    ];
}

/// How often each was seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sightings([u64; SIGHTS]);

impl Default for Sightings {
    fn default() -> Self {
        Self([0; SIGHTS])
    }
}

impl Sightings {
    /// How often.
    pub fn of(&self, sight: Sight) -> u64 {
        self.0[sight as usize]
    }

    /// Those that were never seen.
    pub fn missing(&self) -> Vec<Sight> {
        let all = Sight::NAMES.into_iter().map(|(sight, _)| sight);
        // Waits of as many turns as the watchdog looks after are rare: one in some thousand schedules.
        let wanted = all.filter(|sight| *sight != Sight::Resent);
        wanted.filter(|sight| self.of(*sight) == 0).collect()
    }

    /// With one that somebody else has counted.
    pub(crate) fn with(mut self, sight: Sight, count: u64) -> Self {
        self.0[sight as usize] += count;
        self
    }

    /// Adds another run's.
    pub fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine += theirs;
        }
    }
}

impl fmt::Display for Sightings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (sight, name)) in Sight::NAMES.into_iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{name} {}", self.of(sight))?;
        }
        Ok(())
    }
}

/// The count of a run that is under way.
#[derive(Default, Debug)]
pub(super) struct Lookout(Cell<Sightings>);

impl Lookout {
    pub(super) fn saw(&self, sight: Sight) {
        let mut so_far = self.0.get();
        so_far.0[sight as usize] += 1;
        self.0.set(so_far);
    }

    pub(super) fn sightings(&self) -> Sightings {
        self.0.get()
    }
}
