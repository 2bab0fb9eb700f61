//! One variant in a process of its own: the child that measures, and the parent that waits for it. So the
//! threads, the memory and the slices of one runtime do not affect the next.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};
use std::{process, thread};

use examples::password;
use morpheus_bench::flagged::{self, Program};

use crate::figures::Run;
use crate::load::{Load, Seen, Window};
use crate::options::Options;
use crate::variant::Variant;

/// The time that a child may take beyond its window, for starting, ending and printing.
const GRACE: Duration = Duration::from_secs(20);

/// Measures, prints one line, and ends the process, whatever the state of the runtime.
pub fn main(options: &Options, variant: Variant) -> ! {
    end_with_parent();
    let run = match measure(options, variant) {
        Ok(seen) => Run::new(variant, seen),
        Err(why) => Run::failed(variant, why),
    };
    let line = serde_json::to_string(&run).expect("a plain struct of numbers");
    let printed = writeln!(io::stdout(), "{line}").and_then(|()| io::stdout().flush());
    process::exit(i32::from(printed.is_err()));
}

/// Ends the process when its parent ends. The parent holds the other end of stdin, and the kernel closes it
/// however the parent ends: Ctrl-C and `kill -9` leave no child running.
fn end_with_parent() {
    thread::spawn(|| {
        let _ = io::stdin().read(&mut [0]);
        process::exit(1);
    });
}

fn measure(options: &Options, variant: Variant) -> Result<Seen, String> {
    let hasher = password::hasher(options.passes).map_err(|error| error.to_string())?;
    let started = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| {
        let server = listener.local_addr()?;
        variant.serve(listener, options, hasher)?;
        Ok(server)
    });
    let server = started.map_err(|error| format!("the server does not start: {error}"))?;
    let from = Instant::now() + options.warmup();
    let end = from + options.duration();
    let load = Load::start(server, options.work, options.clients, Window { from, end });
    load.map_err(|error| format!("the clients do not start: {error}"))?
        .finish()
}

/// Measures one variant in a child. It calls `tick` a few times a second meanwhile.
pub fn run(options: &Options, variant: Variant, passes: u32, tick: impl FnMut()) -> Run {
    let outcome = start(options, variant, passes).and_then(|mut child| {
        let line = child.line(options.warmup() + options.duration() + GRACE, tick)?;
        serde_json::from_str(&line).map_err(|_| child.how_it_ended())
    });
    outcome.unwrap_or_else(|why| Run::failed(variant, why))
}

/// A child that ends with this at the latest.
struct Supervised {
    child: Child,
    stdout: Receiver<String>,
}

fn start(options: &Options, variant: Variant, passes: u32) -> Result<Supervised, String> {
    // The link in /proc leads to the running program even after a new build has replaced the file.
    let program = match variant.needs_flag() {
        true => flagged::build(Program::Example("axum_hog"))?,
        false => "/proc/self/exe".into(),
    };
    let child = Command::new(program)
        .arg0("axum_hog")
        .args(options.for_child(variant, passes))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let mut child = child.map_err(|error| format!("cannot start a child process: {error}"))?;
    let pipe = child.stdout.take();
    let (sender, stdout) = mpsc::channel();
    // In a thread, because a read from a pipe has no time limit.
    thread::spawn(move || {
        let mut text = String::new();
        let _ = pipe.map(|mut pipe| pipe.read_to_string(&mut text));
        let _ = sender.send(text);
    });
    Ok(Supervised { child, stdout })
}

impl Supervised {
    /// Returns all that the child prints.
    fn line(&self, limit: Duration, mut tick: impl FnMut()) -> Result<String, String> {
        let deadline = Instant::now() + limit;
        loop {
            match self.stdout.recv_timeout(Duration::from_millis(200)) {
                Ok(text) => return Ok(text),
                Err(_) if Instant::now() < deadline => tick(),
                Err(_) => {
                    let seconds = limit.as_secs();
                    return Err(format!(
                        "no answer within {seconds} s, killed; is the machine busy otherwise?"
                    ));
                }
            }
        }
    }

    /// The reason why a child printed no figures.
    fn how_it_ended(&mut self) -> String {
        match self.child.wait() {
            Ok(status) => format!("no figures, {status}"),
            Err(error) => format!("no figures: {error}"),
        }
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
