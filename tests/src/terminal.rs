//! Programs on a terminal of their own: what they send it, keys that are typed, and what they leave of its settings.
#![expect(unsafe_code, reason = "openpty(3) and kill(2) have no safe wrapper in std")]

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::patience::patient;

/// A program that runs on a terminal, ended with the test whatever happens.
#[derive(Debug)]
pub struct OnTerminal {
    child: Child,
    master: File,
    /// Held open, so that the terminal outlives the program.
    slave: File,
    sent: Arc<Mutex<Vec<u8>>>,
}

impl OnTerminal {
    /// Starts a command as the foreground job of a new terminal, its standard input, output and error.
    ///
    /// # Panics
    /// When there is no terminal, or the command cannot be started.
    #[must_use]
    pub fn start(command: &Command, columns: u16, rows: u16) -> Self {
        let size = libc::winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        let (mut master, mut slave) = (-1, -1);
        let nothing = std::ptr::null_mut();
        // SAFETY: both places and the size live through the call; neither a name nor settings are asked for.
        let opened = unsafe {
            libc::openpty(&raw mut master, &raw mut slave, nothing, std::ptr::null_mut(), &raw const size)
        };
        assert_eq!(opened, 0, "openpty: {}", std::io::Error::last_os_error());
        // SAFETY: openpty made both for us alone.
        let [master, slave] = [master, slave].map(|fd| File::from(unsafe { OwnedFd::from_raw_fd(fd) }));
        let end = || Stdio::from(slave.try_clone().expect("a descriptor"));
        let mut job = Command::new("setsid");
        // Neither of the two forks, so that the child is the program.
        job.args(["--ctty", "env", "--default-signal=INT,TERM,HUP"]);
        job.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => job.env(name, value),
                None => job.env_remove(name),
            };
        }
        let child = job.stdin(end()).stdout(end()).stderr(end()).spawn().expect("setsid starts");
        let sent = Arc::new(Mutex::new(Vec::new()));
        let (mut reader, into) = (master.try_clone().expect("a descriptor"), Arc::clone(&sent));
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(count @ 1..) = reader.read(&mut piece) {
                into.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&piece[..count]);
            }
        });
        Self { child, master, slave, sent }
    }

    /// All that was sent to the terminal until now.
    #[must_use]
    pub fn sent(&self) -> String {
        String::from_utf8_lossy(&self.sent.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }

    /// Waits until the terminal was sent this.
    ///
    /// # Panics
    /// After twenty seconds ([`patient`]).
    pub fn wait_for(&self, what: &str) {
        let deadline = Instant::now() + patient(Duration::from_secs(20));
        while !self.sent().contains(what) {
            assert!(Instant::now() < deadline, "no {what:?} in {:?}", self.sent());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Types keys.
    ///
    /// # Panics
    /// When the terminal takes none.
    pub fn keys(&mut self, keys: &[u8]) {
        self.master.write_all(keys).expect("keys");
    }

    /// The terminal's settings: input, output, control and local modes.
    ///
    /// # Panics
    /// When it tells none.
    #[must_use]
    pub fn modes(&self) -> [u32; 4] {
        let mut modes = std::mem::MaybeUninit::<libc::termios>::zeroed();
        // SAFETY: the call fills what it is given room for.
        let told = unsafe { libc::tcgetattr(self.slave.as_raw_fd(), modes.as_mut_ptr()) };
        assert_eq!(told, 0, "tcgetattr: {}", std::io::Error::last_os_error());
        // SAFETY: the call succeeded, and zeroes are a value of it in any case.
        let modes = unsafe { modes.assume_init() };
        [modes.c_iflag, modes.c_oflag, modes.c_cflag, modes.c_lflag]
    }

    /// Sends it a signal.
    ///
    /// # Panics
    /// When it is gone.
    pub fn signal(&self, signal: i32) {
        let pid = i32::try_from(self.child.id()).unwrap_or_else(|why| panic!("a pid fits in an i32: {why}"));
        // SAFETY: kill has no effect on memory; the child is not reaped yet, so the id is still its own.
        let sent = unsafe { libc::kill(pid, signal) };
        assert_eq!(sent, 0, "kill: {}", std::io::Error::last_os_error());
    }

    /// Waits for the program's end.
    ///
    /// # Panics
    /// When it lasts longer than twenty seconds ([`patient`]).
    pub fn end(&mut self) -> ExitStatus {
        let deadline = Instant::now() + patient(Duration::from_secs(20));
        loop {
            if let Some(status) = self.child.try_wait().expect("its end") {
                // What it sent last is on its way through the kernel.
                std::thread::sleep(Duration::from_millis(50));
                return status;
            }
            assert!(Instant::now() < deadline, "still running; it sent {:?}", self.sent());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
