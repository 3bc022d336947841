//! A folder of manifests under an editor's hands.

use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use tempfile::TempDir;
use zw_model::{Protocol, Service, ServiceKey, ServicePort};

use super::{Complaint, Delta, Event, StateSource};
use crate::convert::{Body, Kind, Object, ObjectId};

/// A Service's manifest; `last` ends its address.
fn manifest(name: &str, last: u8) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata:\n  name: {name}\n  namespace: web\n\
         spec:\n  clusterIP: 10.96.0.{last}\n  ports:\n  - port: 80\n"
    )
}

fn id(name: &str) -> ObjectId {
    ObjectId { kind: Kind::Service, namespace: "web".into(), name: name.into() }
}

/// What [`manifest`] brings.
fn applied(name: &str, last: u8) -> Event {
    let service = Service {
        key: ServiceKey::new("web", name),
        cluster_ips: vec![[10, 96, 0, last].into()],
        ports: vec![ServicePort {
            name: "".into(),
            protocol: Protocol::Tcp,
            port: 80,
            node_port: None,
        }],
        ..Service::default()
    };
    Event::Apply(Object::new(id(name), Body::Service(service)))
}

fn deleted(name: &str) -> Event {
    Event::Delete(id(name))
}

/// A private folder, and a source that looks at its `state` subfolder.
struct Folder {
    root: TempDir,
    source: StateSource,
    clock: SystemTime,
}

impl Folder {
    fn new() -> Self {
        let root = TempDir::new().unwrap();
        let path = root.path().join("state");
        fs::create_dir(&path).unwrap();
        Self { root, source: StateSource::new(path), clock: SystemTime::UNIX_EPOCH }
    }

    fn with(files: &[(&str, &str)]) -> Self {
        let mut folder = Self::new();
        for (name, content) in files {
            folder.write(name, content);
        }
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.source.path().join(name)
    }

    /// Puts a file in its place in one step, as a careful editor does.
    fn write(&mut self, name: &str, content: impl AsRef<[u8]>) {
        let hidden = self.path(".being-written");
        fs::write(&hidden, content).unwrap();
        fs::rename(hidden, self.path(name)).unwrap();
    }

    /// Writes a file where it is, with a time of its own, because file systems' clocks are coarse.
    fn write_in_place(&mut self, name: &str, content: impl AsRef<[u8]>) {
        self.clock += Duration::from_secs(1);
        let path = self.path(name);
        fs::write(&path, content).unwrap();
        fs::File::options().write(true).open(&path).unwrap().set_modified(self.clock).unwrap();
    }

    fn remove(&self, name: &str) {
        fs::remove_file(self.path(name)).unwrap();
    }

    /// One look, which must bring exactly these events, and these complaints about files by name.
    #[track_caller]
    fn expect(&mut self, events: &[Event], complaints: &[&str]) {
        let delta = self.source.poll();
        assert_eq!((delta.events.as_slice(), self.lines(&delta)), (events, owned(complaints)));
    }

    /// Who is missing once may be under an editor's hands; two looks bring these events.
    #[track_caller]
    fn expect_at_the_second_look(&mut self, events: &[Event]) {
        self.expect(&[], &[]);
        self.expect(events, &[]);
        self.expect(&[], &[]);
    }

    /// The complaints as they are printed, without the folder's name.
    fn lines(&self, delta: &Delta) -> Vec<String> {
        let folder = format!("{}/", self.source.path().display());
        let line = |complaint: &Complaint| complaint.to_string().replace(&folder, "");
        delta.complaints.iter().map(line).collect()
    }
}

fn owned(lines: &[&str]) -> Vec<String> {
    lines.iter().map(|line| (*line).to_owned()).collect()
}

const BROKEN: &str = "kind: [\n";

/// What the parser says of [`BROKEN`] is its own business.
#[track_caller]
fn expect_one_syntax_error(folder: &mut Folder, events: &[Event], place: &str) {
    let delta = folder.source.poll();
    let lines = folder.lines(&delta);
    assert_eq!(delta.events, events);
    let expected = format!("{place}: not YAML: ");
    assert!(matches!(lines.as_slice(), [line] if line.starts_with(&expected)), "{lines:?}");
}

