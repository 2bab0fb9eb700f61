//! From a copied stack to what its thread does: walked, named, and understood, by names or by form.

use std::io;
use std::time::{Duration, Instant};

use crate::anatomy::{self, Anatomy, Part};
use crate::bounded::Bounded;
use crate::model::Flavor;
use crate::names::{Names, bytes_of};
use crate::source::SystemCall;
use crate::structure::Structure;
use crate::unwind::{Position, StackCopy, Walker};

/// The bytes of the stacks whose meaning is remembered, by their return addresses.
const MOST_UNDERSTOOD_BYTES: usize = 64 << 20;
/// The shortest time between two reads of the loaded modules. Code outside of the known ones causes a read.
const LOADED_AGAIN: Duration = Duration::from_secs(1);

/// A stack and what it says.
pub(super) struct Understood {
    pub(super) parts: Vec<Part>,
    pub(super) anatomy: Anatomy,
}

/// A worker's loop on its stack.
#[derive(Clone, Copy)]
pub(super) struct Loop<'understood> {
    pub(super) function: &'understood str,
    pub(super) flavor: Flavor,
    /// Its stack pointer.
    pub(super) sp: u64,
}

impl Understood {
    /// The worker's loop, where there is one.
    pub(super) fn looped(&self) -> Option<Loop<'_>> {
        let part = &self.parts[self.anatomy.looped?];
        Some(Loop {
            function: &part.functions.last()?.function,
            flavor: self.anatomy.flavor,
            sp: part.position.sp,
        })
    }
}

/// Reads the stacks of a process.
pub(super) struct Reader {
    pid: u32,
    walker: Walker,
    loaded: Instant,
    pub(super) names: Names,
    /// It has no names of functions: its stacks are read by their form.
    is_stripped: bool,
    structure: Structure,
    /// The places on the stack differ from poll to poll; what the functions are does not.
    known: Bounded<Vec<u64>, (Vec<Part>, Anatomy), MOST_UNDERSTOOD_BYTES>,
}

impl Reader {
    /// Of the process with this number.
    pub(super) fn new(pid: u32) -> io::Result<Reader> {
        let walker = Walker::new(pid)?;
        let mut names = Names::default();
        Ok(Reader {
            pid,
            is_stripped: names.is_stripped_tokio(&walker),
            walker,
            loaded: Instant::now(),
            names,
            structure: Structure::default(),
            known: Bounded::default(),
        })
    }

    /// Understands a stack of a thread. `call` is the system call that the thread sleeps in, if it does.
    pub(super) fn read(
        &mut self,
        tid: u32,
        copy: &StackCopy,
        call: Option<SystemCall>,
    ) -> Understood {
        if self.walker.is_unknown_code(copy.registers.ip) && self.loaded.elapsed() > LOADED_AGAIN {
            // What is known stays known where the process has ended meanwhile.
            if self.walker.reload().unwrap_or(false) {
                self.known.clear();
            }
            self.loaded = Instant::now();
        }
        let positions = self.walker.walk(copy);
        if self.is_stripped {
            let parts = self.parts(&positions);
            let mut anatomy = self.structure.read(tid, &self.walker, &parts, call);
            // A runtime with several workers starts a thread for each.
            if tid == self.pid {
                anatomy.flavor = Flavor::CurrentThread;
            }
            return Understood { parts, anatomy };
        }
        let key: Vec<u64> = positions.iter().map(|position| position.ip).collect();
        if let Some((known, anatomy)) = self.known.get(&key) {
            let parts = known
                .iter()
                .zip(&positions)
                .map(|(part, &position)| Part {
                    position,
                    functions: part.functions.clone(),
                })
                .collect();
            return Understood {
                parts,
                anatomy: *anatomy,
            };
        }
        let parts = self.parts(&positions);
        let anatomy = anatomy::read(&parts);
        let bytes = size_of_val(&*key) + parts.iter().map(part_bytes).sum::<usize>();
        self.known.insert(key, (parts.clone(), anatomy), bytes);
        Understood { parts, anatomy }
    }

    /// Whether sections of modules were left out, because there are too many bytes of them.
    pub(super) fn lacks_sections(&self) -> bool {
        self.walker.lacks_tables() || self.names.lacked_sections()
    }

    fn parts(&mut self, positions: &[Position]) -> Vec<Part> {
        positions
            .iter()
            .map(|&position| Part {
                position,
                functions: self.names.at(&self.walker, position),
            })
            .collect()
    }
}

/// The memory that a part takes.
fn part_bytes(part: &Part) -> usize {
    size_of::<Part>() + bytes_of(&part.functions)
}
