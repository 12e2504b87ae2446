//! The tree of names: directories, links, renames, working directories, what is told about files, record locks, scripts, and memory that files give up.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, SystemTime};

use shootdown_user::checks::{self, errno, error_of, expect};
use shootdown_user::child::{Child, End};
use shootdown_user::machine;
use shootdown_user::region::PAGE_BYTES;

/// What this program answers when a script runs it.
const FROM_SCRIPT: &str = "from-script";

/// An empty directory that is the working directory during `work`.
fn in_directory(work: impl FnOnce(&Path)) {
    let _ignored = fs::create_dir("/tmp");
    let directory = Path::new("/tmp/t_tree");
    let _ignored = fs::remove_dir_all(directory);
    fs::create_dir(directory).expect("a directory");
    std::env::set_current_dir(directory).expect("there");
    work(directory);
    std::env::set_current_dir("/").expect("the root");
    fs::remove_dir_all(directory).expect("all of it");
}

fn names_in(directory: &str) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("a directory");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    let mut names: Vec<String> = names
        .map(|name| name.into_string().expect("text"))
        .collect();
    names.sort();
    names
}

fn text_of(path: &str) -> String {
    fs::read_to_string(path).expect("a file")
}

fn path(text: &str) -> CString {
    CString::new(text).expect("a path")
}

fn directories_come_and_go() {
    in_directory(|here| {
        fs::create_dir_all("a/b/c").expect("directories");
        expect(libc::EEXIST, fs::create_dir("a"));
        expect(libc::ENOENT, fs::create_dir("x/y"));
        fs::write("a/f", "text").expect("a file");
        expect(libc::ENOTDIR, fs::create_dir("a/f/g"));
        expect(libc::ENOTDIR, File::open("a/f/"));
        expect(libc::EISDIR, fs::remove_file("a/b"));
        expect(libc::ENOTDIR, fs::remove_dir("a/f"));
        expect(libc::ENOTEMPTY, fs::remove_dir("a/b"));
        expect(libc::EINVAL, fs::remove_dir("a/b/c/."));
        expect(libc::EBUSY, fs::remove_dir("/"));
        expect(libc::EISDIR, OpenOptions::new().write(true).open("a"));
        assert_eq!(names_in("a"), ["b", "f"]);
        assert_eq!(text_of("a/./b/../f"), "text");
        assert_eq!(text_of("../t_tree/a//f"), "text");
        // An empty directory that is gone takes nothing in, though it can still be used.
        std::env::set_current_dir("a/b/c").expect("there");
        assert_eq!(
            std::env::current_dir().expect("its path"),
            here.join("a/b/c")
        );
        fs::remove_dir("../c").expect("it is empty");
        expect(libc::ENOENT, File::create("late"));
        expect(libc::ENOENT, std::env::current_dir());
        std::env::set_current_dir("..").expect("above");
        assert_eq!(std::env::current_dir().expect("its path"), here.join("a/b"));
        std::env::set_current_dir(here).expect("back");
        assert_eq!(
            fs::metadata("a").expect("it").ino(),
            fs::metadata("a/b/..").expect("it").ino()
        );
        let long = "n".repeat(256);
        expect(libc::ENAMETOOLONG, fs::create_dir(&long));
    });
    assert_eq!(
        fs::read_dir("/..").expect("the root").count(),
        fs::read_dir("/").expect("it").count()
    );
}

