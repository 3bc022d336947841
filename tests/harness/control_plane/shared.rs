//! Whose turn it is: one control plane at a time on a machine, and one for all tests of a binary that
//! can live together.

use std::fs::{File, TryLockError};
use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::sync::{self, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread;
use std::time::{Duration, Instant};

use zw_lab::Namespace;

use super::ControlPlane;

/// Long enough for all tests of another binary to end.
const PATIENCE: Duration = Duration::from_secs(900);

static SHARED: RwLock<Option<ControlPlane>> = RwLock::new(None);

/// The right to run a control plane on this machine; ends when dropped.
pub(super) struct Turn(#[expect(dead_code, reason = "open, it keeps the lock")] File);

/// Waits for the right to run a control plane. The shared one of this process gives way once idle.
pub(super) fn take_turn(programs: &Path) -> Turn {
    let lock = File::create(programs.with_file_name("control-plane.lock"))
        .expect("the folder of the programs is in a writable one");
    let end = Instant::now() + PATIENCE;
    loop {
        match lock.try_lock() {
            Ok(()) => return Turn(lock),
            Err(TryLockError::Error(error)) => panic!("lock the control plane: {error}"),
            Err(TryLockError::WouldBlock) => {}
        }
        match SHARED.try_write() {
            Ok(mut idle) => *idle = None,
            Err(sync::TryLockError::Poisoned(broken)) => *broken.into_inner() = None,
            Err(sync::TryLockError::WouldBlock) => {}
        }
        assert!(Instant::now() < end, "another control plane runs on this machine for too long");
        thread::sleep(Duration::from_millis(20));
    }
}

/// The control plane of this test binary, for use together with other tests: use a namespace of the API
/// of your own. Started by the first who asks. Never ask while you hold it.
pub fn shared() -> Shared {
    loop {
        if let Ok(plane) = SHARED.read()
            && plane.is_some()
        {
            return Shared(plane);
        }
        drop(exclusive());
    }
}

/// The same control plane alone, for tests that restart its parts. What they stopped runs again when they
/// are done, and what they started is stopped.
pub fn exclusive() -> Exclusive {
    let mut plane = SHARED.write().unwrap_or_else(|poisoned| {
        // Its last user panicked half way through something.
        let mut plane = PoisonError::into_inner(poisoned);
        *plane = None;
        SHARED.clear_poison();
        plane
    });
    if plane.is_none() {
        let namespace = Namespace::new().expect("a network namespace, which takes root");
        *plane = Some(ControlPlane::start(&namespace));
    }
    Exclusive(plane)
}

/// The control plane together with others, see [`shared`].
pub struct Shared(RwLockReadGuard<'static, Option<ControlPlane>>);

impl Deref for Shared {
    type Target = ControlPlane;

    fn deref(&self) -> &ControlPlane {
        self.0.as_ref().expect("it was there when the lock was taken")
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("{}", self.logs_tail());
        }
    }
}

/// The control plane alone, see [`exclusive`].
pub struct Exclusive(RwLockWriteGuard<'static, Option<ControlPlane>>);

impl Deref for Exclusive {
    type Target = ControlPlane;

    fn deref(&self) -> &ControlPlane {
        self.0.as_ref().expect("it was there when the lock was taken")
    }
}

impl DerefMut for Exclusive {
    fn deref_mut(&mut self) -> &mut ControlPlane {
        self.0.as_mut().expect("it was there when the lock was taken")
    }
}

impl Drop for Exclusive {
    fn drop(&mut self) {
        if thread::panicking() {
            // The next user gets a new one.
            eprintln!("{}", self.logs_tail());
        } else {
            self.stop_controller_manager();
            self.start_api_server();
        }
    }
}
