//! The rights of this process on this kernel.

use std::io;
use std::path::Path;

/// Where a kernel describes its types.
const BTF: &str = "/sys/kernel/btf/vmlinux";

/// Why no BPF program can be loaded here; `None` when one can.
///
/// It is tried and not guessed: root in a container may be denied what root can do elsewhere.
pub(crate) fn bpf_lacks() -> Option<String> {
    if let Err(error) = make_map() {
        return Some(format!("no right to BPF here ({error}); run as root"));
    }
    (!Path::new(BTF).exists()).then(|| format!("no {BTF}; take a kernel with BTF"))
}

/// Makes a map of a kind that needs the same right as loading a program (`CAP_BPF`), and lets go of it.
fn make_map() -> io::Result<()> {
    const BPF_MAP_CREATE: libc::c_long = 0;
    const BPF_MAP_TYPE_LRU_HASH: u32 = 9;
    /// The beginning of the kernel's `union bpf_attr`, which takes what is left out for zeroes.
    #[repr(C)]
    struct MapAttributes {
        map_type: u32,
        key_size: u32,
        value_size: u32,
        max_entries: u32,
        map_flags: u32,
    }
    let attributes = MapAttributes {
        map_type: BPF_MAP_TYPE_LRU_HASH,
        key_size: 4,
        value_size: 4,
        max_entries: 1,
        map_flags: 0,
    };
    // SAFETY: the kernel reads as many bytes at the pointer as it is told, which are those of a local.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            BPF_MAP_CREATE,
            &raw const attributes,
            size_of::<MapAttributes>(),
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new, and no other code has it.
    unsafe { libc::close(fd as libc::c_int) };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without rights there is a reason; with them, a map. Which of the two holds depends on the machine.
    #[test]
    fn the_answer_is_what_the_kernel_does() {
        let lacks = bpf_lacks();
        assert_eq!(
            lacks.is_none(),
            make_map().is_ok() && Path::new(BTF).exists(),
            "{lacks:?}"
        );
    }
}
