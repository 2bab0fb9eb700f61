//! Lines over an axis: percentile curves, and what changes with time or size.

use super::drawing::{Anchor, Drawing, Ink, Place, SMALL, TEXT, WIDTH};
use super::font::{self, Weight};
use super::scale::{Kind, Scale, percentile_place, percentile_ticks};
use crate::unit::Unit;

/// Lines over one axis.
#[derive(Clone, Debug)]
pub struct Lines {
    /// The axis below.
    pub across: Across,
    /// What the axis at the side counts.
    pub unit: Unit,
    /// Whether the axis at the side begins at zero where it is linear.
    pub from_zero: bool,
    /// A number at the side that others are compared with. The caption says what it is: points may be anywhere.
    pub reference: Option<f64>,
    /// The lines.
    pub lines: Vec<Line>,
}

/// The axis below.
#[derive(Clone, Debug)]
pub enum Across {
    /// Shares of the samples: each nine takes as much room.
    Percentiles,
    /// Numbers.
    Numbers {
        /// What they count.
        unit: Unit,
        /// What they are.
        name: String,
        /// Whether equal ratios are equally far apart.
        log: bool,
    },
}

/// How a line is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// From point to point, with a mark at each, or at those with a name.
    Marked,
    /// From point to point.
    Plain,
    /// Marks alone: what is between them was not measured.
    Points,
}

/// One line.
#[derive(Clone, Debug)]
pub struct Line {
    /// Its name.
    pub label: String,
    /// Its place in the palette.
    pub slot: usize,
    /// How it is drawn.
    pub style: Style,
    /// Its points, and where each lies.
    pub points: Vec<Point>,
}

/// A point of a line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// On the axis below.
    pub x: f64,
    /// On the axis at the side.
    pub y: f64,
    /// Where `y` lies.
    pub interval: Option<(f64, f64)>,
}

impl Point {
    /// Without an interval.
    pub fn new(x: f64, y: f64) -> Self {
        Self {
            x,
            y,
            interval: None,
        }
    }
}

/// Names up to here stand beside the ends of their lines, longer ones below.
const NAMES: f64 = 124.0;
const HEIGHT: f64 = 264.0;
const BELOW: f64 = 38.0;
/// From one name to the next.
const APART: f64 = 16.0;

/// Where things are.
struct Frame {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    across: Scale,
    up: Scale,
}

impl Frame {
    fn place(&self, x: f64, y: f64) -> Place {
        let right = self.left + self.across.at(x) * (self.right - self.left);
        let up = self.up.at(y) * (self.bottom - self.top);
        (right, self.bottom - up)
    }
}

/// Draws them.
pub fn draw(plot: &Lines) -> Drawing {
    let up = side(plot);
    let across = below(plot);
    let most = |scale: &Scale, tick: f64| match scale.kind {
        Kind::Linear => scale.high.abs().max(scale.low.abs()),
        Kind::Log => tick,
    };
    let up_ticks: Vec<(f64, String)> = up
        .ticks(6)
        .into_iter()
        .map(|tick| (tick, plot.unit.tick(tick, most(&up, tick))))
        .collect();
    let small = |text: &str| font::width(text, SMALL, Weight::Regular);
    let widest = up_ticks
        .iter()
        .map(|(_, text)| small(text))
        .fold(0.0, f64::max);
    let names: Vec<String> = plot
        .lines
        .iter()
        .map(|line| font::fit(&line.label, TEXT, Weight::Regular, WIDTH - 24.0))
        .collect();
    let name_width = names
        .iter()
        .map(|name| font::width(name, TEXT, Weight::Regular))
        .fold(0.0, f64::max);
    let named = plot.lines.len() > 1;
    let beside = named && name_width <= NAMES;
    let legend = if named && !beside {
        legend_places(&names)
    } else {
        Vec::new()
    };
    let legend_height = legend.last().map_or(0.0, |(_, y)| y + 0.5 * APART);
    let height = HEIGHT.max(APART * names.len() as f64 + BELOW + 16.0);
    let frame = Frame {
        left: widest + 8.0,
        right: if beside {
            WIDTH - name_width - 32.0
        } else {
            WIDTH - 10.0
        },
        top: 10.0,
        bottom: height - BELOW,
        across,
        up,
    };
    let mut drawing = Drawing::new(height + legend_height);
    for (tick, text) in &up_ticks {
        let (_, y) = frame.place(frame.across.low, *tick);
        drawing.line(vec![(frame.left, y), (frame.right, y)], Ink::Grid, 1.0);
        let place = (frame.left - 8.0, y + 0.36 * SMALL);
        drawing.text(place, text, SMALL, Anchor::End, Ink::Muted);
    }
    axis_below(&mut drawing, plot, &frame);
    if let Some(value) = plot.reference {
        let (_, y) = frame.place(frame.across.low, value);
        drawing.dashed(vec![(frame.left, y), (frame.right, y)], Ink::Reference, 1.2);
    }
    for line in &plot.lines {
        draw_line(&mut drawing, plot, line, &frame);
    }
    if beside {
        draw_names(&mut drawing, plot, &names, &frame);
    }
    for ((line, name), (x, y)) in plot.lines.iter().zip(&names).zip(legend) {
        name_at(&mut drawing, line, name, (x, height + y));
    }
    drawing
}

