//! Writes what the API server would: JSON values as protocol buffers, by the messages of the API as far as
//! tests need them. For tests alone.

use serde_json::Value;

/// A message's fields.
pub(crate) type Message = &'static [Field];

/// A field as `generated.proto` has it.
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) number: u32,
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) repeated: bool,
    /// Go writes it even if it is empty, because it is no pointer there.
    pub(crate) always: bool,
    /// In JSON it is never left out either.
    pub(crate) required: bool,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    Text,
    Number,
    Flag,
    /// Of texts by texts.
    Map,
    /// In JSON a text, here a message of numbers, which are none that matter.
    Time,
    Message(Message),
}

impl Field {
    const fn new(number: u32, name: &'static str, kind: Kind) -> Self {
        Self { number, name, kind, repeated: false, always: false, required: false }
    }
    const fn text(number: u32, name: &'static str) -> Self {
        Self::new(number, name, Kind::Text)
    }
    const fn number(number: u32, name: &'static str) -> Self {
        Self::new(number, name, Kind::Number)
    }
    const fn message(number: u32, name: &'static str, message: Message) -> Self {
        Self::new(number, name, Kind::Message(message))
    }
    const fn always(self) -> Self {
        Self { always: true, ..self }
    }
    const fn required(self) -> Self {
        Self { required: true, ..self }
    }
    const fn repeated(self) -> Self {
        Self { repeated: true, ..self }
    }
}

const METADATA: Message = &[
    Field::text(1, "name").always(),
    Field::text(2, "generateName").always(),
    Field::text(3, "namespace").always(),
    Field::text(4, "selfLink").always(),
    Field::text(5, "uid").always(),
    Field::text(6, "resourceVersion").always(),
    Field::number(7, "generation").always(),
    Field::new(8, "creationTimestamp", Kind::Time),
    Field::new(9, "deletionTimestamp", Kind::Time),
    Field::number(10, "deletionGracePeriodSeconds"),
    Field::new(11, "labels", Kind::Map),
    Field::new(12, "annotations", Kind::Map),
    Field::text(14, "finalizers").repeated(),
];

const SERVICE_PORT: Message = &[
    Field::text(1, "name").always(),
    Field::text(2, "protocol").always(),
    Field::number(3, "port").always().required(),
    Field::message(4, "targetPort", &[]),
    Field::number(5, "nodePort").always(),
    Field::text(6, "appProtocol"),
];

const SERVICE_SPEC: Message = &[
    Field::message(1, "ports", SERVICE_PORT).repeated(),
    Field::new(2, "selector", Kind::Map),
    Field::text(3, "clusterIP").always(),
    Field::text(4, "type").always(),
    Field::text(5, "externalIPs").repeated(),
    Field::text(7, "sessionAffinity").always(),
    Field::text(8, "loadBalancerIP").always(),
    Field::text(9, "loadBalancerSourceRanges").repeated(),
    Field::text(10, "externalName").always(),
    Field::text(11, "externalTrafficPolicy").always(),
    Field::number(12, "healthCheckNodePort").always(),
    Field::new(13, "publishNotReadyAddresses", Kind::Flag),
    Field::message(
        14,
        "sessionAffinityConfig",
        &[Field::message(1, "clientIP", &[Field::number(1, "timeoutSeconds")])],
    ),
    Field::text(17, "ipFamilyPolicy"),
    Field::text(18, "clusterIPs").repeated(),
    Field::text(19, "ipFamilies").repeated(),
    Field::text(22, "internalTrafficPolicy"),
    Field::text(23, "trafficDistribution"),
];

const LOAD_BALANCER: Message = &[Field::message(
    1,
    "ingress",
    &[Field::text(1, "ip").always(), Field::text(2, "hostname").always(), Field::text(3, "ipMode")],
)
.repeated()];

pub(crate) const SERVICE: Message = &[
    Field::message(1, "metadata", METADATA),
    Field::message(2, "spec", SERVICE_SPEC),
    Field::message(3, "status", &[Field::message(1, "loadBalancer", LOAD_BALANCER)]),
];

const NAMED: Message = &[Field::text(1, "name").always().required()];

const ENDPOINT: Message = &[
    Field::text(1, "addresses").repeated(),
    Field::message(
        2,
        "conditions",
        &[
            Field::new(1, "ready", Kind::Flag),
            Field::new(2, "serving", Kind::Flag),
            Field::new(3, "terminating", Kind::Flag),
        ],
    ),
    Field::text(3, "hostname"),
    Field::message(4, "targetRef", NAMED),
    Field::new(5, "deprecatedTopology", Kind::Map),
    Field::text(6, "nodeName"),
    Field::text(7, "zone"),
    Field::message(
        8,
        "hints",
        &[
            Field::message(1, "forZones", NAMED).repeated(),
            Field::message(2, "forNodes", NAMED).repeated(),
        ],
    ),
];

pub(crate) const ENDPOINT_SLICE: Message = &[
    Field::message(1, "metadata", METADATA),
    Field::message(2, "endpoints", ENDPOINT).repeated(),
    Field::message(
        3,
        "ports",
        &[
            Field::text(1, "name"),
            Field::text(2, "protocol"),
            Field::number(3, "port"),
            Field::text(4, "appProtocol"),
        ],
    )
    .repeated(),
    Field::text(4, "addressType").always(),
];

