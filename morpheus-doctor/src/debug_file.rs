//! The symbols of a file, and its information for debuggers.
//!
//! The process chooses what its files say, and the doctor may be root. So no other file is opened: a program whose information lies in
//! files of its own (split DWARF) has names of functions and lines, and no inlined functions.

use std::borrow::Cow;
use std::path::Path;
use std::slice;

use addr2line::Context;
use addr2line::gimli::{
    self, AbbreviationsCacheStrategy, Dwarf, EndianSlice, NativeEndian, SectionId,
};
use memmap2::Mmap;
use object::{CompressionFormat, Object as _, ObjectSection as _, SymbolMap, SymbolMapName};

use crate::modules::{self, Budget, Bytes, content_of};

/// Bytes of a section. They live as long as the [`DebugFile`] that they belong to.
type Section = EndianSlice<'static, NativeEndian>;

/// A function that has an address, or was inlined there.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Function {
    /// Its name, readable; None where there is a line alone.
    pub(crate) name: Option<String>,
    /// The file of its source.
    pub(crate) file: Option<String>,
    /// The line in it, from 1.
    pub(crate) line: Option<u32>,
}

/// A file that is mapped.
pub(crate) struct DebugFile {
    context: Context<Section>,
    symbols: SymbolMap<SymbolMapName<'static>>,
    /// The sections that were compressed. These two are dropped after what refers to them.
    _unpacked: Vec<Bytes>,
    _map: Mmap,
}