/// One after another, in as many rows as it takes.
fn legend_places(names: &[String]) -> Vec<Place> {
    let (mut x, mut y) = (8.0, 0.5 * APART);
    let mut places = Vec::new();
    for name in names {
        let width = 10.0 + font::width(name, TEXT, Weight::Regular);
        if x + width > WIDTH && x > 8.0 {
            (x, y) = (8.0, y + 1.2 * APART);
        }
        places.push((x, y));
        x += width + 18.0;
    }
    places
}

fn name_at(drawing: &mut Drawing, line: &Line, name: &str, (x, y): Place) {
    drawing.mark((x, y), line.slot, false, String::new());
    let place = (x + 10.0, y + 0.36 * TEXT);
    drawing.text(place, name, TEXT, Anchor::Start, Ink::Text);
}

fn side(plot: &Lines) -> Scale {
    let mut values: Vec<f64> = Vec::new();
    for point in plot.lines.iter().flat_map(|line| &line.points) {
        values.push(point.y);
        values.extend(point.interval.map(|(low, _)| low));
        values.extend(point.interval.map(|(_, high)| high));
    }
    values.extend(plot.reference);
    match Scale::of(&values) {
        scale if scale.kind == Kind::Log => scale,
        _ if plot.from_zero => Scale::from_zero(&values),
        scale => scale,
    }
}

fn below(plot: &Lines) -> Scale {
    let values: Vec<f64> = plot
        .lines
        .iter()
        .flat_map(|line| &line.points)
        .map(|point| x_of(plot, point.x))
        .collect();
    let extreme = |start, pick: fn(f64, f64) -> f64| values.iter().copied().fold(start, pick);
    let (low, high) = (
        extreme(f64::INFINITY, f64::min),
        extreme(f64::NEG_INFINITY, f64::max),
    );
    match &plot.across {
        Across::Percentiles => Scale {
            kind: Kind::Linear,
            low: 0.0,
            high: high.max(1.0),
        },
        // Where the numbers end, the axis does: time that was not measured takes no room.
        Across::Numbers { log: true, .. } if low > 0.0 && high > low => Scale {
            kind: Kind::Log,
            low,
            high,
        },
        Across::Numbers { .. } if high > low => Scale {
            kind: Kind::Linear,
            low,
            high,
        },
        Across::Numbers { .. } => Scale::linear(&values),
    }
}

fn x_of(plot: &Lines, x: f64) -> f64 {
    match plot.across {
        Across::Percentiles => percentile_place(x),
        Across::Numbers { .. } => x,
    }
}

