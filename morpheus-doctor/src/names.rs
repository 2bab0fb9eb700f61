//! Names and lines for addresses, from the files that are mapped.
//!
//! Line tables name each function that was inlined; the symbol table has the full name of the one that is there. A stripped
//! program has neither: then there is the nearest symbol that is exported, or module and address.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use addr2line::demangle_auto;
use morpheus_stacks::owner;
use object::read::ReadCache;
use object::{Object as _, ObjectSymbol as _};

use crate::bounded::Bounded;
use crate::debug_file::DebugFile;
use crate::locations::Locations;
use crate::model::{Frame, Owner};
use crate::modules::{self, Budget, Module, content_of};
use crate::unwind::{Position, Walker};

/// The nearest symbol is named up to this distance: a larger one is another function's.
const NEAR: u64 = 64 * 1024;

/// The bytes of the names that are remembered.
const MOST_KNOWN_BYTES: usize = 64 << 20;

/// Finds names, and keeps them.
#[derive(Default)]
pub struct Names {
    files: HashMap<PathBuf, Option<DebugFile>>,
    /// For the sections of the files that are kept in memory.
    budget: Budget,
    known: Bounded<(PathBuf, u64), Vec<Frame>, MOST_KNOWN_BYTES>,
    /// The crates of the program, as its file names them.
    program: Option<Program>,
    /// Of a stripped program: whose its functions are.
    locations: Option<Locations>,
    without_lines: bool,
}

impl std::fmt::Debug for Names {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Names")
            .field("known", &self.known.len())
            .finish_non_exhaustive()
    }
}

impl Names {
    /// The functions at a position, innermost first: those that were inlined there, and the one that has it. At least one.
    pub fn at(&mut self, walker: &Walker, position: Position) -> Vec<Frame> {
        let inside = position.inside();
        let Some(module) = walker.module_of(inside) else {
            return vec![unknown(format!("{inside:#x}"), "?".to_owned(), inside)];
        };
        let address = module.relative(inside);
        let key = (module.path.clone().unwrap_or_default(), address);
        if let Some(frames) = self.known.get(&key) {
            return frames.clone();
        }
        if module.is_program {
            self.read_program(module);
        }
        let mut frames = match &module.path {
            Some(path) => {
                let file = self
                    .files
                    .entry(path.clone())
                    .or_insert_with(|| DebugFile::open(path, &mut self.budget));
                file.as_ref()
                    .map(|file| look_up(file, address, &module.name))
                    .unwrap_or_default()
            }
            None => Vec::new(),
        };
        if frames.is_empty() {
            let begins = module.function_of(address).unwrap_or(address);
            let function = format!("{}+{begins:#x}", module.name);
            let mut frame = unknown(function, module.name.clone(), address);
            if module.is_program && self.lacked_symbols() {
                let locations = self
                    .locations
                    .get_or_insert_with(|| Locations::read(walker.memory(), module));
                let (owner, place) = locations.of(begins);
                frame.owner = owner;
                // A place in the same function: the line itself is not known.
                frame.file = place.map(|place| place.file.clone());
                if let Some(place) = place {
                    frame.function =
                        format!("{} (near {}:{})", frame.function, place.file, place.line);
                }
            }
            frames.push(frame);
        }
        // Without a file nothing but this tells the application from what it uses.
        for frame in frames.iter_mut().filter(|frame| frame.file.is_none()) {
            let is_library = owner::crate_of(&frame.function).is_some_and(|krate| {
                self.program
                    .as_ref()
                    .is_some_and(|program| program.libraries.contains(krate))
            });
            if frame.owner == Owner::Application && is_library {
                frame.owner = Owner::Library;
            }
        }
        if module.is_program {
            self.without_lines |= frames
                .iter()
                .any(|frame| frame.owner == Owner::Application && frame.line.is_none());
        }
        let bytes = key.0.as_os_str().len() + bytes_of(&frames);
        self.known.insert(key, frames.clone(), bytes);
        frames
    }

    /// Whether a function is of the crate that has the program's `main`.
    #[must_use]
    pub fn is_of_main(&self, frame: &Frame) -> bool {
        if self.lacked_symbols() {
            return true;
        }
        let krate = owner::crate_of(&frame.function);
        self.program
            .as_ref()
            .is_some_and(|program| krate.is_some_and(|krate| program.main.contains(krate)))
    }

    /// Whether a program has no names of functions, and paths of tokio's.
    #[must_use]
    pub fn is_stripped_tokio(&mut self, walker: &Walker) -> bool {
        if let Some(module) = walker.modules().iter().find(|module| module.is_program) {
            self.read_program(module);
        }
        self.lacked_symbols()
            && self
                .program
                .as_ref()
                .is_some_and(|program| program.has_tokio)
    }

    /// Reads the program's file, once.
    fn read_program(&mut self, module: &Module) {
        self.program.get_or_insert_with(|| {
            let program = module.path.as_deref().and_then(Program::read);
            program.unwrap_or_default()
        });
    }

    /// Some function of the application had no line.
    #[must_use]
    pub fn lacked_lines(&self) -> bool {
        self.without_lines
    }

