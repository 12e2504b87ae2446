//! Files: console, initramfs, pseudo files.