fn links_are_followed() {
    in_directory(|_| {
        fs::create_dir("d").expect("a directory");
        fs::write("d/f", "text").expect("a file");
        symlink("d", "to_d").expect("a link");
        symlink("../d/f", "d/to_f").expect("a link");
        symlink("nowhere", "dangling").expect("a link");
        symlink("loop", "loop").expect("a link");
        assert_eq!(text_of("to_d/to_f"), "text");
        assert_eq!(fs::read_link("to_d").expect("a link"), PathBuf::from("d"));
        expect(libc::EINVAL, fs::read_link("d/f"));
        expect(libc::ELOOP, File::open("loop"));
        expect(libc::ENOENT, File::open("dangling"));
        assert!(fs::symlink_metadata("dangling").expect("it").is_symlink());
        assert!(fs::metadata("to_d").expect("what it leads to").is_dir());
        expect(libc::EEXIST, symlink("d", "to_d"));
        fs::write("dangling", "made").expect("through the link");
        assert_eq!(text_of("nowhere"), "made");
        let not_followed = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NOFOLLOW)
            .open("to_d");
        expect(libc::ELOOP, not_followed);
        expect(libc::ENOTDIR, fs::remove_dir("to_d"));
        expect(libc::ENOTDIR, fs::remove_dir("to_d/"));
        expect(libc::ENOTDIR, fs::rename("to_d/", "moved"));
        expect(libc::ENOTDIR, fs::remove_file("to_d/"));
        assert!(
            fs::symlink_metadata("to_d/")
                .expect("what it leads to")
                .is_dir()
        );
        fs::remove_file("to_d").expect("the link");
        assert_eq!(text_of("d/f"), "text");
        // A second name is the same file.
        fs::hard_link("d/f", "second").expect("a name");
        let both = [fs::metadata("d/f"), fs::metadata("second")].map(|about| about.expect("it"));
        assert_eq!(both[0].ino(), both[1].ino());
        assert_eq!(both[1].nlink(), 2);
        fs::write("second", "changed").expect("it");
        assert_eq!(text_of("d/f"), "changed");
        expect(libc::EPERM, fs::hard_link("d", "third"));
        expect(libc::EEXIST, fs::hard_link("d/f", "second"));
        fs::remove_file("d/f").expect("one name");
        assert_eq!(text_of("second"), "changed");
        assert_eq!(fs::metadata("second").expect("it").nlink(), 1);
    });
}

