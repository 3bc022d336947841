//! Whether the agent has taken over: the first full sync is in the kernel. Until then, what it waits for.

/// What stands between the start and the first sync.
#[derive(Debug, Default)]
pub(crate) struct Ready {
    done: bool,
    waiting_for: Vec<Blocker>,
    failure: Option<String>,
}

/// Something that has to be known first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blocker {
    Nodes,
    Services,
    EndpointSlices,
    ServiceCidrs,
    Manifests,
}

impl Blocker {
    fn line(self) -> &'static str {
        match self {
            Self::Nodes => "nodes: first list not complete",
            Self::Services => "services: first list not complete",
            Self::EndpointSlices => "endpointslices: first list not complete",
            Self::ServiceCidrs => "servicecidrs: first list not complete",
            Self::Manifests => "manifests: nothing could be read yet",
        }
    }
}

impl Ready {
    /// The sources are not complete for want of these.
    pub(crate) fn wait_for(&mut self, blockers: Vec<Blocker>) {
        self.waiting_for = blockers;
    }

    pub(crate) fn failed(&mut self, error: String) {
        self.failure = Some(error);
    }

    /// A sync is in the kernel; true if it is the first.
    pub(crate) fn synced(&mut self) -> bool {
        !std::mem::replace(&mut self.done, true)
    }

    /// One line for each blocker; none once ready, and for good.
    pub(crate) fn blockers(&self) -> Vec<String> {
        if self.done {
            return Vec::new();
        }
        if !self.waiting_for.is_empty() {
            return self.waiting_for.iter().map(|blocker| blocker.line().to_owned()).collect();
        }
        let sync = self.failure.as_deref().unwrap_or("not complete");
        vec![format!("first sync: {sync}")]
    }
}

#[cfg(test)]
mod tests {
    use super::{Blocker, Ready};

    #[test]
    fn each_blocker_is_named_until_the_first_sync() {
        let mut ready = Ready::default();
        ready.wait_for(vec![Blocker::Nodes, Blocker::EndpointSlices]);
        let lists = ["nodes: first list not complete", "endpointslices: first list not complete"];
        assert_eq!(ready.blockers(), lists);
        ready.wait_for(Vec::new());
        assert_eq!(ready.blockers(), ["first sync: not complete"]);
        ready.failed("no memory".into());
        assert_eq!(ready.blockers(), ["first sync: no memory"]);
        assert!(ready.synced());
        assert_eq!(ready.blockers(), [""; 0]);
        // A later failure is /livez' business.
        ready.failed("no memory".into());
        ready.wait_for(vec![Blocker::Services]);
        assert_eq!((ready.blockers(), ready.synced()), (Vec::new(), false));
    }
}
