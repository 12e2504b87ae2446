//! STAC and CLAC where the processor has SMAP, three-byte NOPs where it has not (there they would
//! raise #UD; SDM vol. 2A, "CLAC", "STAC").
//!
//! Code that needs one writes a NOP and notes its address in the section `.smap_sites`; [`patch`]
//! replaces the NOPs once, before other CPUs start and while the boot page tables still let the
//! kernel write its own code.

/// Third opcode byte of CLAC, for `entry.s`; STAC's is 0xcb.
pub const CLAC: u64 = 0xca;

/// One place to patch: its address and the third opcode byte.
#[repr(C)]
struct Site {
    address: usize,
    opcode: u64,
}

unsafe extern "C" {
    static smap_sites_start: Site;
    static smap_sites_end: Site;
}

/// Assembler text (Intel or AT&T) for an instruction of this module.
macro_rules! smap_site {
    (clac) => {
        smap_site!(@ "0xca")
    };
    (stac) => {
        smap_site!(@ "0xcb")
    };
    (@ $opcode:literal) => {
        concat!(
            "771: .byte 0x0f, 0x1f, 0x00\n",
            ".pushsection .smap_sites, \"a\"\n",
            ".quad 771b, ",
            $opcode,
            "\n.popsection\n"
        )
    };
}
pub(super) use smap_site;

/// Turns the NOPs into instructions. Boot CPU, alone, on the boot page tables; returns how many.
pub fn patch() -> usize {
    let start = &raw const smap_sites_start;
    let bytes = (&raw const smap_sites_end).addr() - start.addr();
    let count = bytes / size_of::<Site>();
    // SAFETY: the linker script puts the sites of all object files between the two symbols.
    let sites = unsafe { core::slice::from_raw_parts(start, count) };
    for site in sites {
        let code = site.address as *mut [u8; 3];
        // SAFETY: a 3-byte NOP that nobody executes now; the boot page tables make it writable.
        unsafe { code.write_volatile([0x0f, 0x01, site.opcode as u8]) };
    }
    count
}
