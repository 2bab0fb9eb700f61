//! A handler that reads a file with `std::fs`.
//!
//! The file is a FIFO, behind which a thread delivers the text 10 ms after it was opened: a read of a regular file comes from the
//! page cache, and a synchronised write takes no time on a file system in memory, so that neither blocks on every machine.
//! A FIFO does, as a file of a network file system or a slow disk would.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use morpheus_patients::clock::Stopwatch;
use morpheus_patients::{handler, service};
use rustix::fs::{CWD, Mode, mkfifoat};

/// Reads how the device is.
#[inline(never)]
fn read_status(device: &Path) -> String {
    let status = fs::read_to_string(device); // CULPRIT
    status.unwrap_or_else(|error| format!("unknown: {error}"))
}

async fn report(device: &Path) {
    let stopwatch = Stopwatch::start();
    let status = read_status(device);
    stopwatch.stop();
    handler::answer(status).await;
}

async fn requests(device: PathBuf) {
    loop {
        handler::request().await;
        report(&device).await;
    }
}

/// Delivers to each reader of the file, 10 ms after it has opened it.
fn deliver(device: &Path) {
    // Opening waits for a reader.
    while let Ok(mut file) = OpenOptions::new().write(true).open(device) {
        thread::sleep(Duration::from_millis(10));
        let _ = file.write_all(b"temperature: 21\nfan: off\n");
        drop(file);
        // Until the reader has seen the end and closed the file: else the next one to be served would be the same.
        thread::sleep(Duration::from_millis(10));
    }
}

fn main() -> ExitCode {
    service::run("files", || {
        let directory = tempfile::tempdir()?;
        let mut devices = Vec::new();
        for number in 0..handler::HANDLERS {
            let device = directory.path().join(format!("device-{number}"));
            mkfifoat(CWD, &device, Mode::RUSR | Mode::WUSR)?;
            let path = device.clone();
            let thread = thread::Builder::new().name("device".to_owned());
            thread.spawn(move || deliver(&path))?;
            devices.push(device);
        }
        handler::start(|number| requests(devices[number as usize].clone()));
        Ok(directory)
    })
}
