//! Plots: what they show, where everything goes, and how they are shown.
//!
//! A plot is data ([`rows`], [`lines`]); its layout makes a [`drawing`] of it, which [`svg`] puts on the page and into a file.
//! The layout needs no font of the machine.

pub mod drawing;
pub mod font;
pub mod lines;
pub mod palette;
pub mod rows;
pub mod scale;
pub mod svg;

use drawing::Drawing;

/// A plot.
#[derive(Clone, Debug)]
pub enum Plot {
    /// Bars or marks, a line each.
    Rows(rows::Rows),
    /// Lines over an axis.
    Lines(lines::Lines),
}

impl Plot {
    /// Its layout.
    pub fn draw(&self) -> Drawing {
        match self {
            Self::Rows(plot) => rows::draw(plot),
            Self::Lines(plot) => lines::draw(plot),
        }
    }
}
