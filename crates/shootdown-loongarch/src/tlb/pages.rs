//! Pages, and the pairs of them that an entry of the TLB has.

/// The size of a page, a power of two of bytes: the base size, which CSR.STLBPS has (reference manual vol. 1, 7.5.10 "STLB Page Size"), or that of a huge page.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PageSize {
    shift: u8,
}

impl PageSize {
    /// 4 KiB.
    pub const SIZE_4K: Self = Self { shift: 12 };
    /// 16 KiB.
    pub const SIZE_16K: Self = Self { shift: 14 };
    /// 64 KiB.
    pub const SIZE_64K: Self = Self { shift: 16 };

    /// 2 to the power of `shift` bytes; None below 4 KiB, and above 1 EiB.
    pub const fn from_shift(shift: u8) -> Option<Self> {
        if 12 <= shift && shift <= 60 {
            Some(Self { shift })
        } else {
            None
        }
    }

    /// Its logarithm: what CSR.STLBPS.PS has.
    pub const fn shift(self) -> u8 {
        self.shift
    }

    /// Bytes of a page.
    pub const fn bytes(self) -> usize {
        1 << self.shift
    }

    /// The next larger page that a directory entry of tables with this base size can map: as many pages as a table has entries of 8 bytes.
    pub const fn huge(self) -> Self {
        Self {
            shift: 2 * self.shift - 3,
        }
    }

    /// Whether a processor has TLB entries of this size: a bit of CSR.PRCFG2 for each (vol. 1, 7.4.14 "Privileged Resource Configuration 2").
    pub const fn is_supported(self, prcfg2: u64) -> bool {
        prcfg2 >> self.shift & 1 != 0
    }
}

/// Pages in a row, of the smallest size that any of them had when it was cached. Where there was nothing, invalid pages of the base size may be cached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pages {
    first: usize,
    size: PageSize,
    count: usize,
}

impl Pages {
    /// `count` pages of `size`, of which the first holds the address `first`. What would be beyond the end of the address space is left out.
    pub const fn new(first: usize, size: PageSize, count: usize) -> Self {
        let first = first & !(size.bytes() - 1);
        Self { first, size, count }
    }

    /// The page that holds `address`.
    pub const fn one(address: usize, size: PageSize) -> Self {
        Self::new(address, size, 1)
    }

    /// How far apart the addresses are that INVTLB has to name: an entry has two pages of the base size, of which the lower one's number is even, or the two halves of a
    /// huge page (vol. 1, 5.4.2 "TLB Entry", 5.4.5 "Multi-level Page Table Structure Supported by page walking").
    const fn stride(&self, base: PageSize) -> usize {
        if self.size.shift <= base.shift {
            2 * base.bytes()
        } else {
            self.size.bytes()
        }
    }

    /// How many entries of the TLB may hold them where pages of `base` are the smallest.
    pub const fn entry_count(&self, base: PageSize) -> usize {
        let Some(more) = self.count.checked_sub(1) else {
            return 0;
        };
        let last = self
            .first
            .saturating_add(more.saturating_mul(self.size.bytes()));
        let stride = self.stride(base);
        last / stride - self.first / stride + 1
    }

    /// An address in each of these entries.
    pub fn entries(&self, base: PageSize) -> impl Iterator<Item = usize> + use<> {
        let stride = self.stride(base);
        let first = self.first & !(stride - 1);
        (0..self.entry_count(base)).map(move |entry| first + entry * stride)
    }
}
