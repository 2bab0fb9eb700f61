// SPDX-License-Identifier: GPL-2.0-only
//! `scx_morpheus top` in a terminal of its own: that it draws, and that the terminal is as it was afterwards, however it
//! ends. Needs neither root nor a daemon: it says that there is none.

mod common;

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use common::PATIENCE;
use common::daemon::program;
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Termios, Winsize, tcgetattr, tcsetwinsize};

const ENTER: &str = "\x1b[?1049h";
const LEAVE: &str = "\x1b[?1049l";
const SHOW_CURSOR: &str = "\x1b[?25h";

struct Terminal {
    /// The side of who sits before it.
    keyboard: File,
    screen: Receiver<Vec<u8>>,
    drawn: String,
    /// Kept open, so that its settings can be looked at when the program has ended.
    slave: OwnedFd,
    before: Termios,
    child: Child,
}

fn size(columns: u16, rows: u16) -> Winsize {
    Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}

impl Terminal {
    fn start() -> Terminal {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let slave: OwnedFd = OpenOptions::new()
            .read(true)
            .write(true)
            .open(name.to_str().unwrap())
            .unwrap()
            .into();
        tcsetwinsize(&slave, size(80, 24)).unwrap();
        let before = tcgetattr(&slave).unwrap();
        let own = || slave.try_clone().unwrap();
        let mut command = Command::new(program());
        command
            .args(["top", "--socket", "/nowhere/broker.sock"])
            .env("TERM", "xterm")
            .stdin(own())
            .stdout(own())
            .stderr(own());
        let terminal = own();
        // SAFETY: between fork and exec only system calls are made.
        unsafe {
            command.pre_exec(move || {
                rustix::process::setsid()?;
                rustix::process::ioctl_tiocsctty(&terminal)?;
                Ok(())
            });
        }
        let child = command.spawn().unwrap();
        drop(command);
        let keyboard = File::from(master);
        let (sender, screen) = channel();
        let mut output = keyboard.try_clone().unwrap();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(length @ 1..) = output.read(&mut bytes) {
                if sender.send(bytes[..length].to_vec()).is_err() {
                    return;
                }
            }
        });
        let mut terminal = Terminal {
            keyboard,
            screen,
            drawn: String::new(),
            slave,
            before,
            child,
        };
        terminal.wait_for("NO DAEMON");
        assert!(terminal.drawn.contains(ENTER));
        let now = tcgetattr(&terminal.slave).unwrap();
        assert!(!now.local_modes.contains(LocalModes::ICANON), "raw");
        terminal
    }

    /// Until this was drawn, since it was waited for something the last time.
    fn wait_for(&mut self, text: &str) {
        let until = Instant::now() + PATIENCE;
        while !self.drawn.contains(text) {
            let left = until.saturating_duration_since(Instant::now());
            match self.screen.recv_timeout(left) {
                Ok(bytes) => self.drawn += &String::from_utf8_lossy(&bytes),
                Err(_) => panic!("{text:?} was not drawn, but {:?}", self.drawn),
            }
        }
    }

    fn ends_well(mut self, what: &str) {
        let until = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < until, "{what}: it goes on");
            std::thread::sleep(Duration::from_millis(10));
        };
        assert!(status.success(), "{what}: {status}");
        self.wait_for(LEAVE);
        self.wait_for(SHOW_CURSOR);
        let after = tcgetattr(self.slave.as_fd()).unwrap();
        assert_eq!(after.local_modes, self.before.local_modes, "{what}");
        assert_eq!(after.input_modes, self.before.input_modes, "{what}");
        assert_eq!(after.output_modes, self.before.output_modes, "{what}");
    }
}

#[test]
fn every_way_out_gives_the_terminal_back() {
    for (name, key) in [("q", &b"q"[..]), ("Esc", b"\x1b"), ("Ctrl-C", b"\x03")] {
        let mut terminal = Terminal::start();
        terminal.keyboard.write_all(key).unwrap();
        terminal.ends_well(name);
    }
    for signal in [Signal::TERM, Signal::INT] {
        let terminal = Terminal::start();
        kill_process(Pid::from_child(&terminal.child), signal).unwrap();
        terminal.ends_well(&format!("{signal:?}"));
    }
}

#[test]
fn it_draws_anew_in_another_size_and_answers_keys() {
    let mut terminal = Terminal::start();
    terminal.drawn.clear();
    // The kernel tells it.
    tcsetwinsize(&terminal.slave, size(40, 10)).unwrap();
    // Each cell is drawn for itself where it differs, and blanks do not.
    terminal.wait_for("least");
    terminal.drawn.clear();
    tcsetwinsize(&terminal.slave, size(100, 30)).unwrap();
    terminal.wait_for("Machine");
    terminal.drawn.clear();
    terminal.keyboard.write_all(b"?").unwrap();
    terminal.wait_for("Ctrl-C");
    terminal.keyboard.write_all(b"p").unwrap();
    terminal.wait_for("PAUSED");
    terminal.keyboard.write_all(b"q").unwrap();
    terminal.ends_well("q");
}