#[test]
fn the_first_look_brings_everything_in_order() {
    let both = format!("{}---\n{}", manifest("shop", 2), manifest("api", 1));
    let mut folder = Folder::with(&[("b.yaml", &both), ("a.yml", &manifest("www", 3))]);
    assert!(!folder.source.has_been_read());
    folder.expect(&[applied("api", 1), applied("shop", 2), applied("www", 3)], &[]);
    assert!(folder.source.has_been_read());
}

#[test]
fn an_unchanged_folder_brings_nothing() {
    let mut folder = Folder::with(&[("a.yaml", &manifest("api", 1))]);
    folder.source.poll();
    folder.expect(&[], &[]);
}

#[test]
fn a_file_that_is_touched_but_says_the_same_brings_nothing() {
    let mut folder = Folder::with(&[("a.yaml", &manifest("api", 1))]);
    folder.source.poll();
    folder.write("a.yaml", manifest("api", 1));
    folder.expect(&[], &[]);
}

#[test]
fn an_edited_file_brings_only_what_changed() {
    let text = |last| format!("{}---\n{}", manifest("api", last), manifest("shop", 2));
    let mut folder = Folder::with(&[("a.yaml", &text(1)), ("b.yaml", &manifest("www", 3))]);
    folder.source.poll();
    folder.write("a.yaml", text(9));
    folder.expect(&[applied("api", 9)], &[]);
    folder.write("a.yaml", manifest("new", 4));
    folder.expect(&[deleted("api"), applied("new", 4), deleted("shop")], &[]);
}

#[test]
fn an_edit_of_the_same_size_is_seen_by_its_time() {
    let mut folder = Folder::with(&[("a.yaml", &manifest("api", 1))]);
    folder.source.poll();
    folder.write("a.yaml", manifest("api", 2));
    folder.expect(&[applied("api", 2)], &[]);
}

#[test]
fn a_file_that_is_replaced_by_a_rename_is_seen_by_its_inode() {
    let mut folder = Folder::with(&[("a.yaml", &manifest("api", 1))]);
    folder.source.poll();
    let time = fs::metadata(folder.path("a.yaml")).unwrap().modified().unwrap();
    let draft = folder.path(".a.yaml.swp");
    fs::write(&draft, manifest("api", 2)).unwrap();
    fs::File::options().write(true).open(&draft).unwrap().set_modified(time).unwrap();
    fs::rename(draft, folder.path("a.yaml")).unwrap();
    folder.expect(&[applied("api", 2)], &[]);
}

#[test]
fn a_broken_document_costs_nothing_that_was_there() {
    let (api, shop) = (manifest("api", 1), manifest("shop", 2));
    let mut folder = Folder::with(&[("a.yaml", &format!("{api}---\n{shop}"))]);
    folder.source.poll();

    folder.write("a.yaml", format!("{}---\n{BROKEN}", manifest("api", 9)));
    expect_one_syntax_error(&mut folder, &[applied("api", 9)], "a.yaml, document 2");
    folder.expect(&[], &[]);

    folder.write("a.yaml", format!("{api}---\n{}", manifest("shop", 8)));
    folder.expect(&[applied("api", 1), applied("shop", 8)], &[]);

    folder.write("a.yaml", &api);
    folder.expect(&[deleted("shop")], &[]);
}

#[test]
fn an_object_that_cannot_be_read_stays_as_it_was() {
    let mut folder = Folder::with(&[("a.yaml", &manifest("api", 1))]);
    folder.source.poll();
    folder.write("a.yaml", manifest("api", 1).replace("80", "http"));
    let why = "spec.ports[0].port: invalid type: string \"http\", expected i64";
    folder.expect(&[], &[&format!("a.yaml, document 1, Service web/api: {why}")]);
    folder.write("a.yaml", manifest("api", 2));
    folder.expect(&[applied("api", 2)], &[]);
}

#[test]
fn half_of_a_list_costs_nothing_that_was_there() {
    let indented = |text: String| text.replace('\n', "\n  ").trim_end().to_owned();
    let (api, shop) = (indented(manifest("api", 1)), indented(manifest("shop", 2)));
    let list = format!("apiVersion: v1\nitems:\n- {api}\n- {shop}\nkind: List\n");
    let mut folder = Folder::with(&[("a.yaml", &list)]);
    folder.expect(&[applied("api", 1), applied("shop", 2)], &[]);

    let missing = "a.yaml, document 1: kind: missing: not a Kubernetes object";
    folder.write("a.yaml", list.replace("kind: List\n", ""));
    folder.expect(&[], &[missing]);
    folder.write("a.yaml", "oops");
    folder.expect(&[], &[missing]);
    folder.write("a.yaml", &list);
    folder.expect(&[], &[]);
}

