//! One verb per file.

pub(crate) mod check;
pub(crate) mod cleanup;
pub(crate) mod controller;
pub(crate) mod demo;
pub(crate) mod diff;
pub(crate) mod dump_rules;
pub(crate) mod explain;
pub(crate) mod ready;
pub(crate) mod run;
pub(crate) mod simulate;
pub(crate) mod top;
pub(crate) mod trace;
