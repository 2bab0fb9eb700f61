//! Reads the guest's two serial lines: what the kernel prints, and the command's output with what `/init` says between.

/// Begins every line of `/init` that is meant for this program. No command prints it by accident.
pub(super) const MARK: &str = "@xtask-vm-c0b7d1e94a52@";

/// The meaning of a line of the kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A warning with a trace, an oops, a panic, a stall; a scheduler that was thrown out.
    Complaint,
    /// The emulator's own fault, where its virtual CPUs run in threads of their own: it ran a patched instruction's old
    /// translation. A complaint too; another boot may do without.
    StaleTranslation,
    /// A notice of sched_ext: a scheduler was enabled, or disabled because its program asked for that.
    SchedExt,
    /// The next scheduler that stalls is meant to, says a test, or that this is over.
    Foretold(bool),
    Other,
}

/// The kernel's complaints begin like this. Schedulers that had to go have a line of their own below.
const COMPLAINTS: &[&str] = &[
    "WARNING: ",
    "BUG: ",
    "kernel BUG at ",
    "Oops",
    "general protection fault",
    "Kernel panic",
    "INFO: task ",
    "INFO: rcu",
    "rcu: INFO: rcu",
    "watchdog: BUG",
    "watchdog: Watchdog detected",
    "UBSAN: ",
    "Out of memory: ",
];

/// Why a scheduler ended that was not ejected: its program unregistered it, or a user asked for it (SysRq).
const ORDERLY: &[&str] = &[
    "(unregistered from user space)",
    "(unregistered from BPF)",
    "(unregistered from the main kernel)",
    "(disabled by sysrq-S)",
];

/// The line that a test writes to `/dev/kmsg`, as an error, before it makes a scheduler stall, or fail.
const FORETOLD: &str = "vm: a stall is meant";
const OVER: &str = "vm: no stall is meant";

/// Whether a complaint is what [`Kind::Foretold`] is about.
pub(super) fn is_stall(line: &str) -> bool {
    let ejected = ["(runnable task stall)", "(scx_bpf_error)"]
        .iter()
        .any(|reason| line.contains(reason));
    message(line).starts_with("sched_ext: ") && ejected
}

/// Classifies a line of the kernel's.
pub(super) fn kind(line: &str) -> Kind {
    let message = message(line);
    if message.starts_with("Oops: int3") {
        Kind::StaleTranslation
    } else if message.starts_with(FORETOLD) {
        Kind::Foretold(true)
    } else if message.starts_with(OVER) {
        Kind::Foretold(false)
    } else if COMPLAINTS.iter().any(|start| message.starts_with(start)) {
        Kind::Complaint
    } else if message.starts_with("sched_ext: ") {
        let thrown_out = message.contains("\" disabled (")
            && !ORDERLY.iter().any(|reason| message.contains(reason));
        if thrown_out {
            Kind::Complaint
        } else {
            Kind::SchedExt
        }
    } else {
        Kind::Other
    }
}

/// Whether a line shows a register's content that no CPU has: bits of EFLAGS that are always 0, or the one that is always 1.
/// Then the emulator has lost its way, and not the kernel.
pub(super) fn is_impossible(line: &str) -> bool {
    /// 3, 5, 15, and all from 22 on.
    const ALWAYS_0: u32 = 0xffc0_8028;
    const ALWAYS_1: u32 = 0x2;
    let flags = message(line)
        .split_once("EFLAGS: ")
        .and_then(|(_, rest)| rest.get(..8))
        .and_then(|word| u32::from_str_radix(word, 16).ok());
    flags.is_some_and(|flags| flags & ALWAYS_0 != 0 || flags & ALWAYS_1 == 0)
}

/// The line without what stands before it in brackets: the time, and the task or CPU that printed it.
fn message(line: &str) -> &str {
    let mut rest = line.trim_start();
    while let Some((_, after)) = rest
        .strip_prefix('[')
        .and_then(|inside| inside.split_once(']'))
    {
        rest = after.trim_start();
    }
    rest
}

