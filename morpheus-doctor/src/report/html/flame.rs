//! The flame graph of long polls: the outermost function at the top, as wide as its share of the time.

use std::collections::{HashMap, VecDeque};

use super::{LONGEST_NAME, css_percent, escape};
use crate::model::{Doing, Owner, Report};
use crate::report::names::{crate_of, first_columns, printable, short_function};
use crate::report::units::{duration, percent};
use crate::report::words;

/// The height of a row, in pixels; the same as in the style sheet.
const ROW_PX: usize = 20;
/// Boxes that are drawn; the uppermost ones.
const MOST_BOXES: usize = 6_000;
/// Rows that are drawn.
const MOST_ROWS: usize = 150;
/// A box must be wider than this part of the graph.
const LEAST_PART: u64 = 4_000;
/// Columns of the name in a box.
const LONGEST_IN_BOX: usize = 80;

/// The graph with its heading.
pub(super) fn graph(report: &Report) -> String {
    let tree = Tree::of(report);
    if tree.total_ns() == 0 {
        return String::new();
    }
    let owners = Owners::of(report);
    let (boxes, rows, hidden) = tree.layout();
    let mut text = format!(
        "<section>\n<h2>Flame graph of long polls</h2>\n<p class=\"about\">{} of samples. The outermost function is at the top; the \
         width is the share of the time. Strong colours are the application's functions, pale ones those of other crates, the paler \
         the executor's; a thick line marks a culprit.{}</p>\n\
         <p class=\"legend\"><span><i class=\"key computing\"></i>computing</span><span><i class=\"key blocked\"></i>blocked</span>\
         <button type=\"button\" id=\"flame-reset\" class=\"script\" hidden>whole graph</button></p>\n\
         <p id=\"flame-note\" class=\"script about\" role=\"status\">Click a function to zoom.</p>\n\
         <div id=\"flame\" class=\"flame\" style=\"height:{}px\">\n",
        duration(tree.total_ns()),
        match hidden {
            0 => "",
            _ => " Functions that are too narrow or too deep are left out.",
        },
        rows * ROW_PX
    );
    for place in &boxes {
        text += &tree.draw(place, &owners);
    }
    text + "</div>\n</section>\n"
}

struct Node<'a> {
    name: &'a str,
    doing: Doing,
    weight_ns: u64,
    is_culprit: bool,
    children: Vec<usize>,
}

/// A box: its node, row, and where it begins, in nanoseconds.
struct Box {
    node: usize,
    row: usize,
    begins_ns: u64,
}

/// Functions below each other; the first node is all of them.
struct Tree<'a> {
    nodes: Vec<Node<'a>>,
}

impl<'a> Tree<'a> {
    fn of(report: &'a Report) -> Self {
        let node = |name, doing| Node {
            name,
            doing,
            weight_ns: 0,
            is_culprit: false,
            children: Vec::new(),
        };
        let mut nodes = vec![node("long polls", Doing::Computing)];
        let mut index: HashMap<(usize, Doing, &str), usize> = HashMap::new();
        for sample in &report.samples {
            let culprit = sample
                .finding
                .and_then(|finding| report.findings.get(finding))
                .and_then(|finding| finding.stack.culprit())
                .map(|frame| frame.function.as_str());
            let top = words::verb(sample.doing);
            let functions = sample.functions.iter().map(String::as_str).take(MOST_ROWS);
            let mut at = 0;
            // More than fits into the sum of all is no measurement.
            let weight_ns = sample.weight_ns.min(u64::MAX - nodes[0].weight_ns);
            nodes[0].weight_ns += weight_ns;
            for (depth, name) in std::iter::once(top).chain(functions).enumerate() {
                let child = *index.entry((at, sample.doing, name)).or_insert(nodes.len());
                if child == nodes.len() {
                    nodes.push(node(name, sample.doing));
                    nodes[at].children.push(child);
                }
                nodes[child].weight_ns += weight_ns;
                nodes[child].is_culprit |= depth > 0 && culprit == Some(name);
                at = child;
            }
        }
        Self { nodes }
    }

