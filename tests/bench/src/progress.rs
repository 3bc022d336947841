//! What is going on, for whoever waits: a bar on a terminal, a line for each step elsewhere.

use std::io::{self, IsTerminal as _};
use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};

/// How far a run has come.
pub(crate) struct Progress {
    bar: ProgressBar,
    started: Instant,
    steps: usize,
}

impl Progress {
    /// A run of so many steps.
    pub(crate) fn new(steps: usize) -> Self {
        let bar = if io::stderr().is_terminal() {
            let style = ProgressStyle::with_template("{bar:30} {pos}/{len}  {wide_msg}");
            let bar = ProgressBar::new(steps as u64);
            bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        } else {
            ProgressBar::hidden()
        };
        Self { bar, started: Instant::now(), steps }
    }

    /// The next step begins.
    pub(crate) fn step(&self, what: &str) {
        self.bar.inc(1);
        self.bar.set_message(what.to_owned());
        if self.bar.is_hidden() {
            self.tell(what);
        }
    }

    /// A part of a step is done; for bars only.
    pub(crate) fn part(&self, done: usize, all: usize) {
        if done.is_multiple_of(500) && !self.bar.is_hidden() {
            let what = self.bar.message();
            let what = what.split(": ").next().unwrap_or_default();
            self.bar.set_message(format!("{what}: {done} of {all}"));
        }
    }

    /// Something was measured.
    pub(crate) fn tell(&self, what: &str) {
        let line = format!(
            "{:7.1} s  {:>2}/{}  {what}",
            self.started.elapsed().as_secs_f64(),
            self.bar.position(),
            self.steps
        );
        if self.bar.is_hidden() {
            eprintln!("{line}");
        } else {
            self.bar.println(line);
        }
    }

    /// All is measured.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
