//! The `--state` source: a file or folder of ordinary manifests, followed while it is edited.
//!
//! Owns which object came from which file. A file is read again only when its size, time or inode
//! changed; the tree is looked at by polling, which also survives what notifications do not
//! (ConfigMap symlink swaps, network file systems, a folder that is deleted and made again).
//!
//! Nothing is lost on bad input: while a file has a document that cannot be read, objects it held
//! before and no longer shows stay as they were; a file or folder that cannot be read keeps all of
//! them. Only a readable folder without the file takes its objects away.

mod documents;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::{self, Write};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::convert::{Object, ObjectId, Problem, convert, identity};
use documents::{Document, documents};

/// A file larger than this is not a manifest.
const LARGEST_FILE: u64 = 1 << 30;

/// Where a complaint is cut: a value that makes no sense may have megabytes of it.
const LONGEST_LINE: usize = 1000;
/// How many complaints about one file are told; a file of nonsense may give rise to millions.
const MOST_COMPLAINTS: usize = 100;

/// The state of a folder of manifests.
#[derive(Debug)]
pub(crate) struct StateSource {
    path: PathBuf,
    files: BTreeMap<PathBuf, File>,
    /// Which files hold an object; the first by path counts.
    holders: HashMap<ObjectId, BTreeSet<PathBuf>>,
    /// The last reason why the path as a whole could not be read, so that it is told once.
    unreadable: Option<String>,
    /// Files that were not there the last time. Editors delete and write anew, and a folder read during
    /// a rename may show neither name: only who is missing twice is gone.
    missing: BTreeSet<PathBuf>,
    read: bool,
}

#[derive(Debug, Default)]
struct File {
    signature: Signature,
    /// What it looked like the last time, if that was not what was read.
    settling: Option<Signature>,
    /// Why it could not be read; tried again at every look, told once.
    unreadable: Option<String>,
    objects: BTreeMap<ObjectId, Object>,
    /// Every document in it could be read.
    whole: bool,
}

/// Changes when a file does.
#[derive(Debug, Default, PartialEq, Eq, Clone, Copy)]
struct Signature {
    size: u64,
    modified: (i64, i64),
    /// Moves with permissions too.
    changed: (i64, i64),
    inode: (u64, u64),
}

/// What one look at the files brought.
#[derive(Debug, Default)]
pub(crate) struct Delta {
    pub(crate) events: Vec<Event>,
    pub(crate) complaints: Vec<Complaint>,
}

/// A change of one object.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Apply(Object),
    Delete(ObjectId),
}

/// Something that could not be used: file, document, object, field, reason, on one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Complaint {
    pub(crate) file: PathBuf,
    pub(crate) document: Option<usize>,
    pub(crate) object: Option<ObjectId>,
    pub(crate) what: String,
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = self.file.display().to_string();
        if let Some(document) = self.document {
            line += &format!(", document {document}");
        }
        if let Some(object) = &self.object {
            line += &format!(", {object}");
        }
        line += &format!(": {}", self.what);
        // Whatever the file holds, its name and its objects' names too, must not break out of the line.
        let mut rest = line.chars().map(|c| if c.is_control() { ' ' } else { c });
        rest.by_ref().take(LONGEST_LINE).try_for_each(|c| f.write_char(c))?;
        if rest.next().is_some() { f.write_str("...") } else { Ok(()) }
    }
}

impl StateSource {
    /// A source that has not looked yet.
    pub(crate) fn new(path: PathBuf) -> Self {
        Self {
            path,
            files: BTreeMap::new(),
            holders: HashMap::new(),
            unreadable: None,
            missing: BTreeSet::new(),
            read: false,
        }
    }

    /// Where it looks.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the files have ever said anything: an empty folder is a valid state without Services,
    /// a folder whose only files are broken is not.
    pub(crate) fn has_been_read(&self) -> bool {
        self.read
    }

