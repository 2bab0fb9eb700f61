// SPDX-License-Identifier: GPL-2.0-only
//! The functions, types, fields and constants of a kernel, as its BTF describes them.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fmt;

use libbpf_rs::btf::{Btf, BtfKind, BtfType, types};

/// How deep fields lie in structures without a name at most.
const DEPTH: u32 = 4;

/// Something that a kernel has or has not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Symbol {
    /// A function that BPF programs may call.
    Function(&'static str),
    /// A variable.
    Variable(&'static str),
    /// A structure.
    Struct(&'static str),
    /// A field of a structure.
    Field(&'static str, &'static str),
    /// A constant of an enumeration.
    Constant(&'static str, &'static str),
    /// A tracepoint whose arguments are typed.
    Tracepoint(&'static str),
}

impl fmt::Display for Symbol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Symbol::Function(name) => write!(f, "{name}()"),
            Symbol::Variable(name) => f.write_str(name),
            Symbol::Struct(name) => write!(f, "struct {name}"),
            Symbol::Field(of, name) => write!(f, "{of}.{name}"),
            Symbol::Constant(_, name) => f.write_str(name),
            Symbol::Tracepoint(name) => write!(f, "the tracepoint {name}"),
        }
    }
}

/// The symbols that were looked for and found.
#[derive(Clone, Debug, Default)]
pub struct Found(HashSet<Symbol>);

impl Found {
    /// Looks for these in one pass through all types.
    #[must_use]
    pub fn of(btf: &Btf<'_>, symbols: impl IntoIterator<Item = Symbol>) -> Found {
        let mut wanted: HashMap<String, Vec<Symbol>> = HashMap::new();
        for symbol in symbols {
            wanted.entry(type_name(symbol)).or_default().push(symbol);
        }
        let mut found = HashSet::new();
        for described in btf.type_by_kind::<BtfType<'_>>() {
            let name = described.name().and_then(OsStr::to_str);
            for symbol in name.and_then(|name| wanted.get(name)).into_iter().flatten() {
                if has(btf, described, *symbol) {
                    found.insert(*symbol);
                }
            }
        }
        Found(found)
    }

    /// Whether the kernel has it.
    #[must_use]
    pub fn has(&self, symbol: Symbol) -> bool {
        self.0.contains(&symbol)
    }

    /// As a kernel that has these and nothing else.
    #[cfg(test)]
    pub(super) fn only(symbols: impl IntoIterator<Item = Symbol>) -> Found {
        Found(symbols.into_iter().collect())
    }
}

/// Whether the kernel has this one, of which no other type has the name. Costs no pass through all types.
#[must_use]
pub fn has_at_once(btf: &Btf<'_>, symbol: Symbol) -> bool {
    btf.type_by_name::<BtfType<'_>>(&type_name(symbol))
        .is_some_and(|described| has(btf, described, symbol))
}

/// The name of the type that says whether there is this symbol.
fn type_name(symbol: Symbol) -> String {
    match symbol {
        Symbol::Tracepoint(name) => format!("btf_trace_{name}"),
        Symbol::Function(name)
        | Symbol::Variable(name)
        | Symbol::Struct(name)
        | Symbol::Field(name, _)
        | Symbol::Constant(name, _) => name.to_owned(),
    }
}

/// Whether the type of this name is what is looked for: names of variables, enumerations and functions are not apart.
fn has(btf: &Btf<'_>, described: BtfType<'_>, symbol: Symbol) -> bool {
    match (symbol, described.kind()) {
        (Symbol::Function(_), BtfKind::Func)
        | (Symbol::Variable(_), BtfKind::Var)
        | (Symbol::Struct(_), BtfKind::Struct)
        | (Symbol::Tracepoint(_), BtfKind::Typedef) => true,
        (Symbol::Field(_, field), BtfKind::Struct) => has_field(btf, described, field, DEPTH),
        (Symbol::Constant(_, constant), BtfKind::Enum) => {
            let named = |name: Option<&OsStr>| name.is_some_and(|name| name == constant);
            types::Enum::try_from(described)
                .is_ok_and(|own| own.iter().any(|member| named(member.name)))
        }
        (Symbol::Constant(_, constant), BtfKind::Enum64) => {
            let named = |name: Option<&OsStr>| name.is_some_and(|name| name == constant);
            types::Enum64::try_from(described)
                .is_ok_and(|own| own.iter().any(|member| named(member.name)))
        }
        _ => false,
    }
}

fn has_field(btf: &Btf<'_>, described: BtfType<'_>, field: &str, depth: u32) -> bool {
    let Ok(composite) = types::Composite::try_from(described) else {
        return false;
    };
    composite.iter().any(|member| match member.name {
        Some(name) if !name.is_empty() => name == field,
        _ if depth == 0 => false,
        _ => btf
            .type_by_id::<BtfType<'_>>(member.ty)
            .is_some_and(|inner| has_field(btf, inner, field, depth - 1)),
    })
}