pub(crate) const NODE: Message = &[
    Field::message(1, "metadata", METADATA),
    Field::message(
        2,
        "spec",
        &[
            Field::text(1, "podCIDR").always(),
            Field::text(3, "providerID").always(),
            Field::message(
                5,
                "taints",
                &[Field::text(1, "key").always(), Field::text(3, "effect").always()],
            )
            .repeated(),
            Field::text(7, "podCIDRs").repeated(),
        ],
    ),
    Field::message(
        3,
        "status",
        &[Field::message(
            5,
            "addresses",
            &[Field::text(1, "type").always(), Field::text(2, "address").always()],
        )
        .repeated()],
    ),
];

pub(crate) const SERVICE_CIDR: Message = &[
    Field::message(1, "metadata", METADATA),
    Field::message(2, "spec", &[Field::text(1, "cidrs").repeated()]),
];

pub(crate) const STATUS: Message =
    &[Field::text(2, "status"), Field::text(3, "message"), Field::number(6, "code")];

/// A value as a message; `None` where it cannot be one, and where a server would not write it so in JSON.
pub(crate) fn encode(message: Message, value: &Value) -> Option<Vec<u8>> {
    let object = value.as_object()?;
    let mut bytes = Vec::new();
    for field in message {
        let values = match object.get(field.name).filter(|value| !value.is_null()) {
            Some(value) if field.repeated => value.as_array()?.iter().map(Some).collect(),
            Some(value) if value == "" && field.always && !field.required => return None,
            Some(value) => vec![Some(value)],
            None if field.required => return None,
            None if field.always => vec![None],
            None => vec![],
        };
        for value in values {
            put(&mut bytes, field, value)?;
        }
    }
    Some(bytes)
}

fn put(bytes: &mut Vec<u8>, field: &Field, value: Option<&Value>) -> Option<()> {
    match (field.kind, value) {
        (Kind::Text, None) => tagged(bytes, field.number, b""),
        (Kind::Text, Some(value)) => tagged(bytes, field.number, value.as_str()?.as_bytes()),
        (Kind::Number, value) => {
            let number = value.map_or(Some(0), |value| i32::try_from(value.as_i64()?).ok())?;
            number_field(bytes, field.number, i64::from(number).cast_unsigned());
        }
        (Kind::Flag, value) => {
            let is = value.map_or(Some(false), Value::as_bool)?;
            number_field(bytes, field.number, is.into());
        }
        (Kind::Time, value) => {
            value?.as_str()?;
            tagged(bytes, field.number, &[0x08, 0x80, 0x01]);
        }
        (Kind::Map, value) => {
            let map = value?.as_object().filter(|map| !map.is_empty())?;
            for (key, value) in map {
                let mut entry = Vec::new();
                tagged(&mut entry, 1, key.as_bytes());
                tagged(&mut entry, 2, value.as_str()?.as_bytes());
                tagged(bytes, field.number, &entry);
            }
        }
        (Kind::Message(message), value) => {
            let inner = encode(message, value?)?;
            tagged(bytes, field.number, &inner);
        }
    }
    Some(())
}

/// A field of bytes.
pub(crate) fn tagged(bytes: &mut Vec<u8>, number: u32, value: &[u8]) {
    varint(bytes, u64::from(number) << 3 | 2);
    varint(bytes, value.len() as u64);
    bytes.extend_from_slice(value);
}

fn number_field(bytes: &mut Vec<u8>, number: u32, value: u64) {
    varint(bytes, u64::from(number) << 3);
    varint(bytes, value);
}

fn varint(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// What stands alone: `k8s\0` and a `runtime.Unknown` around the message.
pub(crate) fn envelope(kind: &str, message: &[u8]) -> Vec<u8> {
    let mut about = Vec::new();
    tagged(&mut about, 1, b"v1");
    tagged(&mut about, 2, kind.as_bytes());
    let mut unknown = b"k8s\0".to_vec();
    tagged(&mut unknown, 1, &about);
    tagged(&mut unknown, 2, message);
    tagged(&mut unknown, 3, b"");
    tagged(&mut unknown, 4, b"");
    unknown
}

/// A list of messages.
pub(crate) fn list(version: &str, next: &str, items: &[Vec<u8>]) -> Vec<u8> {
    let mut about = Vec::new();
    tagged(&mut about, 1, b"");
    tagged(&mut about, 2, version.as_bytes());
    tagged(&mut about, 3, next.as_bytes());
    let mut list = Vec::new();
    tagged(&mut list, 1, &about);
    for item in items {
        tagged(&mut list, 2, item);
    }
    envelope("List", &list)
}

/// A frame of a watch.
pub(crate) fn event(name: &str, object: &[u8]) -> Vec<u8> {
    let mut raw = Vec::new();
    tagged(&mut raw, 1, object);
    let mut event = Vec::new();
    tagged(&mut event, 1, name.as_bytes());
    tagged(&mut event, 2, &raw);
    let mut frame = u32::try_from(event.len()).unwrap().to_be_bytes().to_vec();
    frame.extend(event);
    frame
}