fn exchange(from: &str, to: &str, flags: u32) -> io::Result<()> {
    let (from, to) = (path(from), path(to));
    let here = libc::AT_FDCWD;
    // SAFETY: two paths.
    let status = unsafe {
        libc::syscall(
            libc::SYS_renameat2,
            here,
            from.as_ptr(),
            here,
            to.as_ptr(),
            flags,
        )
    };
    match status {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn names_move() {
    in_directory(|here| {
        fs::create_dir_all("a/b").expect("directories");
        fs::create_dir("full").expect("a directory");
        fs::write("full/f", "f").expect("a file");
        fs::write("one", "1").expect("a file");
        fs::write("two", "2").expect("a file");
        fs::rename("one", "two").expect("over another");
        assert_eq!(
            (text_of("two"), error_of(File::open("one"))),
            ("1".into(), Some(libc::ENOENT))
        );
        fs::rename("two", "a/b/two").expect("into another directory");
        expect(libc::EINVAL, fs::rename("a", "a/b/c"));
        expect(libc::EISDIR, fs::rename("a/b/two", "full"));
        expect(libc::ENOTDIR, fs::rename("full", "a/b/two"));
        expect(libc::ENOTEMPTY, fs::rename("a", "full"));
        expect(libc::ENOENT, fs::rename("nothing", "a"));
        expect(libc::EBUSY, fs::rename("a/b/.", "x"));
        // A directory that moves takes what is in it along, and knows where it is.
        fs::create_dir("empty").expect("a directory");
        std::env::set_current_dir("a/b").expect("there");
        fs::rename(here.join("a"), here.join("empty")).expect("over an empty one");
        assert_eq!(
            std::env::current_dir().expect("its path"),
            here.join("empty/b")
        );
        assert_eq!(text_of("../../empty/b/two"), "1");
        std::env::set_current_dir(here).expect("back");
        fs::write("three", "3").expect("a file");
        expect(
            libc::EEXIST,
            exchange("three", "empty/b/two", libc::RENAME_NOREPLACE),
        );
        exchange("three", "empty", libc::RENAME_EXCHANGE).expect("both are there");
        assert_eq!(
            (text_of("empty"), text_of("three/b/two")),
            ("3".into(), "1".into())
        );
        expect(
            libc::EINVAL,
            exchange("three", "three/b/two", libc::RENAME_EXCHANGE),
        );
        exchange("empty", "fresh", libc::RENAME_NOREPLACE).expect("free");
        fs::hard_link("fresh", "same").expect("a name");
        fs::rename("fresh", "same").expect("nothing to do");
        assert_eq!(names_in("."), ["fresh", "full", "same", "three"]);
    });
}

fn relative_paths_begin_where_they_are_told() {
    in_directory(|_| {
        fs::create_dir("d").expect("a directory");
        fs::write("d/f", "text").expect("a file");
        let directory = File::open("d").expect("a directory");
        let open = |base: &File, name: &str, flags: i32| {
            let name = path(name);
            // SAFETY: a path.
            let fd = unsafe { libc::openat(base.as_raw_fd(), name.as_ptr(), flags, 0o600) };
            match fd {
                0.. => {
                    // SAFETY: just made, and nobody else's.
                    Ok(unsafe { File::from_raw_fd(fd) })
                }
                _ => Err(io::Error::last_os_error()),
            }
        };
        let mut text = String::new();
        let read = open(&directory, "f", libc::O_RDONLY)
            .expect("it")
            .read_to_string(&mut text);
        assert_eq!((read.expect("bytes"), text.as_str()), (4, "text"));
        fs::rename("d", "e").expect("a new name");
        drop(open(&directory, "g", libc::O_CREAT | libc::O_WRONLY).expect("a new file"));
        assert_eq!(names_in("e"), ["f", "g"]);
        let file = File::open("e/f").expect("a file");
        expect(libc::ENOTDIR, open(&file, "g", libc::O_RDONLY));
        // SAFETY: a descriptor.
        assert_eq!(unsafe { libc::fchdir(directory.as_raw_fd()) }, 0);
        assert_eq!(text_of("f"), "text");
        let child = Child::start(|| i32::from(std::env::set_current_dir("..").is_err()));
        assert_eq!(
            child.expect("a child").wait().expect("its end"),
            End::Exited(0)
        );
        assert_eq!(text_of("f"), "text", "a child goes alone");
    });
}

fn files_tell_about_themselves() {
    in_directory(|_| {
        let before = SystemTime::now() - Duration::from_secs(2);
        fs::write("f", "text").expect("a file");
        let about = fs::metadata("f").expect("it");
        assert_eq!((about.len(), about.is_file()), (4, true));
        assert!(about.modified().expect("a time") > before);
        fs::set_permissions("f", PermissionsExt::from_mode(0o640)).expect("permissions");
        assert_eq!(
            fs::metadata("f").expect("it").permissions().mode() & 0o7777,
            0o640
        );
        let file = OpenOptions::new().write(true).open("f").expect("it");
        let past = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 5_000);
        file.set_modified(past).expect("a time");
        assert_eq!(
            fs::metadata("f").expect("it").modified().expect("a time"),
            past
        );
        file.write_all_at(b"more", 4).expect("bytes");
        assert!(file.metadata().expect("it").modified().expect("a time") > before);
        assert_eq!(
            file.metadata().expect("it").ino(),
            fs::metadata("f").expect("it").ino()
        );
        // SAFETY: a descriptor.
        assert_eq!(unsafe { libc::fallocate(file.as_raw_fd(), 0, 100, 50) }, 0);
        assert_eq!(file.metadata().expect("it").len(), 150);
        fs::remove_file("f").expect("its name");
        assert_eq!(file.metadata().expect("it").nlink(), 0);
    });
    expect(libc::ENOENT, File::create("/proc/self/new"));
    let maps = text_of(&format!("/proc/{}/maps", std::process::id()));
    assert!(maps.contains("t_tree"), "{maps}");
}

/// Sets a record lock, or says why not.
fn lock(file: &File, kind: i32, (start, len): (i64, i64), command: i32) -> io::Result<libc::flock> {
    let mut wanted = libc::flock {
        l_type: kind as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: start,
        l_len: len,
        l_pid: 0,
    };
    // SAFETY: a structure of the call's.
    match unsafe { libc::fcntl(file.as_raw_fd(), command, &mut wanted) } {
        0 => Ok(wanted),
        _ => Err(io::Error::last_os_error()),
    }
}

fn records_are_locked() {
    const SET: i32 = libc::F_SETLK;
    in_directory(|_| {
        let open = || {
            OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open("f")
        };
        let file = open().expect("a file");
        lock(&file, libc::F_WRLCK, (10, 20), SET).expect("nobody has it");
        lock(&file, libc::F_RDLCK, (15, 5), SET).expect("one's own");
        let parent = std::process::id() as i32;
        let child = Child::start(|| {
            let file = open().expect("the file");
            let asked = |kind, bytes| lock(&file, kind, bytes, libc::F_GETLK).expect("an answer");
            let first = asked(libc::F_WRLCK, (0, 0));
            assert_eq!(
                (first.l_pid, i32::from(first.l_type)),
                (parent, libc::F_WRLCK)
            );
            assert_eq!((first.l_start, first.l_len), (10, 5));
            assert_eq!(
                i32::from(asked(libc::F_RDLCK, (15, 5)).l_type),
                libc::F_UNLCK
            );
            let refused = |kind, bytes| error_of(lock(&file, kind, bytes, SET));
            assert_eq!(refused(libc::F_WRLCK, (15, 1)), Some(libc::EAGAIN));
            assert_eq!(refused(libc::F_RDLCK, (29, 100)), Some(libc::EAGAIN));
            assert_eq!(refused(libc::F_RDLCK, (15, 5)), None);
            assert_eq!(refused(libc::F_WRLCK, (30, 0)), None);
            // Waits until the parent, which waits for nothing, closes one of its descriptors.
            lock(&file, libc::F_WRLCK, (10, 1), libc::F_SETLKW).expect("in the end");
            0
        });
        std::thread::sleep(Duration::from_millis(50));
        drop(open().expect("the file once more"));
        let child = child.expect("a child");
        assert_eq!(child.wait().expect("its end"), End::Exited(0));
        lock(&file, libc::F_WRLCK, (0, 0), SET).expect("the child's end has given all up");
        let reading = File::open("f").expect("the file");
        expect(libc::EBADF, lock(&reading, libc::F_WRLCK, (0, 1), SET));
        expect(libc::EINVAL, lock(&file, libc::F_WRLCK, (-1, 1), SET));
        lock(&file, libc::F_UNLCK, (0, 0), SET).expect("all of it");
    });
}

fn scripts_are_run() {
    let this = std::env::current_exe().expect("this program");
    in_directory(|here| {
        let script = |name: &str, runner: &str| {
            let _old = fs::remove_file(name);
            let made = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o755)
                .open(name);
            let text = format!("#!{runner} {FROM_SCRIPT} two\nnothing\n");
            made.expect("a file")
                .write_all(text.as_bytes())
                .expect("bytes");
        };
        script("s", &this.to_string_lossy());
        let run = |name: &str| Command::new(here.join(name)).args(["x", "y"]).output();
        let said = run("s").expect("it runs");
        let text = String::from_utf8(said.stdout).expect("text");
        assert_eq!(
            text,
            format!("{FROM_SCRIPT} two|{}|x|y\n", here.join("s").display())
        );
        script("nested", &here.join("s").to_string_lossy());
        assert!(run("nested").expect("it runs").status.success());
        script("missing", "/nowhere");
        expect(libc::ENOENT, run("missing"));
        script("endless", &here.join("endless").to_string_lossy());
        expect(libc::ELOOP, run("endless"));
        fs::set_permissions("s", PermissionsExt::from_mode(0o644)).expect("permissions");
        expect(libc::EACCES, run("s"));
        fs::copy(&this, "copy").expect("a copy of this program");
        let copied = Command::new(here.join("copy"))
            .arg(FROM_SCRIPT)
            .output()
            .expect("it runs");
        assert_eq!(copied.stdout, format!("{FROM_SCRIPT}\n").as_bytes());
    });
}