impl DebugFile {
    /// None of what is no such file. A compressed section that is beyond the budget is left out; the others lie in the file.
    pub(crate) fn open(path: &Path, budget: &mut Budget) -> Option<DebugFile> {
        let file = modules::open(path).ok()?;
        if !file.metadata().ok()?.is_file() {
            return None;
        }
        // SAFETY: the mapping is private and only read. All that reads it takes any bytes, also those that another process writes
        // meanwhile.
        let map = unsafe { Mmap::map(&file) }.ok()?;
        // SAFETY: the mapping keeps its place until `_map` is dropped, and only the other fields refer to it. Their contents leave this
        // module as copies, or with the lifetime of `self`.
        let bytes: &'static [u8] = unsafe { slice::from_raw_parts(map.as_ptr(), map.len()) };
        let object = object::File::parse(bytes).ok()?;
        let mut unpacked: Vec<Bytes> = Vec::new();
        let section = |id: SectionId| -> Result<Section, gimli::Error> {
            let content = object.section_by_name(id.name()).and_then(|section| {
                match section.compressed_file_range().ok()?.format {
                    CompressionFormat::None => section.data().ok().map(Cow::Borrowed),
                    _ => content_of(&section, budget),
                }
            });
            let bytes: &'static [u8] = match content {
                Some(Cow::Borrowed(bytes)) => bytes,
                Some(Cow::Owned(bytes)) => {
                    let bytes: Bytes = bytes.into();
                    // SAFETY: as above; `_unpacked` keeps the bytes where they are.
                    let kept = unsafe { slice::from_raw_parts(bytes.as_ptr(), bytes.len()) };
                    unpacked.push(bytes);
                    kept
                }
                None => &[],
            };
            Ok(EndianSlice::new(bytes, NativeEndian))
        };
        let mut dwarf = Dwarf::load(section).ok()?;
        dwarf.populate_abbreviations_cache(AbbreviationsCacheStrategy::Duplicates);
        Some(DebugFile {
            context: Context::from_dwarf(dwarf).ok()?,
            symbols: object.symbol_map(),
            _unpacked: unpacked,
            _map: map,
        })
    }

    /// The functions that were inlined at an address of the file, innermost first, and the one that has it. None where the file has no
    /// information for debuggers.
    pub(crate) fn functions_at(&self, address: u64) -> Vec<Function> {
        let mut functions = Vec::new();
        let Ok(mut found) = self.context.find_frames(address).skip_all_loads() else {
            return functions;
        };
        while let Ok(Some(frame)) = found.next() {
            let name = frame
                .function
                .as_ref()
                .and_then(|name| Some(name.demangle().ok()?.into_owned()));
            let (file, line) = match frame.location {
                Some(location) => (location.file.map(str::to_owned), location.line),
                None => (None, None),
            };
            functions.push(Function {
                name,
                file,
                line: line.filter(|&line| line > 0),
            });
        }
        functions
    }

    /// The mangled name of the symbol at an address or before it, and the symbol's address.
    pub(crate) fn symbol_at(&self, address: u64) -> Option<(&str, u64)> {
        let symbol = self.symbols.containing(address)?;
        Some((symbol.name(), symbol.address()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;
    use crate::modules::tests::make_pipe;

    /// A program whose one unit, for the code from 0x1000 on, says that its information is in another file.
    fn split_program(directory: &str, other: &str) -> Vec<u8> {
        // DW_TAG_skeleton_unit without children: DW_AT_comp_dir and DW_AT_dwo_name in place, DW_AT_low_pc, DW_AT_high_pc as a length.
        let abbreviations: Vec<u8> = vec![1, 0x4a, 0, 0x1b, 8, 0x76, 8, 0x11, 1, 0x12, 7, 0, 0, 0];
        // DWARF 5, DW_UT_skeleton, addresses of 8 bytes, the first abbreviations; the number of the other file.
        let mut unit: Vec<u8> = vec![5, 0, 4, 8, 0, 0, 0, 0];
        unit.extend([7_u8; 8]);
        unit.push(1);
        for text in [directory, other] {
            unit.extend(text.as_bytes());
            unit.push(0);
        }
        for word in [0x1000_u64, 0x100] {
            unit.extend(word.to_le_bytes());
        }
        let mut info = (unit.len() as u32).to_le_bytes().to_vec();
        info.extend(unit);
        let names = b"\0.debug_abbrev\0.debug_info\0.shstrtab\0".to_vec();
        let mut file = vec![0_u8; 64];
        let mut headers = vec![0_u8; 64];
        for (name, kind, content) in [(1_u32, 1_u32, abbreviations), (15, 1, info), (27, 3, names)]
        {
            let (offset, size) = (file.len() as u64, content.len() as u64);
            headers.extend([name, kind].map(u32::to_le_bytes).concat());
            // Flags and address; offset and size; links; alignment, and the size of an entry.
            let words = [0, 0, offset, size, 0, 1, 0];
            headers.extend(words.map(u64::to_le_bytes).concat());
            file.extend(content);
        }
        file.resize(file.len().next_multiple_of(8), 0);
        let headers_at = file.len() as u64;
        file.extend(headers);
        file[..8].copy_from_slice(b"\x7fELF\x02\x01\x01\0");
        // ET_EXEC, EM_X86_64
        file[16..24].copy_from_slice(&[2, 0, 62, 0, 1, 0, 0, 0]);
        file[40..48].copy_from_slice(&headers_at.to_le_bytes());
        file[52..64].copy_from_slice(&[64, 0, 0, 0, 0, 0, 64, 0, 4, 0, 3, 0]);
        file
    }

    /// A pipe there would be waited for, for ever.
    #[test]
    fn a_file_that_a_program_names_is_not_opened() {
        let directory = tempfile::tempdir().unwrap();
        make_pipe(&directory.path().join("other.dwo"));
        let path = directory.path().join("program");
        let program = split_program(directory.path().to_str().unwrap(), "other.dwo");
        std::fs::write(&path, program).unwrap();
        let (sender, receiver) = channel();
        std::thread::spawn(move || {
            let file = DebugFile::open(&path, &mut Budget::default()).unwrap();
            sender.send(file.functions_at(0x1010).len()).unwrap();
        });
        assert_eq!(receiver.recv_timeout(Duration::from_secs(60)), Ok(0));
    }

    #[test]
    fn a_pipe_is_no_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("libpipe.so");
        make_pipe(&path);
        let (sender, receiver) = channel();
        std::thread::spawn(move || {
            let file = DebugFile::open(&path, &mut Budget::default());
            sender.send(file.is_none()).unwrap();
        });
        assert_eq!(receiver.recv_timeout(Duration::from_secs(60)), Ok(true));
    }
}
