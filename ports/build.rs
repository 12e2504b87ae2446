//! Each architecture is linked where its machine starts it.

fn main() {
    let arch = std::env::var("CARGO_CFG_TARGET_ARCH").expect("cargo says for what it builds");
    let script = format!("{}/src/arch/{arch}/link.ld", env!("CARGO_MANIFEST_DIR"));
    println!("cargo:rerun-if-changed={script}");
    if std::path::Path::new(&script).exists() {
        println!("cargo:rustc-link-arg-bins=-T{script}");
        println!("cargo:rustc-link-arg-bins=-no-pie");
    }
}
