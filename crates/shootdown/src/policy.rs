//! [`Policy`]: which of the published improvements are on. In an engine that is [built](crate::Config) with any it may change at any time, so that before and
//! after run in one boot.

/// How flushes are carried out. Every policy is correct; they differ in speed only.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Policy(u64);

const CONCURRENT: u64 = 1 << 0;
const INLINE: u64 = 1 << 1;
const EARLY_ACK: u64 = 1 << 2;
const MEASURE_WAITS: u64 = 1 << 5;
const PREFETCH: u64 = 1 << 6;
const SIX_TAGS: u64 = 1 << 7;
const ALL_TAGS: u64 = 1 << 8;
const LAZY: u64 = 1 << 9;
const PREEMPTIBLE: u64 = 1 << 10;
const OUT_OF_ORDER: u64 = 1 << 11;
const DEFERRAL: u64 = 1 << 15;
/// The number of targets from which a space gets a global tag, in 16 bits; 0 for never.
const GLOBAL_TAGS_SHIFT: u32 = 32;
/// Linux: `consider_global_asid` in `arch/x86/mm/tlb.c` asks for more than three CPUs.
const GLOBAL_TAGS_FROM: u16 = 3;
/// The number of targets from which requests are broadcast, in 16 bits; 0 for never.
const BROADCAST_SHIFT: u32 = 48;
/// As many targets as take a second round of cache-line requests: up to so many inboxes arrive side by side.
const BROADCAST_FROM: u16 = 9;

/// Which hardware tags are used, where the platform has them
/// ([`Platform::asid_slots`](crate::Platform::asid_slots)).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Tags {
    /// None: every load of a root drops what the CPU has cached.
    None,
    /// Six, any of them for any space, in turn (T4 as published).
    Six,
    /// All, four of them for each space.
    All,
}

impl Policy {
    /// What kernels did before T1 and T3: interrupt the targets, wait with preemption disabled until they have
    /// flushed, then flush here; the description of the flush lies on a line of its own and is passed by pointer.
    pub const BEFORE: Self = Self(0);
    /// T1 as published: the local flush overlaps the remote ones, the description travels in the request,
    /// targets acknowledge on receipt where that is sound. T4 as published: a CPU keeps the translations of the
    /// six spaces it ran last. Lazy CPUs are left alone. T3: a waiter may be preempted.
    pub const PUBLISHED: Self =
        Self(CONCURRENT | INLINE | EARLY_ACK | SIX_TAGS | LAZY | PREEMPTIBLE);
    /// `PUBLISHED` with all hardware tags, cache lines asked for before they are needed and for writing at once, and flushes page by page that do not
    /// wait for the change before.
    pub const BEST: Self = (Self::PUBLISHED.with_tags(Tags::All))
        .with(PREFETCH | OUT_OF_ORDER, true)
        .with_broadcast_from(BROADCAST_FROM)
        .with_global_tags_from(GLOBAL_TAGS_FROM);