#[test]
fn kinds_that_are_not_read_do_not_hold_up_a_deletion() {
    let mut folder = Folder::with(&[("a.yaml", &manifest("api", 1))]);
    folder.source.poll();
    folder.write("a.yaml", "apiVersion: v1\nkind: Pod\n");
    let kinds = "is not one that Zoneward reads (Service, EndpointSlice, Node, ServiceCIDR, List)";
    let line = format!("a.yaml, document 1: kind: \"Pod\" {kinds}");
    folder.expect(&[deleted("api")], &[&line]);
}

#[test]
fn a_file_with_only_a_comment_left_takes_its_objects_away() {
    let mut folder = Folder::with(&[("a.yaml", &manifest("api", 1))]);
    folder.source.poll();
    folder.write("a.yaml", "# nothing left\n");
    folder.expect(&[deleted("api")], &[]);
}

#[test]
fn a_file_written_in_place_is_read_once_it_has_settled() {
    let both = format!("{}---\n{}", manifest("api", 1), manifest("shop", 2));
    let mut folder = Folder::with(&[("a.yaml", &both)]);
    folder.source.poll();
    folder.write_in_place("a.yaml", manifest("api", 3));
    folder.expect(&[], &[]);
    folder.write_in_place("a.yaml", format!("{}---\n{}", manifest("api", 3), manifest("shop", 2)));
    folder.expect(&[], &[]);
    folder.expect(&[applied("api", 3)], &[]);
    folder.expect(&[], &[]);
}

#[test]
fn a_file_that_cannot_be_read_is_told_once_tried_again_and_harms_no_other() {
    let mut folder = Folder::with(&[("b.yaml", &manifest("api", 1))]);
    std::os::unix::fs::symlink(folder.path("a.yaml"), folder.path("a.yaml")).unwrap();
    let delta = folder.source.poll();
    assert_eq!(delta.events, [applied("api", 1)]);
    let lines = folder.lines(&delta);
    assert!(
        matches!(lines.as_slice(), [line] if line.starts_with("a.yaml: cannot be read")),
        "{lines:?}"
    );
    folder.expect(&[], &[]);
    folder.remove("a.yaml");
    folder.write("a.yaml", manifest("shop", 2));
    folder.expect(&[applied("shop", 2)], &[]);
}

#[test]
fn a_file_of_no_bytes_is_still_being_written_and_keeps_what_it_held() {
    let mut folder = Folder::with(&[("a.yaml", &manifest("api", 1))]);
    folder.source.poll();
    folder.write("a.yaml", "");
    folder.expect(&[], &["a.yaml: empty; what it held stays in force"]);
    folder.write("a.yaml", manifest("shop", 2));
    folder.expect(&[deleted("api"), applied("shop", 2)], &[]);
}

#[test]
fn a_deleted_file_takes_its_objects_away() {
    let mut folder =
        Folder::with(&[("a.yaml", &manifest("api", 1)), ("b.yaml", &manifest("shop", 2))]);
    folder.source.poll();
    folder.remove("a.yaml");
    folder.expect_at_the_second_look(&[deleted("api")]);
    folder.remove("b.yaml");
    folder.expect_at_the_second_look(&[deleted("shop")]);
    assert!(folder.source.has_been_read());
}

#[test]
fn a_deleted_broken_file_takes_what_it_held_away() {
    let mut folder = Folder::with(&[("a.yaml", &manifest("api", 1))]);
    folder.source.poll();
    folder.write("a.yaml", BROKEN);
    expect_one_syntax_error(&mut folder, &[], "a.yaml, document 1");
    folder.remove("a.yaml");
    folder.expect_at_the_second_look(&[deleted("api")]);
}

#[test]
fn a_file_that_is_missing_for_one_look_costs_nothing() {
    let mut folder = Folder::with(&[("a.yaml", &manifest("api", 1))]);
    folder.source.poll();
    for _ in 0..2 {
        folder.remove("a.yaml");
        folder.expect(&[], &[]);
        folder.write("a.yaml", manifest("api", 1));
        folder.expect(&[], &[]);
    }
}