/// The line without control characters: a kernel that prints garbage moves no cursor.
pub(super) fn printable(line: &str) -> String {
    line.chars()
        .filter(|character| !character.is_control())
        .collect()
}

/// A message of `/init`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// The command runs now, under this choice of preemption modes.
    Ready(String),
    /// It does not run, for this reason.
    Refused(String),
    /// It has ended with this exit code.
    Exit(u8),
}

impl Word {
    fn parse(line: &str) -> Option<Word> {
        let (word, value) = line.trim().split_once(' ').unwrap_or((line.trim(), ""));
        match word {
            "ready" => Some(Word::Ready(value.to_string())),
            "refused" => Some(Word::Refused(value.to_string())),
            "exit" => value.parse().ok().map(Word::Exit),
            _ => None,
        }
    }
}

/// Separates the command's output from the words of `/init`.
#[derive(Debug, Default)]
pub(super) struct Separator {
    /// Bytes that came and cannot be judged yet: they may be the start of a word.
    held: Vec<u8>,
}

impl Separator {
    pub(super) fn add(
        &mut self,
        chunk: &[u8],
        on_output: &mut dyn FnMut(&[u8]),
        on_word: &mut dyn FnMut(Word),
    ) {
        self.held.extend_from_slice(chunk);
        // `/init` puts a line end before its mark, so that the mark begins a line whatever the command printed last.
        let start = format!("\n{MARK} ").into_bytes();
        while let Some(at) = find(&self.held, &start) {
            let line_at = at + start.len();
            let Some(length) = find(&self.held[line_at..], b"\n") else {
                on_output(&self.held[..at]);
                self.held.drain(..at);
                return;
            };
            let line = String::from_utf8_lossy(&self.held[line_at..line_at + length]);
            match Word::parse(&line) {
                Some(word) => {
                    on_output(&self.held[..at]);
                    on_word(word);
                }
                None => on_output(&self.held[..=line_at + length]),
            }
            self.held.drain(..=line_at + length);
        }
        let undecided = (0..start.len().min(self.held.len() + 1))
            .rev()
            .find(|&length| self.held.ends_with(&start[..length]))
            .unwrap_or(0);
        let decided = self.held.len() - undecided;
        on_output(&self.held[..decided]);
        self.held.drain(..decided);
    }