fn axis_below(drawing: &mut Drawing, plot: &Lines, frame: &Frame) {
    let wanted = ((frame.right - frame.left) / 56.0).floor().max(2.0) as usize;
    let (ticks, name): (Vec<(f64, String)>, String) = match &plot.across {
        Across::Percentiles => (
            percentile_ticks(frame.across.high)
                .into_iter()
                .map(|(share, text)| (percentile_place(share), text))
                .collect(),
            "percentile".into(),
        ),
        Across::Numbers { unit, name, .. } => {
            let text = |tick: f64| match frame.across.kind {
                Kind::Linear => unit.tick(tick, frame.across.high),
                Kind::Log => unit.tick(tick, tick),
            };
            let ticks = match (unit, frame.across.kind) {
                (Unit::Bytes, Kind::Log) => doublings(&frame.across),
                _ => frame.across.ticks(wanted),
            };
            (
                ticks.into_iter().map(|tick| (tick, text(tick))).collect(),
                name.clone(),
            )
        }
    };
    drawing.line(
        vec![(frame.left, frame.bottom), (frame.right, frame.bottom)],
        Ink::Muted,
        1.0,
    );
    // Where there is no room for all names, the first has to go: it is the least of the percentiles.
    let mut free_from = f64::INFINITY;
    for (tick, text) in ticks.iter().rev() {
        let (x, _) = frame.place(*tick, frame.up.low);
        drawing.line(vec![(x, frame.top), (x, frame.bottom)], Ink::Grid, 1.0);
        let half = font::width(text, SMALL, Weight::Regular) / 2.0;
        let middle = x.clamp(half, WIDTH - half);
        if middle + half < free_from {
            let place = (middle, frame.bottom + 16.0);
            drawing.text(place, text, SMALL, Anchor::Middle, Ink::Muted);
            free_from = middle - half - 6.0;
        }
    }
    let middle = (frame.left + frame.right) / 2.0;
    let place = (middle, frame.bottom + 32.0);
    drawing.text(place, &name, SMALL, Anchor::Middle, Ink::Muted);
}

/// Sizes go in powers of two.
fn doublings(scale: &Scale) -> Vec<f64> {
    let powers = (0..40).map(|power| 2_f64.powi(power));
    powers
        .filter(|size| *size >= scale.low * 0.999 && *size <= scale.high * 1.001)
        .collect()
}

fn draw_line(drawing: &mut Drawing, plot: &Lines, line: &Line, frame: &Frame) {
    let ink = Ink::Series(line.slot);
    let places: Vec<Place> = line
        .points
        .iter()
        .map(|point| frame.place(x_of(plot, point.x), point.y))
        .collect();
    for (point, (x, _)) in line.points.iter().zip(&places) {
        if let Some((low, high)) = point.interval {
            let ends = [low, high].map(|y| frame.place(frame.across.low, y).1);
            drawing.line(vec![(*x, ends[0]), (*x, ends[1])], ink, 1.4);
            for end in ends {
                drawing.line(vec![(x - 3.5, end), (x + 3.5, end)], ink, 1.4);
            }
        }
    }
    if line.style != Style::Points && places.len() > 1 {
        let thick = if line.style == Style::Plain { 1.5 } else { 2.0 };
        drawing.line(places.clone(), ink, thick);
    }
    if line.style != Style::Plain || places.len() == 1 {
        for (point, place) in line.points.iter().zip(&places) {
            if is_marked(plot, point.x) {
                drawing.mark(*place, line.slot, false, tip(plot, line, point));
            }
        }
    }
}

/// Curves have marks at the percentiles with a name.
fn is_marked(plot: &Lines, x: f64) -> bool {
    match plot.across {
        Across::Percentiles => percentile_ticks(9.0)
            .iter()
            .any(|(share, _)| (share - x).abs() < 1e-9),
        Across::Numbers { .. } => true,
    }
}

fn tip(plot: &Lines, line: &Line, point: &Point) -> String {
    let at = match &plot.across {
        Across::Percentiles => format!("p{}", (point.x * 1e8).round() / 1e6),
        Across::Numbers { unit, .. } => unit.show(point.x),
    };
    format!("{}, {at}: {}", line.label, plot.unit.show(point.y))
}

/// Names beside the ends of their lines, moved apart where they would stand on each other.
fn draw_names(drawing: &mut Drawing, plot: &Lines, names: &[String], frame: &Frame) {
    let end = |line: &Line| {
        line.points
            .last()
            .map(|point| frame.place(x_of(plot, point.x), point.y))
    };
    let ends: Vec<Place> = plot
        .lines
        .iter()
        .map(|line| end(line).unwrap_or((frame.right, frame.bottom)))
        .collect();
    let wanted: Vec<f64> = ends.iter().map(|(_, y)| *y).collect();
    let places = spread(&wanted, APART, frame.top, frame.bottom);
    let x = frame.right + 19.0;
    for ((line, name), (end, y)) in plot.lines.iter().zip(names).zip(ends.iter().zip(places)) {
        let ink = Ink::Series(line.slot);
        if (end.1 - y).abs() > 3.0 || frame.right - end.0 > 8.0 {
            drawing.dashed(vec![*end, (x - 7.0, y)], ink, 0.9);
        }
        name_at(drawing, line, name, (x, y));
    }
}

