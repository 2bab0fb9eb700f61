//! The modules of the process: its program and its libraries, opened for their tables and their names.
//!
//! Files are opened through `/proc/PID/map_files`, which leads to the very file that is mapped, also in another mount namespace
//! and after it was replaced; where that is refused, through `/proc/PID/exe` and `/proc/PID/root`. The kernel's own page of
//! code (`[vdso]`) is read from memory. Nothing in a file is believed further than a wrong name goes.

use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use framehop::{ExplicitModuleSectionInfo, Module as Tables};
use object::read::ReadCache;
use object::{Object as _, ObjectSection, ObjectSegment as _, ReadRef, SegmentFlags};

use crate::memory::{Mapping, Memory};

/// The kernel's own page of code.
const VDSO: &str = "[vdso]";
/// No more bytes of sections are kept of a process: those of a program of 1 GB are fewer.
pub(crate) const MOST_BYTES: u64 = 1 << 30;

/// The bytes of a table.
pub(crate) type Bytes = Arc<[u8]>;

/// The bytes of sections that may still be kept. A process chooses how many files it maps, and how long their sections are.
#[derive(Debug)]
pub(crate) struct Budget {
    left_bytes: u64,
    is_exceeded: bool,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget {
            left_bytes: MOST_BYTES,
            is_exceeded: false,
        }
    }
}

impl Budget {
    /// Takes bytes off. Returns false, and takes none, where fewer are left.
    fn take(&mut self, bytes: u64) -> bool {
        let left_bytes = self.left_bytes.checked_sub(bytes);
        self.is_exceeded |= left_bytes.is_none();
        self.left_bytes = left_bytes.unwrap_or(self.left_bytes);
        left_bytes.is_some()
    }

    /// Returns bytes that are kept no longer.
    pub(crate) fn give_back(&mut self, bytes: u64) {
        self.left_bytes += bytes;
    }

    /// Whether a section was left out.
    pub(crate) fn is_exceeded(&self) -> bool {
        self.is_exceeded
    }
}

/// A file that is mapped.
#[derive(Debug)]
pub struct Module {
    /// Its last path component.
    pub name: String,
    /// Where its code lies.
    pub code: Range<u64>,
    /// The offset to add to an address of the file.
    pub bias: u64,
    /// Where it can be opened, if it is a file.
    pub path: Option<PathBuf>,
    /// It is the program.
    pub is_program: bool,
    /// The sorted table of its `.eh_frame_hdr`: where the table lies, and its bytes.
    pub(crate) functions: Option<(u64, Bytes)>,
    /// The bytes of its sections that are kept.
    pub(crate) bytes: u64,
}

impl Module {
    /// The address within the file.
    #[must_use]
    pub fn relative(&self, address: u64) -> u64 {
        address.wrapping_sub(self.bias)
    }

    /// Where the function begins that has an address of the file: the tables for exceptions know, also of a stripped file.
    #[must_use]
    pub fn function_of(&self, relative: u64) -> Option<u64> {
        let (start, table) = self.functions.as_ref()?;
        // Version 1; the one form that linkers make: pairs of 32-bit offsets from the table's beginning.
        let [1, _, 0x03, 0x3b, ..] = table[..] else {
            return None;
        };
        let begins = |index: usize| {
            let offset = table.get(12 + index * 8..)?.first_chunk()?;
            Some(start.wrapping_add_signed(i32::from_ne_bytes(*offset).into()))
        };
        let (mut low, mut high) = (0, table.len().saturating_sub(12) / 8);
        while low < high {
            let middle = low + (high - low) / 2;
            match begins(middle)? <= relative {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        begins(low.checked_sub(1)?)
    }
}

/// A module and its tables for exceptions.
pub(crate) struct Loaded {
    pub(crate) module: Module,
    pub(crate) tables: Tables<Bytes>,
}

/// Opens what is mapped. Each is code ([`may_be_module`]). A section that is beyond the budget is left out.
pub(crate) fn load(pid: u32, mappings: &[Mapping], budget: &mut Budget) -> Vec<Loaded> {
    let memory = Memory::of(pid);
    let program = std::fs::read_link(format!("/proc/{pid}/exe"))
        .map(|path| path.to_string_lossy().into_owned())
        .unwrap_or_default();
    let modules = mappings
        .iter()
        .filter_map(|mapping| match mapping.path.as_str() {
            VDSO => of_memory(memory, mapping, budget),
            path => of_file(pid, mapping, path == program, budget),
        });
    modules.collect()
}

/// Whether it is code of a file, or the kernel's.
pub(crate) fn may_be_module(mapping: &Mapping) -> bool {
    mapping.is_executable && (mapping.path.starts_with('/') || mapping.path == VDSO)
}

fn of_file(pid: u32, mapping: &Mapping, is_program: bool, budget: &mut Budget) -> Option<Loaded> {
    let Range { start, end } = mapping.range;
    let here = mapping.path.trim_end_matches(" (deleted)");
    let mut ways = vec![PathBuf::from(format!(
        "/proc/{pid}/map_files/{start:x}-{end:x}"
    ))];
    if is_program {
        ways.push(PathBuf::from(format!("/proc/{pid}/exe")));
    }
    ways.push(PathBuf::from(format!("/proc/{pid}/root{here}")));
    ways.push(PathBuf::from(here));
    let (path, file) = ways
        .into_iter()
        .find_map(|path| Some((path.clone(), open(&path).ok()?)))?;
    if !file.metadata().is_ok_and(|metadata| metadata.is_file()) {
        return None;
    }
    let cache = ReadCache::new(file);
    let name = Path::new(here).file_name()?.to_string_lossy().into_owned();
    read(&cache, mapping, name, Some(path), is_program, budget)
}

/// Without waiting: by now the path may be that of a pipe, which has no other end.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
    options.open(path)
}

/// The bytes of a section, which the file says the number of: it may be compressed, and it may be holes.
pub(crate) fn content_of<'data>(
    section: &impl ObjectSection<'data>,
    budget: &mut Budget,
) -> Option<Cow<'data, [u8]>> {
    let length = section.compressed_file_range().ok()?.uncompressed_size;
    let length = length.max(section.size());
    if !budget.take(length) {
        return None;
    }
    let content = section.uncompressed_data().ok();
    let kept = content.as_ref().map_or(0, |content| content.len() as u64);
    budget.give_back(length.saturating_sub(kept));
    content
}

