#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| zw_fuzz::protobuf(bytes));
