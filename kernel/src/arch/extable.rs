//! The exception table: instructions in the kernel that may fault, and where to go on then.

/// One entry.
#[repr(C)]
struct Entry {
    instruction: usize,
    fixup: usize,
}

unsafe extern "C" {
    static exception_table_start: Entry;
    static exception_table_end: Entry;
}

/// Assembler text for an entry: `fault_at!("2", "3")` sends a fault at label 2 to label 3 (both
/// before this text).
macro_rules! fault_at {
    ($instruction:literal, $fixup:literal) => {
        concat!(
            ".pushsection .exception_table, \"a\"\n",
            ".balign 8\n",
            ".quad ",
            $instruction,
            "b, ",
            $fixup,
            "b\n.popsection\n"
        )
    };
}
pub(super) use fault_at;

/// Where to continue after a fault at this instruction; None if it must not fault.
pub fn fixup(instruction: usize) -> Option<usize> {
    let start = &raw const exception_table_start;
    let bytes = (&raw const exception_table_end).addr() - start.addr();
    // SAFETY: the linker script puts the entries of all object files between the two symbols.
    let entries = unsafe { core::slice::from_raw_parts(start, bytes / size_of::<Entry>()) };
    // A few dozen entries at most: one for each inlined copy of a user access.
    entries
        .iter()
        .find(|entry| entry.instruction == instruction)
        .map(|entry| entry.fixup)
}