    fn total_ns(&self) -> u64 {
        self.nodes[0].weight_ns
    }

    /// The boxes that are drawn, their rows, and how many are not.
    fn layout(&self) -> (Vec<Box>, usize, usize) {
        let least_ns = (self.total_ns() / LEAST_PART).max(1);
        let mut boxes = Vec::new();
        let mut rows = 0;
        // Row by row, so that what there is no room for are the deepest functions.
        let mut open = VecDeque::from([(0, 0, 0)]);
        while let Some((node, row, begins_ns)) = open.pop_front()
            && boxes.len() < MOST_BOXES
        {
            rows = rows.max(row + 1);
            boxes.push(Box {
                node,
                row,
                begins_ns,
            });
            let mut children = self.nodes[node].children.clone();
            children.sort_by_key(|child| (self.nodes[*child].name, self.nodes[*child].doing));
            let mut begins_ns = begins_ns;
            for child in children {
                let weight_ns = self.nodes[child].weight_ns;
                if weight_ns >= least_ns && row + 1 < MOST_ROWS {
                    open.push_back((child, row + 1, begins_ns));
                }
                begins_ns += weight_ns;
            }
        }
        let hidden = self.nodes.len() - boxes.len();
        (boxes, rows, hidden)
    }

    fn draw(&self, place: &Box, owners: &Owners) -> String {
        let node = &self.nodes[place.node];
        let total_ns = self.total_ns();
        let (class, short, name) = match place.row {
            0 => ("all", node.name.to_owned(), node.name.to_owned()),
            1 => (
                words::verb(node.doing),
                node.name.to_owned(),
                node.name.to_owned(),
            ),
            _ => (
                words::verb(node.doing),
                short_function(node.name),
                printable(node.name),
            ),
        };
        let owner = match place.row {
            0 | 1 => "kind",
            _ => owners.class(node.name),
        };
        let culprit = if node.is_culprit { " culprit" } else { "" };
        format!(
            "<div class=\"{class} {owner}{culprit}\" style=\"left:{};width:{};top:{}px\" title=\"{}\n{} ({}){}\">{}</div>\n",
            css_percent(place.begins_ns, total_ns),
            css_percent(node.weight_ns, total_ns),
            place.row * ROW_PX,
            escape(&first_columns(&name, LONGEST_NAME)),
            duration(node.weight_ns),
            escape(&percent(node.weight_ns, total_ns)),
            if node.is_culprit { "\nculprit" } else { "" },
            escape(&first_columns(&printable(&short), LONGEST_IN_BOX))
        )
    }
}

/// Whose a function is: as the stacks of the findings say, or else as they say of its crate.
struct Owners<'a> {
    functions: HashMap<&'a str, Owner>,
    crates: HashMap<String, Owner>,
}

impl<'a> Owners<'a> {
    fn of(report: &'a Report) -> Self {
        let frames = || {
            report
                .findings
                .iter()
                .flat_map(|finding| &finding.stack.frames)
        };
        let functions: HashMap<&str, Owner> = frames()
            .map(|frame| (frame.function.as_str(), frame.owner))
            .collect();
        let crates = functions
            .iter()
            .filter_map(|(function, owner)| Some((crate_of(function)?, *owner)))
            .collect();
        Self { functions, crates }
    }

    fn class(&self, function: &str) -> &'static str {
        let known = self.functions.get(function).copied();
        let owner = known.or_else(|| {
            let name = crate_of(function)?;
            let is_rust = matches!(name.as_str(), "std" | "core" | "alloc" | "tokio");
            self.crates
                .get(&name)
                .copied()
                .or(is_rust.then_some(Owner::Plumbing))
        });
        match owner {
            Some(Owner::Application) => "own",
            Some(Owner::Plumbing) => "plumbing",
            Some(Owner::Library | Owner::C | Owner::Unknown) | None => "other",
        }
    }
}
