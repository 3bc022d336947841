//! What others do to our tables, as the kernel tells it. Of other tables nothing is looked at but
//! their name; what expires and what packets add is not told at all.

use zw_model::Family;
use zw_netlink::Error;
use zw_netlink::nft::{self, Change, Generation, Monitor, Notice, Object, Verb, Watch};
use zw_plan::{AFFINITY, ChainDrift, Drift, SetName, TableDrift, sets};

use crate::error::WriteError;
use crate::kernel::Kernel;
use crate::nft::decode;

/// A subscription to what others do to our tables.
pub struct TableWatch {
    watch: Watch,
    heard: Heard,
}

/// What was told and not yet handed out.
#[derive(Debug, Default)]
struct Heard {
    drift: Drift,
    /// Nothing of the last commit is still to come.
    whole: bool,
}

impl TableWatch {
    /// Watches what everybody but this connection does from now on, which must stay open as long. To be
    /// called in a runtime with IO.
    pub fn start(kernel: &mut Kernel) -> Result<Self, WriteError> {
        let monitor: Monitor = kernel.watch()?;
        let watch = Watch::new(monitor).map_err(WriteError::Socket)?;
        Ok(Self { watch, heard: Heard::default() })
    }

    /// Waits until somebody has changed our tables, or may have. Dropped while waiting, it has lost
    /// nothing.
    pub async fn changed(&mut self) -> Drift {
        loop {
            if self.heard.whole {
                self.heard.whole = false;
                let drift = std::mem::take(&mut self.heard.drift);
                if !drift.is_empty() {
                    return drift;
                }
            }
            let heard = &mut self.heard;
            if let Err(error) = self.watch.read(&mut |notice| heard.take(&notice)).await {
                tracing::debug!(error = &error as &dyn std::error::Error, "notifications lost");
                heard.drift.lost = true;
                heard.whole = true;
            }
        }
    }
}

impl Heard {
    fn take(&mut self, notice: &Notice<'_>) {
        match notice {
            Notice::Change(change) => {
                let family = match change.family {
                    Some(nft::Family::Ip) => Family::V4,
                    Some(nft::Family::Ip6) => Family::V6,
                    // Of our name, but of a family that is not ours.
                    None => return,
                };
                self.whole = false;
                if take_change(self.drift.table(family), change).is_err() {
                    self.drift.lost = true;
                }
            }
            Notice::Generation(Generation { process, .. }) => {
                if !self.drift.is_empty() {
                    self.drift.by.extend(process.as_deref().map(str::to_owned));
                    self.whole = true;
                }
            }
        }
    }
}

fn take_change(drift: &mut TableDrift, change: &Change<'_>) -> Result<(), Error> {
    let gone = change.verb == Verb::Deleted;
    let name = change.name.as_deref().unwrap_or_default();
    match change.object {
        Object::Table => drift.alter(),
        Object::Chain => {
            drift.chain(name, if gone { ChainDrift::Gone } else { ChainDrift::Made });
        }
        Object::Rule => drift.chain(name, ChainDrift::Rules),
        Object::Set => drift.set(name, gone),
        // Clients that are gone are met anew.
        Object::Element if name.starts_with(AFFINITY) && gone => {}
        Object::Element if name.starts_with(AFFINITY) => drift.client(name),
        Object::Element => {
            let def = sets().find(|def| def.name.as_str() == name && !def.counts);
            let Some(def) = def else { return Ok(()) };
            return take_elements(drift, def.name, gone, change);
        }
        // No rule of ours refers to one, and no packet meets it otherwise.
        Object::Stateful | Object::Flowtable => {}
    }
    Ok(())
}

fn take_elements(
    drift: &mut TableDrift,
    set: SetName,
    gone: bool,
    change: &Change<'_>,
) -> Result<(), Error> {
    change.elements.read(&mut |dumped| match decode::element(&dumped) {
        Some(element) => drift.element(set, element.key, (!gone).then_some(element)),
        None => drift.alter(),
    })
}
