//! The packet cases on Debian's kernel, and those of SCTP, which it has.

use zw_plan::testing::{cases, sctp_cases};
use zw_tests::plane::{KernelPlane, check_all};
use zw_tests::vm::inside;

#[test]
fn debians_kernel_agrees_with_the_walker_on_every_packet() {
    inside(|| println!("{} packet rows", check_all(&KernelPlane::new(), cases)));
}

#[test]
fn debians_kernel_agrees_with_the_walker_on_every_sctp_packet() {
    inside(|| println!("{} SCTP packet rows", check_all(&KernelPlane::with_sctp(), sctp_cases)));
}