/// Pages that can be read again are given up, others are not.
fn memory_of_files_is_given_up() {
    let this = std::env::current_exe()
        .and_then(File::open)
        .expect("this program");
    let len = this.metadata().expect("it").len() as usize;
    let mut bytes = vec![0; len];
    this.read_exact_at(&mut bytes, 0).expect("all of it");
    let map = |sharing| {
        let rights = libc::PROT_READ
            | if sharing == libc::MAP_PRIVATE {
                libc::PROT_WRITE
            } else {
                0
            };
        // SAFETY: a new mapping where nothing is.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                rights,
                sharing,
                this.as_raw_fd(),
                0,
            )
        };
        assert_ne!(at, libc::MAP_FAILED, "errno {}", errno());
        // SAFETY: mapped from now on, and only this function's.
        unsafe { std::slice::from_raw_parts_mut(at.cast::<u8>(), len) }
    };
    let shared = map(libc::MAP_SHARED);
    let private = map(libc::MAP_PRIVATE);
    private[PAGE_BYTES] ^= 0xff;
    for _ in 0..4 {
        assert!(shared == bytes, "the file");
        assert_eq!(private[PAGE_BYTES], bytes[PAGE_BYTES] ^ 0xff);
        assert!(
            private[2 * PAGE_BYTES..] == bytes[2 * PAGE_BYTES..],
            "the file"
        );
        let before = machine::free_kib().unwrap_or(0);
        fs::write("/proc/sys/vm/drop_caches", "1").expect("memory is given up");
        if machine::is_reference_kernel() {
            let more = machine::free_kib().unwrap_or(0).saturating_sub(before) as usize * 1024;
            assert!(more > len / 2, "{more} bytes of {len}");
        }
    }
    for mapping in [shared, private] {
        // SAFETY: mapped above, and nothing refers to it any more.
        assert_eq!(unsafe { libc::munmap(mapping.as_mut_ptr().cast(), len) }, 0);
    }
}