    /// Looks at the files and says what is different since the last time.
    pub(crate) fn poll(&mut self) -> Delta {
        let mut delta = Delta::default();
        let found = match manifests(&self.path) {
            Ok(found) => found,
            Err(error) => {
                let what = format!("cannot be read: {error}; what it held stays in force");
                if self.unreadable.as_ref() != Some(&what) {
                    delta.complaints.push(Complaint::of_file(&self.path, what.clone()));
                    self.unreadable = Some(what);
                }
                return delta;
            }
        };
        self.unreadable = None;

        let mut touched: BTreeSet<ObjectId> = BTreeSet::new();
        let missing: BTreeSet<PathBuf> =
            self.files.keys().filter(|path| !found.contains_key(*path)).cloned().collect();
        let gone: Vec<PathBuf> = missing.intersection(&self.missing).cloned().collect();
        self.missing = missing;
        for path in gone {
            let objects = self.files.remove(&path).unwrap_or_default().objects;
            self.hand_over(&path, objects.keys(), [].into_iter());
            touched.extend(objects.into_keys());
        }
        for (path, signature) in found {
            if !self.is_due(&path, signature) {
                continue;
            }
            touched.extend(self.read_file(&path, signature, &mut delta.complaints));
        }
        self.read |= self.files.values().all(|file| file.whole) || !self.holders.is_empty();
        delta.events = touched.into_iter().map(|id| self.event(id)).collect();
        delta
    }

    /// Whether a file is to be read. One that is written in place is read when it has been the same for
    /// two looks: half of a manifest is often a valid one. One that was put in its place is whole.
    fn is_due(&mut self, path: &Path, signature: Signature) -> bool {
        let Some(file) = self.files.get_mut(path) else { return true };
        if file.signature == signature {
            file.settling = None;
            return file.unreadable.is_some();
        }
        let settled = file.settling.replace(signature) == Some(signature);
        settled || file.signature.inode != signature.inode
    }

    /// Reads one file again; says which objects it changed.
    fn read_file(
        &mut self,
        path: &Path,
        signature: Signature,
        complaints: &mut Vec<Complaint>,
    ) -> Vec<ObjectId> {
        let File { objects: before, unreadable: told, .. } =
            self.files.remove(path).unwrap_or_default();
        let mut unreadable = None;
        let told_before = complaints.len();
        let (mut after, whole) = match read(path, signature) {
            // `kubectl get -o yaml > file` empties the file first and fills it seconds later.
            Ok(text) if text.is_empty() && !before.is_empty() => {
                let what = "empty; what it held stays in force".to_owned();
                complaints.push(Complaint::of_file(path, what));
                (BTreeMap::new(), false)
            }
            Ok(text) => read_objects(path, &text, complaints),
            Err(what) => {
                if told.as_ref() != Some(&what) {
                    complaints.push(Complaint::of_file(path, what.clone()));
                }
                unreadable = Some(what);
                (BTreeMap::new(), false)
            }
        };
        let more = (complaints.len() - told_before).saturating_sub(MOST_COMPLAINTS);
        if more > 0 {
            complaints.truncate(told_before + MOST_COMPLAINTS);
            complaints.push(Complaint::of_file(path, format!("{more} more complaints")));
        }
        if !whole {
            for (id, object) in &before {
                after.entry(id.clone()).or_insert_with(|| object.clone());
            }
        }
        self.hand_over(path, before.keys(), after.keys());
        for id in after.keys().filter(|id| !before.contains_key(*id)) {
            let first = self.holders.get(id).and_then(|holders| holders.first());
            // One that is missing is about to go: the file was renamed.
            let counts = |first: &&PathBuf| *first != path && !self.missing.contains(*first);
            if let Some(other) = first.filter(counts) {
                let what = format!("also in {}, which counts", other.display());
                complaints
                    .push(Complaint { object: Some(id.clone()), ..Complaint::of_file(path, what) });
            }
        }
        let ids: BTreeSet<&ObjectId> = before.keys().chain(after.keys()).collect();
        let changed = ids.into_iter().filter(|id| before.get(*id) != after.get(*id)).cloned();
        let changed = changed.collect();
        let file = File { signature, settling: None, unreadable, objects: after, whole };
        self.files.insert(path.to_owned(), file);
        changed
    }

