//! The values that labels may have.

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use zw_model::Family;

use crate::watch::Resource;

/// An enum that is a label's value, as it is written.
macro_rules! values {
    ($(#[$doc:meta])* $name:ident [$count:literal] { $($variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub(crate) enum $name {
            $($variant,)*
        }

        impl $name {
            pub(super) const ALL: [Self; $count] = [$(Self::$variant,)*];

            fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)*
                }
            }
        }

        impl EncodeLabelValue for $name {
            fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> std::fmt::Result {
                self.as_str().encode(encoder)
            }
        }
    };
}

values!(
    /// An address family.
    IpFamily [2] { V4 = "IPv4", V6 = "IPv6", }
);
values!(
    /// What an HTTP server answered.
    Code [2] { Ok = "200", Unavailable = "503", }
);
values!(
    /// Which of a Service's traffic policies is Local.
    Policy [2] { Internal = "internal", External = "external", }
);
values!(
    /// A part of the way from the API server to the kernel.
    Stage [4] {
        List = "list",
        Read = "read",
        Plan = "plan",
        Commit = "commit",
    }
);
values!(
    /// What could not be used.
    Rejected [5] {
        Service = "Service",
        EndpointSlice = "EndpointSlice",
        Node = "Node",
        ServiceCidr = "ServiceCIDR",
        Manifest = "manifest",
    }
);

impl EncodeLabelValue for Resource {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> std::fmt::Result {
        self.name().encode(encoder)
    }
}

impl From<Family> for IpFamily {
    fn from(family: Family) -> Self {
        match family {
            Family::V4 => Self::V4,
            Family::V6 => Self::V6,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct FamilyLabel {
    ip_family: IpFamily,
}

impl FamilyLabel {
    pub(super) fn of(family: Family) -> Self {
        Self { ip_family: family.into() }
    }

    pub(super) fn all() -> [Self; 2] {
        IpFamily::ALL.map(|ip_family| Self { ip_family })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct PolicyLabel {
    traffic_policy: Policy,
    ip_family: IpFamily,
}

impl PolicyLabel {
    pub(super) fn of(traffic_policy: Policy, family: Family) -> Self {
        Self { traffic_policy, ip_family: family.into() }
    }

    pub(super) fn all() -> impl Iterator<Item = Self> {
        let of = |policy| Family::BOTH.map(|family| Self::of(policy, family));
        Policy::ALL.into_iter().flat_map(of)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct CodeLabel {
    pub(super) code: Code,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct StageLabel {
    pub(super) stage: Stage,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ResourceLabel {
    pub(super) resource: Resource,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct RejectedLabel {
    pub(super) kind: Rejected,
}
