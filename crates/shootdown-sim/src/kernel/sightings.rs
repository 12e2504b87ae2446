//! [`Sightings`]: how often a run came upon what it is to find now and then. Without these a fuzzer that has lost its way passes.

use std::cell::Cell;

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
    /// A TLB acted by itself between two steps of a load.
    WalkedMidway,
    /// The last CPU left the trampoline, whose tables are free then.
    TrampolineFreed,
    /// The kernel's second root was to be loaded.
    SecondKernelRoot,
    /// A kernel address was given out again, on another CPU.
    KernelAddressReused,
    /// Several pages of the kernel waited for one flush.
    KernelPagesParked,
    /// Firmware ran on a root of its own.
    FirmwareCalled,
    /// A ticket was forgotten.
    Forgotten,
    /// A guard's collection had no room and panicked.
    CollectionFull,
    /// A second engine was used.
    SecondEngine,
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
    /// A CPU read tables of a space whose set it was not in.
    WalkedElsewhere,
    /// A CPU read tables of a region that it had taken.
    WalkedRegion,
    /// Another CPU waited until tables were read.
    WalkAwaited,
    /// A table was given up after a sync.
    TableSynced,
    /// A listener was told of a flush where no other CPU had the space loaded.
    ToldAlone,
    /// It was told where other CPUs had.
    ToldBesideTargets,
    /// One of the kernel's part was told.
    ToldOfKernel,
    /// One of a guest was.
    ToldOfGuest,
    /// A back end was asked for CPUs of a space that somebody listens to.
    ToldBesideBackEnd,
    /// It flushed all CPUs by that space's tag.
    ToldBesideEverywhere,
    /// A listener that cares for freed tables only was told of a flush without any.
    NotHeeded,
    /// A waiter asked a device that was busy.
    SecondaryBusy,
    /// A device did not answer, and was asked again.
    SecondaryRetried,
    /// A device did not answer, and was reset.
    SecondaryReset,
    /// A listener began while another CPU was changing the space.
    ListensMidway,
    /// A space was over that somebody listened to.
    ListenerReleased,
    /// It did not let go at once.
    ReleaseFailed,
    /// A device used what it kept.
    DeviceUsed,
    /// The shadow table was used.
    ShadowUsed,
    /// The generation had changed when an entry was to be installed there.
    ShadowRefused,
    /// Pages of one space were reclaimed.
    ReclaimedFromOne,
    /// Pages of several spaces were reclaimed together.
    ReclaimedFromMany,
    /// Meanwhile a CPU had loaded another space.
    ReclaimServedElsewhere,
    /// A task waited for a flush that another one had submitted.
    HandedOver,
    /// A function was asked for by a CPU that held a lock.
    AskedUnderLock,
    /// A barrier was what let one of two threads see the other.
    BarrierNeeded,
    /// Another CPU fetched its instructions anew.
    Serialised,
    /// CPUs came together.
    Met,
    /// Not all came in time.
    MeetingGivenUp,
    /// A flush of the kernel's part left out a quiet CPU.
    QuietPassedBy,
    /// One dropped everything when it came back.
    QuietDropped,
    /// One fetched its instructions anew.
    QuietFetched,
    /// One found data that were posted meanwhile.
    QuietPosted,
    /// A call was given up, and did not run.
    GivenUp,
    /// A call was to be given up, and had begun.
    BegunBefore,
    /// A space became tracked that no CPU had loaded.
    Tracked,
    /// One that some had.
    TrackedLoaded,
    /// A CPU took a region into its own root.
    RegionTaken,
    /// It gave one up.
    RegionGivenUp,
    /// A CPU's own root ended.
    OwnRootRetired,
    /// A page's frame went to another address of its space.
    PageMoved,
    /// A table did.
    TableMoved,
}

/// Number of sights.
const SIGHTS: usize = 93;

