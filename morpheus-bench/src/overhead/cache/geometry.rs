//! How large the caches are, which CPUs share them, and which sizes are worth measuring.

use std::fs;
use std::path::Path;

use serde::Serialize;

/// Common sizes, assumed where the kernel does not say.
const ASSUMED: (usize, usize, usize) = (32 << 10, 1 << 20, 64);

/// The caches of one CPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Geometry {
    /// The first-level data cache.
    pub l1_bytes: usize,
    /// The second-level cache.
    pub l2_bytes: usize,
    /// A line, which caches pass on as a whole.
    pub line_bytes: usize,
    /// Sizes that the kernel did not say and are assumed.
    #[serde(skip)]
    pub notes: Vec<String>,
}

/// One directory of `cache/`.
struct Index {
    level: usize,
    bytes: usize,
    line_bytes: Option<usize>,
    shared: Vec<usize>,
}

/// The data caches of a CPU. `root` is `/sys/devices/system/cpu`.
fn indices(root: &Path, cpu: usize) -> Vec<Index> {
    let Ok(directory) = fs::read_dir(root.join(format!("cpu{cpu}/cache"))) else {
        return Vec::new();
    };
    let read = |path: &Path, name: &str| fs::read_to_string(path.join(name)).ok();
    directory
        .flatten()
        .filter_map(|entry| {
            let path = entry.path();
            if read(&path, "type")?.trim() == "Instruction" {
                return None;
            }
            Some(Index {
                level: read(&path, "level")?.trim().parse().ok()?,
                // Without a size it still tells who shares it.
                bytes: read(&path, "size")
                    .and_then(|text| size(&text))
                    .unwrap_or(0),
                line_bytes: read(&path, "coherency_line_size")
                    .and_then(|text| text.trim().parse().ok()),
                shared: read(&path, "shared_cpu_list").map_or(Vec::new(), |text| list(&text)),
            })
        })
        .collect()
}

/// `48K`, `1M`, or bytes.
fn size(text: &str) -> Option<usize> {
    let text = text.trim();
    let (digits, shift) = match text.as_bytes().last()? {
        b'K' => (&text[..text.len() - 1], 10),
        b'M' => (&text[..text.len() - 1], 20),
        b'G' => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    digits.parse::<usize>().ok()?.checked_mul(1 << shift)
}

/// A kernel's list of CPUs: `0-3,8`. Parts that are not understood are left out.
fn list(text: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse::<usize>().ok()?..=last.parse::<usize>().ok()?)
    };
    text.trim().split(',').filter_map(range).flatten().collect()
}

impl Geometry {
    /// Reads what the kernel says of a CPU. `root` is `/sys/devices/system/cpu`.
    pub fn read(root: &Path, cpu: usize) -> Self {
        let indices = indices(root, cpu);
        let bytes = |level| {
            let of_level = indices
                .iter()
                .find(|index| index.level == level && index.bytes > 0);
            of_level.map(|index| index.bytes)
        };
        let line = indices
            .iter()
            .filter_map(|index| index.line_bytes)
            .find(|bytes| bytes.is_power_of_two() && (16..=1024).contains(bytes));
        let mut notes = Vec::new();
        let mut assume = |what: &str, said: Option<usize>, assumed: usize| {
            said.unwrap_or_else(|| {
                notes.push(format!(
                    "The kernel does not say how large {what} is: {assumed} bytes are assumed."
                ));
                assumed
            })
        };
        Self {
            l1_bytes: assume("the L1 data cache", bytes(1), ASSUMED.0),
            l2_bytes: assume("the L2 cache", bytes(2), ASSUMED.1),
            line_bytes: assume("a cache line", line, ASSUMED.2),
            notes,
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
                ("cpu0/cache/index2/size", "2M\n"),
                ("cpu0/cache/index2/shared_cpu_list", "0-1,4\n"),
                ("cpu0/cache/index3/type", "Unified\n"),
                ("cpu0/cache/index3/level", "3\n"),
                ("cpu0/cache/index3/shared_cpu_list", "0-7\n"),
            ],
        );
        let geometry = Geometry::read(&tree.0, 0);
        let expected = (48 << 10, 2 << 20, 128);
        assert_eq!(
            (geometry.l1_bytes, geometry.l2_bytes, geometry.line_bytes),
            expected
        );
        assert!(geometry.notes.is_empty());
        assert!(share_l2(&tree.0, 0, 1) && share_l2(&tree.0, 0, 4) && !share_l2(&tree.0, 0, 2));
    }

    #[test]
    fn what_it_does_not_say_is_assumed_and_noted() {
        let geometry = Geometry::read(Path::new("/nowhere"), 0);
        assert_eq!((geometry.l1_bytes, geometry.line_bytes), (32 << 10, 64));
        assert_eq!(geometry.notes.len(), 3);
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
        let geometry = Geometry::read(&tree.0, 3);
        assert_eq!((geometry.l1_bytes, geometry.line_bytes), (64 << 10, 64));
        assert_eq!(geometry.notes.len(), 2);
    }

    #[test]
    fn sizes_go_from_l1_to_past_l2() {
        let sizes = |l1_bytes, l2_bytes| {
            let geometry = Geometry {
                l1_bytes,
                l2_bytes,
                line_bytes: 64,
                notes: Vec::new(),
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
    fn sizes_and_lists_are_read_as_the_kernel_writes_them() {
        assert_eq!(
            [size("48K\n"), size("1M"), size("512")],
            [Some(48 << 10), Some(1 << 20), Some(512)]
        );
        assert_eq!([size(""), size("K"), size("many")], [None; 3]);
        assert_eq!(size("99999999999999999999G"), None);
        assert_eq!(list("0-3,8\n"), [0, 1, 2, 3, 8]);
        assert_eq!(list("0"), [0]);
        assert!(list("").is_empty() && list("x-y").is_empty());
    }
}
