//! Starts the built lab in a directory of its own, without the environment's settings.

use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

/// A script cannot be started while a child forked at that moment still holds it open for writing.
static FORK: Mutex<()> = Mutex::new(());

/// A directory with files for one test.
pub struct Fixture {
    directory: tempfile::TempDir,
}

/// What the lab answered.
#[allow(dead_code, reason = "not every test program looks at all of it")]
#[derive(Debug)]
pub struct Answer {
    pub code: Option<i32>,
    pub output: String,
    pub errors: String,
}

#[allow(dead_code, reason = "not every test program uses every helper")]
impl Answer {
    /// What stands on standard error but for progress, which depends on the host's speed.
    pub fn complaints(&self) -> String {
        let is_progress = |line: &&str| line.starts_with("lab: ") && line.ends_with(": rows");
        let lines = self.errors.lines().filter(|line| !is_progress(line));
        lines.collect::<Vec<_>>().join("\n")
    }
}

#[allow(dead_code, reason = "not every test program uses every helper")]
impl Fixture {
    pub fn new() -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
        }
    }

    pub fn path(&self) -> &str {
        self.directory.path().to_str().unwrap()
    }

    /// Writes a file and returns its path.
    pub fn file(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.directory.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// Runs the lab, which must do well, and reads the JSON that it writes.
    pub fn result(&self, words: &[&str]) -> (Answer, serde_json::Value) {
        let path = self.file("result", b"");
        let answer = self.lab(&[words, &["--json", &path]].concat());
        assert_eq!(answer.code, Some(0), "{answer:?}");
        let text = std::fs::read(path).unwrap();
        (answer, serde_json::from_slice(&text).unwrap())
    }

    /// Makes a directory and returns its path.
    pub fn directory(&self, name: &str) -> String {
        let path = self.directory.path().join(name);
        std::fs::create_dir(&path).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// Writes a script that can be executed.
    pub fn executable(&self, name: &str, script: &str) -> String {
        let _guard = FORK.lock();
        let path = self.file(name, script.as_bytes());
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// The smallest file that passes for a static program: a header and one segment without bytes.
    pub fn program(&self) -> String {
        let mut bytes = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
        bytes.extend([2, 0, 62, 0, 1, 0, 0, 0]);
        for word in [0x40_0000u64, 64, 0] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend([0, 0, 0, 0, 64, 0, 56, 0, 1, 0, 64, 0, 0, 0, 0, 0]);
        bytes.extend([1, 0, 0, 0, 5, 0, 0, 0]);
        bytes.resize(64 + 56, 0);
        self.file("program", &bytes)
    }

    /// A file with the marks of a bzImage.
    pub fn linux_image(&self) -> String {
        let mut bytes = vec![0; 4096];
        bytes[0x1fe..0x206].copy_from_slice(b"\x55\xaa\0\0HdrS");
        self.file("vmlinuz", &bytes)
    }

    /// Runs the lab without input and without a terminal.
    pub fn lab(&self, words: &[&str]) -> Answer {
        self.run(&mut Command::new(env!("CARGO_BIN_EXE_lab")), words)
    }

    /// As `lab`, on a host that has no other program.
    pub fn lab_alone(&self, words: &[&str]) -> Answer {
        let mut lab = Command::new(env!("CARGO_BIN_EXE_lab"));
        self.run(lab.env("PATH", self.path()), words)
    }

    /// Starts the lab with variables in its environment.
    pub fn start(&self, words: &[&str], variables: &[(&str, &str)]) -> Child {
        let mut lab = Command::new(env!("CARGO_BIN_EXE_lab"));
        self.spawn(lab.envs(variables.iter().copied()), words)
    }

    pub fn run(&self, lab: &mut Command, words: &[&str]) -> Answer {
        let output = self.spawn(lab, words).wait_with_output().unwrap();
        Answer {
            code: output.status.code(),
            output: String::from_utf8_lossy(&output.stdout).into_owned(),
            errors: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    fn spawn(&self, lab: &mut Command, words: &[&str]) -> Child {
        let _guard = FORK.lock();
        lab.args(words)
            .current_dir(self.path())
            .env("SHOOTDOWN_ROOT", self.path())
            .env_remove("SHOOTDOWN_QEMU")
            .env_remove("SHOOTDOWN_LINUX")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }
}
