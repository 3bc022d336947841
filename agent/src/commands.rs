//! One verb per file.

pub(crate) mod check;
pub(crate) mod cleanup;
pub(crate) mod controller;
pub(crate) mod demo;
pub(crate) mod dump_rules;
pub(crate) mod run;
pub(crate) mod simulate;
