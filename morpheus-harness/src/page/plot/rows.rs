//! One line for each thing that is compared: a bar from zero, or a mark on a logarithmic axis, with its interval.

use super::drawing::{Anchor, Drawing, Ink, MARK, SMALL, Shape, TEXT, WIDTH};
use super::font::{self, Weight};
use super::scale::{Kind, Scale};
use crate::rows::Bound;
use crate::unit::Unit;

/// Things that are compared.
#[derive(Clone, Debug)]
pub struct Rows {
    /// The unit of the numbers.
    pub unit: Unit,
    /// A number that others are compared with, and what it is. The axis is around it. Without one the axis is from zero where the
    /// numbers are of one size, and logarithmic where they span decades.
    pub reference: Option<(f64, String)>,
    /// The rows, in groups with a heading (or none).
    pub groups: Vec<(String, Vec<Row>)>,
}

/// A thing that was measured.
#[derive(Clone, Debug, Default)]
pub struct Row {
    /// Its name.
    pub label: String,
    /// Its place in the palette.
    pub slot: usize,
    /// The number; none where there is none.
    pub value: Option<f64>,
    /// How well it is known.
    pub bound: Bound,
    /// Where it lies.
    pub interval: Option<(f64, f64)>,
    /// Where a thing that is compared with itself lies: a difference within this says nothing.
    pub noise: Option<(f64, f64)>,
    /// The text in the place of the number where there is none.
    pub instead: String,
}

/// Names up to here stand beside their row, longer ones above it.
const BESIDE: f64 = 132.0;
const ROW: f64 = 23.0;
const ROW_BELOW_NAME: f64 = 38.0;
const HEADING: f64 = 24.0;
/// Room for the numbers at the axis.
const AXIS: f64 = 22.0;

/// Draws them.
pub fn draw(plot: &Rows) -> Drawing {
    let all: Vec<&Row> = plot.groups.iter().flat_map(|(_, rows)| rows).collect();
    let scale = scale(plot, &all);
    let as_bars = scale.kind == Kind::Linear && scale.low == 0.0 && plot.reference.is_none();
    let widest = font::widest(all.iter().map(|row| &row.label), TEXT);
    let above = widest > BESIDE;
    let numbers: Vec<String> = all.iter().map(|row| number(row, plot.unit)).collect();
    let number_width = font::widest(&numbers, TEXT);
    let left = if above { MARK + 2.0 } else { widest + 12.0 };
    let right = WIDTH - number_width - 14.0;
    let headings = plot
        .groups
        .iter()
        .filter(|(name, _)| !name.is_empty())
        .count() as f64;
    let row_height = if above { ROW_BELOW_NAME } else { ROW };
    let top = if plot.reference.is_some() { 20.0 } else { 4.0 };
    let bottom = top + headings * HEADING + all.len() as f64 * row_height + 2.0;
    let mut drawing = Drawing::new(bottom + AXIS);
    let x = |value: f64| left + scale.at(value) * (right - left);
    let ticks = axis(&mut drawing, &scale, plot.unit, (left, right), bottom);
    let reference = plot.reference.as_ref().map(|(value, _)| x(*value));
    if let Some((value, name)) = &plot.reference {
        let half = font::width(name, SMALL, Weight::Regular) / 2.0;
        let middle = x(*value).clamp(half, (WIDTH - half).max(half));
        let place = (middle, top - 6.0);
        drawing.text(place, name, SMALL, Anchor::Middle, Ink::Reference);
    }
    let mut y = top;
    for (name, rows) in &plot.groups {
        if !name.is_empty() {
            y += HEADING;
            let name = font::fit(name, TEXT, Weight::Bold, WIDTH);
            drawing.heading((0.0, y - 7.0), &name, TEXT);
        }
        if !above {
            let end = y + rows.len() as f64 * row_height;
            grid(&mut drawing, &ticks, reference, (y, end));
        }
        for row in rows {
            let middle = y + row_height - ROW / 2.0;
            let (baseline, room) = if above {
                // The names interrupt the lines.
                grid(&mut drawing, &ticks, reference, (y + 17.0, y + row_height));
                (y + TEXT + 1.0, WIDTH)
            } else {
                (middle + 0.36 * TEXT, widest)
            };
            let label = font::fit(&row.label, TEXT, Weight::Regular, room);
            drawing.text((0.0, baseline), &label, TEXT, Anchor::Start, Ink::Text);
            let text = number(row, plot.unit);
            let place = (WIDTH, middle + 0.36 * TEXT);
            let ink = row.value.map_or(Ink::Muted, |_| Ink::Text);
            drawing.text(place, &text, TEXT, Anchor::End, ink);
            shape(&mut drawing, row, middle, &x, as_bars, plot.unit);
            y += row_height;
        }
    }
    drawing
}

