//! `lab iso`: an image from which a PC boots and measures itself, and what such a PC has said as a result (docs/hardware.md).
//!
//! * [`image`]: what is on the image;
//! * [`mod@stripped`]: programs without what is for debuggers only;
//! * [`read`]: the text of a serial port.

mod image;
mod read;
mod stripped;

use std::path::Path;

use crate::bench::report;
use crate::cargo::{self, Flavour};
use crate::cli::Iso;
use crate::failure::{Doing, Outcome};
use crate::machine::disc;
use crate::progress::Progress;
use crate::session;

pub use image::{Effort, make};
pub use read::Survey;
pub use stripped::stripped;

/// Of making an image.
const STEPS: u64 = 3;

/// Makes an image, or reads a text.
///
/// # Errors
/// Something is missing or cannot be read or written (exit code 2); the text is not whole, or a bench in it went wrong.
pub fn command(iso: &Iso) -> Outcome<()> {
    match &iso.read {
        Some(text) => read::command(text, iso.json.as_deref()),
        None => write(iso),
    }
}

fn write(iso: &Iso) -> Outcome<()> {
    disc::can_make()?;
    report::probe(Some(&iso.output), "--output")?;
    let effort = if iso.quick {
        Effort::Quick
    } else {
        Effort::Full
    };
    let mut progress = Progress::new();
    progress.begin_step(0, STEPS, "building the kernel");
    let kernel = cargo::build_kernel(Flavour::Plain)?;
    progress.begin_step(1, STEPS, "building the programs");
    let programs = session::load_programs()?;
    progress.begin_step(2, STEPS, "making the image");
    let directory = tempfile::Builder::new().prefix("lab-").tempdir();
    let directory = directory.doing("make a temporary directory")?;
    let made = make(directory.path(), &kernel, &programs, effort)?;
    let bytes = std::fs::copy(&made, &iso.output)
        .doing(format!("write the image to {}", iso.output.display()))?;
    drop(progress);
    println!("{}", words(&iso.output, bytes, effort));
    Ok(())
}

/// What to do with the image.
fn words(path: &Path, bytes: u64, effort: Effort) -> String {
    let (path, mib) = (path.display(), bytes.div_ceil(1 << 20));
    format!(
        "{path}: {mib} MiB, for a PC with BIOS or UEFI (Secure Boot off), effort {}\n\
         onto a stick, which loses what is on it:  sudo dd if={path} of=/dev/sdX bs=4M conv=fsync\n\
         what its serial port sends (115200 baud), as a result:  ./lab iso --read SERIAL.txt --json FILE",
        effort.name()
    )
}