#[test]
fn a_renamed_file_keeps_its_objects_without_a_word() {
    let mut folder = Folder::with(&[("a.yaml", &manifest("api", 1))]);
    folder.source.poll();
    fs::rename(folder.path("a.yaml"), folder.path("b.yaml")).unwrap();
    for _ in 0..3 {
        let delta = folder.source.poll();
        assert_eq!(folder.lines(&delta), Vec::<String>::new());
        assert!(delta.events.iter().all(|event| *event == applied("api", 1)), "{delta:?}");
    }
}

#[test]
fn a_removed_folder_costs_nothing_and_is_told_once() {
    let mut folder = Folder::with(&[("a.yaml", &manifest("api", 1))]);
    folder.source.poll();
    let path = folder.source.path().to_owned();
    fs::remove_dir_all(&path).unwrap();
    let line = format!(
        "{}: cannot be read: No such file or directory (os error 2); what it held stays in force",
        path.display()
    );
    folder.expect(&[], &[&line]);
    folder.expect(&[], &[]);

    fs::create_dir(&path).unwrap();
    folder.write("a.yaml", manifest("api", 1));
    folder.write("b.yaml", manifest("shop", 2));
    folder.expect(&[applied("shop", 2)], &[]);

    fs::remove_dir_all(&path).unwrap();
    folder.expect(&[], &[&line]);
    fs::create_dir(&path).unwrap();
    folder.expect_at_the_second_look(&[deleted("api"), deleted("shop")]);
}

#[test]
fn a_path_that_was_never_there_has_not_been_read() {
    let root = TempDir::new().unwrap();
    let mut source = StateSource::new(root.path().join("nowhere"));
    assert_eq!(source.poll().complaints.len(), 1);
    assert!(!source.has_been_read());
}

#[test]
fn an_object_in_two_files_is_the_first_files_until_that_lets_go() {
    let mut folder =
        Folder::with(&[("a.yaml", &manifest("api", 1)), ("b.yaml", &manifest("api", 2))]);
    let also = |folder: &Folder| {
        let first = folder.path("a.yaml").display().to_string();
        let line = format!("b.yaml, Service web/api: also in {first}, which counts");
        line.replace(&format!("{}/", folder.source.path().display()), "")
    };
    let line = also(&folder);
    folder.expect(&[applied("api", 1)], &[&line]);
    folder.expect(&[], &[]);
    folder.remove("a.yaml");
    folder.expect_at_the_second_look(&[applied("api", 2)]);
    folder.remove("b.yaml");
    folder.expect_at_the_second_look(&[deleted("api")]);
}

#[test]
fn an_object_is_handed_over_when_the_first_file_stops_naming_it() {
    let mut folder =
        Folder::with(&[("a.yaml", &manifest("api", 1)), ("b.yaml", &manifest("api", 2))]);
    folder.source.poll();
    folder.write("a.yaml", manifest("other", 3));
    folder.expect(&[applied("api", 2), applied("other", 3)], &[]);
}

#[test]
fn an_object_twice_in_one_file_is_told_and_the_first_counts() {
    let text = format!("{}---\n{}", manifest("api", 1), manifest("api", 2));
    let mut folder = Folder::with(&[("a.yaml", &text)]);
    let line = "a.yaml, document 2, Service web/api: stands there twice, the first counts";
    folder.expect(&[applied("api", 1)], &[line]);
}

#[test]
fn bytes_that_are_no_text_cost_nothing_that_was_there() {
    let mut folder = Folder::with(&[("a.yaml", &manifest("api", 1))]);
    folder.source.poll();
    folder.write("a.yaml", b"kind: \xff\xfe\x00");
    folder.expect(&[], &["a.yaml: not text: byte 6 is not UTF-8"]);
    folder.expect(&[], &[]);
    folder.write("a.yaml", manifest("api", 2));
    folder.expect(&[applied("api", 2)], &[]);
}