fn number(row: &Row, unit: Unit) -> String {
    match row.value {
        Some(value) => format!("{}{}", row.bound.sign(), unit.show(value)),
        None if row.instead.is_empty() => "–".into(),
        None => font::fit(&row.instead, TEXT, Weight::Regular, 130.0),
    }
}

fn scale(plot: &Rows, rows: &[&Row]) -> Scale {
    let mut values: Vec<f64> = Vec::new();
    for row in rows {
        values.extend(row.value);
        let ends = row.interval.into_iter().chain(row.noise);
        values.extend(ends.flat_map(<[f64; 2]>::from));
    }
    match &plot.reference {
        Some((value, _)) => Scale::linear(&[&values[..], &[*value]].concat()),
        None => Scale::of(&values),
    }
}

/// Round numbers below the rows, where there is room; returns where all of them are, and how each is drawn.
fn axis(
    drawing: &mut Drawing,
    scale: &Scale,
    unit: Unit,
    (left, right): (f64, f64),
    bottom: f64,
) -> Vec<(f64, Ink)> {
    let wanted = ((right - left) / 62.0).floor().max(2.0) as usize;
    let ticks = scale.ticks(wanted);
    let x = |tick: f64| left + scale.at(tick) * (right - left);
    let names = ticks.iter().map(|tick| (x(*tick), scale.name(unit, *tick)));
    drawing.ticks(names, bottom + 16.0);
    // Where bars begin.
    let is_zero = |tick: f64| scale.kind == Kind::Linear && tick == 0.0;
    let ink = |tick: f64| if is_zero(tick) { Ink::Muted } else { Ink::Grid };
    ticks.iter().map(|tick| (x(*tick), ink(*tick))).collect()
}

/// Lines at these places, and at what others are compared with; a heading interrupts them.
fn grid(
    drawing: &mut Drawing,
    ticks: &[(f64, Ink)],
    reference: Option<f64>,
    (top, bottom): (f64, f64),
) {
    for (x, ink) in ticks {
        drawing.line(vec![(*x, top), (*x, bottom)], *ink, 1.0);
    }
    if let Some(x) = reference {
        drawing.dashed(vec![(x, top), (x, bottom)], Ink::Reference, 1.2);
    }
}

fn shape(
    drawing: &mut Drawing,
    row: &Row,
    y: f64,
    x: &dyn Fn(f64) -> f64,
    as_bar: bool,
    unit: Unit,
) {
    let ink = Ink::Series(row.slot);
    let Some(value) = row.value else {
        return;
    };
    if let Some((low, high)) = row.noise {
        drawing.shapes.push(Shape::Bar {
            at: (x(low), y - 7.0),
            size: (x(high) - x(low), 14.0),
            ink: Ink::Grid,
        });
    }
    if as_bar {
        drawing.shapes.push(Shape::Bar {
            at: (x(0.0), y - 6.0),
            size: ((x(value) - x(0.0)).max(0.5), 12.0),
            ink,
        });
    }
    if let Some((low, high)) = row.interval {
        let (low, high) = (x(low), x(high));
        let (ink, thick) = if as_bar { (Ink::Text, 1.3) } else { (ink, 2.4) };
        drawing.line(vec![(low, y), (high, y)], ink, thick);
        for end in [low, high] {
            drawing.line(vec![(end, y - 4.0), (end, y + 4.0)], ink, thick.min(1.6));
        }
    }
    if !as_bar {
        let interval = row.interval.map(|ends| format!(" ({})", unit.range(ends)));
        let interval = interval.unwrap_or_default();
        let tip = format!("{}: {}{interval}", row.label, unit.show(value));
        drawing.mark((x(value), y), row.slot, tip);
    }
}