/// Names and links until there is no room for more: that is an error, and everything goes on.
fn a_bomb_of_names_is_contained() {
    // Linux has no limit here.
    let most = if machine::is_reference_kernel() {
        100_000
    } else {
        2000
    };
    let target = "t".repeat(4000);
    let name = |number: usize| format!("{number}{}", "n".repeat(240));
    in_directory(|_| {
        let made = (0..most).map(|number| match number % 3 {
            0 => symlink(&target, name(number)),
            1 if number > 3 => fs::hard_link(name(2), name(number)),
            1 => fs::create_dir(name(number)),
            _ => File::create(name(number)).map(drop),
        });
        let refused = made
            .enumerate()
            .find_map(|(number, made)| Some((number, made.err()?)));
        if let Some((number, error)) = refused {
            assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
            assert!(number > 1000, "only {number}");
            let child = Child::start(|| i32::from(File::open(name(2)).is_err()));
            assert_eq!(
                child.expect("a child").wait().expect("its end"),
                End::Exited(0)
            );
        }
    });
    fs::write("/tmp/t_after", "room again").expect("a file");
    fs::remove_file("/tmp/t_after").expect("its name");
}

/// Directories may be deeper than any path is long.
fn deep_directories_are_contained() {
    in_directory(|here| {
        let name = "d".repeat(250);
        let depth = 40;
        for _ in 0..depth {
            fs::create_dir(&name).expect("a directory");
            std::env::set_current_dir(&name).expect("there");
        }
        // The C library asks the kernel, which cannot say.
        // SAFETY: room for as many bytes as are named.
        let len = unsafe {
            libc::syscall(
                libc::SYS_getcwd,
                vec![0_u8; 32 << 10].as_mut_ptr(),
                32 << 10,
            )
        };
        assert_eq!((len, errno()), (-1, libc::ENAMETOOLONG));
        fs::write("f", "deep").expect("a file");
        assert_eq!(text_of("f"), "deep");
        fs::remove_file("f").expect("its name");
        for _ in 0..depth {
            std::env::set_current_dir("..").expect("above");
            fs::remove_dir(&name).expect("it is empty");
        }
        assert_eq!(std::env::current_dir().expect("its path"), here);
    });
    expect(libc::EBUSY, fs::rename("/proc", "/tmp/proc"));
}

/// One lock becomes thousands where every second byte is unlocked; there is an end to that.
fn locks_in_pieces_are_contained() {
    if !machine::is_reference_kernel() {
        return;
    }
    in_directory(|_| {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open("f");
        let file = file.expect("a file");
        let set = |kind, bytes| lock(&file, kind, bytes, libc::F_SETLK);
        set(libc::F_WRLCK, (0, 0)).expect("nobody has it");
        let refused = (0..10_000).find_map(|at| set(libc::F_UNLCK, (2 * at + 1, 1)).err());
        let refused = refused.expect("an end").raw_os_error();
        assert_eq!(refused, Some(libc::ENOLCK));
        set(libc::F_UNLCK, (0, 0)).expect("all of it");
        set(libc::F_WRLCK, (0, 0)).expect("all of it");
    });
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments
        .first()
        .is_some_and(|first| first.starts_with(FROM_SCRIPT))
    {
        println!("{}", arguments.join("|"));
        return ExitCode::SUCCESS;
    }
    checks::run(
        "t_tree",
        &checks::named![
            directories_come_and_go,
            links_are_followed,
            names_move,
            relative_paths_begin_where_they_are_told,
            files_tell_about_themselves,
            records_are_locked,
            scripts_are_run,
            memory_of_files_is_given_up,
            a_bomb_of_names_is_contained,
            deep_directories_are_contained,
            locks_in_pieces_are_contained,
        ],
    )
}
