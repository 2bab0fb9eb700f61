//! A build or a backup: a fixed amount of text to compress, by a process for each CPU.

use std::io::{BufRead, BufReader, Write};

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
    let pipes = pipes.into_iter();
    let mut pipes: Vec<_> = pipes.map(|(to, from)| (to, BufReader::new(from))).collect();
    for (_, from) in &mut pipes {
        // It says that it is ready.
        line(from)?;
    }
    let begun = monotonic_ns();
    for (to, _) in &mut pipes {
        writeln!(to, "{each}").map_err(|error| format!("a compressor: {error}"))?;
    }
    let mut cpu_ns = 0;
    for (_, from) in &mut pipes {
        let said = line(from)?;
        let own: Result<u64, _> = said.parse();
        cpu_ns += own.map_err(|_| format!("a compressor says {said:?}"))?;
    }
    let wall_ns = monotonic_ns() - begun;
    let count = each * compressors as u64;
    let mut measured = Measured::rate(count * BLOCK as u64, wall_ns);
    measured.count = count;
    measured.cpu_ns = Some(cpu_ns);
    Ok(measured)
}

/// Waits for the next line of a compressor.
fn line(from: &mut impl BufRead) -> Result<String, String> {
    let mut line = String::new();
    match from.read_line(&mut line) {
        Ok(0) => Err("a compressor has ended before its work was done".into()),
        Ok(_) => Ok(line.trim().to_owned()),
        Err(error) => Err(format!("a compressor: {error}")),
    }
}
