//! Standard output as a pipe whose reader is slow.

use std::fs::File;
use std::io::{self, Read};
use std::thread;
use std::time::Duration;

/// The smallest pipe that Linux makes: a page.
const CAPACITY: usize = 4096;
/// From one page that the reader takes to the next.
const PAUSE: Duration = Duration::from_millis(1);

/// Makes standard output a pipe of 4 KiB. A thread empties it at the speed of a page in at least a millisecond, so that a line of
/// N pages takes its writer at least N - 2 ms. The bytes read are dropped.
///
/// # Errors
/// There are no more file descriptors or threads, or the pipe cannot be made that small.
pub fn slow_stdout() -> io::Result<()> {
    let (read_end, write_end) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    rustix::pipe::fcntl_setpipe_size(&write_end, CAPACITY)?;
    rustix::stdio::dup2_stdout(&write_end)?;
    let mut reader = File::from(read_end);
    let read = move || {
        let mut page = [0; CAPACITY];
        while reader.read(&mut page).is_ok_and(|length| length > 0) {
            thread::sleep(PAUSE);
        }
    };
    thread::Builder::new()
        .name("reader".to_owned())
        .spawn(read)?;
    Ok(())
}
