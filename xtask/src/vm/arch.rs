//! The kinds of machine that a guest can be, and where each is another one.

use clap::ValueEnum;

use crate::tools::Tool;

/// A kind of machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Arch {
    /// As this machine is: it runs programs of this machine
    #[value(name = "x86_64")]
    X86_64,
    /// A foreign one: it runs what was built for it
    #[value(name = "aarch64")]
    Aarch64,
}

impl Arch {
    /// As Linux calls it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Arch::X86_64 => "x86_64",
            Arch::Aarch64 => "aarch64",
        }
    }

    /// As Debian calls it.
    pub(super) fn debian(self) -> &'static str {
        match self {
            Arch::X86_64 => "amd64",
            Arch::Aarch64 => "arm64",
        }
    }

    /// The tools that a guest needs on this machine.
    pub(super) fn tools(self) -> &'static [Tool] {
        match self {
            Arch::X86_64 => &[Tool::Qemu, Tool::Busybox],
            // Of the compiler its linker's tools.
            Arch::Aarch64 => &[Tool::QemuAarch64, Tool::GccAarch64],
        }
    }

    /// The emulator.
    pub(super) fn qemu(self) -> Tool {
        match self {
            Arch::X86_64 => Tool::Qemu,
            Arch::Aarch64 => Tool::QemuAarch64,
        }
    }

    /// Behind the names of what is fetched for it. The usual machine's have none.
    pub(super) fn suffix(self) -> &'static str {
        match self {
            Arch::X86_64 => "",
            Arch::Aarch64 => "-aarch64",
        }
    }

    /// The smallest flavour of Debian's kernels. It has all that a guest here needs built in.
    pub(super) fn flavour(self) -> &'static str {
        match self {
            Arch::X86_64 => "-cloud-amd64",
            Arch::Aarch64 => "-cloud-arm64",
        }
    }

    /// The serial line that the kernel prints to, as it calls it.
    pub(super) fn kernel_line(self) -> &'static str {
        match self {
            Arch::X86_64 => "ttyS0",
            Arch::Aarch64 => "ttyAMA0",
        }
    }

    /// The serial line that takes the command's output.
    pub(super) fn command_line(self) -> &'static str {
        match self {
            Arch::X86_64 => "ttyS1",
            Arch::Aarch64 => "ttyS0",
        }
    }

    /// QEMU's arguments for the machine, and for the line of the command, whose other end is called `command`.
    pub(super) fn machine(self) -> &'static [&'static str] {
        match self {
            Arch::X86_64 => &["-serial", "chardev:command"],
            // Its board has one line.
            Arch::Aarch64 => &["-machine", "virt", "-device", "pci-serial,chardev=command"],
        }
    }

    /// Names a program of the linker's tools.
    pub(super) fn binutils(self, program: &str) -> String {
        match self {
            Arch::X86_64 => program.to_string(),
            Arch::Aarch64 => format!("aarch64-linux-gnu-{program}"),
        }
    }
}
