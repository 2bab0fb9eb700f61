//! The activity of a thread of a stripped program, read from the form of its stack.
//!
//! Without names there is still where functions begin, which the tables for exceptions tell, and the system call. Threads that wait in
//! epoll are taken for workers in the driver: the innermost function of the program there is the one that waits. A worker's loop
//! parks in two ways, in the driver and on a futex, and both stacks are the same up to a function that parks, the deepest that any
//! two such stacks share. A poll's stack shares with them what is below: the loop, which calls the poll and what parks. So what the
//! other stacks of a thread that was in the driver mostly share with it ends with the loop. Until such a stack was met, the loop is
//! taken for what calls the function that parks. A thread of the blocking pool shares less.

use std::collections::{BTreeMap, HashSet};

use crate::anatomy::{Anatomy, Does, Part, Place};
use crate::model::Flavor;
use crate::source::SystemCall;
use crate::unwind::Walker;
use crate::waits;

/// Between the function that parks and the system call are a condition variable and a lock, and no more functions of the program. Where
/// nothing is inlined there are more of them, but fewer than in the driver.
const MOST_BELOW_PARK: usize = 4;
/// The loop lies deeper than this: below are the thread's beginning and the pool's.
const LEAST_SHARED: usize = 3;

/// The loops of a program, as learned from its stacks.
#[derive(Debug, Default)]
pub struct Structure {
    /// Stacks that wait in the driver: where their functions begin, outermost first.
    drivers: Vec<Vec<u64>>,
    /// Threads that have waited in the driver.
    workers: HashSet<u32>,
    /// How many functions two ways to park share.
    parks_at: Option<usize>,
    /// How many functions the workers' other stacks share with those that wait in the driver, and how many stacks share as many.
    shared: BTreeMap<usize, u32>,
}

/// A stack as the structure sees it.
struct Form {
    /// Where the program's functions begin, outermost first, with the index of the part.
    functions: Vec<(u64, usize)>,
}

impl Structure {
    /// Understands a stack of a thread. `call` is the system call that the thread sleeps in, if it does.
    pub fn read(
        &mut self,
        tid: u32,
        walker: &Walker,
        parts: &[Part],
        call: Option<SystemCall>,
    ) -> Anatomy {
        self.read_form(tid, &Form::of(walker, parts), call)
    }

