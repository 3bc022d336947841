//! An initramfs: the files the virtual machine starts with, as a cpio archive of the kind `newc`
//! (Linux, Documentation/driver-api/early-userspace/buffer-format.rst).

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::Path;

const FOLDER: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const CHARACTER_DEVICE: u32 = 0o020_600;

/// An archive that is being written; folders are made as files need them.
pub(super) struct Archive<W: Write> {
    out: W,
    folders: BTreeSet<String>,
    entries: u32,
}

impl<W: Write> Archive<W> {
    pub(super) fn new(out: W) -> Self {
        Self { out, folders: BTreeSet::new(), entries: 0 }
    }

    /// An empty folder; absolute, as all paths here.
    pub(super) fn folder(&mut self, path: &str) -> io::Result<()> {
        let path = path.trim_start_matches('/');
        let ends = path.match_indices('/').map(|(end, _)| end).chain([path.len()]);
        for end in ends {
            if self.folders.insert(path[..end].to_owned()) {
                self.entry(&path[..end], FOLDER, (0, 0), &[])?;
            }
        }
        Ok(())
    }

    /// A file, which may be executed.
    pub(super) fn file(&mut self, path: &str, content: &[u8]) -> io::Result<()> {
        if let Some(parent) = Path::new(path).parent().and_then(Path::to_str)
            && parent != "/"
        {
            self.folder(parent)?;
        }
        self.entry(path.trim_start_matches('/'), PROGRAM, (0, 0), content)
    }

    /// A device by its numbers.
    pub(super) fn device(&mut self, path: &str, numbers: (u32, u32)) -> io::Result<()> {
        if let Some(parent) = Path::new(path).parent().and_then(Path::to_str) {
            self.folder(parent)?;
        }
        self.entry(path.trim_start_matches('/'), CHARACTER_DEVICE, numbers, &[])
    }

    pub(super) fn finish(mut self) -> io::Result<()> {
        self.entry("TRAILER!!!", 0, (0, 0), &[])?;
        self.out.flush()
    }

    fn entry(
        &mut self,
        name: &str,
        mode: u32,
        (major, minor): (u32, u32),
        content: &[u8],
    ) -> io::Result<()> {
        self.entries += 1;
        let size = u32::try_from(content.len()).map_err(io::Error::other)?;
        let name_size = u32::try_from(name.len() + 1).map_err(io::Error::other)?;
        // inode, mode, owner, group, links, time, size, device (2), its own numbers (2), name, checksum
        let fields = [self.entries, mode, 0, 0, 1, 0, size, 0, 0, major, minor, name_size, 0];
        let mut header = String::from("070701");
        for field in fields {
            header.push_str(&format!("{field:08x}"));
        }
        self.out.write_all(header.as_bytes())?;
        self.out.write_all(name.as_bytes())?;
        self.pad(header.len() + name.len(), 1)?;
        self.out.write_all(content)?;
        self.pad(content.len(), 0)
    }

    /// At least so many zeros, and up to the next multiple of four.
    fn pad(&mut self, written: usize, least: usize) -> io::Result<()> {
        let end = (written + least).next_multiple_of(4);
        self.out.write_all(&[0; 4][..end - written])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_aligned_and_their_folders_come_before_them() {
        let mut bytes = Vec::new();
        let mut archive = Archive::new(&mut bytes);
        archive.file("/a/b/c", b"hello").unwrap();
        archive.file("/a/b/d", b"").unwrap();
        archive.finish().unwrap();

        let number = |at: usize| {
            let digits = std::str::from_utf8(&bytes[at..at + 8]).unwrap();
            usize::from_str_radix(digits, 16).unwrap()
        };
        let (mut at, mut seen) = (0, Vec::new());
        while at < bytes.len() {
            assert_eq!(&bytes[at..at + 6], b"070701", "at {at}");
            let (size, name_size) = (number(at + 54), number(at + 94));
            let name = std::str::from_utf8(&bytes[at + 110..at + 109 + name_size]).unwrap();
            let content = (at + 110 + name_size).next_multiple_of(4);
            seen.push((name.to_owned(), bytes[content..content + size].to_vec()));
            at = (content + size).next_multiple_of(4);
        }
        let want = [("a", ""), ("a/b", ""), ("a/b/c", "hello"), ("a/b/d", ""), ("TRAILER!!!", "")];
        assert_eq!(seen, want.map(|(name, text)| (name.to_owned(), text.as_bytes().to_vec())));
    }
}