impl Sight {
    /// All of them, in words.
    pub const NAMES: [(Self, &'static str); SIGHTS] = [
        (
            Self::TopCopiedByResponder,
            "a target copied top-level entries into its private root",
        ),
        (
            Self::TopEntryRemovedByResponder,
            "a target removed a top-level entry",
        ),
        (
            Self::TopRefreshedAtFault,
            "a page fault copied top-level entries",
        ),
        (
            Self::WindowChangedLoaded,
            "a window of the loaded root changed",
        ),
        (
            Self::WindowChangedLazily,
            "a window of a root that its CPU kept changed",
        ),
        (
            Self::WindowChangedUnloaded,
            "a window of another root changed",
        ),
        (Self::FrameShared, "a window showed a frame of a space"),
        (Self::WindowTableUnlinked, "a table of windows was unlinked"),
        (Self::WindowUsed, "a window was used"),
        (Self::WindowMissed, "a window led nowhere"),
        (Self::RootChanged, "a space changed between its roots"),
        (Self::SwitchedInHalves, "the host loaded a root itself"),
        (Self::WalkedMidway, "a TLB acted in the middle of a load"),
        (Self::TrampolineFreed, "the last CPU left the trampoline"),
        (Self::SecondKernelRoot, "the kernel's second root was taken"),
        (
            Self::KernelAddressReused,
            "a kernel address was given out again",
        ),
        (
            Self::KernelPagesParked,
            "pages of the kernel waited for one flush",
        ),
        (Self::FirmwareCalled, "firmware ran on a root of its own"),
        (Self::Forgotten, "a ticket was forgotten"),
        (Self::CollectionFull, "a guard's collection was full"),
        (Self::SecondEngine, "a second engine was used"),
        (Self::RootRetired, "a private root was given up"),
        (Self::PinRefused, "windows on another CPU were refused"),
        (
            Self::AbsentPassedBy,
            "a flush left out a CPU that was elsewhere",
        ),
        (Self::ActedUnseen, "a CPU that was not online did something"),
        (Self::CalledLeaving, "a function ran on a CPU that left"),
        (Self::KickedOut, "a kick ended a stretch without interrupts"),
        (Self::Broadcast, "a request was announced in rings"),
        (Self::RingFull, "a ring was full"),
        (Self::SlotsBusy, "all slots of a CPU were busy"),
        (Self::Refused, "an interrupt was refused"),
        (Self::Resent, "the watchdog sent an interrupt again"),
        (Self::DataPosted, "call data were posted"),
        (Self::DataBusy, "call data still waited for a CPU"),
        (Self::Taken, "a back end flushed a CPU"),
        (Self::Everywhere, "a back end flushed all CPUs"),
        (
            Self::TagGivenAgain,
            "a back end flushed a tag that was given again",
        ),
        (Self::GuestKept, "a guest was entered with its tag"),
        (Self::GuestDropped, "a guest was entered without its tag"),
        (Self::GuestNotEntered, "a guest was not entered"),
        (Self::VcpuMoved, "a virtual CPU moved"),
        (Self::GuestInterrupted, "a guest was interrupted"),
        (Self::GuestFlushKicks, "a flush of a guest kicked"),
        (
            Self::GuestFlushAlone,
            "a flush of a guest found no CPU in it",
        ),
        (Self::GuestFlushedItself, "a guest flushed itself"),
        (Self::NestedTableFreed, "a nested table was freed"),
        (Self::GuestWidened, "a guest got more rights"),
        (
            Self::GuestSpurious,
            "a guest left for a page that it could use",
        ),
        (
            Self::DirtyRecorded,
            "the first store to a page was recorded",
        ),
        (Self::DirtyFound, "a page was in the log of writes"),
        (Self::GuestDestroyed, "a virtual machine was destroyed"),
        (
            Self::WalkedElsewhere,
            "a CPU read tables of a space that it had not loaded",
        ),
        (
            Self::WalkedRegion,
            "a CPU read tables of a region that it had taken",
        ),
        (
            Self::WalkAwaited,
            "a CPU waited until another had read tables",
        ),
        (Self::TableSynced, "a table that walks find was replaced"),
        (
            Self::ToldAlone,
            "a listener was told where no CPU was a target",
        ),
        (
            Self::ToldBesideTargets,
            "a listener was told beside other CPUs",
        ),
        (
            Self::ToldOfKernel,
            "a listener was told of the kernel's part",
        ),
        (Self::ToldOfGuest, "a listener was told of a guest"),
        (
            Self::ToldBesideBackEnd,
            "a back end flushed what somebody listens to",
        ),
        (
            Self::ToldBesideEverywhere,
            "a back end flushed everywhere what somebody listens to",
        ),
        (Self::NotHeeded, "a listener had nothing to do"),
        (Self::SecondaryBusy, "a device was busy"),
        (
            Self::SecondaryRetried,
            "a device failed and was asked again",
        ),
        (Self::SecondaryReset, "a device failed and was reset"),
        (Self::ListensMidway, "a listener began beside a change"),
        (Self::ListenerReleased, "a listener let go of a space"),
        (Self::ReleaseFailed, "a listener did not let go at once"),
        (Self::DeviceUsed, "a device used translations"),
        (Self::ShadowUsed, "the shadow table was used"),
        (Self::ShadowRefused, "the shadow table refused an old entry"),
        (Self::ReclaimedFromOne, "pages of one space were reclaimed"),
        (
            Self::ReclaimedFromMany,
            "pages of several spaces were reclaimed",
        ),
        (
            Self::ReclaimServedElsewhere,
            "a CPU loaded another space during a reclaim",
        ),
        (Self::HandedOver, "a task waited for another one's flush"),
        (
            Self::AskedUnderLock,
            "a CPU was asked by one that held a lock",
        ),
        (
            Self::BarrierNeeded,
            "a barrier let one of two threads see the other",
        ),
        (
            Self::Serialised,
            "other CPUs fetched their instructions anew",
        ),
        (Self::Met, "CPUs came together"),
        (Self::MeetingGivenUp, "CPUs did not come together in time"),
        (Self::QuietPassedBy, "a flush left out a quiet CPU"),
        (Self::QuietDropped, "a quiet CPU came back and dropped all"),
        (Self::QuietFetched, "a quiet CPU came back and fetched anew"),
        (Self::QuietPosted, "a quiet CPU came back to posted data"),
        (Self::GivenUp, "a call was given up"),
        (Self::BegunBefore, "a call had begun before it was given up"),
        (Self::Tracked, "a space became tracked"),
        (Self::TrackedLoaded, "a loaded space became tracked"),
        (Self::RegionTaken, "a CPU took a region"),
        (Self::RegionGivenUp, "a CPU gave a region up"),
        (Self::OwnRootRetired, "a CPU's own root was given up"),
        (Self::PageMoved, "a frame moved to another address"),
        (Self::TableMoved, "a table moved to another region"),
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
        all.filter(|sight| self.of(*sight) == 0).collect()
    }

    /// Each in words, with its count.
    pub fn rows(&self) -> Vec<Vec<String>> {
        let row = |(sight, name): (Sight, &str)| vec![name.to_owned(), self.of(sight).to_string()];
        Sight::NAMES.into_iter().map(row).collect()
    }

    /// How many situations were met, and which were not.
    pub fn summary(&self) -> String {
        let never = Sight::NAMES
            .iter()
            .filter(|(sight, _)| self.of(*sight) == 0);
        let never: Vec<&str> = never.map(|(_, name)| *name).collect();
        let met = format!("came upon {} of {SIGHTS} situations", SIGHTS - never.len());
        match never.is_empty() {
            true => met,
            false => format!("{met}; never: {}", never.join(", ")),
        }
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