/// Places near those wanted, at least so far apart, within bounds where there is room for all.
fn spread(wanted: &[f64], apart: f64, low: f64, high: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|a, b| wanted[*a].total_cmp(&wanted[*b]));
    // Runs of neighbours that touch are moved as one, with their middle where they want to be.
    let mut runs: Vec<(f64, usize)> = Vec::new();
    for i in &order {
        runs.push((wanted[*i], 1));
        while let [.., (above, many), (below, more)] = runs[..] {
            let gap = apart * (many + more) as f64 / 2.0;
            if below - above >= gap {
                break;
            }
            let all = many + more;
            let middle = (above * many as f64 + below * more as f64) / all as f64;
            runs.truncate(runs.len() - 2);
            runs.push((middle, all));
        }
    }
    let mut places = vec![0.0; wanted.len()];
    let mut next = order.iter();
    for (middle, many) in runs {
        let first = middle - apart * (many - 1) as f64 / 2.0;
        for (i, index) in next.by_ref().take(many).enumerate() {
            places[*index] = first + apart * i as f64;
        }
    }
    // Into the bounds, from below and then from above.
    let mut least = high;
    for i in order.iter().rev() {
        places[*i] = places[*i].min(least);
        least = places[*i] - apart;
    }
    let mut most = low;
    for i in &order {
        places[*i] = places[*i].max(most);
        most = places[*i] + apart;
    }
    places
}

#[cfg(test)]
mod tests {
    use super::super::drawing::Shape;
    use super::*;

    #[test]
    fn names_are_moved_apart_and_stay_near() {
        let places = spread(&[50.0, 52.0, 51.0, 200.0], 16.0, 0.0, 300.0);
        assert_eq!(places, [35.0, 67.0, 51.0, 200.0]);
        let at_the_edge = spread(&[0.0, 1.0, 299.0, 300.0], 16.0, 0.0, 300.0);
        assert_eq!(at_the_edge, [0.0, 16.0, 284.0, 300.0]);
        assert!(spread(&[], 16.0, 0.0, 300.0).is_empty());
        // More than there is room for: still apart.
        let many = spread(&[10.0; 30], 16.0, 0.0, 100.0);
        assert!(many.windows(2).all(|pair| pair[1] - pair[0] >= 16.0));
    }

    fn plot(labels: &[&str]) -> Lines {
        let line = |label: &&str| Line {
            label: (*label).into(),
            slot: 0,
            style: Style::Marked,
            points: vec![Point::new(0.5, 1_000.0), Point::new(0.99, 90_000.0)],
        };
        Lines {
            across: Across::Percentiles,
            unit: Unit::Time,
            from_zero: true,
            reference: None,
            lines: labels.iter().map(line).collect(),
        }
    }

    #[test]
    fn everything_is_inside_of_the_drawing() {
        let long = "a name that is far too long to stand beside a line".repeat(3);
        for labels in [
            &["one"][..],
            &["tokio", "morpheus"],
            &[&long, "b", "c"],
            &["x"; 8],
        ] {
            let drawing = draw(&plot(labels));
            for shape in &drawing.shapes {
                let inside = |(x, y): &Place| {
                    (0.0..=drawing.width).contains(x) && (0.0..=drawing.height).contains(y)
                };
                let fits = match shape {
                    Shape::Line { points, .. } => points.iter().all(inside),
                    Shape::Bar { at, .. } | Shape::Mark { at, .. } => inside(at),
                    Shape::Text {
                        at,
                        text,
                        size,
                        anchor,
                        weight,
                        ..
                    } => {
                        let width = font::width(text, *size, *weight);
                        let left = match anchor {
                            Anchor::Start => at.0,
                            Anchor::Middle => at.0 - width / 2.0,
                            Anchor::End => at.0 - width,
                        };
                        inside(&(left.max(-0.01) + 0.01, at.1))
                            && inside(&(left + width - 0.5, at.1))
                    }
                };
                assert!(fits, "{shape:?}");
            }
        }
    }
}