#[test]
fn ten_megabytes_of_nonsense_are_told_once_and_soon() {
    const SIZE: usize = 10 << 20;
    let repeated = |text: &str| text.repeat(SIZE / text.len());
    let rows = [
        ("words", repeated("lorem ipsum dolor ")),
        ("lines of words", repeated("lorem ipsum\n")),
        ("brackets", repeated("[")),
        ("braces", repeated("{")),
        ("nested YAML brackets", format!("a: {}", repeated("["))),
        ("nested YAML lists", repeated("- ")),
        ("colons", repeated("a: ")),
        ("quotes", repeated("\"'")),
        ("tabs", format!("a:\n{}", repeated("\t- \n"))),
        ("anchors", format!("a: &a 1\nb: {}", repeated("*a "))),
        ("zeros", repeated("\0")),
    ];
    for (name, nonsense) in rows {
        let mut folder = Folder::with(&[("a.yaml", &manifest("api", 1))]);
        folder.source.poll();
        folder.write("a.yaml", nonsense);
        let started = Instant::now();
        let delta = folder.source.poll();
        let elapsed = started.elapsed();
        assert_eq!(delta.events, [], "{name}");
        let lines = folder.lines(&delta);
        assert_eq!(lines.len(), 1, "{name}: {} complaints", lines.len());
        assert!(lines[0].len() < 500, "{name}: {} characters", lines[0].len());
        assert!(elapsed < Duration::from_secs(20), "{name}: {elapsed:?}");
    }
}

#[test]
fn a_file_too_large_for_a_manifest_is_not_even_read() {
    let mut folder = Folder::with(&[("a.yaml", &manifest("api", 1))]);
    folder.source.poll();
    // Sparse: it takes no room on the disk.
    fs::File::create(folder.path("a.yaml")).unwrap().set_len((1 << 30) + 1).unwrap();
    // Written in place, so first it settles.
    folder.expect(&[], &[]);
    folder.expect(&[], &["a.yaml: 1073741825 bytes is too large for a manifest"]);
    folder.expect(&[], &[]);
}

#[test]
fn a_folder_with_only_broken_files_has_not_been_read() {
    for broken in [BROKEN.as_bytes(), b"{", b"\xff", b"just words", b"metadata: {}"] {
        let mut folder = Folder::new();
        folder.write("a.yaml", broken);
        assert_eq!(folder.source.poll().complaints.len(), 1);
        assert!(!folder.source.has_been_read(), "{broken:?}");
        folder.write("a.yaml", "# fixed, and empty\n");
        folder.expect(&[], &[]);
        assert!(folder.source.has_been_read());
    }
}

#[test]
fn one_readable_object_is_enough_to_have_been_read() {
    let mut folder = Folder::with(&[("a.yaml", BROKEN), ("b.yaml", &manifest("api", 1))]);
    expect_one_syntax_error(&mut folder, &[applied("api", 1)], "a.yaml, document 1");
    assert!(folder.source.has_been_read());
}

#[test]
fn an_empty_folder_is_a_state_without_services() {
    let mut folder = Folder::new();
    folder.expect(&[], &[]);
    assert!(folder.source.has_been_read());
}

#[test]
fn hidden_files_other_endings_and_folders_are_ignored() {
    let text = manifest("api", 1);
    let mut folder = Folder::new();
    for name in [".a.yaml", "a.yaml~", "a.txt", "a", "yaml", "a.yaml.bak", ".yaml", "A.YAML"] {
        folder.write(name, &text);
    }
    fs::create_dir(folder.path("sub.yaml")).unwrap();
    folder.write("sub.yaml/a.yaml", &text);
    folder.expect(&[], &[]);
    for (i, name) in ["a.yaml", "b.yml", "c.json"].into_iter().enumerate() {
        let last = u8::try_from(i).unwrap();
        folder.write(name, manifest(&format!("api-{i}"), last));
    }
    folder.expect(&[applied("api-0", 0), applied("api-1", 1), applied("api-2", 2)], &[]);
}

#[test]
fn a_file_named_by_the_user_counts_whatever_its_ending() {
    let mut folder = Folder::new();
    folder.write(".manifest", manifest("api", 1));
    folder.source = StateSource::new(folder.path(".manifest"));
    assert_eq!(folder.source.poll().events, [applied("api", 1)]);
    fs::remove_file(folder.source.path()).unwrap();
    let delta = folder.source.poll();
    assert_eq!((delta.events.as_slice(), delta.complaints.len()), ([].as_slice(), 1));
}

