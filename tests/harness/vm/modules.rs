//! The kernel modules the machine loads. Nothing in it asks for more: there is no modprobe inside.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// What the tests use; what these need besides is found in them.
#[rustfmt::skip]
const WANTED: &[&str] = &[
    // Checksums that others use by name, not by symbol.
    "crc32c_generic",
    "veth", "dummy", "bridge",
    "nf_conntrack", "nf_conntrack_netlink", "nf_nat",
    "nf_tables", "nft_chain_nat", "nft_ct", "nft_nat", "nft_masq", "nft_redir", "nft_numgen", "nft_hash", "nft_limit",
    "nft_objref", "nft_log", "nft_fib_ipv4", "nft_fib_ipv6", "nft_fib_inet",
    "nft_reject_ipv4", "nft_reject_ipv6", "nft_reject_inet",
    "sctp",
    "ip_vs", "ip_vs_rr", "ip_vs_wrr", "ip_vs_lc", "ip_vs_wlc", "ip_vs_sh", "ip_vs_mh", "ip_vs_dh", "ip_vs_sed",
    "ip_vs_nq", "ip_vs_fo", "ip_vs_ovf", "ip_vs_lblc", "ip_vs_lblcr",
];

/// A module's name and content.
pub(super) type Module = (String, Vec<u8>);

/// All of them in an order in which they can be loaded.
pub(super) fn in_load_order(folder: &Path) -> Vec<Module> {
    let mut files = BTreeMap::new();
    find(folder, &mut files);
    let (mut ordered, mut seen) = (Vec::new(), BTreeSet::new());
    for name in WANTED {
        add(name, &files, &mut seen, &mut ordered);
    }
    ordered
}

fn add(
    name: &str,
    files: &BTreeMap<String, PathBuf>,
    seen: &mut BTreeSet<String>,
    ordered: &mut Vec<Module>,
) {
    if !seen.insert(name.to_owned()) {
        return;
    }
    let file = files.get(name).unwrap_or_else(|| panic!("Debian's kernel has no module {name}"));
    let content = fs::read(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    for needed in needs(&content) {
        add(&needed, files, seen, ordered);
    }
    ordered.push((name.to_owned(), content));
}

/// The list `depends=` in a module's section `.modinfo`, whose strings end with a zero.
fn needs(module: &[u8]) -> Vec<String> {
    let field = b"\0depends=";
    let Some(start) = module.windows(field.len()).position(|window| window == field) else {
        return Vec::new();
    };
    let list = module[start + field.len()..].split(|byte| *byte == 0).next().unwrap_or_default();
    let list = String::from_utf8_lossy(list);
    list.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

fn find(folder: &Path, files: &mut BTreeMap<String, PathBuf>) {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    for entry in entries {
        let path = entry.expect("a readable folder").path();
        if path.is_dir() {
            find(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "ko")
            && let Some(name) = path.file_stem().and_then(|name| name.to_str())
        {
            // The kernel calls them so, whatever the file is called.
            files.insert(name.replace('-', "_"), path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_names_what_it_needs() {
        let module = b"\x7fELF\0license=GPL\0depends=nf_conntrack,libcrc32c\0name=ip_vs\0";
        assert_eq!(needs(module), ["nf_conntrack", "libcrc32c"]);
        assert_eq!(needs(b"license=GPL\0depends=\0name=veth\0"), Vec::<String>::new());
    }
}