    /// Nothing more comes: what was held is output.
    pub(super) fn end(&mut self, on_output: &mut dyn FnMut(&[u8])) {
        on_output(&self.held);
        self.held.clear();
    }
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes
        .windows(wanted.len())
        .position(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complaints_of_the_kernel() {
        for line in [
            "[    4.123456] WARNING: CPU: 0 PID: 1 at kernel/sched/ext.c:42 f+0x1/0x2",
            "[    4.123456][   T42] WARNING: kernel/sched/ext.c:42 at f+0x1/0x2, CPU#0: sh/42",
            "[    4.1] BUG: kernel NULL pointer dereference, address: 0000000000000000",
            "[    4.1] watchdog: BUG: soft lockup - CPU#1 stuck for 22s! [hog:77]",
            "[    4.1] Oops: general protection fault, probably for non-canonical address: 0000 [#1] SMP",
            "[    4.1] Kernel panic - not syncing: sysrq triggered crash",
            "[    4.1] rcu: INFO: rcu_preempt self-detected stall on CPU",
            "[    4.1] INFO: task sh:77 blocked for more than 120 seconds.",
            "[    4.1] sched_ext: BPF scheduler \"simple\" disabled (runnable task stall)",
            "[    4.1] sched_ext: BPF scheduler \"simple\" disabled (runtime error)",
            "[    4.1] sched_ext: BPF scheduler \"simple\" disabled (scx_bpf_error)",
            "Kernel panic - not syncing: VFS",
        ] {
            assert_eq!(kind(line), Kind::Complaint, "{line}");
        }
    }

    #[test]
    fn a_stall_can_be_foretold() {
        assert_eq!(kind("[    4.1] vm: a stall is meant"), Kind::Foretold(true));
        assert_eq!(
            kind("[    4.1] vm: no stall is meant"),
            Kind::Foretold(false)
        );
        let stall = "[    4.2] sched_ext: BPF scheduler \"simple\" disabled (runnable task stall)";
        assert!(is_stall(stall));
        let error = "[    4.2] sched_ext: BPF scheduler \"simple\" disabled (scx_bpf_error)";
        assert!(is_stall(error));
        assert!(!is_stall("[    4.2] BUG: (runnable task stall)"));
    }

    #[test]
    fn what_is_no_complaint() {
        for reason in ORDERLY {
            let line = format!("[    4.1] sched_ext: BPF scheduler \"simple\" disabled {reason}");
            assert_eq!(kind(&line), Kind::SchedExt, "{line}");
        }
        assert_eq!(
            kind("[    4.1] sched_ext: BPF scheduler \"WARNING: x\" enabled"),
            Kind::SchedExt
        );
        for line in [
            "[    4.1] Linux version 6.18.15+deb13-cloud-amd64",
            "[    4.1] unchecked MSR access error: RDMSR from 0x852",
            "[    4.1] app: WARNING: not the kernel's",
            "",
            "[",
            "[    4.1",
        ] {
            assert_eq!(kind(line), Kind::Other, "{line}");
        }
    }

    #[test]
    fn the_one_fault_of_the_emulator() {
        let line = "[    9.5] Oops: int3: 0000 [#1] SMP NOPTI";
        assert_eq!(kind(line), Kind::StaleTranslation);
        assert_eq!(kind("[    9.5] Oops: 0002 [#1] SMP NOPTI"), Kind::Complaint);
    }

    #[test]
    fn what_no_cpu_has_in_its_flags() {
        let line = |flags: &str| format!("[   48.2] RSP: 0018:ff6dc954c449fd60 EFLAGS: {flags}");
        for flags in ["00010246", "00000002", "00250286"] {
            assert!(!is_impossible(&line(flags)), "{flags}");
        }
        for flags in ["c1b3d682", "00000000", "00000008"] {
            assert!(is_impossible(&line(flags)), "{flags}");
        }
        assert!(!is_impossible("[   48.2] RIP: 0010:f+0xdd/0x6f0"));
        assert!(!is_impossible("EFLAGS: none"));
    }

    fn separate(chunks: &[&[u8]]) -> (String, Vec<Word>) {
        let mut separator = Separator::default();
        let (mut output, mut words) = (Vec::new(), Vec::new());
        for chunk in chunks {
            separator.add(
                chunk,
                &mut |bytes| output.extend_from_slice(bytes),
                &mut |word| words.push(word),
            );
        }
        separator.end(&mut |bytes| output.extend_from_slice(bytes));
        (String::from_utf8(output).unwrap(), words)
    }

    #[test]
    fn words_are_taken_out_of_the_output_wherever_it_is_cut() {
        let all = format!(
            "\n{MARK} ready none voluntary full (lazy)\none\n\ntwo \n{MARK} exit 3\nlate\n"
        );
        let expected = (
            "one\n\ntwo late\n".to_string(),
            vec![
                Word::Ready("none voluntary full (lazy)".to_string()),
                Word::Exit(3),
            ],
        );
        for size in 1..all.len() {
            let chunks: Vec<&[u8]> = all.as_bytes().chunks(size).collect();
            assert_eq!(separate(&chunks), expected, "in chunks of {size}");
        }
    }

    #[test]
    fn what_only_looks_like_a_word_is_output() {
        for text in [
            format!("{MARK} exit 3\n"),
            format!("\n{MARK} exit many\n"),
            format!("\n{MARK} exit 3"),
            format!("\n{}", &MARK[..5]),
        ] {
            assert_eq!(separate(&[text.as_bytes()]), (text, Vec::new()));
        }
    }

    #[test]
    fn output_is_not_held_longer_than_needed() {
        let mut separator = Separator::default();
        let mut output = Vec::new();
        separator.add(
            b"a prompt> ",
            &mut |bytes| output.extend_from_slice(bytes),
            &mut |_| {},
        );
        assert_eq!(output, b"a prompt> ");
    }
}
