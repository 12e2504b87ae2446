//! Modules of Linux that a program needs: taken out of the package that the kernel image is from, and packed beside the program.

use std::path::{Path, PathBuf};

use crate::failure::{Doing, Failure, Outcome};

/// Those of KVM, which loads one of the last two.
const KVM: [&str; 4] = [
    "virt/lib/irqbypass",
    "arch/x86/kvm/kvm",
    "arch/x86/kvm/kvm-amd",
    "arch/x86/kvm/kvm-intel",
];

/// Modules that exist, in the order in which they were asked for.
#[derive(Debug, Clone)]
pub struct Modules(Vec<PathBuf>);

impl Modules {
    /// Those of that kernel image with these paths (`drivers/block/brd`); `purpose` is what Linux would lack without.
    ///
    /// # Errors
    /// Names the one that is missing.
    pub fn find(image: &Path, paths: &[&str], purpose: &str) -> Outcome<Self> {
        let find = |path: &&str| {
            module_of(image, path).ok_or_else(|| {
                let name = path.rsplit('/').next().unwrap_or(path);
                Failure::input(
                    format!("{purpose}: there is no module {name}.ko.xz beside its image"),
                    "use --machine qemu, or fetch the image with ./lab doctor --get-linux",
                )
            })
        };
        paths.iter().map(find).collect::<Outcome<_>>().map(Self)
    }

    /// What guests need.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub fn of_kvm(image: &Path) -> Outcome<Self> {
        Self::find(image, &KVM, "Linux would have no KVM to run guests")
    }

    /// The files that a machine needs, with their names; programs look for them there.
    ///
    /// # Errors
    /// One could not be read.
    pub fn files(&self) -> Outcome<Vec<(String, Vec<u8>)>> {
        let file = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let module = std::fs::read(path).doing(format!("read Linux's module {name}"))?;
            Ok((format!("boot/{name}"), module))
        };
        self.0.iter().map(file).collect()
    }
}

fn module_of(image: &Path, path: &str) -> Option<PathBuf> {
    let release = image.file_name()?.to_str()?.strip_prefix("vmlinuz-")?;
    let root = image.parent()?.parent()?;
    let module = root.join(format!("lib/modules/{release}/kernel/{path}.ko.xz"));
    module.exists().then_some(module)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_lie_beside_their_image_and_are_packed_by_their_names() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("lib/modules/6.1/kernel/virt/lib");
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("one.ko.xz"), b"module").unwrap();
        let image = root.path().join("boot/vmlinuz-6.1");
        let modules = Modules::find(&image, &["virt/lib/one"], "").unwrap();
        let packed = ("boot/one.ko.xz".to_owned(), b"module".to_vec());
        assert_eq!(modules.files().unwrap(), [packed]);
        let missing = Modules::find(&image, &["virt/lib/one", "virt/two"], "no guests");
        let text = missing.unwrap_err().to_string();
        assert!(
            text.contains("no guests: there is no module two.ko.xz"),
            "{text}"
        );
    }
}
