//! One line for each thing that is compared: a bar from zero, or a mark on a logarithmic axis, with its interval.

use super::drawing::{Anchor, Drawing, Ink, MARK, SMALL, Shape, TEXT, WIDTH};
use super::font::{self, Weight};
use super::scale::{Kind, Scale};
use crate::unit::Unit;

/// Things that are compared.
#[derive(Clone, Debug)]
pub struct Rows {
    /// What the numbers count.
    pub unit: Unit,
    /// What the axis must hold and how.
    pub axis: Axis,
    /// A number that others are compared with, and what it is.
    pub reference: Option<(f64, String)>,
    /// The rows, in groups with a heading (or none).
    pub groups: Vec<(String, Vec<Row>)>,
}

/// How the axis is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    /// From zero where the numbers are of one size, logarithmic where they span decades.
    Fitting,
    /// Around the reference: for differences and ratios near it.
    Around,
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
    /// Whether the number is only known to be at least this.
    pub is_least: bool,
    /// Where it lies.
    pub interval: Option<(f64, f64)>,
    /// A second number of the same thing, shown as a hollow mark.
    pub second: Option<f64>,
    /// What stands in the place of the number where there is none.
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
    let as_bars = scale.kind == Kind::Linear && scale.low == 0.0 && plot.axis == Axis::Fitting;
    let width = |text: &str| font::width(text, TEXT, Weight::Regular);
    let widest = all.iter().map(|row| width(&row.label)).fold(0.0, f64::max);
    let above = widest > BESIDE;
    let numbers: Vec<String> = all.iter().map(|row| number(row, plot.unit)).collect();
    let number_width = numbers.iter().map(|text| width(text)).fold(0.0, f64::max);
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
    let mut y = top;
    for (name, rows) in &plot.groups {
        y += if name.is_empty() { 0.0 } else { HEADING };
        let end = y + rows.len() as f64 * row_height;
        if above {
            // The names interrupt the lines.
            for _ in rows {
                grid(&mut drawing, &ticks, reference, (y + 17.0, y + row_height));
                y += row_height;
            }
        } else {
            grid(&mut drawing, &ticks, reference, (y, end));
        }
        y = end;
    }
    if let Some((value, name)) = &plot.reference {
        centred(&mut drawing, x(*value), top - 6.0, name);
    }
    let mut y = top;
    for (name, rows) in &plot.groups {
        if !name.is_empty() {
            y += HEADING;
            let name = font::fit(name, TEXT, Weight::Bold, WIDTH);
            drawing.heading((0.0, y - 7.0), &name, TEXT);
        }
        for row in rows {
            let middle = y + row_height - ROW / 2.0;
            let baseline = if above {
                y + TEXT + 1.0
            } else {
                middle + 0.36 * TEXT
            };
            let label = font::fit(
                &row.label,
                TEXT,
                Weight::Regular,
                if above { WIDTH } else { widest },
            );
            drawing.text((0.0, baseline), &label, TEXT, Anchor::Start, Ink::Text);
            let text = number(row, plot.unit);
            let place = (WIDTH, middle + 0.36 * TEXT);
            let ink = if row.value.is_some() {
                Ink::Text
            } else {
                Ink::Muted
            };
            drawing.text(place, &text, TEXT, Anchor::End, ink);
            shape(&mut drawing, row, middle, &x, as_bars, plot.unit);
            y += row_height;
        }
    }
    drawing
}

fn number(row: &Row, unit: Unit) -> String {
    match row.value {
        Some(value) if row.is_least => format!("≥ {}", unit.show(value)),
        Some(value) => unit.show(value),
        None if row.instead.is_empty() => "–".into(),
        None => font::fit(&row.instead, TEXT, Weight::Regular, 130.0),
    }
}

fn scale(plot: &Rows, rows: &[&Row]) -> Scale {
    let mut values: Vec<f64> = Vec::new();
    for row in rows {
        values.extend(row.value);
        values.extend(row.second);
        values.extend(row.interval.map(|(low, _)| low));
        values.extend(row.interval.map(|(_, high)| high));
    }
    values.extend(plot.reference.as_ref().map(|(value, _)| *value));
    match plot.axis {
        Axis::Around => Scale::linear(&values),
        Axis::Fitting => match Scale::of(&values) {
            scale if scale.kind == Kind::Log => scale,
            _ => Scale::from_zero(&values),
        },
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
    let mut free_from = f64::NEG_INFINITY;
    let mut ticks = Vec::new();
    for tick in scale.ticks(wanted) {
        let x = left + scale.at(tick) * (right - left);
        let most = match scale.kind {
            Kind::Linear => scale.high.abs().max(scale.low.abs()),
            Kind::Log => tick,
        };
        let text = unit.tick(tick, most);
        let half = font::width(&text, SMALL, Weight::Regular) / 2.0;
        let middle = x.clamp(half, WIDTH - half);
        if middle - half > free_from {
            let place = (middle, bottom + 16.0);
            drawing.text(place, &text, SMALL, Anchor::Middle, Ink::Muted);
            free_from = middle + half + 6.0;
        }
        // Where bars begin.
        let is_zero = scale.kind == Kind::Linear && tick == 0.0;
        ticks.push((x, if is_zero { Ink::Muted } else { Ink::Grid }));
    }
    ticks
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

fn centred(drawing: &mut Drawing, x: f64, y: f64, text: &str) {
    let half = font::width(text, SMALL, Weight::Regular) / 2.0;
    let x = x.clamp(half, (WIDTH - half).max(half));
    drawing.text((x, y), text, SMALL, Anchor::Middle, Ink::Reference);
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
    if as_bar {
        drawing.shapes.push(Shape::Bar {
            at: (x(0.0), y - 6.0),
            size: ((x(value) - x(0.0)).max(0.5), 12.0),
            ink,
        });
    }
    if let Some(second) = row.second {
        drawing.line(vec![(x(second), y), (x(value), y)], ink, 1.2);
        let tip = format!("{}: {}", row.label, unit.show(second));
        drawing.mark((x(second), y), row.slot, true, tip);
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
        let interval = row.interval.map_or(String::new(), |(low, high)| {
            format!(" ({} to {})", unit.show(low), unit.show(high))
        });
        let tip = format!("{}: {}{interval}", row.label, unit.show(value));
        drawing.mark((x(value), y), row.slot, false, tip);
    }
}