    const NAMED: [(&'static str, Self); 3] = [
        ("before", Self::BEFORE),
        ("published", Self::PUBLISHED),
        ("best", Self::BEST),
    ];

    /// What may be switched on by name, one by one.
    const IMPROVEMENTS: [(&'static str, u64); 5] = [
        ("concurrent", CONCURRENT),
        ("inline", INLINE),
        ("early-ack", EARLY_ACK),
        ("prefetch", PREFETCH),
        ("defer", DEFERRAL),
    ];

    /// The policy with this name: `before`, `published` or `best`. Behind it may stand what is on besides, each after a `+`:
    /// `concurrent`, `inline`, `early-ack`, `prefetch`, `defer`.
    ///
    /// `None` if a word is not known.
    ///
    /// ```
    /// let policy = shootdown::Policy::from_name("before+concurrent+inline").unwrap();
    /// assert!(policy.is_concurrent() && policy.is_inline() && !policy.acknowledges_early());
    /// ```
    pub fn from_name(name: &str) -> Option<Self> {
        let mut words = name.split('+');
        let name = words.next()?;
        let (_, policy) = Self::NAMED.iter().find(|(known, _)| *known == name)?;
        words.try_fold(*policy, |policy, word| {
            let improvement = Self::IMPROVEMENTS.iter().find(|(known, _)| *known == word);
            improvement.map(|(_, bit)| policy.with(*bit, true))
        })
    }

    /// Its name; `custom` for any other combination.
    pub fn name(self) -> &'static str {
        let plain = self.with_measured_waits(false);
        Self::NAMED
            .iter()
            .find(|(_, policy)| *policy == plain)
            .map_or("custom", |(name, _)| name)
    }

    /// Whether waits are timed into the histogram of [`Stats`](crate::watch::Stats) (two clock readings a wait).
    pub const fn with_measured_waits(self, on: bool) -> Self {
        self.with(MEASURE_WAITS, on)
    }

    /// See [`tags`](Self::tags).
    pub const fn with_tags(self, tags: Tags) -> Self {
        self.with(SIX_TAGS, matches!(tags, Tags::Six))
            .with(ALL_TAGS, matches!(tags, Tags::All))
    }

    /// See [`is_lazy`](Self::is_lazy).
    pub const fn with_lazy(self, on: bool) -> Self {
        self.with(LAZY, on)
    }

    /// See [`waits_preemptibly`](Self::waits_preemptibly).
    pub const fn with_preemptible_waits(self, on: bool) -> Self {
        self.with(PREEMPTIBLE, on)
    }

    /// See [`flushes_out_of_order`](Self::flushes_out_of_order).
    pub const fn with_out_of_order(self, on: bool) -> Self {
        self.with(OUT_OF_ORDER, on)
    }

    /// See [`defers`](Self::defers).
    pub const fn with_deferral(self, on: bool) -> Self {
        self.with(DEFERRAL, on)
    }

    /// See [`broadcasts_from`](Self::broadcasts_from).
    pub const fn with_broadcast_from(self, targets: u16) -> Self {
        self.with_number(BROADCAST_SHIFT, targets)
    }

    /// See [`global_tags_from`](Self::global_tags_from).
    pub const fn with_global_tags_from(self, targets: u16) -> Self {
        self.with_number(GLOBAL_TAGS_SHIFT, targets)
    }

    /// As a word in which 0 is the default.
    pub(crate) const fn to_word(self) -> u64 {
        self.0 ^ Self::BEST.0
    }

    /// The inverse of [`to_word`](Self::to_word).
    pub(crate) const fn from_word(word: u64) -> Self {
        Self(word ^ Self::BEST.0)
    }

    const fn with(self, bit: u64, on: bool) -> Self {
        self.with_field(bit, if on { bit } else { 0 })
    }

    const fn with_number(self, shift: u32, number: u16) -> Self {
        self.with_field((u16::MAX as u64) << shift, (number as u64) << shift)
    }

    const fn with_field(self, mask: u64, value: u64) -> Self {
        Self(self.0 & !mask | value)
    }

    const fn has(self, bit: u64) -> bool {
        self.0 & bit != 0
    }

    /// The local flush runs while the targets work, not after them.
    pub const fn is_concurrent(self) -> bool {
        self.has(CONCURRENT)
    }

    /// The description of a flush travels in the request's own line.
    pub const fn is_inline(self) -> bool {
        self.has(INLINE)
    }

    /// Targets acknowledge a flush of user leaf entries when they have received it.
    pub const fn acknowledges_early(self) -> bool {
        self.has(EARLY_ACK)
    }

    /// Cache lines that are about to be written are asked for ahead of time
    /// ([`Platform::prefetch_write`](crate::Platform::prefetch_write)). A target that has served one request of the same CPU twice in a row, and nothing
    /// else, expects the next from there, and asks for its line before it knows.
    pub const fn prefetches(self) -> bool {
        self.has(PREFETCH)
    }

    /// Which hardware tags a load of a root may use.
    pub const fn tags(self) -> Tags {
        match (self.has(SIX_TAGS), self.has(ALL_TAGS)) {
            (_, true) => Tags::All,
            (true, false) => Tags::Six,
            (false, false) => Tags::None,
        }
    }

    /// A CPU without user work stays in its space, and flushes leave it alone
    /// ([`UserMemory::enter_lazy`](crate::user_memory::UserMemory::enter_lazy)).
    pub const fn is_lazy(self) -> bool {
        self.has(LAZY)
    }

    /// A CPU in the kernel may leave flushes of user pages for later
    /// ([`UserMemory::defer_flushes`](crate::user_memory::UserMemory::defer_flushes)).
    pub const fn defers(self) -> bool {
        self.has(DEFERRAL)
    }

    /// A CPU that has not yet dropped one change of a space drops later ones page by page all the same: two CPUs that flush the pages of one space
    /// at once each find the other's request after their own. Otherwise it drops everything then, as does a CPU that
    /// has a private root loaded, or whose flush names large pages.
    pub const fn flushes_out_of_order(self) -> bool {
        self.has(OUT_OF_ORDER)
    }

    /// Preemption stays as the caller has it while a call or a flush waits. Otherwise the engine disables it from before
    /// the sending until after the wait. (Policies that are not [concurrent](Self::is_concurrent) always do for
    /// flushes: the local flush that follows the wait is this CPU's.)
    pub const fn waits_preemptibly(self) -> bool {
        self.has(PREEMPTIBLE)
    }

    /// The number of targets from which on a request is announced once for all of them, in a ring that they read, instead
    /// of in each one's inbox; 0 for never. It saves the initiator a cache line a target. Every target is then interrupted, also
    /// one that an interrupt is on its way to.
    pub const fn broadcasts_from(self) -> u16 {
        (self.0 >> BROADCAST_SHIFT) as u16
    }

    /// The number of targets from which on a space gets a tag that is the same on all CPUs, where the platform has an instruction that flushes
    /// them by it ([`Platform::global_tags`](crate::Platform::global_tags)); 0 for never. A space that has one keeps it.
    pub const fn global_tags_from(self) -> u16 {
        (self.0 >> GLOBAL_TAGS_SHIFT) as u16
    }

    /// Whether a request to so many targets is announced in rings.
    #[inline]
    pub(crate) const fn broadcasts_to(self, targets: usize) -> bool {
        let from = self.broadcasts_from() as usize;
        from != 0 && targets >= from
    }

    /// See [`with_measured_waits`](Self::with_measured_waits).
    pub const fn measures_waits(self) -> bool {
        self.has(MEASURE_WAITS)
    }
}

impl Default for Policy {
    /// [`BEST`](Self::BEST).
    fn default() -> Self {
        Self::BEST
    }
}
