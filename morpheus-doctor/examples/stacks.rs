//! Prints the stacks of a process's sleeping threads.
use morpheus_doctor::{memory::Memory, names::Names, target::Target, unwind::*};
fn main() {
    let pid: u32 = std::env::args().nth(1).unwrap().parse().unwrap();
    let target = Target::by_pid(pid).unwrap();
    let walker = Walker::new(pid).unwrap();
    let mut names = Names::default();
    for tid in target.threads() {
        let call = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall")).unwrap();
        let words: Vec<&str> = call.split_whitespace().collect();
        println!("-- {tid} {:?} {call}", target.name_of(tid));
        if words.len() < 9 {
            continue;
        }
        let hex = |t: &str| u64::from_str_radix(&t[2..], 16).unwrap();
        let (sp, ip) = (hex(words[7]), hex(words[8]));
        let mut bytes = vec![0; 32768];
        let n = Memory::of(pid).read(sp, &mut bytes);
        bytes.truncate(n);
        let copy = StackCopy {
            registers: Registers {
                ip,
                sp,
                bp: None,
                lr: None,
            },
            bytes,
        };
        for at in walker.walk(&copy) {
            for f in names.at(&walker, at) {
                println!(
                    "  {:x} sp {:x}{} {:?} {}{} {}:{}",
                    f.address,
                    at.sp - sp,
                    if at.is_searched { " ?" } else { "" },
                    f.owner,
                    if f.inlined { "  ^ " } else { "" },
                    f.function,
                    f.file.as_deref().unwrap_or(""),
                    f.line.unwrap_or(0)
                );
            }
        }
    }
}
