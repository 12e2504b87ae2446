//! `lab report`: one HTML page of a result that a bench wrote, or of two beside each other, or of all that a machine wrote in a survey.
//!
//! * [`mod@command`]: reads files, writes the page; [`document`], [`survey`]: what a file holds;
//! * [`axes`]: what tells rows apart, and how rows become series and panels; [`figure`]: what figures are, by their keys;
//! * [`mod@principal`]: which figures stand for rows;
//! * [`interval`], [`compare`]: how a row of one file is to that of the other, and whether that is more than chance;
//! * [`mod@summary`]: what the page says first; [`mod@brief`]: what a bench prints below that; [`tables`], [`compared`], [`params`]: what it lists;
//! * [`plots`]: which plots there are; [`curves`], [`samples`]: what is in them;
//! * [`strip`]: points in rows; [`chart`](crate::chart) draws everything else;
//! * [`page`]: the page around all of it.
//!
//! No workload is named here: all follows from the keys of rows.

mod axes;
mod brief;
mod command;
mod compare;
mod compared;
mod curves;
mod document;
mod figure;
mod interval;
mod page;
mod params;
mod plots;
mod principal;
mod samples;
mod strip;
mod summary;
mod survey;
mod tables;
#[cfg(test)]
mod tests;

pub use command::{command, summary};