#[test]
fn a_configmap_volumes_swap_is_seen() {
    // As the kubelet does it: files are links through `..data`, a link that is replaced by a rename.
    fn publish(root: &Path, version: &str, text: &str) {
        fs::create_dir(root.join(version)).unwrap();
        fs::write(root.join(version).join("web.yaml"), text).unwrap();
        symlink(version, root.join("..data_tmp")).unwrap();
        fs::rename(root.join("..data_tmp"), root.join("..data")).unwrap();
    }
    let mut folder = Folder::new();
    let root = folder.source.path().to_owned();
    publish(&root, "..2026_01", &manifest("api", 1));
    symlink("..data/web.yaml", root.join("web.yaml")).unwrap();
    folder.expect(&[applied("api", 1)], &[]);

    publish(&root, "..2026_02", &manifest("api", 2));
    folder.expect(&[applied("api", 2)], &[]);
    fs::remove_dir_all(root.join("..2026_01")).unwrap();
    folder.expect(&[], &[]);

    fs::remove_file(root.join("web.yaml")).unwrap();
    folder.expect_at_the_second_look(&[deleted("api")]);
    assert!(folder.root.path().exists());
}

#[test]
fn a_complaint_names_file_document_object_and_field() {
    let list = "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Service\n  \
                metadata: {name: api, namespace: web}\n  spec:\n    clusterIP: 10.96.0.1\n    \
                ports: [{port: 80}, {port: 0}]\n- apiVersion: v1\n  kind: Service\n";
    let text = format!("{}---\n{list}", manifest("shop", 2));
    let mut folder = Folder::with(&[("a.yaml", &text)]);
    let port = "items[0].spec.ports[1].port: 0 is not a port (1 to 65535)";
    folder.expect(
        &[applied("api", 1), applied("shop", 2)],
        &[
            &format!("a.yaml, document 2, Service web/api: {port}"),
            "a.yaml, document 2: items[1].metadata.name: missing",
        ],
    );
}

#[test]
fn a_complaint_is_one_line_whatever_the_file_holds() {
    let mut folder = Folder::new();
    let name = std::ffi::OsString::from_vec(b"a\n\x1b[31m.yaml".to_vec());
    let text = "apiVersion: v1\nkind: Service\nmetadata: {name: \"x\\ny\\e[2J\", namespace: web}\n\
                ---\napiVersion: v1\nkind: Service\nmetadata: {name: api, namespace: web}\n\
                spec: {clusterIP: \"1\\r\\n2\", ports: [{port: 80, protocol: \"a\\tb\"}]}\n---\n\
                kind: \"Po\\nd\"\n---\nkind: \"\n";
    folder.write(name.to_str().unwrap(), text);
    let delta = folder.source.poll();
    let lines = folder.lines(&delta);
    assert_eq!(lines.len(), 5, "{lines:?}");
    for line in lines {
        assert!(!line.contains(char::is_control), "{line:?}");
    }
}

#[test]
fn a_file_of_nonsense_is_told_in_few_and_short_lines() {
    let mut folder = Folder::with(&[("a.yaml", &"---\noops\n".repeat(1000))]);
    let delta = folder.source.poll();
    let lines = folder.lines(&delta);
    assert_eq!(lines.len(), 101);
    assert_eq!(lines[99], "a.yaml, document 100: kind: missing: not a Kubernetes object");
    assert_eq!(lines[100], "a.yaml: 900 more complaints");

    folder.write("a.yaml", format!("kind: {}", "k".repeat(100_000)));
    let line = folder.source.poll().complaints[0].to_string();
    assert_eq!(line.len(), 1003);
    assert!(line.ends_with("kkk..."), "{line}");
}

#[test]
fn a_path_that_is_neither_file_nor_folder_is_refused() {
    let mut source = StateSource::new("/dev/null".into());
    let lines: Vec<String> = source.poll().complaints.iter().map(ToString::to_string).collect();
    let why = "cannot be read: neither a file nor a folder; what it held stays in force";
    assert_eq!(lines, [format!("/dev/null: {why}")]);
    assert!(!source.has_been_read());

    let mut folder = Folder::new();
    symlink("/dev/null", folder.path("a.yaml")).unwrap();
    folder.expect(&[], &[]);
}