    /// Keeps [`StateSource::holders`] right.
    fn hand_over<'a>(
        &mut self,
        path: &Path,
        before: impl Iterator<Item = &'a ObjectId>,
        after: impl Iterator<Item = &'a ObjectId>,
    ) {
        for id in before {
            if let Some(holders) = self.holders.get_mut(id) {
                holders.remove(path);
                if holders.is_empty() {
                    self.holders.remove(id);
                }
            }
        }
        for id in after {
            self.holders.entry(id.clone()).or_default().insert(path.to_owned());
        }
    }

    fn event(&self, id: ObjectId) -> Event {
        let holder = self.holders.get(&id).and_then(|holders| holders.first());
        let object = holder.and_then(|path| self.files.get(path)?.objects.get(&id));
        object.cloned().map_or(Event::Delete(id), Event::Apply)
    }
}

impl Complaint {
    fn of_file(file: &Path, what: String) -> Self {
        Self { file: file.to_owned(), document: None, object: None, what }
    }
}

/// The objects of one file, and whether all of its documents could be read.
pub(crate) fn read_objects(
    path: &Path,
    text: &str,
    complaints: &mut Vec<Complaint>,
) -> (BTreeMap<ObjectId, Object>, bool) {
    let mut objects = BTreeMap::new();
    let mut whole = true;
    for Document { number, content } in documents(text) {
        let mut complain = |object: Option<ObjectId>, what: String| {
            complaints.push(Complaint {
                file: path.to_owned(),
                document: Some(number),
                object,
                what,
            });
        };
        let values = match content {
            Ok(values) => values,
            Err(what) => {
                whole = false;
                complain(None, what);
                continue;
            }
        };
        for (place, value) in values {
            let has_kind = value.get("kind").and_then(Value::as_str).is_some_and(|k| !k.is_empty());
            let named = identity(&value);
            match convert(&value) {
                Err(Problem { field, message }) => {
                    // A kind we do not read holds nothing of ours. Something without a kind may be
                    // the first half of a List whose last line is not written yet.
                    whole &= has_kind && field == "kind";
                    complain(named, format!("{place}{field}: {message}"));
                }
                Ok((object, problems)) => {
                    for Problem { field, message } in problems {
                        complain(Some(object.id.clone()), format!("{place}{field}: {message}"));
                    }
                    if objects.contains_key(&object.id) {
                        complain(Some(object.id), "stands there twice, the first counts".into());
                    } else {
                        objects.insert(object.id.clone(), object);
                    }
                }
            }
        }
    }
    (objects, whole)
}

fn read(path: &Path, signature: Signature) -> Result<String, String> {
    if signature.size > LARGEST_FILE {
        return Err(format!("{} bytes is too large for a manifest", signature.size));
    }
    let bytes = fs::read(path).map_err(|error| format!("cannot be read: {error}"))?;
    String::from_utf8(bytes).map_err(|error| {
        format!("not text: byte {} is not UTF-8", error.utf8_error().valid_up_to())
    })
}

/// The manifest files at a path: the file itself, or those in the folder by their ending. Folders in
/// the folder are not entered, and names that begin with a dot are editors' and volumes' business.
fn manifests(path: &Path) -> io::Result<BTreeMap<PathBuf, Signature>> {
    let metadata = fs::metadata(path)?;
    if !metadata.is_dir() && !metadata.is_file() {
        // Reading a pipe may wait for ever.
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "neither a file nor a folder"));
    }
    if metadata.is_file() {
        return Ok(BTreeMap::from([(path.to_owned(), Signature::of(&metadata))]));
    }
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(path)? {
        let path = entry?.path();
        let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        let ending = path.extension().and_then(|ending| ending.to_str());
        if hidden || !matches!(ending, Some("yaml" | "yml" | "json")) {
            continue;
        }
        match fs::metadata(&path) {
            Ok(metadata) if metadata.is_file() => {
                found.insert(path, Signature::of(&metadata));
            }
            Ok(_) => {}
            // Deleted between the two calls.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            // Reading it will tell the same reason, and harm no other file.
            Err(_) => {
                found.insert(path, Signature::default());
            }
        }
    }
    Ok(found)
}

impl Signature {
    fn of(metadata: &fs::Metadata) -> Self {
        Self {
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
            inode: (metadata.dev(), metadata.ino()),
        }
    }
}

#[cfg(test)]
mod tests;
