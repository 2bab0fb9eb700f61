//! The last events of the kernel's schedulers, kept for when a sched_ext scheduler is thrown out.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::Path;

use super::tracing::Instance;

/// Of each CPU the last events that fit into this are kept.
const BUFFER_KIB: u32 = 2_048;
/// Which tasks ran and which tasks woke.
const EVENTS: [&str; 2] = ["sched/sched_switch", "sched/sched_wakeup"];
/// The lines of the kernel's dump of a scheduler that it throws out. Not every kernel has them.
const DUMP: &str = "sched_ext/sched_ext_dump";
/// The mark of such a line in the capture.
const DUMP_MARK: &str = "sched_ext_dump: ";

/// A capture that goes on as long as this lives.
#[derive(Debug)]
pub struct Capture {
    instance: Instance,
}

impl Capture {
    /// Begins. `tracing` is [`super::tracing::DIRECTORY`].
    ///
    /// # Errors
    /// When the kernel's tracing cannot be used, with what to do about it.
    pub fn start(tracing: &Path) -> Result<Self, String> {
        let instance = Instance::new(tracing, "scale")?;
        instance.set("buffer_size_kb", &BUFFER_KIB.to_string())?;
        for event in EVENTS {
            instance.set(&format!("events/{event}/enable"), "1")?;
        }
        // Without it there is a capture still, and the end of the scheduler is in its message.
        let _ = instance.set(&format!("events/{DUMP}/enable"), "1");
        instance.set("tracing_on", "1")?;
        Ok(Self { instance })
    }

    /// Ends it and writes `NAME.trace`, the events, `NAME.dump`, what the kernel said of the scheduler, and `NAME.txt`, why it
    /// was written, into a directory that is made where it is missing. Says how many events there are.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn save(&self, directory: &Path, name: &str, why: &str) -> Result<u64, String> {
        self.instance.set("tracing_on", "0")?;
        self.copy(directory, name, why).map_err(|error| {
            format!(
                "the capture cannot be saved in {}: {error}",
                directory.display()
            )
        })
    }

    fn copy(&self, directory: &Path, name: &str, why: &str) -> io::Result<u64> {
        fs::create_dir_all(directory)?;
        let file = |ending: &str| directory.join(format!("{name}.{ending}"));
        fs::write(file("txt"), format!("{why}\n"))?;
        let mut events = BufWriter::new(File::create(file("trace"))?);
        let mut dump = BufWriter::new(File::create(file("dump"))?);
        let mut trace = BufReader::new(File::open(self.instance.file("trace"))?);
        let (mut count, mut line) = (0, Vec::new());
        // By bytes: names of tasks may be anything.
        while trace.read_until(b'\n', &mut line)? > 0 {
            events.write_all(&line)?;
            count += u64::from(!line.starts_with(b"#"));
            let text = String::from_utf8_lossy(&line);
            if let Some((_, said)) = text.split_once(DUMP_MARK) {
                dump.write_all(said.as_bytes())?;
            }
            line.clear();
        }
        events.flush()?;
        dump.flush()?;
        Ok(count)
    }
}

/// A file's name for some words: what is no letter, digit or dash becomes one.
pub fn file_name(words: &str) -> String {
    words.replace(|c: char| !c.is_ascii_alphanumeric(), "-")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory with the files that the kernel makes by itself.
    fn capture(name: &str) -> Capture {
        let instance = std::env::temp_dir().join(format!("capture-{name}-{}", std::process::id()));
        for event in EVENTS.iter().chain([&DUMP]) {
            fs::create_dir_all(instance.join("events").join(event)).unwrap();
        }
        Capture {
            instance: Instance::at(instance),
        }
    }

    #[test]
    fn events_and_the_dump_are_kept_apart() {
        let capture = capture("save");
        let trace = b"# tracer: nop\n  a-1 [000] 1.0: sched_switch: x\n  b-2 [001] 1.1: sched_ext_dump: CPU 1 is stuck\n \xff";
        fs::write(capture.instance.file("trace"), trace).unwrap();
        let to = capture.instance.file("saved");
        assert_eq!(capture.save(&to, "one", "thrown out").unwrap(), 3);
        let read = |ending: &str| fs::read(to.join(format!("one.{ending}"))).unwrap();
        assert_eq!(read("trace"), trace);
        assert_eq!(read("dump"), b"CPU 1 is stuck\n");
        assert_eq!(read("txt"), b"thrown out\n");
        let off = fs::read_to_string(capture.instance.file("tracing_on")).unwrap();
        assert_eq!(off, "0", "nothing more is written while it is read");
        fs::remove_dir_all(capture.instance.file("")).unwrap();
    }

    #[test]
    fn without_tracing_it_says_what_is_missing() {
        let error = Capture::start(Path::new("/nonexistent")).unwrap_err();
        assert!(error.contains("is tracefs mounted"), "{error}");
        assert_eq!(
            file_name("morpheus --off kick, 2"),
            "morpheus---off-kick--2"
        );
    }
}
