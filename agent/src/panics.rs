//! A panic anywhere ends the agent: one that lost a thread or a task would look alive and do nothing,
//! while whoever started it starts it again, with the rules in place.

use std::io::{self, Write};
use std::{panic, process, thread};

/// From now on a panic on any thread, in any task, is one line on standard error and the end.
pub(crate) fn end_the_process() {
    panic::set_hook(Box::new(|panic| {
        let thread = thread::current();
        let thread = thread.name().unwrap_or("without a name");
        let at = panic.location().map(ToString::to_string).unwrap_or_default();
        let what = panic.payload_as_str().unwrap_or("no message");
        // Not by the log, which may be what panicked. A closed standard error leaves nobody to tell.
        let _ = writeln!(
            io::stderr(),
            "error: a bug: the thread {thread} panicked at {at}: {what}; ending, rules stay in place"
        );
        process::exit(1);
    }));
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Duration;

    use super::*;

    const CHILD: &str = "ZONEWARD_TEST_PANICS";

    /// Runs itself again, for the process that is to end must not be this one.
    #[test]
    fn a_panic_in_a_task_or_on_a_thread_ends_the_process_with_one_line() {
        match std::env::var(CHILD).as_deref() {
            Ok("thread") => {
                end_the_process();
                let thread = thread::Builder::new().name("unlucky".into());
                thread.spawn(|| panic!("on a thread")).unwrap();
                thread::sleep(Duration::from_secs(60));
                return;
            }
            Ok(_) => {
                end_the_process();
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                runtime.unwrap().block_on(async {
                    tokio::spawn(async { panic!("in a task") });
                    tokio::time::sleep(Duration::from_secs(60)).await;
                });
                return;
            }
            Err(_) => {}
        }
        for (how, what) in [("thread", "on a thread"), ("task", "in a task")] {
            let name =
                "panics::tests::a_panic_in_a_task_or_on_a_thread_ends_the_process_with_one_line";
            let ended = Command::new(std::env::current_exe().unwrap())
                .args([name, "--exact", "--nocapture"])
                .env(CHILD, how)
                .output()
                .unwrap();
            let told = String::from_utf8_lossy(&ended.stderr).into_owned();
            assert_eq!(ended.status.code(), Some(1), "{told}");
            assert_eq!(told.lines().count(), 1, "{told}");
            assert!(told.starts_with("error: a bug: the thread ") && told.contains(what), "{told}");
        }
    }
}
