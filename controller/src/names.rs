//! The labels and annotations that are read and written, in one place: they are an interface.

/// Which zone a slice is for.
pub const FOR_ZONE: &str = "endpointslice.kubernetes.io/for-zone";
/// Which region a slice is for.
pub const FOR_REGION: &str = "endpointslice.kubernetes.io/for-region";
/// Which Service a slice belongs to.
pub const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// Who keeps a slice up to date.
pub const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
/// What stands there on our slices.
pub const MANAGER: &str = "zoneward-controller";
/// What stands there on mirrored Endpoints, whoever mirrors them.
pub const MIRROR_MANAGER: &str = "endpointslicemirroring-controller.k8s.io";
/// When what led to the present content of a slice happened.
pub const TRIGGER_TIME: &str = "endpoints.kubernetes.io/last-change-trigger-time";
/// The zone of a Node.
pub const NODE_ZONE: &str = "topology.kubernetes.io/zone";
/// Somebody else's proxy serves the Service.
pub const OTHER_PROXY: &str = "service.kubernetes.io/service-proxy-name";

/// What the owner of a Service asks for: `Require`, `Prefer`, else balanced.
pub const SAME_ZONE: &str = "endpointslice.kubernetes.io/same-zone";
/// An algorithm for one Service.
pub const ALGORITHM: &str = "zoneward/algorithm";
/// An overload threshold for one Service, in percent.
pub const OVERLOAD: &str = "zoneward/overload-threshold";
/// A starting threshold for one Service, in endpoints for each zone.
pub const STARTING: &str = "zoneward/starting-threshold";
/// A padding for one Service, in endpoints.
pub const PADDING: &str = "zoneward/padding";

/// With a zone's name after it, a label on a Service whose group for that zone is complete. The stock
/// controller copies a Service's labels to its slices, and agents in that zone leave those out of their
/// watch. One label for each zone, not one for all: to an agent in a zone that has no group yet the
/// default slices go on coming.
pub const ZONE_PREFIX: &str = "zones.zoneward/";
/// Which approach is in force.
pub const APPROACH: &str = "zoneward/approach";
/// Why it is.
pub const REASON: &str = "zoneward/reason";

/// On Endpoints that nobody shall mirror.
pub const SKIP_MIRROR: &str = "endpointslice.kubernetes.io/skip-mirror";
/// On Endpoints that are a lock.
pub const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";
/// What `kubectl apply` remembers.
pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
