#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| zw_fuzz::config(text));