    fn read_form(&mut self, tid: u32, form: &Form, call: Option<SystemCall>) -> Anatomy {
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
            self.workers.insert(tid);
            let looped = self.looped(form);
            return anatomy(
                Does::Parks {
                    at,
                    in_driver: true,
                },
                looped,
            );
        }
        let share = |driver: &Vec<u64>| {
            let both = driver.iter().zip(&functions);
            let shared = both.take_while(|(a, b)| a == b).count();
            (shared, driver.len() - shared)
        };
        let (shared, below_driver) = self.drivers.iter().map(share).max().unwrap_or_default();
        if shared < LEAST_SHARED {
            return anatomy(Does::Other, None);
        }
        let may_park = name.starts_with("futex")
            && functions.len() - shared <= below_driver.max(MOST_BELOW_PARK);
        if may_park && self.mostly_shared().is_none_or(|mostly| shared > mostly) {
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
                    self.looped(form),
                );
            }
        }
        if self.workers.contains(&tid) {
            *self.shared.entry(shared).or_default() += 1;
        }
        let loop_depth = self.loop_depth();
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
            None => anatomy(Does::Executes, self.looped(form)),
        }
    }

    /// How many functions most stacks of workers share with those that wait in the driver.
    fn mostly_shared(&self) -> Option<usize> {
        let most = self.shared.iter().max_by_key(|&(_, count)| count)?;
        Some(*most.0)
    }

    /// How many functions there are up to the loop.
    fn loop_depth(&self) -> Option<usize> {
        self.mostly_shared()
            .or_else(|| self.parks_at?.checked_sub(1))
    }

    /// The part of the loop, on a stack that parks.
    fn looped(&self, form: &Form) -> Option<usize> {
        let depth = self.loop_depth()?.checked_sub(1)?;
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

#[cfg(test)]
mod tests {
    use syscalls::Sysno;

    use super::*;

    const DRIVER: u32 = 1;
    const BESIDE: u32 = 2;
    const POOL: u32 = 3;

    /// Where the functions begin, from the thread's beginning to a loop: 10 is the loop.
    const TO_LOOP: [u64; 6] = [1, 2, 3, 4, 9, 10];

    fn form(beginning: &[u64], more: &[u64]) -> Form {
        let functions: Vec<u64> = [beginning, more].concat();
        let count = functions.len();
        // Parts are innermost first.
        let functions = functions
            .into_iter()
            .enumerate()
            .map(|(index, function)| (function, count - 1 - index))
            .collect();
        Form { functions }
    }

    fn call(number: Sysno) -> Option<SystemCall> {
        Some(SystemCall {
            number: number.id() as u32,
            arguments: [0; 3],
        })
    }

    impl Structure {
        fn waits(&mut self, tid: u32, more: &[u64], number: Sysno) -> Does {
            self.read_form(tid, &form(&TO_LOOP, more), call(number))
                .does
        }
    }

    /// The function that is the last of the poll's own callers, from the innermost of the stack on.
    #[track_caller]
    fn is_poll_of(does: Does, functions: usize) {
        let until = Place {
            part: functions,
            function: 0,
        };
        assert_eq!(does, Does::Polls { until });
    }

    /// As tokio 1.54 is compiled: the loop calls one function that parks, which goes both ways.
    #[test]
    fn polls_are_called_by_what_calls_the_function_that_parks() {
        let mut structure = Structure::default();
        structure.waits(DRIVER, &[11, 12, 13], Sysno::epoll_pwait);
        let parks = structure.waits(BESIDE, &[11, 20], Sysno::futex);
        let beside = Does::Parks {
            at: 1,
            in_driver: false,
        };
        assert_eq!(parks, beside);
        is_poll_of(structure.waits(BESIDE, &[30, 31, 32], Sysno::futex), 3);
        // A mutex, and no more functions than a park has.
        is_poll_of(structure.waits(DRIVER, &[30, 33], Sysno::futex), 2);
    }

    /// Without optimization: nothing is inlined, neither in the way to the driver nor in that to the condition variable.
    #[test]
    fn more_functions_park_where_nothing_is_inlined() {
        let mut structure = Structure::default();
        let driver = [11, 12, 13, 14, 15, 16, 17, 18, 19];
        structure.waits(DRIVER, &driver, Sysno::epoll_wait);
        let beside = [11, 12, 40, 41, 42, 43, 44, 45, 46];
        let parks = structure.waits(BESIDE, &beside, Sysno::futex);
        let at = Does::Parks {
            at: 7,
            in_driver: false,
        };
        assert_eq!(parks, at);
        let locks: Vec<u64> = (30..45).collect();
        is_poll_of(structure.waits(DRIVER, &locks, Sysno::futex), 15);
    }

    /// As tokio 1.44 is compiled: both ways share two functions that park, and the loop is what polls share.
    #[test]
    fn polls_are_called_by_what_most_stacks_share() {
        let mut structure = Structure::default();
        structure.waits(DRIVER, &[11, 12, 13, 14], Sysno::epoll_pwait);
        let parks = structure.waits(BESIDE, &[11, 12, 20, 21], Sysno::futex);
        assert!(matches!(parks, Does::Parks { .. }), "{parks:?}");
        is_poll_of(
            structure.waits(DRIVER, &[30, 31], Sysno::clock_nanosleep),
            2,
        );
        let running = form(&TO_LOOP, &[30, 32, 33]);
        is_poll_of(structure.read_form(DRIVER, &running, None).does, 3);
        is_poll_of(structure.waits(BESIDE, &[30, 33], Sysno::futex), 2);
        let parks = structure.waits(BESIDE, &[11, 12, 20, 21], Sysno::futex);
        assert!(matches!(parks, Does::Parks { .. }), "{parks:?}");
        // In the driver, and not waiting: hardly ever seen there.
        let timers = form(&TO_LOOP, &[11, 12, 13, 40]);
        structure.read_form(DRIVER, &timers, None);
        is_poll_of(
            structure.waits(DRIVER, &[30, 31], Sysno::clock_nanosleep),
            2,
        );
    }

    #[test]
    fn threads_of_the_blocking_pool_are_others() {
        let mut structure = Structure::default();
        structure.waits(DRIVER, &[11, 12, 13], Sysno::epoll_pwait);
        structure.waits(DRIVER, &[30, 31], Sysno::clock_nanosleep);
        let computes = form(&TO_LOOP[..4], &[50, 51, 52, 53, 54, 55]);
        let does = structure.read_form(POOL, &computes, None).does;
        assert_eq!(does, Does::Other);
        let idle = form(&TO_LOOP[..3], &[60]);
        let does = structure.read_form(POOL, &idle, call(Sysno::futex)).does;
        assert_eq!(does, Does::Other);
    }

    /// It parks in the driver alone.
    #[test]
    fn a_worker_without_others_shows_its_loop_when_it_polls() {
        let mut structure = Structure::default();
        let parked = form(&TO_LOOP, &[11, 12, 13]);
        let before = structure.read_form(DRIVER, &parked, call(Sysno::epoll_pwait));
        assert_eq!(before.looped, None);
        is_poll_of(
            structure.waits(DRIVER, &[30, 31], Sysno::clock_nanosleep),
            2,
        );
        let after = structure.read_form(DRIVER, &parked, call(Sysno::epoll_pwait));
        assert_eq!(after.looped, Some(3));
    }
}
