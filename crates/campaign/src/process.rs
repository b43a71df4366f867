//! One node's process: it is started, killed, paused and observed here.
//!
//! A node runs in a process group of its own, so that Ctrl-C reaches only the campaign, which then ends its nodes. Its standard input is a
//! pipe to which nothing is written. A node that is started for tests ends when that pipe is closed, even if the campaign itself is killed.
use rustix::process::{Pid, Signal, kill_process};
use std::{
    fs::{self, File},
    io,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
};

/// The arguments of a process.
#[derive(Debug, Clone)]
pub struct Launch {
    /// The program.
    pub program: PathBuf,
    /// The cluster's configuration file.
    pub config: PathBuf,
    /// The node's name.
    pub node: String,
    /// The file to which its log is appended.
    pub log: PathBuf,
    /// The file of its faults.
    pub faults: PathBuf,
}

/// A process that runs until it is dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
}

impl Process {
    /// Starts a process.
    ///
    /// # Errors
    /// If the program is not there or cannot run.
    pub fn start(launch: &Launch) -> io::Result<Process> {
        let log = File::options().create(true).append(true).open(&launch.log)?;
        let child = Command::new(&launch.program)
            .args(["start", "--node", &launch.node])
            .arg("--config")
            .arg(&launch.config)
            .arg("--test-faults")
            .arg(&launch.faults)
            .env("TURNBUCKLE_LOG", "info")
            .stdin(Stdio::piped())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0)
            .spawn()?;
        Ok(Process { child })
    }

    /// The exit status, if it has ended.
    ///
    /// # Errors
    /// If the system cannot tell.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Kills it with `kill -9`, and waits until it is gone.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn kill(&mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(drop)
    }

    /// Pauses it (`SIGSTOP`), or lets it go on.
    ///
    /// # Errors
    /// If it has ended.
    pub fn pause(&self, paused: bool) -> io::Result<()> {
        let signal = if paused { Signal::STOP } else { Signal::CONT };
        let pid = Pid::from_raw(self.child.id() as i32).expect("a process has a number");
        Ok(kill_process(pid, signal)?)
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

/// The resident memory of a process, now and at most, in bytes. Known only on Linux.
pub fn resident_bytes(process: u32) -> Option<Resident> {
    let status = fs::read_to_string(Path::new("/proc").join(process.to_string()).join("status")).ok()?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        let kib: u64 = line.trim().trim_end_matches(" kB").parse().ok()?;
        Some(kib << 10)
    };
    Some(Resident {
        now: field("VmRSS:")?,
        max: field("VmHWM:")?,
    })
}

/// Resident memory in bytes: see [`resident_bytes`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resident {
    /// The resident memory now.
    pub now: u64,
    /// The most resident memory since the process began.
    pub max: u64,
}
