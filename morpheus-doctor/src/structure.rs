//! What a thread of a stripped program does, read from the form of its stack.
//!
//! Without names there is still where functions begin, which the tables for exceptions tell, and the system call. Threads that wait in
//! epoll are taken for workers in the driver: the innermost function of the program there is the one that waits. A worker's loop
//! parks in two ways, in the driver and on a futex, and both stacks are the same up to the function that parks, the deepest that any
//! two such stacks share. A poll's stack shares with them what is below that: the loop. A thread of the blocking pool shares less.

use crate::anatomy::{Anatomy, Does, Part, Place};
use crate::model::Flavor;
use crate::source::SystemCall;
use crate::unwind::Walker;
use crate::waits;

/// Between the function that parks and the system call are a condition variable and a lock, and no more functions of the program.
const MOST_BELOW_PARK: usize = 4;
/// The loop lies deeper than this: below are the thread's beginning and the pool's.
const LEAST_SHARED: usize = 3;

/// What was learned of a program's loops.
#[derive(Debug, Default)]
pub struct Structure {
    /// Stacks that wait in the driver: where their functions begin, outermost first.
    drivers: Vec<Vec<u64>>,
    /// How many functions two ways to park share.
    parks_at: Option<usize>,
}

/// A stack as the structure sees it.
struct Form {
    /// Where the program's functions begin, outermost first, with the index of the part.
    functions: Vec<(u64, usize)>,
}

impl Structure {
    /// Understands a stack. `call` is the system call that its thread sleeps in, if it does.
    pub fn read(&mut self, walker: &Walker, parts: &[Part], call: Option<SystemCall>) -> Anatomy {
        let form = Form::of(walker, parts);
        let functions: Vec<u64> = form
            .functions
            .iter()
            .map(|&(function, _)| function)
            .collect();
        let name = call.and_then(waits::name_of).unwrap_or_default();
        if name.starts_with("epoll_") && functions.len() > LEAST_SHARED {
            let at = form.functions.last().map_or(0, |&(_, at)| at);
            if !self.drivers.contains(&functions) && self.drivers.len() < 16 {
                self.drivers.push(functions.clone());
            }
            let looped = self.looped(&form);
            return anatomy(
                Does::Parks {
                    at,
                    in_driver: true,
                },
                looped,
            );
        }
        let shared = self
            .drivers
            .iter()
            .map(|driver| {
                driver
                    .iter()
                    .zip(&functions)
                    .take_while(|(a, b)| a == b)
                    .count()
            })
            .max()
            .unwrap_or(0);
        if shared < LEAST_SHARED {
            return anatomy(Does::Other, None);
        }
        if name.starts_with("futex") && functions.len() - shared <= MOST_BELOW_PARK {
            // The deepest that was met: a poll that waits for a lock shares one less.
            let parks_at = *self.parks_at.get_or_insert(shared);
            if shared > parks_at {
                self.parks_at = Some(shared);
            }
            if shared >= parks_at {
                let at = form.functions[shared - 1].1;
                return anatomy(
                    Does::Parks {
                        at,
                        in_driver: false,
                    },
                    self.looped(&form),
                );
            }
        }
        // The loop is what calls the function that parks.
        let loop_depth = self.parks_at.map(|parks_at| parks_at - 1);
        if loop_depth.is_some_and(|depth| shared < depth) {
            return anatomy(Does::Other, None);
        }
        let depth = loop_depth.unwrap_or(shared);
        match form.functions.get(depth) {
            Some(_) => {
                let looped = form.functions[depth - 1].1;
                let until = Place {
                    part: looped,
                    function: 0,
                };
                anatomy(Does::Polls { until }, Some(looped))
            }
            None => anatomy(Does::Executes, self.looped(&form)),
        }
    }

    /// The part of the loop, on a stack that parks.
    fn looped(&self, form: &Form) -> Option<usize> {
        let depth = self.parks_at?.checked_sub(2)?;
        Some(form.functions.get(depth)?.1)
    }
}

impl Form {
    fn of(walker: &Walker, parts: &[Part]) -> Form {
        let functions = parts
            .iter()
            .enumerate()
            .rev()
            .filter_map(|(index, part)| {
                let inside = part.position.inside();
                let module = walker
                    .module_of(inside)
                    .filter(|module| module.is_program)?;
                Some((module.function_of(module.relative(inside))?, index))
            })
            .collect();
        Form { functions }
    }
}

fn anatomy(does: Does, looped: Option<usize>) -> Anatomy {
    Anatomy {
        does,
        looped,
        flavor: Flavor::Unknown,
    }
}
