// SPDX-License-Identifier: GPL-2.0-only
//! `scx_morpheus start`: the installed systemd unit, where there is one.

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use morpheus_tools::status;

/// The name of the unit in `dist/`.
pub const UNIT: &str = "scx_morpheus.service";
/// Where the unit has its options from.
pub const OPTIONS: &str = "/etc/default/scx_morpheus";
/// A directory that is there while systemd runs the machine (`sd_booted`).
const SYSTEMD_RUNS: &str = "/run/systemd/system";
/// The verifier takes a while with the programs on a slow machine.
const ANSWERS_WITHIN: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Why the unit does not run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// systemd could not be asked.
    #[error("cannot run systemctl: {0}")]
    Systemctl(#[from] io::Error),
    /// systemd refuses; it has said why.
    #[error("systemctl start {UNIT} failed; journalctl -u {UNIT} may say more")]
    Refused,
    /// It was started and has ended.
    #[error("{UNIT} was started and has failed; journalctl -u {UNIT} says why")]
    Failed,
    /// It runs and does not answer.
    #[error("{UNIT} was started, and does not answer at {0}; journalctl -u {UNIT} may say why")]
    Silent(String),
}

/// Whether systemd runs this machine and knows the unit.
#[must_use]
pub fn unit_is_installed() -> bool {
    Path::new(SYSTEMD_RUNS).is_dir() && systemctl(&["cat", UNIT]).is_ok_and(|knows| knows)
}

/// Whether systemd runs the unit, or will at the next boot.
#[must_use]
pub fn unit_is_in_use() -> bool {
    let says = |question| systemctl(&[question, UNIT]).is_ok_and(|yes| yes);
    Path::new(SYSTEMD_RUNS).is_dir() && (says("is-active") || says("is-enabled"))
}

/// Starts the unit and waits until it answers at `socket`.
///
/// # Errors
///
/// When systemd refuses, or the daemon ends or stays silent.
pub fn start_unit(socket: &Path) -> Result<(), Error> {
    // Its own words are for the user.
    if !Command::new("systemctl")
        .args(["start", UNIT])
        .status()?
        .success()
    {
        return Err(Error::Refused);
    }
    let until = Instant::now() + ANSWERS_WITHIN;
    loop {
        if status::ask(socket).is_well() {
            return Ok(());
        }
        if systemctl(&["is-failed", UNIT])? {
            return Err(Error::Failed);
        }
        if Instant::now() > until {
            return Err(Error::Silent(socket.display().to_string()));
        }
        thread::sleep(LOOK_EVERY);
    }
}

/// Asks without a word.
fn systemctl(arguments: &[&str]) -> io::Result<bool> {
    let status = Command::new("systemctl")
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()?;
    Ok(status.success())
}
