//! How large the caches are, which CPUs share them, and which sizes are worth measuring.

use std::fs;
use std::path::Path;

use morpheus_harness::host;
use serde::Serialize;

use crate::cpus;

/// The caches of one CPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Geometry {
    /// The first-level data cache.
    pub l1_bytes: usize,
    /// The second-level cache.
    pub l2_bytes: usize,
    /// A line, which caches pass on as a whole.
    pub line_bytes: usize,
}

/// One directory of `cache/`, as far as the kernel fills it.
struct Index {
    level: usize,
    bytes: Option<usize>,
    line_bytes: Option<usize>,
    shared: Vec<usize>,
}

/// The data caches of a CPU. `root` is `/sys/devices/system/cpu`.
fn indices(root: &Path, cpu: usize) -> Vec<Index> {
    let index = |entry: fs::DirEntry| {
        let read = |name: &str| host::line(entry.path().join(name));
        if read("type")? == "Instruction" {
            return None;
        }
        Some(Index {
            level: read("level")?.parse().ok()?,
            bytes: read("size").and_then(|text| bytes(&text)),
            line_bytes: read("coherency_line_size").and_then(|text| text.parse().ok()),
            shared: read("shared_cpu_list")
                .and_then(|text| cpus::listed(&text))
                .unwrap_or_default(),
        })
    };
    let directory = fs::read_dir(root.join(format!("cpu{cpu}/cache")));
    let entries = directory.into_iter().flatten().flatten();
    entries.filter_map(index).collect()
}

/// A size as the kernel writes it: `48K`.
fn bytes(text: &str) -> Option<usize> {
    let kib: usize = text.strip_suffix('K')?.parse().ok()?;
    kib.checked_mul(1 << 10).filter(|bytes| *bytes > 0)
}

impl Geometry {
    /// Reads what the kernel says of a CPU; common sizes are assumed where it does not, and noted. `root` is
    /// `/sys/devices/system/cpu`.
    pub fn read(root: &Path, cpu: usize, notes: &mut Vec<String>) -> Self {
        let indices = indices(root, cpu);
        let bytes = |level| {
            let mut of_level = indices.iter().filter(|index| index.level == level);
            of_level.find_map(|index| index.bytes)
        };
        let mut lines = indices.iter().filter_map(|index| index.line_bytes);
        let line = lines.find(|bytes| bytes.is_power_of_two() && (16..=1024).contains(bytes));
        let mut assume = |what: &str, said: Option<usize>, assumed: usize| {
            said.unwrap_or_else(|| {
                notes.push(format!(
                    "The kernel does not say how large {what} is: {assumed} bytes are assumed."
                ));
                assumed
            })
        };
        Self {
            l1_bytes: assume("the L1 data cache", bytes(1), 32 << 10),
            l2_bytes: assume("the L2 cache", bytes(2), 1 << 20),
            line_bytes: assume("a cache line", line, 64),
        }
    }

    /// Half of L1, then from L1 doubled until L2, L2, and twice that.
    pub fn sizes(&self) -> Vec<usize> {
        let mut sizes = vec![self.l1_bytes / 2];
        let doubled = std::iter::successors(Some(self.l1_bytes), |bytes| bytes.checked_mul(2));
        sizes.extend(doubled.take_while(|bytes| *bytes < self.l2_bytes));
        sizes.extend([self.l2_bytes, 2 * self.l2_bytes]);
        sizes.dedup();
        sizes
    }
}

/// Whether two CPUs share their second-level cache (or the first, as hyperthreads do), so that nothing of it must be
/// refilled between them. `root` is `/sys/devices/system/cpu`.
pub fn share_l2(root: &Path, a: usize, b: usize) -> bool {
    indices(root, a)
        .iter()
        .any(|index| index.level <= 2 && index.shared.contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree like the kernel's, removed with the value.
    struct Tree(std::path::PathBuf);

    impl Tree {
        fn new(name: &str, files: &[(&str, &str)]) -> Self {
            let root = std::env::temp_dir().join(format!("overhead-{name}-{}", std::process::id()));
            for (path, text) in files {
                let path = root.join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            Self(root)
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn what_the_kernel_says_is_taken() {
        let tree = Tree::new(
            "said",
            &[
                ("cpu0/cache/index0/type", "Data\n"),
                ("cpu0/cache/index0/level", "1\n"),
                ("cpu0/cache/index0/size", "48K\n"),
                ("cpu0/cache/index0/coherency_line_size", "128\n"),
                ("cpu0/cache/index0/shared_cpu_list", "0,4\n"),
                ("cpu0/cache/index1/type", "Instruction\n"),
                ("cpu0/cache/index1/level", "1\n"),
                ("cpu0/cache/index1/size", "32K\n"),
                ("cpu0/cache/index2/type", "Unified\n"),
                ("cpu0/cache/index2/level", "2\n"),
                ("cpu0/cache/index2/size", "2048K\n"),
                ("cpu0/cache/index2/shared_cpu_list", "0-1,4\n"),
                ("cpu0/cache/index3/type", "Unified\n"),
                ("cpu0/cache/index3/level", "3\n"),
                ("cpu0/cache/index3/shared_cpu_list", "0-7\n"),
            ],
        );
        let mut notes = Vec::new();
        let geometry = Geometry::read(&tree.0, 0, &mut notes);
        let expected = (48 << 10, 2 << 20, 128);
        assert_eq!(
            (geometry.l1_bytes, geometry.l2_bytes, geometry.line_bytes),
            expected
        );
        assert!(notes.is_empty());
        assert!(share_l2(&tree.0, 0, 1) && share_l2(&tree.0, 0, 4) && !share_l2(&tree.0, 0, 2));
    }

    #[test]
    fn what_it_does_not_say_is_assumed_and_noted() {
        let mut notes = Vec::new();
        let geometry = Geometry::read(Path::new("/nowhere"), 0, &mut notes);
        assert_eq!((geometry.l1_bytes, geometry.line_bytes), (32 << 10, 64));
        assert_eq!(notes.len(), 3);
        assert!(!share_l2(Path::new("/nowhere"), 0, 1));
        let tree = Tree::new(
            "half",
            &[
                ("cpu3/cache/index0/type", "Data\n"),
                ("cpu3/cache/index0/level", "1\n"),
                ("cpu3/cache/index0/size", "64K\n"),
                ("cpu3/cache/index0/coherency_line_size", "0\n"),
            ],
        );
        let mut notes = Vec::new();
        let geometry = Geometry::read(&tree.0, 3, &mut notes);
        assert_eq!((geometry.l1_bytes, geometry.line_bytes), (64 << 10, 64));
        assert_eq!(notes.len(), 2);
    }

    #[test]
    fn sizes_go_from_l1_to_past_l2() {
        let sizes = |l1_bytes, l2_bytes| {
            let geometry = Geometry {
                l1_bytes,
                l2_bytes,
                line_bytes: 64,
            };
            geometry
                .sizes()
                .iter()
                .map(|bytes| bytes >> 10)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            sizes(48 << 10, 1 << 20),
            [24, 48, 96, 192, 384, 768, 1024, 2048]
        );
        assert_eq!(sizes(32 << 10, 256 << 10), [16, 32, 64, 128, 256, 512]);
    }

    #[test]
    fn sizes_are_read_as_the_kernel_writes_them() {
        let sizes = ["48K", "1024K"].map(bytes);
        assert_eq!(sizes, [Some(48 << 10), Some(1 << 20)]);
        assert_eq!(
            ["", "K", "0K", "many", "99999999999999999999K"].map(bytes),
            [None; 5]
        );
    }
}