    /// Sections of files were not read, because all of them are too long.
    #[must_use]
    pub fn lacked_sections(&self) -> bool {
        self.budget.is_exceeded()
    }

    /// The program has no names of functions.
    #[must_use]
    pub fn lacked_symbols(&self) -> bool {
        self.program
            .as_ref()
            .is_some_and(|program| !program.has_symbols)
    }
}

/// The memory that functions take.
pub(crate) fn bytes_of(frames: &[Frame]) -> usize {
    let bytes = |frame: &Frame| {
        let file = frame.file.as_ref().map_or(0, String::len);
        size_of::<Frame>() + frame.function.len() + frame.module.len() + file
    };
    frames.iter().map(bytes).sum()
}

fn unknown(function: String, module: String, address: u64) -> Frame {
    Frame {
        function,
        file: None,
        line: None,
        module,
        address,
        inlined: false,
        owner: Owner::Unknown,
    }
}

fn look_up(file: &DebugFile, address: u64, module: &str) -> Vec<Frame> {
    let functions = file.functions_at(address).into_iter();
    let mut frames: Vec<Frame> = functions
        .map(|function| Frame {
            // A frame without a name comes where there is a line alone: the symbol names it.
            function: function.name.unwrap_or_default(),
            file: function.file,
            line: function.line,
            module: module.to_owned(),
            address,
            inlined: true,
            owner: Owner::Unknown,
        })
        .collect();
    // Exported symbols alone, as a stripped library has them, say little about what lies between.
    let symbol = file
        .symbol_at(address)
        .filter(|&(_, begins)| address.wrapping_sub(begins) < NEAR);
    if frames.is_empty() {
        let Some((name, _)) = symbol else {
            return frames;
        };
        frames.push(Frame {
            inlined: false,
            ..unknown(demangled(name), module.to_owned(), address)
        });
    }
    if let Some(last) = frames.last_mut() {
        last.inlined = false;
        // Line tables alone have the function's own name, the symbol has its path as well.
        if let Some((name, _)) = symbol {
            last.function = demangled(name);
        }
        if last.function.is_empty() {
            last.function = format!("{module}+{address:#x}");
        }
    }
    frames.retain(|frame| !frame.function.is_empty());
    for frame in &mut frames {
        frame.owner = owner_of(&frame.function, frame.file.as_deref(), module);
    }
    frames
}

/// The crates of a program, as its file names them.
#[derive(Debug, Default)]
struct Program {
    /// Crates of a registry or a git checkout, by the paths that the program has for its panics: also in one without any
    /// information for debuggers.
    libraries: HashSet<String>,
    /// The crate that has `main`.
    main: HashSet<String>,
    /// It has a path of tokio's.
    has_tokio: bool,
    /// It has names of functions.
    has_symbols: bool,
}

impl Program {
    fn read(path: &Path) -> Option<Program> {
        let file = modules::open(path).ok()?;
        if !file.metadata().ok()?.is_file() {
            return None;
        }
        let cache = ReadCache::new(file);
        let file = object::File::parse(&cache).ok()?;
        let mut program = Program::default();
        if let Some(data) = file
            .section_by_name(".rodata")
            .and_then(|section| content_of(&section, &mut Budget::default()))
        {
            program.libraries = crates_in(&data);
            program.has_tokio = memchr::memmem::find(&data, b"/tokio-1.").is_some();
        }
        for symbol in file.symbols() {
            program.has_symbols = true;
            // Mangled names say the length of each part.
            let Some(name) = symbol.name().ok().filter(|name| name.contains("4main")) else {
                continue;
            };
            let name = demangled(name);
            if let Some(krate) = name.strip_suffix("::main")
                && !krate.contains("::")
                && owner::crate_of(&name).is_some()
            {
                program.main.insert(krate.to_owned());
            }
        }
        Some(program)
    }
}

fn crates_in(bytes: &[u8]) -> HashSet<String> {
    const REGISTRY: &[u8] = b"/registry/src/";
    // Paths are of one line, and of a bounded length.
    let path_at = |at: usize| {
        let path = &bytes[at..bytes.len().min(at + 256)];
        let end = path.iter().position(|byte| !(b' '..=b'~').contains(byte));
        std::str::from_utf8(&path[..end.unwrap_or(path.len())]).ok()
    };
    memchr::memmem::find_iter(bytes, REGISTRY)
        .filter_map(|at| owner::crate_of_file(path_at(at)?))
        .collect()
}

fn demangled(name: &str) -> String {
    demangle_auto(name.into(), None).into_owned()
}

/// Whose code a function is.
fn owner_of(function: &str, file: Option<&str>, module: &str) -> Owner {
    if owner::is_application(function, file) {
        return Owner::Application;
    }
    if owner::is_library(function, file) {
        return Owner::Library;
    }
    let is_rust = match file {
        Some(file) => Path::new(file).extension().is_some_and(|it| it == "rs"),
        None => owner::crate_of(function).is_some(),
    };
    match is_rust {
        true => Owner::Plumbing,
        false if function.starts_with(module) => Owner::Unknown,
        false => Owner::C,
    }
}
