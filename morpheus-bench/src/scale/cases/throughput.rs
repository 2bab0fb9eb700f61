//! A build or a backup: a fixed amount of text to compress, by a process for each CPU.

use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout};

use morpheus_harness::clock::monotonic_ns;

use super::super::child::{Answer, Job};
use super::super::corpus::BLOCK;
use super::super::probes::Probe;
use super::super::result::Measured;

/// Each has the same number of blocks, and all begin together: what counts is when the last one is done.
pub fn measure(job: &Job, for_each_cpu: usize) -> Answer {
    let blocks = job.blocks_per_s * job.duration().as_secs_f64() / for_each_cpu as f64;
    let each = blocks.ceil().max(1.0) as u64;
    let compressors = for_each_cpu * job.cpus;
    let (_processes, pipes) = Probe::Compress.start_piped(compressors)?;
    let worker = |(to, from)| Worker {
        to,
        from: BufReader::new(from),
    };
    let mut workers: Vec<Worker> = pipes.into_iter().map(worker).collect();
    for worker in &mut workers {
        // It says that it is ready.
        worker.line()?;
    }
    let begun = monotonic_ns();
    for worker in &mut workers {
        writeln!(worker.to, "{each}").map_err(|error| format!("a compressor: {error}"))?;
    }
    let mut cpu_ns = 0;
    for worker in &mut workers {
        cpu_ns += worker.cpu_ns()?;
    }
    let wall_ns = monotonic_ns() - begun;
    let count = each * compressors as u64;
    let mut measured = Measured::rate(count * BLOCK as u64, wall_ns);
    measured.count = count;
    measured.cpu_ns = Some(cpu_ns);
    Ok(measured)
}

/// The pipes to a compressor.
struct Worker {
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Worker {
    fn line(&mut self) -> Result<String, String> {
        let mut line = String::new();
        match self.from.read_line(&mut line) {
            Ok(0) => Err("a compressor has ended before its work was done".into()),
            Ok(_) => Ok(line.trim().to_owned()),
            Err(error) => Err(format!("a compressor: {error}")),
        }
    }

    /// Waits for its end.
    fn cpu_ns(&mut self) -> Result<u64, String> {
        let line = self.line()?;
        line.parse()
            .map_err(|_| format!("a compressor says {line:?}"))
    }
}
