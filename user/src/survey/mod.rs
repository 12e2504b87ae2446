//! A survey of the machine: every measuring program that says something about it, one after the other, and calls in ring 0.
//!
//! It is the first process of the image that `lab iso` makes. The programs run as they are, with arguments suited to the CPUs that
//! were found; their lines for the lab go on to the console, and tables of 80 columns are made of their rows for those who look
//! at the screen. The last page has them all.
//!
//! * [`options`]: the command line; [`facts`]: what the machine is;
//! * [`plan`]: which programs run, with which arguments;
//! * [`run`]: running one of them, or the calls, and keeping its rows;
//! * [`table`]: text in columns; [`pages`]: what is shown of each bench;
//! * [`course`]: the whole.

pub mod course;
pub mod facts;
pub mod options;
pub mod pages;
pub mod plan;
pub mod run;
pub mod table;

pub use course::main;