fn of_memory(memory: Memory, mapping: &Mapping, budget: &mut Budget) -> Option<Loaded> {
    // The kernel's is two pages; what says more is not the kernel's.
    let length = usize::try_from(mapping.range.end - mapping.range.start).ok()?;
    let mut bytes = vec![0; length.min(64 * 1024)];
    let had = memory.read(mapping.range.start, &mut bytes);
    let name = mapping.path.clone();
    read(&bytes[..had], mapping, name, None, false, budget)
}

fn read<'data, R: ReadRef<'data>>(
    data: R,
    mapping: &Mapping,
    name: String,
    path: Option<PathBuf>,
    is_program: bool,
    budget: &mut Budget,
) -> Option<Loaded> {
    let file = object::File::parse(data).ok()?;
    // The segment that is mapped here: by its place in the file, page by page. A page may have the end of the one before.
    let segment = file.segments().find(|segment| {
        let (offset, size) = segment.file_range();
        let page = offset & !0xfff;
        let is_code = matches!(segment.flags(), SegmentFlags::Elf { p_flags, .. } if p_flags.0 & object::elf::PF_X.0 != 0);
        is_code && (page..offset.saturating_add(size)).contains(&mapping.offset)
    })?;
    let (offset, _) = segment.file_range();
    let bias = mapping
        .range
        .start
        .wrapping_sub(mapping.offset)
        .wrapping_sub(segment.address().wrapping_sub(offset));
    let mut kept_bytes = 0;
    let mut section = |name: &str| {
        let section = file.section_by_name(name)?;
        let bytes: Bytes = content_of(&section, budget)?.into();
        kept_bytes += bytes.len() as u64;
        let start = section.address();
        Some((start..start.checked_add(section.size())?, bytes))
    };
    let functions = section(".eh_frame_hdr").map(|(range, bytes)| (range.start, bytes));
    let mut info = ExplicitModuleSectionInfo::<Bytes>::default();
    let mut put = |name: &str| {
        let (range, bytes) = section(name)?;
        match name {
            ".eh_frame" => (info.eh_frame_svma, info.eh_frame) = (Some(range), Some(bytes)),
            ".eh_frame_hdr" => {
                (info.eh_frame_hdr_svma, info.eh_frame_hdr) = (Some(range), Some(bytes));
            }
            ".debug_frame" => info.debug_frame = Some(bytes),
            ".text" => (info.text_svma, info.text) = (Some(range), Some(bytes)),
            _ => info.got_svma = Some(range),
        }
        Some(())
    };
    for name in [".eh_frame", ".eh_frame_hdr", ".got", ".text"] {
        put(name);
    }
    if put(".eh_frame").is_none() {
        put(".debug_frame");
    }
    Some(Loaded {
        tables: Tables::new(name.clone(), mapping.range.clone(), bias, info),
        module: Module {
            name,
            code: mapping.range.clone(),
            bias,
            path,
            is_program,
            functions,
            bytes: kept_bytes,
        },
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Makes a pipe at a path. A program that opens it as a file waits for a writer.
    pub(crate) fn make_pipe(path: &Path) {
        let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: the name ends with 0, and outlives the call.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    }

    #[test]
    fn a_pipe_in_the_place_of_a_library_is_not_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("libpipe.so");
        make_pipe(&path);
        assert!(!open(&path).unwrap().metadata().unwrap().is_file());
    }

    #[test]
    fn the_sections_of_all_modules_have_one_budget() {
        let own = std::process::id();
        let mut code = Memory::of(own).mappings().unwrap();
        code.retain(may_be_module);
        let load = |most_bytes: u64| {
            let mut budget = Budget {
                left_bytes: most_bytes,
                is_exceeded: false,
            };
            let loaded = load(own, &code, &mut budget);
            let bytes: u64 = loaded.iter().map(|loaded| loaded.module.bytes).sum();
            (loaded.len(), bytes, budget)
        };
        let (modules, all, budget) = load(MOST_BYTES);
        assert!(modules > 0 && all > 0 && !budget.is_exceeded());
        assert_eq!(budget.left_bytes, MOST_BYTES - all);
        let (modules_again, some, budget) = load(all / 2);
        assert_eq!(modules_again, modules);
        assert!(some <= all / 2 && budget.is_exceeded(), "{some} of {all}");
    }
}
